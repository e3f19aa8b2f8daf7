"""Awkward models, and the engines that must agree on them."""

from __future__ import annotations

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.marginals import Layout, MarginalEngine, arrays, exact, planning

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


class BruteForce(MarginalEngine):
    """Inference by sums over the whole joint table, by the definition."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def _total(self, vector):
        """The sum of all tables, an axis a variable."""
        states, total = np.indices(self.cardinalities), np.zeros(self.cardinalities)
        for scope, table in zip(self.scopes, self.layout.tables(vector), strict=True):
            total += table[tuple(states[v] for v in scope)]
        return total

    def _project(self, joint):
        """The sums of a joint table over the cells of every factor."""
        parts = [np.zeros(0)]
        for scope in self.scopes:
            others, kept = tuple(v for v in range(joint.ndim) if v not in scope), sorted(scope)
            parts.append(joint.sum(axis=others).transpose([kept.index(v) for v in scope]).ravel())
        return np.concatenate(parts)

    def log_partition(self, potentials):
        return self.linearize(potentials)[0]

    def marginals(self, potentials):
        return self.linearize(potentials)[:2]

    def linearize(self, potentials):
        total = self._total(self.layout.flat(potentials))
        top = total.max()
        if top == -np.inf:
            raise ModelError("Every configuration is impossible.")
        joint = np.exp(total - top)
        mass = joint.sum()
        joint /= mass

        def product(vector):
            g = self._total(np.where(potentials > -np.inf, vector, 0.0))
            return self._project(joint * (g - np.sum(joint * g)))

        return float(top + np.log(mass)), self._project(joint), product


def brute(model: Model) -> MarginalEngine:
    return BruteForce(Layout.build(*model))


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
    tree = planning.BucketTree.build(Layout.build(*model))
    engines: dict[str, arrays.ArrayEngine | exact.CompiledEngine] = {
        "numpy": arrays.ArrayEngine(tree)
    }
    for force in (None, "cells", "products"):
        steps = planning.plan_steps(tree, force=force)
        engines[force or "mixed"] = exact.CompiledEngine(tree, steps)
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
    np.testing.assert_allclose(
        found_product(direction), product(direction), rtol=0, atol=10 * tolerance
    )
    assert not np.any(found_mu[theta == -np.inf])
    assert not np.any(found_product(direction)[theta == -np.inf])
