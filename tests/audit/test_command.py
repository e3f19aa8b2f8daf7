"""The command `audit`: what keeps its promise passes, what does not is flagged, and both are told apart by status."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from plug_in import entry_points
from repeats import few

import bayesprivmrf as bpm
from bayesprivmrf.audit import Choices, StableAnswers, Sums, audit_draws, exact_cost
from bayesprivmrf.audit.whole import neighbors
from bayesprivmrf.cli import main
from bayesprivmrf.errors import ModelError
from bayesprivmrf.mechanisms import (
    GaussianStatistics,
    LaplaceStatistics,
    PrivateFrankWolfe,
    SelectMeasure,
    StableStructure,
    StatisticsMechanism,
)
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.noise import NoiseSource, SimulatedNoise
from bayesprivmrf.privacy import (
    Adjacency,
    DiscreteGaussian,
    DiscreteLaplace,
    Laplace,
    PrivacyGuarantee,
)
from bayesprivmrf.release import NoisyStatistics

MODEL = ModelSpecification(
    domain=Domain.from_states({"a": [0, 1], "b": ["x", "y", "z"], "c": [0, 1]}),
    cliques=(("a", "b"), ("b", "c"), ("c",)),
)
DATA = pd.DataFrame({"a": [0, 1] * 100, "b": ["x", "y", "z", "x"] * 50, "c": [1] * 200})


@dataclass(frozen=True, kw_only=True)
class Meagre(StatisticsMechanism):
    """Nine tenths of the noise that the promise asks for."""

    epsilon: float | None = None
    rho: float | None = None
    share: float = 0.9

    def _noise(self, specification):
        tables = len(specification.cliques)
        if self.rho is not None:
            full = self.l2_sensitivity * (tables / (2 * self.rho)) ** 0.5
            return tuple(DiscreteGaussian(self.share * full) for _ in range(tables))
        return tuple(
            DiscreteLaplace(self.share * self.l1_sensitivity * tables / self.epsilon)
            for _ in range(tables)
        )

    def _promise(self, specification):
        return PrivacyGuarantee(epsilon=self.epsilon, rho=self.rho, adjacency=self.adjacency)


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    with entry_points(tmp_path, monkeypatch, "bayesprivmrf.mechanisms", meagre=Meagre):
        yield


@pytest.mark.parametrize(
    ("budget", "adjacency"),
    [
        (["--rho", "0.5"], "replace-one"),
        pytest.param(["--epsilon", "1"], "add-or-remove-one", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("share", "status"), [(0.9, 3), (1.0, 0)])
def test_a_plug_in_with_nine_tenths_of_its_noise_is_flagged(
    plug_in, capsys, budget, adjacency, share, status
):
    given = [
        "audit",
        "meagre",
        *budget,
        "--adjacency",
        adjacency,
        "--set",
        f"share={share}",
        "--runs",
        "100",
    ]
    assert main([*given, "--json"]) == status
    told = json.loads(capsys.readouterr().out)
    assert told["is_refuted"] == (status == 3)
    stated, whole = told["findings"]
    assert stated["cost"] == pytest.approx(
        stated["promised"] / share ** (1 if "--epsilon" in budget else 2)
    )
    assert whole["what"] == "whole releases"
    assert not whole["is_refuted"]  # it has the noise that it states


def test_a_saved_release_is_audited_and_one_that_promises_too_much_is_flagged(tmp_path, capsys):
    LaplaceStatistics(epsilon=1.0).release(MODEL, DATA).save(tmp_path / "kept.release")
    Meagre(epsilon=1.0).release(MODEL, DATA).save(tmp_path / "broken.release")
    assert main(["audit", str(tmp_path / "kept.release"), "--runs", "2000"]) == 0
    assert "Not refuted. This is not a proof" in capsys.readouterr().out
    assert main(["audit", str(tmp_path / "broken.release"), "--runs", "2000"]) == 3
    assert "REFUTED" in capsys.readouterr().out


def test_an_audit_of_a_simulation_never_says_that_it_protects(tmp_path, capsys):
    path = str(tmp_path / "simulated.release")
    LaplaceStatistics(epsilon=1.0).release(MODEL, DATA, rng=1).save(path)
    for form in ([], ["--json"]):
        assert main(["audit", path, "--runs", "2000", *form]) == 0
        told = capsys.readouterr().out
        assert "it protects nobody" in told
        assert "satisfies" not in told


def test_tables_of_continuous_noise_are_refused_with_the_reason(tmp_path, capsys):
    guarantee = PrivacyGuarantee(epsilon=1.0, adjacency="add-or-remove-one")
    tables = {
        clique: np.ones(shape) for clique, shape in zip(MODEL.cliques, MODEL.shapes, strict=True)
    }
    noise = Laplace(float(len(MODEL.cliques)))
    path = tmp_path / "published.release"
    NoisyStatistics.from_tables(MODEL, tables, noise=noise, guarantee=guarantee).save(path)
    assert main(["audit", str(path)]) == 1
    assert "tables with integer noise, got laplace" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("adjacency", few(["replace-one", "add-or-remove-one"]))
@pytest.mark.parametrize(
    "given",
    [
        ["select-measure", "--rho", "1"],
        ["select-measure", "--rho", "1", "--set", "degree=0.5"],
        ["frank-wolfe", "--rho", "1", "--set", "width=1"],
        [
            "frank-wolfe",
            "--rho",
            "1",
            "--set",
            "width=1",
            "--set",
            "order=3",
            "--set",
            "target=linf",
        ],
        ["parity-queries", "--rho", "1", "--set", "order=2", "--set", "method=pmw"],
        ["parity-queries", "--rho", "1", "--set", "order=2", "--set", "method=gaussian"],
    ],
    ids=" ".join,
)
def test_the_steps_of_a_learning_mechanism_cost_nearly_their_share_and_no_more(
    given, adjacency, capsys
):
    assert main(["audit", *given, "--adjacency", adjacency, "--runs", "100", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert sum(one["promised"] for one in findings) == pytest.approx(1.0)
    for one in findings:
        assert 0.9 * one["promised"] < one["cost"] <= one["promised"] * (1 + 1e-6)


@dataclass(frozen=True, kw_only=True)
class Easy(StableStructure):
    """A graph is released below the noisy distance that the promise asks for."""

    lower: int = 0

    def _prepare(self, network):
        plan = super()._prepare(network)
        return replace(plan, needed=plan.needed - self.lower)


@pytest.mark.parametrize(("lower", "status"), [(0, 0), (1, 3)])
def test_a_graph_that_comes_out_too_easily_is_flagged(lower, status, tmp_path, capsys, monkeypatch):
    settings = ["--epsilon", "1", "--set", "delta=1e-3", "--set", f"lower={lower}"]
    with entry_points(tmp_path, monkeypatch, "bayesprivmrf.mechanisms", easy=Easy):
        assert main(["audit", "easy", *settings, "--runs", "100", "--json"]) == status
    distance, graph = json.loads(capsys.readouterr().out)["findings"]
    assert 0.99 < distance["cost"] <= 1.0
    assert graph["is_refuted"] == (status == 3)
    assert (graph["cost"] is None) == (status == 3)  # infinite


def test_estimates_of_a_network_are_audited_end_to_end(capsys):
    assert main(["audit", "objective-perturbation", "--epsilon", "3", "--runs", "100"]) == 0
    assert "whole releases" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["laplace"], "which is not a file"),
        (["nowhere.release"], "which is not a file"),
        (
            ["dpsgd", "--epsilon", "1", "--set", "delta=1e-5", "--set", "steps=2"],
            "states the noise of what it releases, got 'dpsgd'",
        ),
        (
            ["frank-wolfe", "--rho", "1", "--set", "width=1", "--set", "calibration=paper"],
            "PaperFrankWolfe",
        ),
        (["objective-perturbation", "--epsilon", "1", "--model", "m.toml"], "must be left out"),
        (["nowhere.release", "--set", "width=1"], "must go with a mechanism"),
    ],
)
def test_what_cannot_be_audited_is_refused_with_a_reason(given, words, capsys):
    assert main(["audit", *given]) == 1
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_release_that_promises_nothing_or_states_no_noise_is_refused(tmp_path, capsys):
    bare = bpm.NoisyStatistics.from_tables(
        MODEL,
        {clique: np.ones(shape) for clique, shape in zip(MODEL.cliques, MODEL.shapes, strict=True)},
        noise=DiscreteLaplace(1.0),
    )
    bare.save(tmp_path / "bare.release")
    learned = PrivateFrankWolfe(rho=1.0, width=1.0, steps=2, single_share=0).release(
        MODEL_OF_TWO, DATA[["a", "c"]], rng=1
    )
    learned.save(tmp_path / "learned.release")
    for name, words in (
        ("bare", "with a promise, got one"),
        ("learned", "audit the mechanism instead"),
    ):
        assert main(["audit", str(tmp_path / f"{name}.release")]) == 1
        assert words in " ".join(capsys.readouterr().err.split())


MODEL_OF_TWO = bpm.declare(states={"a": [0, 1], "c": [0, 1]})


def test_the_tables_within_a_learned_release_are_audited(tmp_path, capsys):
    many = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (5000, 2)), columns=["a", "c"])
    learned = SelectMeasure(rho=1.0, degree=1, measure="tables").release(MODEL_OF_TWO, many)
    learned.save(tmp_path / "tables.release")
    assert main(["audit", str(tmp_path / "tables.release"), "--runs", "100", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert 0 < found["cost"] < found["promised"] == 1.0  # a part of what was spent


# the made-up neighbors, and what draws cost


def test_made_up_neighbors_differ_in_every_table_where_the_declaration_allows_it():
    before, after = neighbors(MODEL, Adjacency.REPLACE_ONE)
    assert before.shape == after.shape == (1, 3)
    assert (before != after).all()
    before, after = neighbors(MODEL, Adjacency.ADD_OR_REMOVE_ONE)
    assert (len(before), len(after)) == (0, 1)


def test_made_up_records_keep_clear_of_impossible_cells():
    tied = ModelSpecification(
        domain=MODEL.domain,
        cliques=MODEL.cliques,
        impossible=((("a", 0), ("b", "x")), (("a", 1), ("b", "y")), (("b", "z"), ("c", 0))),
    )
    for adjacency in Adjacency:
        for records in neighbors(tied, adjacency):
            for a, b, c in records.tolist():
                assert (a, b) not in {(0, 0), (1, 1)}
                assert (b, c) != (2, 0)
    none = ModelSpecification(
        domain=Domain.from_states({"a": [0, 1]}), cliques=(("a",),), impossible=((("a", 0),),)
    )
    alone = neighbors(none, Adjacency.REPLACE_ONE)
    assert alone[0].tolist() == alone[1].tolist() == [[1]]


def test_a_model_that_allows_no_record_is_refused():
    pairs = (("a", "b"), ("b", "c"), ("a", "c"))
    differ = tuple(tuple((name, k) for name in pair) for pair in pairs for k in (0, 1))
    model = ModelSpecification(
        domain=Domain.from_states({name: [0, 1] for name in "abc"}),
        cliques=pairs,
        impossible=differ,
    )
    with pytest.raises(ModelError, match="must allow one of the first"):
        neighbors(model, Adjacency.REPLACE_ONE)


@pytest.mark.parametrize("copies", [1, 7])
def test_exact_costs_are_those_of_the_known_formulas(copies):
    pure = PrivacyGuarantee(epsilon=1.0, adjacency="replace-one")
    concentrated = PrivacyGuarantee(rho=1.0, adjacency="replace-one")
    laplace = [Sums(law=DiscreteLaplace(3.0), copies=copies)]
    assert exact_cost(laplace, pure) == pytest.approx(copies / 3, rel=1e-12)
    gaussian = [Sums(law=DiscreteGaussian(4.0), copies=copies)]
    assert exact_cost(gaussian, concentrated) == pytest.approx(copies / 32, rel=1e-9)
    choices = [Choices(scale=50.0, score_range=2.0, copies=copies)]
    assert exact_cost(choices, pure) == pytest.approx(copies * 0.02, rel=1e-12)
    bound = (
        copies * (2 / 50) ** 2 / 8
    )  # of any choice of that range, nearly attained where it is small
    assert 0.999 * bound < exact_cost(choices, concentrated) <= bound
    assert exact_cost(laplace + laplace, pure) == pytest.approx(2 * copies / 3, rel=1e-12)


def test_an_approximate_promise_is_held_against_the_curve():
    from bayesprivmrf.audit import gaussian_epsilon

    promised = PrivacyGuarantee(epsilon=1.0, delta=1e-3, adjacency="replace-one")
    cost = exact_cost([Sums(law=DiscreteGaussian(6.0), copies=9)], promised)
    assert cost == pytest.approx(gaussian_epsilon(0.5, 1e-3), abs=0.02)
    assert GaussianStatistics(rho=0.5).promise(MODEL) == PrivacyGuarantee(
        rho=0.5, adjacency="add-or-remove-one"
    )


class Narrow(NoiseSource):
    """Adds noise of a share of the scale that it is asked for."""

    is_simulated = True

    def __init__(self, share):
        self.share, self.inner = share, SimulatedNoise(np.random.default_rng(5))

    def add(self, counts, law):
        return self.inner.add(counts, type(law)(self.share * law.scale))

    def words(self, size):
        return self.inner.words(size)


@pytest.mark.parametrize("law", [DiscreteLaplace(3.0), DiscreteGaussian(3.0)], ids=str)
@pytest.mark.parametrize(("share", "refuted"), [(1.0, False), (0.85, True)])
def test_a_source_that_draws_narrower_noise_than_is_stated_is_caught(law, share, refuted):
    draws = [Sums(law=law, copies=4)]
    assert audit_draws(draws, Narrow(share), runs=100_000).is_violated == refuted


def test_an_answer_that_comes_out_at_a_threshold_costs_what_its_tail_says_and_narrow_noise_is_caught():
    law = DiscreteLaplace(1.0)
    for threshold in (1, 3, 14):
        tail = np.exp(-threshold) / (1 + np.exp(-1))
        draws = [StableAnswers(law=law, threshold=threshold)]
        for delta, kept in ((tail * 1.001, True), (tail * 0.999, False)):
            promised = PrivacyGuarantee(epsilon=1.0, delta=delta, adjacency="replace-one")
            assert (exact_cost(draws, promised) <= 1.0 + 1e-9) == kept
    draws = [StableAnswers(law=law, threshold=2)]
    assert not audit_draws(draws, Narrow(1.0), runs=50_000).is_violated
    assert audit_draws(draws, Narrow(0.7), runs=50_000).is_violated
    assert audit_draws([StableAnswers(law=law, threshold=4)], Wide(2.0), runs=50_000).is_violated


class Wide(Narrow):
    """Adds wider noise, so that answers come out that should not."""


def test_choices_between_the_worst_candidates_keep_to_their_exact_curve_and_come_near_it():
    found = audit_draws([Choices(scale=4.0, score_range=2.0, copies=20)], Narrow(1.0), runs=20_000)
    assert not found.is_violated
    assert found.epsilon_lower[-1] > 0.7 * found.epsilon_claimed[-1]
