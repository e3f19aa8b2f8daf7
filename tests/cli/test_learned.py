"""`bayesprivmrf release` and `fit` of models that are learned: parities, couplings and rounds."""

from __future__ import annotations

import itertools
import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from cli.toy import run

import bayesprivmrf as bpm
from bayesprivmrf.errors import (
    NoiseWarning,
)
from bayesprivmrf.mechanisms import (
    ParityQueries,
    SelectMeasure,
)
from bayesprivmrf.release import load_release


def test_released_parities_are_fitted_to_a_file_of_the_learned_model(toy, capsys):
    spins = np.random.default_rng(4).choice([-1, 1], (20_000, 3))
    spins[:, 2] = (
        np.where(np.random.default_rng(5).random(20_000) < 0.9, 1, -1) * spins[:, 0] * spins[:, 1]
    )
    pd.DataFrame(np.where(spins > 0, "y", "x"), columns=list("abc")).to_csv(
        "signs.csv", index=False
    )
    variables = "\n".join(f'[variables.{v}]\nstates = ["x", "y"]' for v in "abc")
    (toy / "signs.toml").write_text(f'title = "Signs"\n{variables}\n')
    release = [
        "release",
        "signs.csv",
        "--model",
        "signs.toml",
        "--rho",
        "1",
        "--out",
        "parities.release",
    ]
    assert run(capsys, *release, "--mechanism", "parity-queries", "--set", "order=3")[0] == 0
    code, out, err = run(capsys, "fit", "parities.release", "--out", "model.release")
    assert code == 0
    assert "status: converged" in out
    assert "a b c" in out
    assert "model.release" in err
    model = load_release("model.release")
    assert model.kind == "learned-monomials"
    assert model.monomials["a", "b", "c"] == pytest.approx(math.atanh(0.8), abs=0.05)
    code, out, _ = run(capsys, "fit", "parities.release", "--json")
    assert code == 0
    printed = {
        tuple(each["variables"]): each["coefficient"] for each in json.loads(out)["monomials"]
    }
    assert printed == dict(model.monomials.items())
    for extra, match in (
        (["--out", "model.release"], "exists already"),
        (["--out", "parities.release", "--force"], "file that the command reads"),
        (["--method", "naive-mle"], "must be left out"),
    ):
        code, _, err = run(capsys, "fit", "parities.release", *extra)
        assert code == 1
        assert match in err
    code, _, err = run(capsys, "fit", "model.release")
    assert code == 1
    assert "it is a model already, as its `solution`; read it in Python" in err


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_parities_of_too_many_variables_are_told_of_without_a_loopy_remedy(toy, capsys):
    network = bpm.declare(states={f"q{v}": [0, 1] for v in range(40)})
    data = pd.DataFrame(np.zeros((10, 40), dtype=int), columns=[f"q{v}" for v in range(40)])
    ParityQueries(rho=1.0, order=2).release(network, data, rng=1).save("wide.release")
    code, _, err = run(capsys, "fit", "wide.release")
    assert code == 1
    assert "declare cliques" in err
    assert "loopy" not in err


def test_a_release_of_couplings_prints_the_largest(toy, seeded, capsys):
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2, 5_000)
    agree = rng.random(5_000) < 0.9
    pd.DataFrame({"a": a, "b": np.where(agree, a, 1 - a), "c": rng.integers(0, 2, 5_000)}).to_csv(
        "pairs.csv", index=False
    )
    variables = "\n".join(f"[variables.{v}]\nstates = [0, 1]" for v in "abc")
    (toy / "pairs.toml").write_text(f'title = "Pairs"\n{variables}\n')
    release = [
        "release",
        "pairs.csv",
        "--model",
        "pairs.toml",
        "--rho",
        "1",
        "--mechanism",
        "select-measure",
    ]
    code, out, _ = run(capsys, *release, "--set", "degree=2", "--out", "pairs.release")
    assert code == 0
    shown = out[out.index("Largest couplings, nats:") :].splitlines()
    assert "Measured: 3 pairs" in out
    assert "load_release('pairs.release').couplings_interval()" in out
    assert shown[3].split()[:2] == ["a", "b"]
    assert float(shown[3].split()[2]) == pytest.approx(math.atanh(0.8), abs=0.1)
    code, out, _ = run(capsys, *release, "--set", "degree=2", "--out", "other.release", "--json")
    assert code == 0
    assert json.loads(out)["couplings"][0]["variables"] == ["a", "b"]
    code, out, _ = run(capsys, *release, "--out", "rounds.release")
    assert code == 0
    told = json.loads(run(capsys, *release, "--out", "again.release", "--json")[1])
    assert told["status"] == "converged"
    assert told["details"]["tables_measured"] >= 1
    assert "Status: converged." in out
    assert re.search(r"Measured: \d+ tables? of several variables", out)
    shown = out[out.index("with standard errors:") :].splitlines()
    assert shown[3].split()[:2] == ["a", "b"]
    for row in (line.split() for line in shown[3:] if len(line.split()) == 4):
        assert (
            abs(float(row[2])) > 3 * float(row[3]) - 0.002
        )  # what is not clear of noise is counted alone
    code, out, _ = run(capsys, "fit", "rounds.release", "--prob", "0.8", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["method"] == "learned"
    assert told["status"] == "converged"
    assert {len(each["variables"]) for each in told["marginals"]} > {1}
    assert all(set(np.ravel(each["status"])) == {"ok"} for each in told["marginals"])
    pair = next(each for each in told["marginals"] if {"a", "b"} <= set(each["variables"]))
    assert np.all(np.array(pair["lower"]) <= np.array(pair["upper"]))
    code, out, _ = run(capsys, "fit", "rounds.release", "--method", "naive-mle", "--json")
    assert json.loads(out)["method"] == "naive-mle"
    code, _, err = run(capsys, *release, "--set", "mesure=tables", "--out", "third.release")
    assert code == 1
    assert "got 'mesure'; did you mean 'measure'?" in err


def learned_in_rounds(rho: float, *, rng: int = 1):
    """A model whose pairs with `d`, of rare states, are not asked for."""
    draws = np.random.default_rng(3)
    a = draws.integers(0, 2, 3_000)
    data = {"a": a, "b": a ^ (draws.random(3_000) < 0.1), "c": a ^ (draws.random(3_000) < 0.2)}
    data["d"] = draws.integers(0, 12, 3_000) * (draws.random(3_000) < 0.1)
    network = bpm.declare(states={"a": [0, 1], "b": [0, 1], "c": [0, 1], "d": range(12)})
    workload = [("a", "b"), ("b", "c")]
    return SelectMeasure(rho=rho, workload=workload).release(
        network, pd.DataFrame(data).astype(int), rng=rng
    )


def test_fit_of_a_model_learned_in_rounds_says_which_tables_to_trust(tmp_path, capsys):
    learned = learned_in_rounds(0.1)
    learned.save(tmp_path / "rounds.release")
    code, out, err = run(capsys, "fit", str(tmp_path / "rounds.release"))
    assert code == 0
    assert "warning" not in err
    assert "Tables: 2 pairs of variables lie in measured tables and can be trusted." in out
    assert "Not trusted: 4 pairs never measured together" in out
    assert "(a, c), (a, d), (b, d), (c, d)." in out
    assert "Doubtful: rare states of 1 variable " in out
    assert "doubtful: d." in out
    for pair in itertools.combinations("abcd", 2):  # as the intervals say
        frame = learned.solution.interval(list(pair))
        assert (frame["status"] == "not trusted").all() == (f"({pair[0]}, {pair[1]})" in out)
        assert frame["note"].str.contains("are merged in the fit").any() == ("d" in pair)


def test_fit_says_again_that_a_model_learned_in_rounds_is_not_trusted(tmp_path, capsys):
    with pytest.warns(NoiseWarning, match="no number of the model can be trusted"):
        learned_in_rounds(1e-6).save(tmp_path / "rounds.release")
    code, out, err = run(capsys, "fit", str(tmp_path / "rounds.release"))
    assert code == 0
    assert (
        "bayesprivmrf: warning: the learned model is not trusted: do not use its numbers; spend more"
        in err
    )
    assert "Tables: all are not trusted, because the model is not." in out
    assert "can be trusted" not in out


def test_pairs_with_states_that_never_meet_are_not_called_noise(toy, seeded, capsys):
    rng = np.random.default_rng(5)
    sex = rng.integers(0, 2, 20_000)
    role = np.where(sex == 1, rng.choice([0, 2], sex.size), rng.choice([1, 2], sex.size))
    pd.DataFrame({"sex": sex, "role": role, "coin": rng.integers(0, 2, sex.size)}).to_csv(
        "roles.csv", index=False
    )
    states = {"sex": 2, "role": 3, "coin": 2}
    variables = "\n".join(f"[variables.{v}]\nstates = {list(range(k))}" for v, k in states.items())
    (toy / "roles.toml").write_text(f'title = "Roles"\n{variables}\n')
    release = [
        "release",
        "roles.csv",
        "--model",
        "roles.toml",
        "--rho",
        "0.1",
        "--mechanism",
        "select-measure",
    ]
    code, out, _ = run(capsys, *release, "--out", "roles.release")
    assert code == 0
    assert "because some states rarely" in out
    assert out.rstrip().rpartition("\n")[2].startswith("Next: `bayesprivmrf fit roles.release`")
    assert "graph(weight='dependence')" in out
    strongest = out.partition("Strongest dependences")[2].splitlines()
    assert strongest[3].split()[:2] == ["sex", "role"]
    graph = bpm.load_release("roles.release").graph(weight="dependence")
    assert graph.edges["sex", "role"]["weight"] > 0.5
