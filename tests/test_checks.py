"""Whatever an argument holds, the error is of this package and names the argument; no call fails raw."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import mechanisms as m
from bayesprivmrf.checks import one_of
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.noise import DiscreteLaplace
from bayesprivmrf.privacy import PrivacyGuarantee

HUGE = 10**400
STATES = {"a": [0, 1], "b": [0, 1]}
MODEL = bpm.ModelSpecification.from_pgmpy(bpm.declare(STATES, [("a", "b")]))
ODD: list[Any] = [
    [],
    {},
    "laplace",
    b"a",
    1j,
    slice(1),
    (1,),
    pd.NA,
    pd.NaT,
    pd.DataFrame(),
    np.zeros(2),
    True,
    HUGE,
]


def release():
    return bpm.NoisyStatistics.from_tables(
        MODEL, {("a", "b"): np.full((2, 2), 9)}, noise=DiscreteLaplace(1.0)
    )


NUMBERS = [
    (bpm.NaiveMLE, "ridge"),
    (bpm.NaiveMLE, "iterations"),
    (bpm.NaiveMLE, "tolerance"),
    (bpm.CGM, "steps"),
    (bpm.CGM, "acceleration"),
    (bpm.CGM, "damping"),
    (bpm.CGM, "nlbp_iterations"),
    (bpm.NoiseAwareMAP, "scale"),
    (bpm.NoiseAwareMAP, "rounds"),
    (bpm.NoiseAwareMAP, "tolerance"),
    (bpm.LatentCounts, "concentration"),
    (bpm.LatentCounts, "scale"),
    (bpm.LatentCounts, "total_range"),
]


@pytest.mark.parametrize(
    ("kind", "name"), NUMBERS, ids=lambda each: getattr(each, "__name__", each)
)
def test_every_number_of_an_estimator_is_checked_when_it_is_made(kind, name):
    for value in ODD:
        if value is HUGE and name in ("iterations", "nlbp_iterations", "rounds"):
            continue  # a whole number, and endless patience
        with pytest.raises(ArgumentError, match=f"`{name}`"):
            kind(**{name: value})


CHOICES = [
    (bpm.NaiveMLE, {}, "projection"),
    (bpm.NaiveMLE, {}, "inference"),
    (bpm.CGM, {}, "stopping"),
    (bpm.CGM, {}, "e_step"),
    (bpm.CGM, {}, "is_smoothed"),
    (bpm.CGM, {}, "inference"),
    (bpm.NoiseAwareMAP, {}, "inference"),
    (bpm.LatentCounts, {}, "formulation"),
    (m.SelectMeasure, {"rho": 1.0, "degree": 1}, "measure"),
    (m.PrivateFrankWolfe, {"rho": 1.0, "width": 1.0}, "calibration"),
    (m.PrivateFrankWolfe, {"rho": 1.0, "width": 1.0}, "method"),
    (m.PrivateFrankWolfe, {"rho": 1.0, "width": 1.0}, "target"),
    (m.ParityQueries, {"rho": 1.0, "order": 2}, "method"),
    (m.ObjectivePerturbation, {"epsilon": 1.0}, "calibration"),
    (m.ObjectivePerturbation, {"epsilon": 1.0}, "allow_large_delta"),
]


@pytest.mark.parametrize(("kind", "given", "name"), CHOICES, ids=str)
def test_every_choice_is_compared_as_text(kind, given, name):
    for value in ODD:
        if value is True and name in ("is_smoothed", "allow_large_delta"):
            continue
        with pytest.raises(ArgumentError, match=f"`{name}`"):
            kind(**given, **{name: value})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: m.LaplaceStatistics(epsilon=HUGE), "`epsilon`"),
        (lambda: m.GaussianStatistics(rho=HUGE), "`rho`"),
        (lambda: m.ObjectivePerturbation(epsilon=1.0, delta=HUGE), "`delta`"),
        (lambda: m.SelectMeasure(rho=1.0, degree=HUGE), "`degree`"),
        (lambda: PrivacyGuarantee(epsilon=HUGE, adjacency="replace-one"), "`epsilon`"),
        (
            lambda: PrivacyGuarantee(epsilon=1.0, adjacency="replace-one").to_approximate(HUGE),
            "`delta`",
        ),
        (lambda: m.LaplaceStatistics(epsilon=1.0).preview(MODEL, HUGE), "`total`"),
        (lambda: m.LaplaceStatistics(epsilon=1.0, missing={}), "`missing`"),
        (lambda: m.DPSGD(epsilon=1.0, delta=1e-6, other={}), "`other`"),
        (lambda: bpm.combine_estimates("replace-one", 1), "`estimates`"),
        (lambda: bpm.combine_estimates([1.0, 2.0], [1.0, 1.0], prob=[0.5]), "`prob`"),
        (lambda: bpm.NoiseAwareMAP().fit(release()).interval("a", [["a"]]), "`prob`"),
        (lambda: bpm.NaiveMLE().fit(release()).sample(3, rng="seed"), "`rng`"),
        (lambda: bpm.NaiveMLE().fit(release()).sample(3, rng=-1), "`rng`"),
        (lambda: bpm.NaiveMLE().fit(release()).sample(3, rng=True), "`rng`"),
        (lambda: bpm.LatentCounts().fit(release(), rng=pd.DataFrame()), "`rng`"),
        (lambda: bpm.LatentCounts().fit(release(), draws=2.5), "`draws`"),
        (lambda: bpm.LatentCounts().fit(release(), sampler=pd.NA), "`sampler`"),
    ],
)
def test_an_argument_that_cannot_be_is_named(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: bpm.NaiveMLE().fit(release()).marginal(NotImplemented),
            "NotImplemented is not declared",
        ),
        (lambda: bpm.NoiseAwareMAP().fit(release()).interval(Fraction(1, 3)), "is not declared"),
        (lambda: bpm.NaiveMLE().fit(release()).marginal([["a"]]), "is not declared"),
        (lambda: bpm.declare(STATES, np.array("x")), "`cliques`"),
        (lambda: bpm.declare(STATES, [np.array("x")]), "a clique"),
        (lambda: bpm.declare(STATES, 5), "`cliques`"),
        (lambda: bpm.declare(STATES, [("a", "b")], impossible=1j), "`impossible`"),
        (
            lambda: bpm.declare({"a": [np.array([1, 2]), np.array([3, 4])]}),
            "hashable, got a ndarray",
        ),
        (lambda: bpm.declare({"a": np.array("x")}), "the states of 'a'"),
    ],
)
def test_what_is_no_model_is_named(call, words):
    with pytest.raises(ModelError, match=words):
        call()


def test_numbers_and_labels_of_numpy_are_taken():
    assert bpm.NaiveMLE(ridge=np.float32(0.5), iterations=np.int64(7)).iterations == 7
    assert bpm.CGM(steps=np.inf).steps == np.inf
    assert bpm.declare({"a": np.array([3, 1])}).get_cardinality() == {"a": 2}
    assert bpm.LatentCounts(total_range=np.array([1.0, 10.0])) is not None


def test_a_misspelt_choice_is_told_the_nearest():
    with pytest.raises(ArgumentError, match="did you mean 'records'"):
        one_of("of", "record", ("population", "records"))
