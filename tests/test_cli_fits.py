"""What `fit` makes of chains, of noisy counts that somebody published, and of estimates on networks."""

import json
from functools import partialmethod

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.cli import main
from bayesprivmrf.mechanisms import LaplaceStatistics, ObjectivePerturbation, StableStructure
from bayesprivmrf.network import NetworkEstimate
from bayesprivmrf.noise import Laplace

MODEL = """
cliques = [["smokes", "ill"]]
[variables.smokes]
states = ["no", "yes"]
[variables.ill]
states = ["no", "yes"]
"""
COUNTS = "smokes,ill,value,scale\nno,no,525,2\nno,yes,90,2\nyes,no,300,2\nyes,yes,85,2\n"
NETWORK = bpm.declare({"smokes": ["no", "yes"], "ill": ["no", "yes"]}, [("smokes", "ill")])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.toml").write_text(MODEL)
    (tmp_path / "counts.csv").write_text(COUNTS)
    return tmp_path


def fitted(capsys, *arguments):
    code = main(["fit", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_chain_is_fitted_with_the_transition_matrix_that_its_steps_share(folder, capsys):
    chain = bpm.markov_chain(
        ["well", "ill"], 4, share="transitions", names=["q1", "q2", "q3", "q4"]
    )
    steps = [("q1", "q2"), ("q2", "q3"), ("q3", "q4")]
    records = np.random.default_rng(1).choice(["well", "ill"], (800, 4))
    asked = [q.table("q1"), q.pooled(steps)]
    release = LaplaceStatistics(epsilon=2.0, queries=asked).release(
        chain, pd.DataFrame(records, columns=["q1", "q2", "q3", "q4"])
    )
    release.save("chain.release")
    code, out, _ = fitted(capsys, "chain.release", "--out", "chain")
    assert code == 0
    assert "Transition matrix of every step:" in out
    table = pd.read_csv("chain/transitions.csv")
    expected = bpm.sequences.transition_matrix(bpm.NoiseAwareMAP().fit(release)).reset_index()
    assert table[["from", "to"]].to_numpy().tolist() == expected[["from", "to"]].to_numpy().tolist()
    numbers = ["estimate", "lower", "upper"]
    np.testing.assert_allclose(table[numbers], expected[numbers])
    assert table["simulated"].tolist() == [False] * 4
    _, out, _ = fitted(capsys, "chain.release", "--method", "naive-mle", "--json")
    moves = json.loads(out)["transitions"]
    assert [*moves[0]] == ["from", "to", "estimate", "status", "note"]
    (folder / "chain/transitions.csv").write_text("old")
    LaplaceStatistics(epsilon=2.0).release(
        NETWORK, pd.DataFrame({"smokes": ["no"] * 99, "ill": "no"})
    ).save("r")
    assert fitted(capsys, "r", "--out", "chain", "--force")[0] == 0
    assert not (folder / "chain/transitions.csv").exists()  # it belonged to the earlier fit


def test_published_noisy_counts_are_fitted_with_their_model_file(folder, capsys):
    code, out, _ = fitted(
        capsys, "counts.csv", "--model", "model.toml", "--noise", "laplace", "--json"
    )
    assert code == 0
    given = bpm.readers.read_counts(NETWORK, "counts.csv", noise="laplace")
    expected = bpm.NoiseAwareMAP().fit(given).interval(["smokes", "ill"])["lower"]
    np.testing.assert_allclose(np.ravel(json.loads(out)["marginals"][0]["lower"]), expected)
    assert json.loads(out)["statement"] == "No privacy guarantee is stated for these tables."
    code, _, err = fitted(capsys, "counts.csv")
    assert code == 1
    assert "pass their model file as `--model`, and their noise as `--noise`" in err
    bpm.NoisyStatistics.from_tables(
        NETWORK, {("smokes", "ill"): [[5, 9], [8, 8]]}, noise=Laplace(1.0)
    ).save("r")
    code, _, err = fitted(capsys, "r", "--noise", "laplace")
    assert code == 1
    assert "must be left out" in err


def test_the_estimate_of_peer_effects_is_given_its_interval(folder, capsys, monkeypatch):
    short = partialmethod(
        NetworkEstimate.law, points=10, configurations=100
    )  # how precise does not matter here
    monkeypatch.setattr(NetworkEstimate, "law", short)
    ring = bpm.network.IsingNetwork.from_graph(nx.cycle_graph(12))
    mechanism = ObjectivePerturbation(epsilon=2.0, bounds=(-1, 1))
    mechanism.release(ring, ring.sample(beta=0.2, size=1, rng=1)[0], rng=3).save("ring.release")
    code, out, _ = fitted(capsys, "ring.release", "--prob", "0.8", "--json")
    told = json.loads(out)
    found = bpm.load_release("ring.release").interval(0.8, rng=told["seed"])
    assert code == 0
    assert [told["lower"], told["upper"]] == found.loc["beta", ["lower", "upper"]].tolist()
    code, again, _ = fitted(
        capsys, "ring.release", "--prob", "0.8", "--json", "--seed", str(told["seed"])
    )
    assert (code, again) == (0, out)
    for option in (["--out", "here"], ["--given", "smokes=no"]):
        code, _, err = fitted(capsys, "ring.release", *option)
        assert code == 1
        assert "`--json` prints it for a program" in err


def test_a_graph_is_not_fitted_and_the_message_says_what_to_call(folder, capsys):
    variables = bpm.declare({name: ["no", "yes"] for name in "abc"})
    records = pd.DataFrame({name: ["no", "yes"] * 200 for name in "abc"})
    StableStructure(epsilon=8.0, delta=1e-6).release(variables, records).save("graph.release")
    code, _, err = fitted(capsys, "graph.release")
    assert code == 1
    assert "whose `network` declares tables for a second release; read it in Python" in err
