"""`bayesprivmrf release`: what it promises, what it writes, and what it refuses before it spends."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import pytest
from cli.toy import MODEL, RECORDS, RELEASE, never, run

import bayesprivmrf as bpm
from bayesprivmrf.mechanisms import (
    Mechanism,
    StatisticsMechanism,
)
from bayesprivmrf.noise import NoiseLaw
from bayesprivmrf.noise.base import ENTRY_POINT_GROUP
from bayesprivmrf.privacy import DiscreteLaplace
from bayesprivmrf.records import read_declaration
from bayesprivmrf.release import load_release


def test_a_release_states_its_guarantee_and_never_the_exact_number(toy, capsys):
    code, out, err = run(capsys, *RELEASE)
    assert code == 0
    release = load_release("toy.release")
    assert release.privacy_statement() in out
    assert not release.provenance.simulated
    assert release.total is None
    exact = {str(RECORDS), f"{RECORDS:,}"}
    # the estimate may by chance round to the exact number: it is the release's own, so mask it
    shown = (out + err).replace(f"{release.estimated_total:,.0f}", "")
    assert not any(number in shown for number in exact)


def test_replace_one_makes_the_number_public(toy, capsys):
    code, out, _ = run(capsys, *RELEASE, "--adjacency", "replace-one", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["total"] == RECORDS
    assert found["guarantee"]["adjacency"] == "replace-one"


def test_rho_asks_for_gaussian_noise(toy, capsys):
    arguments = [
        "data.csv",
        "--model",
        "model.toml",
        "--rho",
        "0.5",
        "--out",
        "g.release",
        "--json",
    ]
    found = json.loads(run(capsys, "release", *arguments)[1])
    assert found["mechanism"] == "GaussianStatistics"
    assert found["guarantee"]["rho"] == 0.5
    assert found["guarantee"]["epsilon"] is None


def test_a_release_is_refused_before_it_spends_where_a_killed_one_left_its_file(toy, capsys):
    run(capsys, *RELEASE)
    paid = (toy / "toy.release").read_bytes()
    name = f".release-{hashlib.sha256(b'toy.release').hexdigest()[:16]}-abc"
    (toy / "toy.release").rename(toy / name)
    for force in ((), ("--force",)):
        code, _, err = run(capsys, *RELEASE, *force)
        assert code == 1
        assert name in err
        assert "Rename that file" in err
        assert not (toy / "toy.release").exists()
    assert (toy / name).read_bytes() == paid


def test_cliques_below_a_variable_are_told_their_place(toy, capsys):
    (toy / "late.toml").write_text('[variables.a]\nstates = ["x", "y"]\ncliques = [["a"]]\n')
    code, _, err = run(capsys, "plan", "--model", "late.toml", "--epsilon", "1")
    assert code == 1
    assert "put it above the first [variables...] table" in err


def test_a_release_is_never_replaced_without_force(toy, capsys):
    run(capsys, *RELEASE)
    before = (toy / "toy.release").read_bytes()
    code, _, err = run(capsys, *RELEASE)
    assert code == 1
    assert "--force" in err
    assert (toy / "toy.release").read_bytes() == before
    # another budget: at the same one, so little noise may be the same twice
    assert run(capsys, *RELEASE, "--epsilon", "4", "--force")[0] == 0
    assert (toy / "toy.release").read_bytes() != before


@pytest.mark.parametrize("target", ["nowhere/toy.release", "."])
def test_an_unwritable_path_is_refused_before_records_are_read(toy, capsys, target):
    code, out, err = run(capsys, "release", "no-data.csv", *RELEASE[2:-1], target)
    assert (code, out) == (1, "")
    assert "--out" in err
    assert "no-data" not in err


@dataclass(frozen=True, kw_only=True)
class Unpromising(StatisticsMechanism):
    epsilon: float
    _read = never

    def _noise(self, specification):
        return tuple(DiscreteLaplace(1.0) for _ in specification.cliques)

    def _promise(self, specification):
        return None


@dataclass(frozen=True, kw_only=True)
class Number(Mechanism):
    epsilon: float
    _prepare = _guarantee = _read = _randomise = never


def test_a_mechanism_without_promise_or_file_is_refused_before_anything_is_spent(
    toy, capsys, install
):
    install("bayesprivmrf.mechanisms", {"unpromising": Unpromising, "number": Number})
    for name, word in (("unpromising", "promises nothing"), ("number", "call it from Python")):
        code, out, err = run(capsys, *RELEASE, "--mechanism", name)
        assert (code, out) == (1, "")
        assert word in err
        assert "AssertionError" not in err


@dataclass(frozen=True)
class Steps(NoiseLaw):
    """As likely two records off as none: it has no kernel."""

    name = "test-cli-steps"
    is_discrete = True
    variance = property(lambda law: 2.0)

    def log_density(self, residual):
        size = np.abs(residual)
        return np.where(size == 0, -np.log(2), np.where(size == 2, -np.log(4), -np.inf))

    def score(self, residual):
        return np.zeros(np.shape(residual))

    def draw(self, size, rng):
        return rng.choice([-2, 0, 0, 2], size)

    def add_exactly(self, counts, words):
        chosen = (words(counts.size) % np.uint64(4)).astype(np.int64).reshape(counts.shape)
        return counts + np.array([-2, 0, 0, 2])[chosen]


@dataclass(frozen=True, kw_only=True)
class StepsStatistics(StatisticsMechanism):
    epsilon: float

    def _noise(self, specification):
        return (Steps(),) * len(specification.cliques)

    def _promise(self, specification):
        return bpm.PrivacyGuarantee(epsilon=self.epsilon, adjacency=self.adjacency)


def test_what_takes_noise_without_a_kernel_is_said_before_anything_is_spent(toy, capsys, install):
    install("bayesprivmrf.mechanisms", {"steps": StepsStatistics})
    assert StepsStatistics(epsilon=1.0).preview(read_declaration("model.toml").specification).attrs[
        "estimators"
    ] == ("NaiveMLE",)
    planned = ("plan", "--model", "model.toml", "--epsilon", "1", "--mechanism", "steps")
    assert "only naive-mle can use it (`fit --method naive-mle`)" in run(capsys, *planned)[1]
    assert json.loads(run(capsys, *planned, "--json")[1])["estimators"] == ["NaiveMLE"]
    code, _, err = run(capsys, *RELEASE, "--mechanism", "steps")
    assert code == 1
    assert "only naive-mle can use it" in err
    assert "Steps must be listed as 'test-cli-steps', its own name, in the entry-point group" in err
    assert not (toy / "toy.release").exists()
    install(ENTRY_POINT_GROUP, {"test-cli-steps": Steps})
    assert run(capsys, *RELEASE, "--mechanism", "steps")[0] == 0
    code, _, err = run(capsys, "fit", "toy.release")
    assert code == 1
    assert "use `--method naive-mle`, which takes any added noise" in err
    assert run(capsys, "fit", "toy.release", "--method", "naive-mle")[0] == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cliqes = []", "did you mean 'cliques'?"),
        ("queries = []", "'queries', which is an argument of mechanisms"),
    ],
)
def test_a_wrong_key_of_a_model_file_is_told_what_may_be_meant(toy, capsys, line, said):
    (toy / "model.toml").write_text(f"{line}\n{MODEL}")
    code, _, err = run(capsys, "plan", "--model", "model.toml", "--epsilon", "1")
    assert code == 1
    assert said in err
