"""Marginals in zero-sum coordinates: their moments, the information, and answers to several threads."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from inference.conftest import AWKWARD, joint_states, probabilities, specification, tables_of

import bayesprivmrf as bpm
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference import gather
from bayesprivmrf.inference.evidence import family_of
from bayesprivmrf.inference.posterior.effects_engine import Plan, fisher_information
from bayesprivmrf.inference.posterior.latent_prior import LatentPrior
from bayesprivmrf.model import Effects
from bayesprivmrf.noise import Laplace

WITH_ZERO = specification(
    {"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]},
    [("a", "b"), ("b", "c"), ("c", "a")],
    impossible=[(("a", 1), ("b", 2))],
)
MODELS = {name: specification(*given) for name, given in AWKWARD.items() if name != "empty"}
MODELS["structural zero"] = WITH_ZERO


@pytest.fixture(params=list(MODELS))
def model(request):
    return MODELS[request.param]


def plan_of(model):
    return Plan(Effects.of(model.cardinalities, model.scopes), family_of(model).base)


def statistics(model, effects):
    """t(x) for each joint state, from the potentials of unit coordinates."""
    x, rows = joint_states(model), []
    for column in np.eye(effects.size):
        flat, total = effects.potentials(column), np.zeros(len(x))
        for start, scope, shape in zip(model.offsets, model.scopes, model.shapes, strict=False):
            total += flat[start + np.ravel_multi_index(tuple(x[:, v] for v in scope), shape)]
        rows.append(total)
    return np.array(rows)


def point(plan, seed=0, scale=0.7):
    return np.random.default_rng(seed).normal(size=plan.effects.size) * scale


def possible_probabilities(model, potentials):
    flat = potentials.copy()
    if model.possible is not None:
        flat[~model.possible] = -np.inf
    return probabilities(model, flat)


def test_moments_are_those_of_the_joint_distribution(model):
    plan = plan_of(model)
    beta = point(plan)
    t = statistics(model, plan.effects)
    p = possible_probabilities(model, plan.effects.potentials(beta))
    value, mu, mean, square = plan.moments(beta)
    np.testing.assert_allclose(mu, tables_of(model, p), atol=1e-13)
    np.testing.assert_allclose(mean, t @ p, atol=1e-12)
    np.testing.assert_allclose(
        fisher_information(beta, plan.data), (t * p) @ t.T - np.outer(t @ p, t @ p), atol=1e-12
    )
    home = [np.flatnonzero(column) for column in plan.effects.potentials(np.eye(plan.effects.size))]
    np.testing.assert_allclose(
        square,
        [
            np.sum(plan.effects.potentials(u)[c] ** 2 * mu[c])
            for u, c in zip(np.eye(len(mean)), home, strict=True)
        ],
        atol=1e-12,
    )
    reachable = p[p > 0]
    np.testing.assert_allclose(value, np.mean((t.T @ beta)[p > 0] - np.log(reachable)), atol=1e-12)


def test_variances_are_the_diagonal_of_the_information_only_through_one_table(model):
    plan = plan_of(model)
    beta = point(plan)
    _, _, mean, square = plan.moments(beta)
    np.testing.assert_allclose(
        square - mean**2, np.diag(fisher_information(beta, plan.data)), atol=1e-12
    )


def test_potentials_in_the_thousands_fall_back_to_the_logarithmic_domain():
    """One joint state has all the probability but what numbers can hold, and A is its log weight."""
    model = MODELS["cycle"]
    plan = plan_of(model)
    beta = 2000 * point(plan, 5)
    value, mu, mean, _ = plan.moments(beta)
    t = statistics(model, plan.effects)
    largest = (t.T @ beta).argmax()
    np.testing.assert_allclose(value, (t.T @ beta)[largest], rtol=1e-12)
    np.testing.assert_allclose(mean, t[:, largest], atol=1e-12)
    assert np.isin(mu.round(12), (0.0, 1.0)).all()


def test_threads_get_the_answers_of_one():
    plan = plan_of(MODELS["cycle"])
    points = [point(plan, seed) for seed in range(64)]
    alone = [plan.moments(b)[1] for b in points]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda b: plan.moments(b)[1], points))
    np.testing.assert_array_equal(alone, together)


def test_a_base_of_another_length_is_refused():
    with pytest.raises(ModelError, match="shape"):
        Plan(Effects.of([2, 2], [(0, 1)]), np.array([0.0, -np.inf]))


@pytest.mark.parametrize("size", [2.0, 400.0, 900.0])
def test_the_curvature_of_a_mode_is_finite_where_sums_of_numbers_underflow(size):
    pairs = [("a", "b"), ("b", "c"), ("a", "c")]
    network = bpm.declare({name: [0, 1] for name in "abc"}, pairs)
    tables = {pair: np.array([[30.0, 20.0], [20.0, 30.0]]) for pair in pairs}
    evidence = gather(bpm.NoisyStatistics.from_tables(network, tables, noise=Laplace(1.0)))
    prior = LatentPrior(evidence=evidence, scale=1.0, total=100.0, total_range=(1.0, 1e9))
    mode, beta = prior.mode, size * np.sign(prior.mode.coordinates + 0.1)
    prior.__dict__["mode"] = replace(mode, point=np.append(beta, mode.log_total))  # an extreme mode
    model = evidence.specification
    p = probabilities(model, evidence.family.potentials(beta))
    columns = evidence.family.effects.potentials(np.eye(beta.size))
    # the statistics of each joint state, as the tables of a distribution at that state alone
    t = np.array([columns @ tables_of(model, alone) for alone in np.eye(len(p))])
    expected = 100 * np.cov(t.T, aweights=p, bias=True) + np.eye(beta.size)
    assert np.allclose(prior.curvature(), expected, rtol=1e-6, atol=1e-8)
