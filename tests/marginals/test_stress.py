"""Potentials made to underflow: the answer is right, or the check refuses it; never silently wrong."""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import pytest

from bayesprivmrf.errors import ModelError
from bayesprivmrf.marginals import Layout, array_engine, marginal_engine, planning
from bayesprivmrf.marginals.exact import CompiledEngine

FIELDS = (1.0, 200.0, 700.0, 10_000.0)


class LinearEngine(CompiledEngine):
    """An engine that stays in the linear domain, or says that it is not safe."""

    def logarithmic(self):
        raise FloatingPointError


def pair(agree: float, differ: float) -> list[float]:
    return [agree, differ, differ, agree]


def conflicting_chain(length: int, coupling: float, field: float):
    """Strong couplings, and evidence at the ends and in the middle that contradicts itself."""
    scopes = [(i, i + 1) for i in range(length - 1)] + [(0,), (length // 2,), (length - 1,)]
    theta = pair(coupling, -coupling) * (length - 1) + [field, -field, -field, field, field, -field]
    return (2,) * length, scopes, np.array(theta)


def turning_chain(length: int, coupling: float, field: float):
    """Evidence for one state along a third of the chain, then more of it against: what was lost would win."""
    scopes = [(i, i + 1) for i in range(length - 1)] + [(i,) for i in range(length)]
    sites = [[field, -field] if 3 * i < length else [-field, field] for i in range(length)]
    theta = np.concatenate([pair(coupling, -coupling) * (length - 1), *sites])
    return (2,) * length, scopes, theta


def hub(leaves: int, states: int, strength: float, rng: np.random.Generator):
    """Messages that are each harmless and whose product is not: half the leaves pull either way."""
    scopes = [(0, i) for i in range(1, leaves + 1)]
    tables = []
    for i in range(leaves):
        table = rng.normal(size=(states, states))
        table[: states // 2] += strength if i % 2 else -strength
        tables.append(table.ravel())
    return (states,) * (leaves + 1), scopes, np.concatenate(tables)


def random_graph(rng: np.random.Generator, spread: float, zeros: float):
    variables = int(rng.integers(4, 11))
    cards = tuple(int(k) for k in rng.integers(2, 5, size=variables))
    scopes = [
        tuple(rng.permutation(variables)[: rng.integers(1, 4)].tolist())
        for _ in range(int(rng.integers(variables, 2 * variables)))
    ]
    size = Layout.build(cards, scopes).size
    theta = rng.normal(size=size) * spread
    theta[rng.random(size) < zeros] = -np.inf
    return cards, scopes, theta


def cases():
    rng = np.random.default_rng(2718)
    for length, fields in ((3, FIELDS), (10, FIELDS), (60, FIELDS[2:3])):
        for coupling in (1.0, 30.0, 300.0, 5000.0):
            for field in fields:
                yield conflicting_chain(length, coupling, field)
    for length in (12,):
        for coupling in (300.0, 5000.0):
            for field in (20.0, 60.0, 150.0, 250.0, 345.0):
                yield turning_chain(length, coupling, field)
    for leaves, sizes in ((3, (2, 12)), (30, (2, 12))):
        for strength in (0.5, 5.0, 100.0, 350.0, 3000.0):
            for states in sizes:
                yield hub(leaves, states, strength, rng)
    for spread in (1.0, 50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 700.0, 10_000.0):
        for zeros in (0.0, 0.1, 0.3):
            for _ in range(2):
                yield random_graph(rng, spread, zeros)


@cache
def solved_cases():
    """Each case with its plan, a direction, and what the safe engine finds; None where the model is impossible."""
    solved = []
    for cards, scopes, theta in cases():
        layout = Layout.build(cards, scopes)
        tree = planning.BucketTree.build(layout)
        direction = np.random.default_rng(len(theta)).normal(size=theta.size)
        try:
            log_partition, mu, product = array_engine(layout).linearize(theta)
        except ModelError:
            solved.append((cards, theta, tree, direction, None))
        else:
            solved.append((cards, theta, tree, direction, (log_partition, mu, product(direction))))
    return solved


@pytest.mark.parametrize("force", [None, "cells", "products"])
def test_the_linear_domain_is_right_or_refuses(force):
    refused = accepted = wrong_without_check = 0
    for cards, theta, tree, direction, found_safely in solved_cases():
        steps = planning.plan_steps(tree, force=force)
        auto = CompiledEngine(tree, steps)
        if found_safely is None:
            with pytest.raises(ModelError):
                auto.marginals(theta)
            continue
        log_partition, mu, expected = found_safely
        # Rounding of sums at the size of the potentials, the condition of the problem and no fault of ours.
        slack = 1e-13 * max(1.0, float(np.abs(theta[theta > -np.inf]).max()) * len(cards))
        for engine in (LinearEngine(tree, steps), auto):
            try:
                found, found_mu, found_product = engine.linearize(theta)
            except FloatingPointError:
                assert engine is not auto
                refused += 1
                continue
            accepted += engine is not auto
            assert abs(found - log_partition) <= 1e-12 * max(1.0, abs(log_partition)) + slack
            np.testing.assert_allclose(found_mu, mu, rtol=0, atol=1e-11 + slack)
            np.testing.assert_allclose(
                found_product(direction), expected, rtol=0, atol=1e-10 + 20 * slack
            )
        wrong_without_check += _is_wrong_without_check(auto, theta, log_partition, mu)
    assert refused > 25
    assert accepted > 25
    assert wrong_without_check > 5  # the check earns its keep


def _is_wrong_without_check(engine: CompiledEngine, theta, log_partition, mu) -> bool:
    """Whether the same sweeps without the check would have given a finite, wrong answer."""
    from bayesprivmrf.marginals import exact as compiled

    program, bounds, free = engine.program, engine.bounds, engine.free_log_count
    work, scales = np.empty(program.workspace), np.empty(program.steps)
    tops, _ = compiled.prepare(theta, bounds, work, True)
    nowhere = np.zeros(max(program.messages, 1), dtype=np.uint8)  # no entry is looked at
    with np.errstate(all="ignore"):
        rest = compiled.collect(
            program.code, program.steps, program.maps, work, scales, nowhere, program.cells, False
        )
    found = tops + rest + free
    if not np.isfinite(found):
        return False
    unchecked = np.ones(program.cells + program.messages)
    compiled.distribute(
        program.code, program.steps, program.maps, work, scales, program.scratch, unchecked
    )
    if not np.all(np.isfinite(unchecked)):
        return False
    return bool(
        abs(found - log_partition) > 1e-6 * max(1.0, abs(log_partition))
        or np.abs(unchecked[: program.cells] - mu).max(initial=0.0) > 1e-6
    )


def test_a_long_conflicting_chain_agrees_with_decimal_arithmetic():
    """An independent reference: the transfer matrices in fifty digits with unbounded exponents."""
    for coupling, field in ((0.5, 300.0), (40.0, 200.0), (350.0, 4000.0)):
        cards, scopes, theta = conflicting_chain(40, coupling, field)
        n = len(cards)
        with localcontext() as context:
            context.prec = 50
            weight = [
                [Decimal(x).exp() for x in row]
                for row in ((coupling, -coupling), (-coupling, coupling))
            ]
            evidence = {0: (field, -field), n // 2: (-field, field), n - 1: (field, -field)}
            local = [[Decimal(x).exp() for x in evidence.get(i, (0.0, 0.0))] for i in range(n)]
            ahead = [local[0]]
            for i in range(1, n):
                ahead.append(
                    [sum(ahead[-1][a] * weight[a][b] for a in (0, 1)) * local[i][b] for b in (0, 1)]
                )
            behind = [[Decimal(1), Decimal(1)]]
            for i in range(n - 1, 0, -1):
                behind.append(
                    [
                        sum(weight[a][b] * local[i][b] * behind[-1][b] for b in (0, 1))
                        for a in (0, 1)
                    ]
                )
            behind.reverse()
            mass = sum(ahead[-1])
            exact = float(mass.ln())
            marginals = [
                float(ahead[i][a] * weight[a][b] * local[i + 1][b] * behind[i + 1][b] / mass)
                for i in range(n - 1)
                for a in (0, 1)
                for b in (0, 1)
            ]
        found, mu = marginal_engine(cards, scopes).marginals(theta)
        assert found == pytest.approx(exact, rel=1e-14)
        np.testing.assert_allclose(mu[: len(marginals)], marginals, rtol=0, atol=1e-11)


def test_structural_zeros_stay_in_the_linear_domain():
    """Zeros that the model declares are no reason to leave it, wherever they move between calls."""
    layout = Layout.build((3,) * 8, [(i, i + 1) for i in range(7)])
    engine, safe = LinearEngine(planning.BucketTree.build(layout)), array_engine(layout)
    rng = np.random.default_rng(8)
    for _ in range(5):
        theta = rng.normal(size=engine.size)
        theta[rng.random(engine.size) < 0.3] = -np.inf
        for _ in range(2):
            theta += 0.1
            np.testing.assert_allclose(
                engine.marginals(theta)[1], safe.marginals(theta)[1], atol=1e-13
            )


def test_whatever_a_direction_holds_at_an_impossible_cell_is_ignored():
    engine = marginal_engine((2, 2, 2), [(0, 1), (1, 2)])
    theta = np.array([0.0, -np.inf, 1.0, 0.5, 0.3, 0.1, 0.0, -np.inf])
    direction = np.arange(8.0)
    other = np.where(theta == -np.inf, 1e9, direction)
    _, _, product = engine.linearize(theta)
    np.testing.assert_array_equal(product(direction), product(other))
