"""The commands `fit` and `compare` under another model than the release declares."""

import json

import numpy as np
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


def test_compare_fits_another_model(saved, capsys):
    import pandas as pd

    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "a": rng.choice(["no", "yes"], 400),
            "b": rng.choice(["x", "y", "z"], 400),
            "c": rng.choice(["0", "1"], 400),
        }
    )
    frame.to_csv(saved / "records.csv", index=False)
    main(
        [
            "compare", str(saved / "records.csv"), "--model", str(saved / "whole.toml"),
            "--fit-model", str(saved / "smaller.toml"), "--epsilon", "1", "--seed", "1",
            "--methods", "noise-aware", "naive-mle", "--json",
        ]
    )  # fmt: skip
    content = json.loads(capsys.readouterr().out)
    assert content["data"]["cliques"] == 2
    assert {row["method"] for row in content["results"]} == {"noise-aware", "naive-mle"}
