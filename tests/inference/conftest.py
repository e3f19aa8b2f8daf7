from itertools import product

import numpy as np
import pytest

from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import DiscreteLaplace, Laplace, NoiseLaw
from bayesprivmrf.release import NoisyStatistics

AWKWARD = {
    "tree": ({"a": [0, 1], "b": ["x", "y", "z"], "c": [1, 0]}, [("a", "b"), ("c", "b")]),
    "cycle": (
        {"a": [0, 1], "b": [2, 1, 0], "c": [0, 1], "d": [0, 1]},
        [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")],
    ),
    "disconnected": ({0: ["n", "y"], 1: [0, 1], 2: [0, 1, 2]}, [(0, 1), (2,)]),
    "one state": ({"a": ["only"], "b": [0, 1], "c": [0, 1]}, [("a", "b"), ("b", "c")]),
    "three-way": (
        {"a": [0, 1], "b": [0, 1, 2], "c": [1, 0], "d": [0, 1]},
        [("c", "a", "b"), ("d", "b"), ("d", "a")],
    ),
    "single": ({"a": ["q", "p"]}, [("a",)]),
    "empty": ({}, []),
}


def specification(states, cliques, impossible=()):
    return ModelSpecification(
        domain=Domain.from_states(states), cliques=tuple(cliques), impossible=tuple(impossible)
    )


def joint_states(model):
    states = list(product(*map(range, model.cardinalities)))
    return np.array(states, dtype=int).reshape(len(states), len(model.cardinalities))


def log_joint(model, potentials):
    tables = model.tables(potentials)
    x = joint_states(model)
    total = np.zeros(len(x))
    for position, scope in enumerate(model.scopes):
        total = total + tables.table(position)[tuple(x[:, v] for v in scope)]
    return total


def probabilities(model, potentials):
    weights = log_joint(model, potentials)
    weights = np.exp(weights - weights.max())
    return weights / weights.sum()


def tables_of(model, probability):
    x = joint_states(model)
    parts = [np.zeros(0)]
    for scope, shape in zip(model.scopes, model.shapes, strict=True):
        flat = np.ravel_multi_index(tuple(x[:, v] for v in scope), shape)
        parts.append(np.bincount(flat, weights=probability, minlength=int(np.prod(shape))))
    return np.concatenate(parts)


def simulated_counts(model, records, rng, scale=1.0):
    """Counts of records drawn from random potentials, and those potentials."""
    potentials = scale * rng.normal(size=model.size)
    if model.possible is not None:
        potentials[~model.possible] = -np.inf
    drawn = rng.multinomial(records, probabilities(model, potentials))
    return tables_of(model, drawn), potentials


def noisy_release(model, counts, law: NoiseLaw, rng, total=None):
    if isinstance(law, DiscreteLaplace):
        stop = 1 - np.exp(-1 / law.scale)
        noise = rng.geometric(stop, counts.size) - rng.geometric(stop, counts.size)
    elif isinstance(law, Laplace):
        noise = rng.laplace(0, law.scale, counts.size)
    else:
        noise = rng.normal(0, law.scale, counts.size)
    tables = model.tables(counts + noise)
    return NoisyStatistics.from_tables(model, dict(tables), noise=law, total=total)


@pytest.fixture(params=list(AWKWARD))
def awkward(request):
    return specification(*AWKWARD[request.param])
