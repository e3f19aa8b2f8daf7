"""Whatever is passed where something else is wanted: an error of the library's own, before anything is simulated."""

from __future__ import annotations

import datetime
from decimal import Decimal

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError
from bayesprivmrf.mechanisms import ObjectivePerturbation
from bayesprivmrf.network import EstimateLaw, IsingNetwork, PseudoLikelihood, quantile_curves

NETWORK = IsingNetwork.from_graph([(0, 1), (1, 2), (2, 3)])
SPINS = np.array([1, -1, 1, 1], dtype=np.int8)
ESTIMATE = ObjectivePerturbation(epsilon=5.0).release(NETWORK, SPINS, rng=1)
SMALL = {"betas": [0.0, 1.0], "configurations": 8, "burn_in": 4, "sweeps": 1, "progress": False}
LIKELIHOOD = NETWORK.pseudo_likelihood(SPINS)
LAW = EstimateLaw(
    betas=np.array([0.0, 5.0]),
    estimates=np.zeros((2, 3, 1)),
    rhat=np.ones(2),
    ends=(0.0, 5.0),
    spacing=1e-3,
    fingerprint="",
)

# none of them is a graph, an array of spins, a number, a seed, a count, a law or the name of anything
ODD = {
    "float nan": float("nan"),
    "a complex number": 1j,
    "a half": Decimal("0.5"),
    "NaT": pd.NaT,
    "NA": pd.NA,
    "NumPy's NaT": np.datetime64("NaT", "D"),
    "a date": datetime.date(2000, 1, 1),
    "text": "text",
    "bytes": b"x",
    "a mapping": {"a": [0, 1]},
    "ragged lists": [[[1], 2]],
    "an empty frame": pd.DataFrame(),
    "a frame": pd.DataFrame({"a": [0.5, 0.25], "b": [2.5, 3.5], "c": ["x", "y"]}),
    "an array of text": np.array("x"),
    "an array": np.array([[0.0, 1.0], [2.0, 0.0]]),
    "a sparse array": sparse.csr_array((2, 2)),
    "a slice": slice(1),
    "a class": object,
    "a function": print,
    "NotImplemented": NotImplemented,
    "an empty graph": nx.Graph(),
}
PAIR = [[0, 1], [1, 0]]
CALLS = {
    "nodes": lambda odd: IsingNetwork.from_matrix(PAIR, odd),
    "J": lambda odd: IsingNetwork.from_matrix(odd),
    "graph": lambda odd: IsingNetwork.from_graph(odd),
    "coupling": lambda odd: IsingNetwork.from_graph([(0, 1)], odd),
    "weight": lambda odd: IsingNetwork.from_graph(nx.path_graph(3), weight=odd),
    "mean_degree": lambda odd: IsingNetwork.from_graph([(0, 1)], "mean-degree", mean_degree=odd),
    "outcomes": NETWORK.spins,
    "spins": NETWORK.local_fields,
    "bounds": lambda odd: NETWORK.maximum_pseudo_likelihood(SPINS, odd),
    "fields": lambda odd: PseudoLikelihood.from_fields(odd, SPINS),
    "beta of a pseudo-likelihood": LIKELIHOOD,
    "a law's network": lambda odd: EstimateLaw.simulate(odd, ESTIMATE.constants),
    "a law's constants": lambda odd: EstimateLaw.simulate(NETWORK, odd),
    "a law's bounds": lambda odd: EstimateLaw.simulate(NETWORK, ESTIMATE.constants, odd),
    "a law's estimate": EstimateLaw.of,
    "a law's beta": LAW.estimates_at,
    "law": lambda odd: ESTIMATE.interval(law=odd),
    "the law of curves": lambda odd: quantile_curves(odd, 0.9),
    "prob": ESTIMATE.interval,
    "prob and law": lambda odd: ESTIMATE.interval(odd, odd),
    "method": lambda odd: ESTIMATE.interval(method=odd),
    "rng of an interval": lambda odd: ESTIMATE.interval(rng=odd),
} | {
    f"{name} of a simulation": lambda odd, name=name: NETWORK.simulate(**{"beta": 0.5} | {name: odd})
    for name in ("beta", "size", "rng", "chains", "sweeps", "burn_in", "moves")
} | {
    f"{name} of a law": lambda odd, name=name: EstimateLaw.of(ESTIMATE, **SMALL | {name: odd})
    for name in ("betas", "configurations", "noises", "burn_in", "sweeps", "moves", "rng", "workers", "progress")
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
@pytest.mark.parametrize("call", CALLS)
def test_an_odd_argument_is_refused_by_an_error_of_the_library(call):
    taken = []
    for name, odd in ODD.items():
        try:
            CALLS[call](odd)
        except BayesPrivMRFError:
            continue
        taken.append(name)
    assert taken == []


def test_states_that_are_none_and_paths_that_are_none_are_refused(tmp_path):
    for odd in ({}, pd.NA, pd.DataFrame(), np.zeros(3), [1]):
        with pytest.raises(ArgumentError, match="`positive` and `negative`"):
            NETWORK.spins(SPINS, odd, 0)
    for odd in (None, 5, "", pd.NaT):
        with pytest.raises(ArgumentError, match="must be the path of a file"):
            LAW.save(odd)  # type: ignore[arg-type]


def test_whole_numbers_that_no_double_holds_are_refused():
    for call in ("beta of a simulation", "bounds", "prob", "a law's beta"):
        with pytest.raises(ArgumentError):
            CALLS[call](10**400)
    with pytest.raises(ArgumentError, match="`betas` must be"):
        EstimateLaw.of(ESTIMATE, betas=[0, 10**400])


def test_the_parametric_bootstrap_is_refused_and_what_remains_is_named():
    with pytest.raises(
        ArgumentError, match=r"must be 'inversion', got 'bootstrap'; .*benchmarks/network_intervals"
    ):
        ESTIMATE.interval(method="bootstrap")  # type: ignore[arg-type]
