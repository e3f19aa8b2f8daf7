"""Private Frank-Wolfe's share for single variables: what it costs, and the fields that are refitted to it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from golden.made_up import BINARY, SURVEY, binary_records, survey_records
from golden.reading import FILES
from mechanisms.contract import Silent, released

import bayesprivmrf as bpm
from bayesprivmrf.audit import audit
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.loglinear_fit import Fixed
from bayesprivmrf.learning.frank_wolfe import by_regressions as refit
from bayesprivmrf.learning.frank_wolfe import singles_plan
from bayesprivmrf.learning.select_measure import Measured
from bayesprivmrf.mechanisms import PrivateFrankWolfe
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian, PrivacyGuarantee

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
pytestmark = pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")

INDICATORS = bpm.declare(states={f"q{i}": [0, 1] for i in range(12)})


def sparse(records: int, seed: int) -> pd.DataFrame:
    """Twelve indicators of frequencies .003 to .3; three people in ten are busy and have three times as many."""
    rng = np.random.default_rng(seed)
    busy = rng.random(records) < 0.3
    rates = np.geomspace(0.003, 0.3, 12)[:, None] * np.where(busy, 1.9, 0.6)
    return pd.DataFrame(
        (rng.random((12, records)) < rates).T.astype(int), columns=list(INDICATORS.nodes)
    )


def margins(learned) -> np.ndarray:
    return np.array([learned.solution.marginal([v]).values[-1] for v in learned.domain.variables])


@pytest.mark.parametrize("width", [2.0, 8.0])
def test_margins_of_sparse_indicators_are_those_of_the_records_and_without_the_share_are_not(width):
    data = sparse(20_000, 1)
    truth = data.mean().to_numpy()
    # noise of sd 34.6 on a sum of spins is .0009 of a margin: with the number of records, .01 is ten of them
    learned = PrivateFrankWolfe(rho=0.1, width=width).release(INDICATORS, data, rng=2)
    assert np.abs(margins(learned) - truth).max() < 0.01
    assert learned.status == "approximate"
    assert learned.details["margin_gap"] < 0.001
    before = PrivateFrankWolfe(rho=0.1, width=width, single_share=0).release(
        INDICATORS, data, rng=2
    )
    assert np.abs(margins(before) - truth).max() > 0.03


def law_of(couplings: Fixed, fields: np.ndarray, cards: tuple[int, ...]) -> np.ndarray:
    """Table of all states, by the definition."""
    log = np.zeros(cards)
    for cell in itertools.product(*map(range, cards)):
        start, value = 0, 0.0
        for scope in couplings.scopes:
            shape = tuple(cards[v] for v in scope)
            size = math.prod(shape)
            value += couplings.potentials[start : start + size].reshape(shape)[
                tuple(cell[v] for v in scope)
            ]
            start += size
        first = np.cumsum([0, *cards])
        log[cell] = value + sum(fields[first[v] + state] for v, state in enumerate(cell))
    weights = np.exp(log - log.max())
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("cards", "inference"),
    [((2, 2, 2, 2), "exact"), ((2, 3, 1, 4), "exact"), ((2, 3, 1, 4), "gibbs")],
)
def test_refitted_fields_give_the_measured_margins_by_enumeration(cards, inference, monkeypatch):
    monkeypatch.setattr(
        "bayesprivmrf.inference.loglinear_fit.fit.is_narrow", lambda *_: inference == "exact"
    )
    rng, total = np.random.default_rng(3), 50_000
    pairs = [(i, j) for i in range(4) for j in range(i) if min(cards[i], cards[j]) > 1]
    couplings = Fixed(
        tuple(pairs), np.concatenate([rng.normal(0, 0.4, cards[i] * cards[j]) for i, j in pairs])
    )
    shares = [rng.dirichlet(np.full(k, 0.7)) * 0.99 + 0.01 / k for k in cards]
    tables = np.rint(np.concatenate(shares) * total).astype(np.int64)
    is_binary = set(cards) == {2}
    plan = singles_plan(cards, DiscreteGaussian(1.0))
    sums = 2 * tables[1::2] - total if is_binary else tables
    found = refit.fit_fields(
        Measured(one_way=sums, pairs=np.zeros((0, 2), int), two_way=sums[:0]),
        plan,
        total,
        couplings,
    )
    joint = law_of(couplings, found.fields, cards)
    seen = np.concatenate(
        [joint.sum(axis=tuple(w for w in range(len(cards)) if w != v)) for v in range(len(cards))]
    )
    # exact: but for the penalty, which is a part of the sampling error; draws: 20 a record, as many sd
    np.testing.assert_allclose(
        seen, np.concatenate(shares), atol=3e-4 if inference == "exact" else 4e-3
    )
    assert found.agrees
    assert found.details["inference"] == inference
    by_variable = np.split(found.fields, np.cumsum(cards)[:-1])
    np.testing.assert_allclose([field.sum() for field in by_variable], 0, atol=1e-9)


@pytest.mark.parametrize(
    "settings", [{"order": 3}, {"order": 3, "target": "linf"}, {"adjacency": "replace-one"}]
)
def test_other_forms_are_refitted_as_well(settings):
    data = sparse(20_000, 4)[[f"q{i}" for i in range(4, 12)]]
    variables = bpm.declare(states={name: [0, 1] for name in data})
    learned = PrivateFrankWolfe(rho=0.5, width=3.0, **settings).release(variables, data, rng=5)
    assert np.abs(margins(learned) - data.mean().to_numpy()).max() < 0.01


def test_tables_of_more_states_are_refitted_too():
    data = survey_records()
    learned = PrivateFrankWolfe(rho=50.0, width=3.0).release(bpm.declare(SURVEY), data, rng=6)
    for name in learned.domain.variables:
        told = learned.solution.marginal([name])
        seen = (
            data[name]
            .value_counts(normalize=True)
            .reindex(list(told[str(name)].to_numpy()), fill_value=0)
        )
        np.testing.assert_allclose(told.values, seen.to_numpy(), atol=0.02)


def test_a_count_below_zero_gives_finite_fields_and_a_margin_near_zero():
    sums = np.array([-1_080, 0, 40])  # of 1,000 records: forty fewer than nobody
    plan = singles_plan((2, 2, 2), DiscreteGaussian(40.0))
    measured = Measured(one_way=sums, pairs=np.zeros((0, 2), int), two_way=sums[:0])
    pairs = Fixed(((1, 0),), 0.3 * np.array([1.0, -1.0, -1.0, 1.0]))
    found = refit.fit_fields(measured, plan, 1_000.0, pairs)
    assert np.isfinite(found.fields).all()
    assert law_of(pairs, found.fields, (2, 2, 2))[1].sum() < 0.02
    assert found.agrees


def test_a_model_whose_chains_do_not_mix_is_not_trusted():
    # forty variables that nearly all agree: chains that start at random and at one end never meet
    p = 40
    scopes = tuple((i, j) for i in range(p) for j in range(i))
    strong = Fixed(scopes, np.tile(0.4 * np.array([1.0, -1.0, -1.0, 1.0]), len(scopes)))
    sums = np.zeros(p, dtype=np.int64)
    measured = Measured(one_way=sums, pairs=np.zeros((0, 2), int), two_way=sums[:0])
    found = refit.fit_fields(
        measured, singles_plan((2,) * p, DiscreteGaussian(5.0)), 10_000.0, strong
    )
    assert not found.agrees
    assert found.details["inference"] == "gibbs"


def test_a_release_whose_margins_disagree_with_the_measured_ones_says_so(monkeypatch):
    def off(measured, plan, total, couplings):
        found = whole(measured, plan, total, couplings)
        return refit.FittedFields(fields=found.fields, agrees=False, details=found.details)

    whole = refit.fit_fields
    monkeypatch.setattr("bayesprivmrf.learning.frank_wolfe.by_regressions.fit_fields", off)
    learned = PrivateFrankWolfe(rho=1.0, width=1.0).release(INDICATORS, sparse(2_000, 7), rng=8)
    assert learned.status is bpm.Status.NOT_TRUSTED
    assert learned.solution.status is bpm.Status.NOT_TRUSTED


def test_a_share_of_zero_is_what_was_before_and_its_files_say_the_same(tmp_path):
    old = bpm.load_release(FILES / "v3" / "ising-frank-wolfe.golden")
    mechanism = PrivateFrankWolfe(rho=2.0, width=2.0, single_share=0)
    again = mechanism.release(bpm.declare(BINARY), binary_records(), rng=25)
    np.testing.assert_array_equal(again.coupling_matrix, old.coupling_matrix)
    np.testing.assert_array_equal(again.field_vector, old.field_vector)
    assert again.map.as_dict() == old.map.as_dict()
    assert old.map.singles is None


@pytest.mark.parametrize("order", [2, 3])
def test_a_file_keeps_what_was_measured_and_the_map_measures_again(order, tmp_path):
    learned = PrivateFrankWolfe(rho=1.0, width=2.0, order=order).release(
        INDICATORS, sparse(3_000, 9), rng=10
    )
    learned.save(tmp_path / "one.release")
    loaded = bpm.load_release(tmp_path / "one.release")
    assert loaded.map.singles == learned.map.singles
    np.testing.assert_array_equal(loaded.statistics.flat, learned.statistics.flat)
    np.testing.assert_array_equal(loaded.vector(), learned.vector())
    assert loaded.status == learned.status
    loaded.save(tmp_path / "two.release")
    assert (tmp_path / "one.release").read_bytes() == (tmp_path / "two.release").read_bytes()
    naive = bpm.NaiveMLE().fit(loaded.statistics)
    means = [naive.marginal([v]).values[-1] for v in INDICATORS.nodes]
    np.testing.assert_allclose(means, margins(learned), atol=0.01)


# what the share costs


STATES = ((2, 2, 2), (2, 3, 1))


class Seen(Silent):
    """Remembers what noise of which law was added to."""

    def __init__(self) -> None:
        self.exact = []

    def add(self, counts, law):
        self.exact.append((np.array(counts), law))
        return super().add(counts, law)


def single_sums(frame: pd.DataFrame, network, **settings) -> tuple[np.ndarray, DiscreteGaussian]:
    """The exact sums of single variables that a release adds noise to, and the noise's law."""
    seen = Seen()
    released(PrivateFrankWolfe(rho=0.8, width=1.0, steps=2, **settings), network, frame, seen)
    (found,) = [(sums, law) for sums, law in seen.exact if sums.size > 1]
    return found


@pytest.mark.parametrize("cards", STATES)
@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_no_neighbours_of_small_data_are_told_apart_by_more_than_the_share(cards, adjacency):
    """All data sets of one or two records, all neighbours: the worst one spends the share but for rounding."""
    names = [f"v{i}" for i in range(len(cards))]
    network = bpm.declare(
        states={name: list(range(k)) for name, k in zip(names, cards, strict=True)}
    )
    cells = list(itertools.product(*map(range, cards)))
    each = {}
    for cell in cells:
        each[cell], law = single_sums(
            pd.DataFrame([cell], columns=names), network, adjacency=adjacency
        )
    two, same = single_sums(
        pd.DataFrame([cells[0], cells[-1]], columns=names), network, adjacency=adjacency
    )
    np.testing.assert_array_equal(
        two, each[cells[0]] + each[cells[-1]]
    )  # sums, whatever the number of records
    assert same == law
    changes = [each[cell] for cell in cells]
    if adjacency is REPLACE:
        changes = [one - other for one in changes for other in changes]
    worst = max(float((change.astype(float) ** 2).sum()) for change in changes) / (2 * law.scale**2)
    assert 0.999 * 0.05 * 0.8 < worst <= 0.05 * 0.8
    # the discrete law itself: its divergence at some orders, by summing, no more than that of the formula
    grid = np.arange(-400, 401)
    log = law.log_density(grid)
    for order in (1.5, 4.0):
        moved = law.log_density(grid - 1)
        divergence = np.log(np.exp(order * log + (1 - order) * moved).sum()) / (order - 1)
        assert divergence <= order / (2 * law.scale**2) + 1e-9


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_an_audit_passes_the_noise_and_catches_noise_for_one_variable_alone(adjacency):
    """The twin forgets that a record moves all p sums: its claim is p times too small."""
    p, rho = 6, 2.0
    names = [f"v{i}" for i in range(p)]
    network = bpm.declare(states={name: [0, 1] for name in names})
    sums, law = {}, None
    for code in (0, 1):
        frame = pd.DataFrame(np.full((1, p), code), columns=names)
        seen = Seen()
        mechanism = PrivateFrankWolfe(
            rho=rho, width=1.0, steps=2, single_share=0.5, adjacency=adjacency
        )
        released(mechanism, network, frame, seen)
        ((sums[code], law),) = [(exact, law) for exact, law in seen.exact if exact.size > 1]
    pair = (sums[0], sums[1] if adjacency is REPLACE else 0 * sums[0])

    def runs(exact: np.ndarray, law: DiscreteGaussian, seed: int):
        noise = SimulatedNoise(np.random.default_rng(seed))
        towards = np.sign(pair[1] - pair[0])
        return lambda size: (
            (np.array([noise.add(exact, law) for _ in range(size)]) - pair[0]) @ towards
            > np.abs(pair[1] - pair[0]).sum() / 2
        ).astype(int)

    claim = PrivacyGuarantee(rho=0.5 * rho, adjacency=adjacency)
    twin = DiscreteGaussian(law.scale / math.sqrt(p))
    for noise, is_caught in ((law, False), (twin, True)):
        found = audit(
            runs(pair[0], noise, 11), runs(pair[1], noise, 12), claim, runs=4000, deltas=(0.1, 0.01)
        )
        assert found.is_violated == is_caught


def test_the_guarantee_and_the_preview_say_what_the_share_buys():
    mechanism = PrivateFrankWolfe(rho=0.5, width=1.0, single_share=0.2)
    told = mechanism.preview(INDICATORS, total=10_000).set_index("step")
    assert told.loc["each variable by itself", "rho"] == 0.2 * 0.5
    assert told.loc["each variable by itself", "count"] == 12
    assert told["rho"].sum() == pytest.approx(0.5, rel=1e-12)
    learned = mechanism.release(INDICATORS, sparse(1_000, 13), rng=14)
    assert learned.guarantee.rho == 0.5
    assert learned.provenance.settings["single_share"] == 0.2
    with pytest.raises(ArgumentError, match="leave a part"):
        PrivateFrankWolfe(rho=0.5, width=1.0, single_share=0.99).preview(INDICATORS)
