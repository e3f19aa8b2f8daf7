"""Awkward models, and the engines that must agree on them."""

from __future__ import annotations

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.marginals import Layout, MarginalEngine, arrays, exact, marginal_engine, planning
from bayesprivmrf.marginals import ordering as buckets

AWKWARD = {
    "empty model": ((), ()),
    "no variables, an empty scope": ((), ((), ())),
    "one variable": ((3,), ((0,),)),
    "one variable in no scope": ((3,), ()),
    "one state": ((1,), ((0,),)),
    "tree": ((2, 3, 4, 2, 3), ((0, 1), (1, 2), (1, 3), (3, 4))),
    "cycle": ((2, 3, 2, 4), ((0, 1), (1, 2), (2, 3), (3, 0))),
    "disconnected": ((2, 3, 2, 4), ((0, 1), (3, 2))),
    "isolated, with and without a scope": ((2, 3, 4, 2), ((0, 1), (2,))),
    "one-state variables inside": ((2, 1, 3, 1), ((0, 1), (1, 2), (2, 3, 0), (3,))),
    "three-way cliques": ((2, 3, 2, 3, 2), ((0, 1, 2), (4, 2, 3), (1, 3))),
    "four-way cliques": ((2, 3, 2, 2, 3), ((0, 1, 2, 3), (4, 3, 1, 2))),
    "nested": ((3, 2, 4), ((0, 1, 2), (0, 1), (1,), ())),
    "repeated and permuted": ((3, 2, 4), ((0, 1), (1, 0), (0, 1), (2, 1, 0), (0, 2, 1), (1, 2, 0))),
    "hub": ((4, *[3] * 7), tuple((0, i) for i in range(1, 8))),
    "large tables": ((20, 18, 17), ((0, 1), (2, 1), (0, 2), (1, 0, 2))),
    "complete": ((3, 4, 3, 4, 3), tuple((i, j) for i in range(5) for j in range(i))),
}

Model = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]


def brute(model: Model) -> MarginalEngine:
    return marginal_engine(*model, kind="brute-force")


def joint_of(model: Model, theta: np.ndarray) -> np.ndarray:
    """Probability of each joint state, an axis a variable, by the definition."""
    layout = Layout.build(*model)
    energy = np.zeros(layout.cardinalities)
    for scope, table in zip(layout.scopes, layout.tables(theta), strict=True):
        states = np.indices(layout.cardinalities)
        energy += table[tuple(states[v] for v in scope)]
    weights = np.exp(energy - energy.max())
    return weights / weights.sum()


def exact_engines(model: Model) -> dict[str, arrays.ArrayEngine | exact.CompiledEngine]:
    """Every executor of the exact plan, each forced."""
    tree = buckets.BucketTree.build(Layout.build(*model))
    engines: dict[str, arrays.ArrayEngine | exact.CompiledEngine] = {"numpy": arrays.ArrayEngine(tree)}
    for force in (None, "cells", "products"):
        for domain in ("auto", "logarithmic"):
            steps = planning.plan_steps(tree, force=force)
            engines[f"{force or 'mixed'}, {domain}"] = exact.CompiledEngine(tree, steps, domain=domain)
    return engines


def assert_agree(engine, reference, theta, direction, tolerance=1e-10):
    """A, μ and Σv of an engine are the reference's, or both find the model impossible.

    Brute force itself rounds at the size of the potentials; the tolerance of A is relative to that.
    """
    try:
        log_partition, mu, product = reference.linearize(theta)
    except ModelError:
        try:
            engine.marginals(theta)
        except ModelError:
            return
        raise AssertionError("an impossible model went unnoticed") from None
    found, found_mu, found_product = engine.linearize(theta)
    assert abs(found - log_partition) <= tolerance * max(1.0, abs(log_partition))
    assert engine.log_partition(theta) == found
    again, again_mu = engine.marginals(theta)
    assert again == found
    np.testing.assert_array_equal(again_mu, found_mu)
    np.testing.assert_allclose(found_mu, mu, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found_product(direction), product(direction), rtol=0, atol=10 * tolerance)
    assert not np.any(found_mu[theta == -np.inf])
    assert not np.any(found_product(direction)[theta == -np.inf])
