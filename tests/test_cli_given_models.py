"""The commands `fit` and `compare` under another model than the release declares."""

import json

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import noise
from bayesprivmrf.cli import main

TABLES = """
cliques = [["a", "b", "c"]]

[variables]
a.states = ["no", "yes"]
b.states = ["x", "y", "z"]
c.states = ["0", "1"]
"""
SMALLER = TABLES.replace('[["a", "b", "c"]]', '[["a", "b"], ["c"]]')


@pytest.fixture
def saved(tmp_path):
    (tmp_path / "smaller.toml").write_text(SMALLER)
    (tmp_path / "whole.toml").write_text(TABLES)
    states = {"a": ["no", "yes"], "b": ["x", "y", "z"], "c": ["0", "1"]}
    network = bpm.declare(states, [("a", "b", "c")])
    table = np.round(1000 * np.einsum("ab,c->abc", np.full((2, 3), 1 / 6), [0.3, 0.7]))
    release = bpm.NoisyStatistics.from_tables(
        network, {("a", "b", "c"): table}, noise=noise.DiscreteGaussian(2.0)
    )
    release.save(tmp_path / "t.release")
    return tmp_path


def test_fit_takes_another_model_for_a_saved_release(saved, capsys):
    command = ["fit", str(saved / "t.release"), "--model", str(saved / "smaller.toml"), "--json"]
    main([*command, "--out", str(saved / "fitted")])
    content = json.loads(capsys.readouterr().out)
    assert [each["variables"] for each in content["marginals"]] == [["a", "b"], ["c"]]
    written = json.loads((saved / "fitted" / "solution.json").read_text())
    assert len(written["model"]["cliques"]) == 2


def test_fit_of_another_model_refuses_noise_and_unknown_variables(saved, capsys):
    other = SMALLER.replace("c.states", "d.states").replace('["c"]', '["d"]')
    (saved / "other.toml").write_text(other)
    assert main(["fit", str(saved / "t.release"), "--model", str(saved / "other.toml")])
    assert "'d' is not declared" in capsys.readouterr().err


@pytest.fixture
def records(saved):
    """Records of independent variables in a file beside the models."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "a": rng.choice(["no", "yes"], 400),
            "b": rng.choice(["x", "y", "z"], 400),
            "c": rng.choice(["0", "1"], 400),
        }
    )
    frame.to_csv(saved / "records.csv", index=False)
    return saved


def compared(saved, declared, *options):
    """Arguments of a comparison of fits of the smaller model."""
    return [
        "compare", str(saved / "records.csv"), "--model", str(saved / declared),
        "--fit-model", str(saved / "smaller.toml"), "--epsilon", "1", "--seed", "1", *options,
    ]  # fmt: skip


def test_compare_fits_another_model(records, capsys):
    main(compared(records, "whole.toml", "--methods", "noise-aware", "naive-mle", "--json"))
    content = json.loads(capsys.readouterr().out)
    assert content["data"]["cliques"] == 2
    assert {row["method"] for row in content["results"]} == {"noise-aware", "naive-mle"}


def test_losses_of_another_model_are_against_its_own_mle(records, capsys):
    """The non-private score is the same whether the smaller model was declared or is fitted to larger tables."""
    scores = []
    for declared in ("whole.toml", "smaller.toml"):
        main(compared(records, declared, "--methods", "mle", "naive-mle", "--json"))
        rows = json.loads(capsys.readouterr().out)["results"]
        scores += [row["holdout_log_likelihood"] for row in rows if row["method"] == "mle"]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_the_advice_speaks_of_the_model_that_was_fitted(records, capsys):
    main(compared(records, "whole.toml", "--methods", "mle", "naive-mle"))
    shown = capsys.readouterr().out
    assert "non-private MLE under the model of --fit-model" in shown
    assert "predicts best over these budgets under the model of --fit-model" in shown
