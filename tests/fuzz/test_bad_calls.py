"""A bad call ends in an error of the library, or is accepted: never in a raw failure, and nothing is spent."""

from __future__ import annotations

import warnings
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import audit, marginals, noise, plots, readers
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, ModelError
from bayesprivmrf.mechanisms import base, record_codes
from bayesprivmrf.network import EstimateLaw, IsingNetwork
from bayesprivmrf.noise import noise_source

from .calls import bad_calls

DOMAIN, FRAME = bpm.Domain.from_states({"a": [0, 1]}), pd.DataFrame({"a": [0, 1]})
LAW, PROMISE = noise.DiscreteLaplace(2.0), bpm.PrivacyGuarantee(epsilon=1.0, adjacency="add-or-remove-one")


class Watched:
    """A source of noise that counts how often it is asked."""

    drawn = 0

    def __init__(self, rng):
        self._source = noise_source(rng)

    def __getattr__(self, name):
        Watched.drawn += name != "is_simulated"
        return getattr(self._source, name)


def failures(count, seed):
    """Return what is wrong with each of the calls that fail, and how many were refused and accepted."""
    wrong, refused, accepted = [], 0, 0
    for call in bad_calls(count, seed):
        Watched.drawn = 0
        try:
            call.run()
            accepted += 1
        except BayesPrivMRFError:
            refused += 1
            if Watched.drawn or (call.ledger is not None and call.ledger.spent):
                wrong.append(f"{call.text}: refused after noise was drawn or the ledger charged")
        except Exception as error:
            wrong.append(f"{call.text}: {type(error).__name__}: {error}"[:300])
    return wrong, refused, accepted


@pytest.mark.parametrize(
    ("count", "seed"), [(80, 1), pytest.param(7000, 2, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_no_bad_call_fails_raw_or_spends(count, seed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "noise_source", Watched)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong, refused, accepted = failures(count, seed)
    plt.close("all")
    assert wrong == [], "\n".join([f"{len(wrong)} of {count}:", *wrong[:20]])
    assert refused > accepted > 0


def test_bad_calls_that_the_few_may_miss_are_refused():
    network = IsingNetwork.from_graph([(0, 1), (1, 2)])
    refused = {
        "`nodes` must be a collection": (ModelError, lambda: network.subnetwork(None)),
        "must be an array of numbers": (ArgumentError, lambda: bpm.combine_estimates([10**400, 1], [1, 1])),
        "an empty name": (ArgumentError, lambda: plots.calibration_ranks({"": [0, 1]}, draws=9)),
        "`reference` must be a method": (ArgumentError, lambda: plots.holdout_against_epsilon(
            pd.DataFrame({"epsilon": [1.0], "method": ["mle"], "holdout_log_likelihood": [-1.0]}), reference={})),
        "`size` must be a whole number from 1 to": (ArgumentError, lambda: network.sample(0.5, 10**400)),
        "`path` must be readable": (ArgumentError, lambda: EstimateLaw.load("no such file")),
        "must map `name`": (ArgumentError, lambda: noise.noise_from_dict({})),
        "the fields of the noise distribution 'laplace'": (
            ArgumentError, lambda: noise.noise_from_dict({"name": "laplace"})),
        "`residual` must be an array of numbers": (ArgumentError, lambda: noise.Laplace(1.0).score([[0], 1])),
        "must be pairs": (ModelError, lambda: bpm.ModelSpecification(
            domain=bpm.Domain.from_states({"a": [0, 1]}), cliques=(("a",),), impossible=((1, 2),))),
        "each of `levels` must be text": (ArgumentError, lambda: readers.read_census(
            bpm.declare({"a": [0, 1]}, [("a",)]), "f.csv", queries={}, levels=[["a"]])),
        "`domain` must be a Domain, got a DataFrame": (ModelError, lambda: record_codes(FRAME, FRAME)),
        "`missing` must be a mapping from variables to codes": (
            ArgumentError, lambda: record_codes(DOMAIN, FRAME, missing=1)),
        "`other` must be a whole number from 0 to 1": (
            ArgumentError, lambda: record_codes(DOMAIN, FRAME, other={"a": 2})),
        "`laws` must be of noise distributions, got a str": (ArgumentError, lambda: audit.privacy_loss(["x"], [1])),
        "`shifts` must be a whole number": (ArgumentError, lambda: audit.privacy_loss([LAW], [0.5])),
        "`draws` must hold Sums": (ArgumentError, lambda: audit.exact_cost([LAW], PROMISE)),
        "`guarantee` must be a PrivacyGuarantee, got a float": (ArgumentError, lambda: audit.exact_cost([], 1.0)),
        "`source` must be a source of noise": (ArgumentError, lambda: audit.audit_draws([], 1)),
        "`mechanism` must be an object with its settings, got dict": (
            ArgumentError, lambda: audit.audit_releases(dict, bpm.declare({"a": [0, 1]}, [("a",)]))),
        "`randomizer_b` must be a function": (ArgumentError, lambda: audit.audit(np.zeros, None, PROMISE)),
        "`deltas` must be in": (ArgumentError, lambda: audit.audit(np.zeros, np.zeros, PROMISE, deltas=[2.0])),
        "`cardinalities` must be a sequence": (ModelError, lambda: marginals.forecast(None, [])),
        "each of `scopes` must hold whole numbers": (ModelError, lambda: marginals.marginal_engine([2], [["a"]])),
        "`memory_limit` must be at least 0": (
            ArgumentError, lambda: marginals.marginal_engine([2], [(0,)], memory_limit=-1)),
        "`query` must be a sequence": (ModelError, lambda: marginals.marginal_of([2], [(0,)], [0.0, 0.0], 1)),
        "`potentials` must be an array": (ArgumentError, lambda: marginals.sample([2], [(0,)], "x", 1, 1)),
        "states of variable 0 must be from 0 to 1": (
            ModelError, lambda: marginals.clamped([2], [(0,)], np.zeros(2), {0: 5})),
        "states must be for variables in some factor": (
            ModelError, lambda: marginals.clamped([2, 2], [(0,)], np.zeros(2), {1: 0})),
    }  # fmt: skip
    for message, (kind, call) in refused.items():
        with pytest.raises(kind, match=message):
            call()


def test_a_scale_that_is_a_fraction_is_a_number_like_any_other():
    assert bpm.NoiseAwareMAP(scale=Fraction(1, 2)) == bpm.NoiseAwareMAP(scale=0.5)  # type: ignore[arg-type]
