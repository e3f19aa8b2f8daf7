"""Gibbs sampling against enumeration, and its diagnostic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bayesprivmrf import chains
from bayesprivmrf.chains import gibbs
from bayesprivmrf.marginals import marginal_engine

MODELS = {
    "ising with fields": ((2,) * 6, [(0, 1), (2, 1), (2, 3), (3, 4), (0, 4), (5,), (1,)]),
    "any states": ((3, 2, 1, 4), [(0, 1), (3, 1), (2, 0), (3,)]),
    "three at once": ((2, 2, 3, 2), [(0, 2, 1), (3, 0), ()]),
}


def model(name: str):
    cards, scopes = MODELS[name]
    engine = marginal_engine(cards, scopes, kind="exact")
    theta = np.random.default_rng(len(name)).normal(0, 0.7, engine.size)
    return cards, scopes, theta, engine.marginals(theta)[1]


def sizes(cards, scopes):
    return np.cumsum([0, *(math.prod(cards[v] for v in scope) for scope in scopes)])


@pytest.mark.parametrize("name", MODELS)
def test_draws_have_the_models_marginals(name):
    cards, scopes, theta, mu = model(name)
    draws = chains.gibbs_draws(cards, scopes, theta, 40_000, np.random.default_rng(1))
    assert draws.codes.shape == (40_000, len(cards))
    assert draws.mixing.trusted
    for start, scope in zip(sizes(cards, scopes), scopes, strict=False):
        shape = [cards[v] for v in scope]
        table = np.zeros(shape)
        np.add.at(table, tuple(draws.codes[:, v] for v in scope) or ..., 1 if scope else 40_000)
        expected = mu[start : start + table.size].reshape(shape)
        deviation = np.sqrt(expected * (1 - expected) / 40_000) + 1e-12
        assert (
            np.abs(table / 40_000 - expected) < 4.5 * deviation
        ).all()  # level 1e-4 over all cells


@pytest.mark.parametrize("name", MODELS)
def test_visits_are_those_of_the_draws(name):
    cards, scopes, theta, _ = model(name)
    first, second = (
        chains.Chains(cards, scopes, np.random.default_rng(2), chains=8) for _ in range(2)
    )
    codes = first.advance(theta, 50)
    visits = second.marginals(theta, 50)
    for start, scope in zip(sizes(cards, scopes), scopes, strict=False):
        table = np.zeros([cards[v] for v in scope])
        np.add.at(table, tuple(codes[:, v].ravel() for v in scope), 1)
        if not scope:
            table[()] = codes.shape[0] * codes.shape[2]
        np.testing.assert_allclose(
            visits[start : start + table.size], table.ravel() / 400, atol=1e-12
        )


def test_two_states_take_either_kernel_to_the_same_law():
    cards, scopes, theta, mu = model("ising with fields")
    table = np.zeros(8)  # of three variables, so that it is no Ising model
    several = chains.Chains(cards, (*scopes, (0, 1, 2)), np.random.default_rng(3))
    theta = np.concatenate([theta, table])
    several.advance(theta, 1, 50)
    assert np.abs(several.marginals(theta, 4000)[: mu.size] - mu).max() < 0.01


def test_potentials_of_pairs_and_singles_are_couplings_and_fields():
    A, h = gibbs.ising_of(
        3, [(2, 0), (1,), (0,)], np.array([0.5, -0.3, 0.1, 0.9, -0.2, 0.2, 0.0, 1.0])
    )
    s = np.array(np.meshgrid(*[[-1, 1]] * 3, indexing="ij")).reshape(3, -1)
    pair = np.array([[0.5, -0.3], [0.1, 0.9]])
    direct = (
        pair[(s[2] + 1) // 2, (s[0] + 1) // 2]
        + np.array([-0.2, 0.2])[(s[1] + 1) // 2]
        + np.array([0.0, 1.0])[(s[0] + 1) // 2]
    )
    model_of = 0.5 * np.einsum("ik,ij,jk->k", s, A.toarray(), s) + h @ s
    assert np.ptp(direct - model_of) < 1e-12


def test_chains_that_are_stuck_are_not_trusted():
    cards, scopes = (
        (2,) * 30,
        [(i, (i + 1) % 30) for i in range(30)] + [(i, (i + 7) % 30) for i in range(30)],
    )
    theta = np.tile([2.5, -2.5, -2.5, 2.5], len(scopes))
    assert not chains.gibbs_draws(
        cards, scopes, theta, 2000, np.random.default_rng(4)
    ).mixing.trusted
