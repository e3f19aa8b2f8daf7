"""A bad call ends in an error of the library, or is accepted: never in a raw failure, and nothing is spent."""

from __future__ import annotations

import warnings
from decimal import Decimal
from fractions import Fraction
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import audit, marginals, mechanisms, noise, plots, queries, readers
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, ModelError, ReleaseFileError
from bayesprivmrf.mechanisms import base, record_codes
from bayesprivmrf.network import EstimateLaw, IsingNetwork
from bayesprivmrf.noise import noise_source

from .calls import bad_calls

DOMAIN, FRAME = bpm.Domain.from_states({"a": [0, 1]}), pd.DataFrame({"a": [0, 1]})
NETWORK = bpm.declare({"a": [0, 1]}, [("a",)])
SPECIFICATION: Any = bpm.ModelSpecification.from_pgmpy(NETWORK)
LAPLACE, RNG = mechanisms.LaplaceStatistics(epsilon=1.0), np.random.default_rng(1)
RELEASED = LAPLACE.release(NETWORK, FRAME, rng=1)
CHAIN = bpm.markov_chain([0, 1], 3, share="transitions")
SHARED: Any = bpm.NoiseAwareMAP().fit(
    bpm.NoisyStatistics.from_tables(
        CHAIN,
        {pair: [[50, 20], [20, 30]] for pair in (("x1", "x2"), ("x2", "x3"))},
        noise=noise.Laplace(1.0),
    )
)
UNBOUNDED: Any = mechanisms.ObjectivePerturbation(epsilon=100.0, bounds=None).release(
    IsingNetwork.from_graph([(0, 1), (1, 2), (2, 3), (3, 4)]), np.array([1, 1, 1, -1, -1]), rng=1
)
LAW, PROMISE = (
    noise.DiscreteLaplace(2.0),
    bpm.PrivacyGuarantee(epsilon=1.0, adjacency="add-or-remove-one"),
)


class Watched:
    """A source of noise that counts how often it is asked."""

    drawn = 0

    def __init__(self, rng):
        self._source = noise_source(rng)

    def __getattr__(self, name):
        Watched.drawn += name != "is_simulated"
        return getattr(self._source, name)


# Share of bad calls that may end in an error that is not of the library
MOST_RAW = 0.0005


def outcomes(count, seed):
    """Return texts of the raw errors, of the calls that spent and were refused, and how many were refused."""
    raw, spent, refused = [], [], 0
    for number, call in enumerate(bad_calls(count, seed)):
        Watched.drawn = 0
        try:
            call.run()
        except BayesPrivMRFError:
            refused += 1
            is_audit = call.text.startswith(
                "audit."
            )  # which releases simulated records, and spends nothing
            if (Watched.drawn and not is_audit) or (call.ledger is not None and call.ledger.spent):
                spent.append(call.text)
        except Exception as error:
            raw.append(f"{call.text}: {type(error).__name__}: {error}"[:300])
        if number % 100 == 0:
            plt.close("all")
    plt.close("all")
    return raw, spent, refused


@pytest.mark.parametrize(
    # the few are more than one call of each target
    ("count", "seed"),
    [(400, 1), pytest.param(8_000, 2, marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_bad_calls_are_refused_in_words_before_anything_is_spent(
    count, seed, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "noise_source", Watched)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw, spent, refused = outcomes(count, seed)
    assert not spent
    assert len(raw) <= MOST_RAW * count, "\n".join([f"{len(raw)} of {count}:", *raw[:20]])
    assert refused > 0.8 * count  # the others have a value that is acceptable after all


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
        "`names` must be a sequence": (ArgumentError, lambda: mechanisms.transition_rows(
            FRAME, person="a", position="b", state="c", names=Decimal(1))),  # type: ignore[arg-type]
        "`person` must be hashable, got a ndarray": (ArgumentError, lambda: mechanisms.wide_sequences(
            FRAME, person=np.zeros(2), position="a", state="a", length=2)),
        "`count` must be a whole number": (ArgumentError, lambda: noise.DiscreteGaussian(2.0).summed(np.arange(3))),
        "`end` must be hashable, got a DataFrame": (ArgumentError, lambda: bpm.markov_chain([0, 1], 3, end=FRAME)),
        "each of `states` must be hashable": (
            ModelError, lambda: bpm.markov_chain(np.zeros((2, 2)), 3, end="<end>")),
        "each of `names` must be hashable": (ArgumentError, lambda: bpm.markov_chain(
            [0, 1], 3, names=["a", "b", []])),
        "`of` must be 'population' or 'records', got a DataFrame": (
            ArgumentError, lambda: SHARED.interval(["x1"], of=FRAME)),
        "`total` must be at least 1": (ArgumentError, lambda: LAPLACE.preview(NETWORK, total=0)),
        "`total` must be at most 1e.12": (ArgumentError, lambda: LAPLACE.preview(NETWORK, total=1e308)),
        "`variance` must be below 1e.300": (ArgumentError, lambda: noise.DiscreteGaussian.of_variance(1e308)),
        "`scale` must be at most 1e.150": (ArgumentError, lambda: noise.Laplace(1e308)),
        "`scale` must be at most 1.4e.17 for draws": (
            ArgumentError, lambda: noise.DiscreteLaplace(1e20).draw(1, RNG)),
        "`epsilon` must leave an error that a float": (
            ArgumentError, lambda: mechanisms.ObjectivePerturbation(epsilon=1e308).promise(
                IsingNetwork.from_graph([(0, 1), (1, 2)]))),
        "there is no posterior file at": (ReleaseFileError, lambda: bpm.load_posterior("a" * 300)),
        "`truth` must be a solution, .* got a ModelSpecification": (
            ArgumentError, lambda: bpm.kl_divergence(SPECIFICATION, SPECIFICATION)),
        "`prior` must be True or False, got 'no'": (
            ArgumentError, lambda: bpm.LatentCounts().fit(RELEASED, prior="no")),  # type: ignore[arg-type]
        "`prior` must be True or False, got a DataFrame": (
            ArgumentError, lambda: bpm.LatentCounts().fit(RELEASED, prior=FRAME)),  # type: ignore[arg-type]
        "`prior` must be True or False, got -inf": (
            ArgumentError, lambda: bpm.LatentCounts().fit(RELEASED, prior=-np.inf)),  # type: ignore[arg-type]
        "`span` must be a pair .* got a function": (
            ArgumentError, lambda: UNBOUNDED.interval(span=lambda: 0, rng=1)),
        "`span` must be a pair .* got a dict": (ArgumentError, lambda: UNBOUNDED.interval(span={0: 1, 1: 2}, rng=1)),
        "must be a value that equals a copy of itself, got a Solution": (
            ArgumentError, lambda: queries.table(bpm.uniform_solution(NETWORK))),
        "must be a value that equals a copy of itself, got a function": (
            ModelError, lambda: bpm.declare({(lambda: 0): [0, 1]})),
        "must not be a missing value, got nan": (ArgumentError, lambda: queries.table(float("nan"))),
        "`rng` must be a seed of at least 0 or a numpy Generator, got a list": (
            ArgumentError, lambda: bpm.uniform_solution(NETWORK).sample(2, rng=[])),  # type: ignore[arg-type]
        "must be at least one number, got none": (
            ModelError, lambda: bpm.Measurement(queries.table("a"), [], LAW)),  # type: ignore[arg-type]
        "must be numbers, got labels of others": (ModelError, lambda: bpm.Measurement(
            queries.table("a"), {0: (x for x in ()), 1: 2.0}, LAW)),  # type: ignore[arg-type]
        "`tables` must be those of `specification`": (ModelError, lambda: bpm.NoisyStatistics(
            specification=SPECIFICATION, guarantee=None, provenance=RELEASED.provenance,
            tables="x")),  # type: ignore[arg-type]
        "`results` must be releases, estimates": (ArgumentError, lambda: bpm.citation(0.5)),
        "`cliques_declared` must be True or False": (ArgumentError, lambda: bpm.ModelSpecification(
            domain=DOMAIN, cliques=(("a",),), cliques_declared=[])),  # type: ignore[arg-type]
        "`residual` must be finite": (ArgumentError, lambda: noise.Within(4.5).score([np.inf])),
        "`half_width` must be half a whole number, at most": (ArgumentError, lambda: noise.Within(1e308)),
    }  # fmt: skip
    for message, (kind, call) in refused.items():
        with pytest.raises(kind, match=message):
            call()


def test_a_scale_that_is_a_fraction_is_a_number_like_any_other():
    assert bpm.NoiseAwareMAP(scale=Fraction(1, 2)) == bpm.NoiseAwareMAP(scale=0.5)  # type: ignore[arg-type]
