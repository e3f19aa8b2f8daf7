"""Scales and sensitivities of the learning mechanisms, derived anew and held to all neighbors of small data."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.audit import Choices, Sums
from bayesprivmrf.learning import frank_wolfe, select_measure
from bayesprivmrf.learning.frank_wolfe import RESIDUAL_UNIT, NodeRegressions
from bayesprivmrf.mechanisms import (
    ParityQueries,
    PrivateFrankWolfe,
    PrivateLogisticRegression,
    SelectMeasure,
    base,
    promised_loss,
)
from bayesprivmrf.model import Monomials
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.privacy import (
    Adjacency,
    Exposure,
    parity_l2_sensitivity,
    selection_rho,
    step_rho,
    step_scale,
)
from benchmarks.papers.frank_wolfe import PaperPairs

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


# Frank-Wolfe


@pytest.mark.parametrize(("adjacency", "share"), [(REPLACE, 1.0), (ADD, 0.5)])
def test_scales_are_those_of_the_exponential_mechanism(adjacency, share):
    # one choice of range r at scale b is (r/b)^2/8; on sums r = 4 B where a record is replaced, B = L for radius 1
    T, p, rho = 37, 11, 0.6
    logistic = math.sqrt(2 * T * p / rho)
    assert step_scale(Exposure.of_logistic(p), rho, T, adjacency) == pytest.approx(share * logistic)
    softmax = 2 * math.sqrt(T * p / rho)
    assert step_scale(Exposure.of_softmax((4,) * p), rho, T, adjacency) == pytest.approx(
        share * softmax
    )
    pairs = math.sqrt(2 * T * p * 3 / rho)
    assert step_scale(Exposure.of_pairs((4,) * p), rho, T, adjacency) == pytest.approx(
        share * pairs
    )


STATES = (3, 2)
RECORDS = np.array(list(itertools.product(*map(range, STATES))), dtype=np.uint8)


def regressions(kind: Any, codes: np.ndarray, steps: int, radius: float) -> NodeRegressions:
    """The regressions of a map after some steps towards atoms of a fixed seed."""
    fitted = kind(
        cardinalities=STATES,
        eligible=~np.eye(2, dtype=bool),
        width=radius,
        rho=1.0,
        adjacency=REPLACE,
        steps=5,
    )
    found = fitted.regressions(codes, np.ones(len(codes), dtype=np.int64))
    rng, (rows, _) = np.random.default_rng(1), found.coefficients.shape
    widths = np.diff(found.design.starts)
    for _ in range(steps):
        found.sums()
        groups = rng.integers(0, widths.size, rows)
        signs = rng.choice(np.array([-1, 1], dtype=np.int8), (rows, widths.max()))
        signs[np.arange(widths.max()) >= widths[groups, None]] = 0
        found.move(frank_wolfe.Atoms(groups=groups, signs=signs), 1)
    return found


def atom_scores(sums: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Scores of all atoms of all regressions, by the definition: shape (rows, atoms)."""
    columns = []
    for start, stop in itertools.pairwise(starts):
        columns += [
            sums[:, start:stop] @ np.array(signs)
            for signs in itertools.product((-1, 1), repeat=stop - start)
        ]
    return np.stack(columns, axis=1)


def costs(first: np.ndarray, second: np.ndarray, order: float) -> float:
    """Renyi divergence over its order of all choices together, laws in rows."""
    terms = (first**order * second ** (1 - order)).sum(axis=1)
    return float(np.log(terms).sum() / (order - 1) / order)


def law(scores: np.ndarray, scales: np.ndarray) -> np.ndarray:
    weights = np.exp((scores - scores.max(axis=1, keepdims=True)) / scales[:, None])
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
@pytest.mark.parametrize("kind", [frank_wolfe.PairwiseBySoftmax, frank_wolfe.PairwiseByPairs])
@pytest.mark.parametrize("steps", [0, 6])
def test_a_step_of_any_alphabet_costs_no_neighbors_more_than_it_may(kind, adjacency, steps):
    # exact laws of all choices of a step, every data set of one record and one more, every neighbor of it
    rho, radius = 0.4, 3.0
    each = [regressions(kind, record[None], steps, radius) for record in RECORDS]
    starts, bounds = each[0].design.starts, each[0].bounds
    scores = np.array([atom_scores(one.sums(), starts) for one in each])
    exposure = (
        Exposure.of_softmax(STATES)
        if kind is frank_wolfe.PairwiseBySoftmax
        else Exposure.of_pairs(STATES)
    )
    scales = bounds * step_scale(exposure, rho, 1, adjacency)
    worst = 0.0
    for base_, one, other in itertools.product(range(len(RECORDS)), repeat=3):
        before = scores[base_] + scores[one]
        after = scores[base_] + (scores[other] if adjacency is REPLACE else 0)
        pair = law(before, scales), law(after, scales)
        for order in (1.01, 2.0, 8.0):
            worst = max(worst, costs(*pair, order), costs(*pair[::-1], order))
    assert 0.2 * rho < worst <= rho


@pytest.mark.parametrize("steps", [0, 3, 20])
def test_no_record_reaches_further_into_the_papers_pairs_than_is_stated(steps):
    # a regression costs (2 move / b)^2 / 2; all of a record's together, at most `replaced` times (4 B / b)^2 / 2
    each = [regressions(PaperPairs, record[None], steps, 1.0) for record in RECORDS]
    bounds = each[0].bounds
    sums = np.array([one.sums() for one in each])
    moves = np.abs(sums[:, None] - sums[None]).max(axis=3)
    assert (moves <= 2 * bounds).all()
    squares = ((2 * moves / (4 * bounds)) ** 2).sum(axis=2)
    replaced = PaperPairs(
        cardinalities=STATES, eligible=~np.eye(2, dtype=bool), width=1.0, rho=1.0, adjacency=REPLACE
    ).replaced
    assert squares.max() <= replaced
    if steps == 0:
        assert squares.max() == replaced == sum(STATES)


@pytest.mark.parametrize("weight", [1, 900, 1_000_000])
def test_a_bound_holds_where_bits_of_margins_are_dropped(weight):
    # weights as large as the steps of many thousands, so that the table has fewer cells than there are margins
    records = np.array(list(itertools.product((0, 1), repeat=3)), dtype=np.uint8)
    rng = np.random.default_rng(2)
    moves = [
        frank_wolfe.Atoms(
            groups=rng.integers(0, 4, 3), signs=rng.choice(np.array([-1, 1], np.int8), (3, 1))
        )
        for _ in range(30)
    ]
    residuals = []
    for record in records:
        one = frank_wolfe.LogisticRegressions(
            frank_wolfe.Design.with_constant(record[None], (2, 2, 2)),
            record[None],
            np.ones(1, dtype=np.int64),
            6.0,
            np.arange(3),
        )
        for place, atoms in enumerate(moves):
            one.sums()
            one.move(atoms, weight + place)
        residuals.append(one.sums()[:, -1])
        bounds, shift = one.bounds, one.shift
    largest = np.abs(residuals).max(axis=0)
    assert (shift > 0) == (weight > 1)
    assert (largest <= bounds).all()
    assert (largest >= 0.8 * bounds).any()
    assert (bounds < RESIDUAL_UNIT).all()


# select and measure


def test_of_all_graphs_on_five_variables_none_moves_further_and_some_of_each_size_as_far():
    p = 5
    pairs = list(itertools.combinations(range(p), 2))
    records = np.array(list(itertools.product((-1, 1), repeat=p)))
    products = np.array([[x[i] * x[j] for i, j in pairs] for x in records])
    moved = (products[0] - products) ** 2  # by symmetry from one record to all
    chosen = np.array(list(itertools.product((0, 1), repeat=len(pairs))))
    furthest, sizes = (chosen @ moved.T).max(axis=1), chosen.sum(axis=1)
    for size in range(1, len(pairs) + 1):
        bound = select_measure.pairs_sensitivity(p, size, "moments", REPLACE) ** 2
        assert furthest[sizes == size].max() == round(bound)
        assert bound >= furthest[sizes == size].max()


@pytest.mark.parametrize("cards", [(2, 3, 1), (2, 1, 1, 4)])
def test_single_tables_move_as_far_as_is_stated_also_with_one_state(cards):
    cells = list(itertools.product(*map(range, cards)))
    tables = np.array(
        [np.concatenate([np.arange(k) == x for k, x in zip(cards, c, strict=True)]) for c in cells]
    )
    tables = tables.astype(int)
    added = max((table**2).sum() for table in tables)
    replaced = max(((a - b) ** 2).sum() for a in tables for b in tables)
    assert round(select_measure.singles_sensitivity(cards, "tables", ADD) ** 2) == added
    assert round(select_measure.singles_sensitivity(cards, "tables", REPLACE) ** 2) == replaced


# what is spent, exactly


NETWORK = bpm.declare(states={name: ["c", "b"] for name in "vwxyz"})


def spent(mechanism: Any) -> Fraction:
    """Sum of the costs of everything that a release draws, each by the formula of its kind."""
    adjacency, cost = mechanism.adjacency, Fraction(0)
    outlays = mechanism.outlays(NETWORK, 1e5)
    drawn = [draw for outlay in outlays for draw in outlay.draws]
    laws = [draw.law for draw in drawn if isinstance(draw, Sums)]
    choices = [draw for draw in drawn if isinstance(draw, Choices)]
    has_bought_total = outlays[0].step == "number of records"
    if has_bought_total:
        cost += promised_loss([laws.pop(0)], 1.0)
    if isinstance(mechanism, SelectMeasure):
        (one_way, two_way), form, pairs = laws, mechanism.measure or "moments", outlays[-1].count
        cost += promised_loss(
            [one_way], select_measure.singles_sensitivity((2,) * 5, form, adjacency)
        )
        cost += promised_loss(
            [two_way], select_measure.pairs_sensitivity(5, pairs, form, adjacency)
        )
        for choice in choices:
            cost += Fraction(
                selection_rho(
                    select_measure.score_range(adjacency), choice.scale, pairs, at_once=True
                )
            )
        return cost
    if isinstance(mechanism, ParityQueries):
        moved, rounds = 1.0 if adjacency is ADD else 2.0, outlays[-1].count
        cost += Fraction(selection_rho(2 * moved, choices[0].scale, rounds))
        return cost + sum((promised_loss([law] * rounds, moved) for law in laws), Fraction(0))
    if isinstance(mechanism, PrivateFrankWolfe) and mechanism.single_share > 0:
        cost += promised_loss(
            [laws.pop(0)], select_measure.singles_sensitivity((2,) * 5, "moments", adjacency)
        )
    exposure = Exposure.of_logistic(1 if isinstance(mechanism, PrivateLogisticRegression) else 5)
    steps = outlays[-1].count // exposure.choices
    cost += Fraction(step_rho(exposure, choices[0].scale, steps, adjacency))
    with_empty = adjacency is ADD and not has_bought_total
    sensitivity = parity_l2_sensitivity(Monomials.complete(5, 2), adjacency, with_empty=with_empty)
    return cost + sum((promised_loss([law], sensitivity) for law in laws), Fraction(0))


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_no_budget_is_split_into_more_than_itself_whatever_its_digits(adjacency):
    rng = np.random.default_rng(3)
    for rho in (10 ** rng.uniform(-6, 2, 6)).tolist():
        for mechanism in (
            PrivateFrankWolfe(rho=rho, width=1.0, adjacency=adjacency),
            PrivateFrankWolfe(rho=rho, width=1.0, steps=13, adjacency=adjacency),
            PrivateFrankWolfe(rho=rho, width=1.0, steps=13, single_share=0, adjacency=adjacency),
            PrivateFrankWolfe(
                rho=rho, width=1.0, single_share=rng.uniform(0.01, 0.9), adjacency=adjacency
            ),
            PrivateFrankWolfe(rho=rho, width=1.0, order=3, target="linf", adjacency=adjacency),
            PrivateFrankWolfe(
                rho=rho, width=1.0, order=3, target="linf", steps=13, adjacency=adjacency
            ),
            PrivateLogisticRegression(rho=rho, radius=1.0, target="x", adjacency=adjacency),
            SelectMeasure(rho=rho, degree=1, adjacency=adjacency),
            SelectMeasure(rho=rho, degree=1, measure="tables", adjacency=adjacency),
            SelectMeasure(rho=rho, degree=4, adjacency=adjacency),
            ParityQueries(rho=rho, order=2, method="pmw", adjacency=adjacency),
        ):
            cost = spent(mechanism)
            assert mechanism.promise(NETWORK).rho == rho
            assert cost <= Fraction(rho), mechanism
            assert cost > Fraction(rho) * Fraction(99, 100), mechanism


# nothing but noise and choices lets the records out


class Deaf(NoiseSource):
    """Answers without looking at what it is asked to hide: all that is left is what leaks."""

    is_simulated = True

    def __init__(self) -> None:
        self.noise, self.bits, self.choices = (np.random.default_rng(seed) for seed in (4, 5, 6))

    def add(self, counts, law):
        return np.rint(self.noise.normal(50, 30, np.shape(counts))).astype(np.int64)

    def words(self, size):
        return self.bits.integers(0, 2**64, size, dtype=np.uint64)

    def choose_several(self, scores, scale, count, eligible=None):  # type: ignore[override]
        ranks = self.choices.random(np.shape(scores))
        return np.argsort(np.where(True if eligible is None else eligible, -ranks, 1.0), axis=1)[
            :, :count
        ]


LEARNERS = {
    "Ising": (2, PrivateFrankWolfe(rho=1.0, width=1.0)),
    "given steps": (2, PrivateFrankWolfe(rho=1.0, width=1.0, steps=12)),
    "regressions alone": (2, PrivateFrankWolfe(rho=1.0, width=1.0, steps=12, single_share=0)),
    "softmax": (3, PrivateFrankWolfe(rho=1.0, width=1.0)),
    "pairs": (3, PrivateFrankWolfe(rho=1.0, width=1.0, method="pairs")),
    "monomials": (2, PrivateFrankWolfe(rho=1.0, width=1.0, order=3)),
    "gathered": (2, PrivateFrankWolfe(rho=1.0, width=1.0, order=3, target="linf")),
    "gathered, given steps": (
        2,
        PrivateFrankWolfe(rho=1.0, width=1.0, order=3, target="linf", steps=12),
    ),
    "regression": (2, PrivateLogisticRegression(rho=1.0, radius=1.0, target="a")),
    "moments": (2, SelectMeasure(rho=1.0, degree=1)),
    "tables": (3, SelectMeasure(rho=1.0, degree=1)),
    "all pairs": (2, SelectMeasure(rho=1.0, degree=3)),
    "rounds": (2, SelectMeasure(rho=1.0)),
    "rounds of more states": (3, SelectMeasure(rho=1.0)),
    **{
        method: (2, ParityQueries(rho=1.0, order=3, method=method))
        for method in ("gaussian", "pmw", "auto")
    },
}


def records(size: int, states: int, *, equal: bool = False) -> pd.DataFrame:
    codes = np.random.default_rng(7).integers(0, states, (size, 4))
    labels = np.array(["r", "s", "t"])[codes * (not equal)]
    return pd.DataFrame(labels, columns=list("abcd"))


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
@pytest.mark.parametrize("name", LEARNERS)
def test_a_release_holds_nothing_of_the_records_but_noisy_sums_and_choices(
    name, monkeypatch, tmp_path
):
    states, mechanism = LEARNERS[name]
    monkeypatch.setattr(base, "noise_source", lambda rng: Deaf())
    network = bpm.declare(states={v: list("rst"[:states]) for v in "abcd"})
    written = []
    for place, frame in enumerate(
        (
            records(0, states),
            records(1, states),
            records(300, states, equal=True),  # merged to one row
            records(4500, states),  # several blocks, some rows merged
        )
    ):
        release = mechanism.release(network, frame)
        path = tmp_path / str(place)
        release.save(path)
        written.append((repr(release), path.read_bytes()))
    assert all(each == written[0] for each in written)
