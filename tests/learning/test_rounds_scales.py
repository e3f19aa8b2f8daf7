"""Tables of a model learned in rounds from nearly deterministic columns."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.inference.loglinear_fit import Eliminated, Listed
from bayesprivmrf.learning.select_measure import NoisyTable, fit_tables
from bayesprivmrf.mechanisms import SelectMeasure
from bayesprivmrf.mechanisms.select_measure import rounds

RECORDS = 1500
ANSWERS = ["no", "yes", "missing"]


def answers(seed):
    """Eight questions that depend on one trait; 4 % of the records lack all answers, and no other lacks any."""
    rng = np.random.default_rng([seed, 5])
    trait = np.linspace(0.4, 1.2, 8) * rng.normal(size=RECORDS)[:, None]
    codes = (rng.random((RECORDS, 8)) < 1 / (1 + np.exp(0.2 - trait))).astype(int)
    codes[rng.random(RECORDS) < 0.04] = 2
    return codes, ANSWERS


def copies(seed):
    """Two columns, two exact copies of each, a copy of each with 1 % flipped, and a column of its own."""
    rng = np.random.default_rng([seed, 7])
    first = (rng.random((RECORDS, 2)) < [0.2, 0.4]).astype(int)
    nearly = np.where(rng.random((RECORDS, 2)) < 0.01, 1 - first, first)
    own = (rng.random((RECORDS, 1)) < 0.3).astype(int)
    return np.column_stack([first, first, first, nearly, own]), ["no", "yes"]


def released(made, seed):
    codes, states = made(seed)
    data = pd.DataFrame(np.array(states)[codes], columns=[f"q{i}" for i in range(codes.shape[1])])
    network = bpm.declare(states=dict.fromkeys(data, states))
    return SelectMeasure(rho=0.1).release(network, data, rng=seed), codes, states


def cells(made, seeds):
    """Truth, whether the interval holds it, and how far the estimate is, of the cells of measured pairs."""
    rows = []
    for seed in seeds:
        learned, codes, states = released(made, seed)
        scopes = [set(each.query.scope) for each in learned.statistics.measurements]
        for i, j in combinations(range(codes.shape[1]), 2):
            if not any({f"q{i}", f"q{j}"} <= scope for scope in scopes):
                continue
            k = len(states)
            truth = np.bincount(k * codes[:, i] + codes[:, j], minlength=k * k)
            frame = learned.solution.interval([f"q{i}", f"q{j}"], of="records")
            frame = frame.assign(
                truth=truth, held=(frame["lower"] <= truth) & (truth <= frame["upper"])
            )
            rows.append(frame)
    return pd.concat(rows)


def quarters(found):
    return (
        found["held"].groupby(pd.qcut(found["truth"].rank(method="first"), 4, labels=False)).mean()
    )


@pytest.mark.slow
def test_intervals_hold_the_records_that_lack_all_answers():
    """The errors of two releases are small, and their intervals cover the truth."""
    found = cells(answers, range(2))
    missing = found.loc[("missing", "missing")]
    assert missing["held"].mean() > 0.6
    assert abs(missing["estimate"] - missing["truth"]).mean() < 0.01 * RECORDS
    assert quarters(found).min() > 0.8


@pytest.mark.slow
def test_intervals_hold_the_tables_of_copies():
    """The coverage over three releases is near nominal, also in the worst quarter."""
    assert quarters(cells(copies, range(3))).min() > 0.8


@pytest.mark.slow
def test_a_prior_that_the_numbers_contradict_does_not_narrow_intervals(monkeypatch):
    """A model with fixed scales, as in older files, has wide intervals where the prior is contradicted."""
    monkeypatch.setattr(rounds, "with_learned_scales", lambda fit, *given, **named: fit)
    missing = cells(answers, range(2)).loc[("missing", "missing")]
    assert abs(missing["estimate"] - missing["truth"]).mean() > 0.01 * RECORDS
    assert missing["held"].mean() > 0.3


def skipped(seed):
    """Two gates, each with three questions that only those who said yes are asked; the last state is "not asked"."""
    rng = np.random.default_rng([seed, 11])
    trait, columns = rng.normal(size=RECORDS), []
    for _ in range(2):
        is_asked = rng.random(RECORDS) < 1 / (1 + np.exp(0.5 - 0.8 * trait))
        columns.append(is_asked)
        for k in (3, 4, 3):
            score = np.floor(1.2 * (0.5 * trait + rng.normal(size=RECORDS)) + (k - 1) / 2)
            columns.append(np.where(is_asked, score.clip(0, k - 2), k - 1))
    return pd.DataFrame(np.column_stack(columns).astype(int)), (2, 3, 4, 3) * 2


@pytest.mark.slow
def test_intervals_hold_the_records_that_were_not_asked():
    """The cells of answers that no such record has may be empty, and what the model leaves there is given back."""
    held = []
    for seed in range(2, 8):
        data, cards = skipped(seed)
        network = bpm.declare(states={v: range(k) for v, k in enumerate(cards)})
        solution = SelectMeasure(rho=0.1).release(network, data, rng=seed).solution
        for first in (1, 5):
            for i, j in combinations(range(first, first + 3), 2):
                row = solution.interval([i, j], of="records").loc[(cards[i] - 1, cards[j] - 1)]
                truth = ((data[i] == cards[i] - 1) & (data[j] == cards[j] - 1)).sum()
                held.append(row["lower"] <= truth <= row["upper"])
    assert np.mean(held) > 0.85


def test_fixed_scales_are_among_the_assumptions_of_a_large_model():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.integers(0, 41, 20_000)})
    data["b"] = np.where(rng.random(20_000) < 0.5, data["a"], rng.integers(0, 41, 20_000))
    learned = SelectMeasure(rho=20.0).release(
        bpm.declare(dict.fromkeys(data, range(41))), data, rng=1
    )
    assert "1,680 coordinates" in learned.assumptions[0]
    small = released(copies, 0)[0]
    assert not any("coordinates" in sentence for sentence in small.assumptions)


@pytest.mark.parametrize("engine_of", [Listed, Eliminated])
def test_the_covariance_of_effects_is_the_derivative_of_their_means(engine_of):
    """By both engines, against central differences."""
    rng = np.random.default_rng(0)
    cards = (2, 3, 2, 2)
    scopes = [(0, 1), (1, 2, 3)]
    measured = [
        NoisyTable(scope=s, values=rng.gamma(2.0, 50, [cards[v] for v in s]), variance=4.0)
        for s in scopes
    ]
    fit = fit_tables(cards, measured)
    engine = engine_of(fit.effects)
    means, product = engine.linearized(fit.coordinates)
    assert means == pytest.approx(engine.means(fit.coordinates)[1])
    direction = rng.normal(size=fit.effects.size)
    step = 1e-5 * direction
    ahead, behind = (engine.means(fit.coordinates + sign * step)[1] for sign in (1, -1))
    assert product(direction) == pytest.approx((ahead - behind) / 2e-5, abs=1e-8)
