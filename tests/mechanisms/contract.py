"""Contracts of mechanisms: inherit, override `make`, and run. Of every mechanism, a replay; of tables, the whole."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from notebook import html_of

from bayesprivmrf.errors import DataError, PrivacyError
from bayesprivmrf.mechanisms import Mechanism, StatisticsMechanism, base, promised_loss
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.privacy import Adjacency, NoiseLaw, PrivacyGuarantee, selection

DOMAIN = Domain.from_states({"a": ["u", "v"], 0: [7, 5, 6], "c": [True, False]})
MODEL = ModelSpecification(domain=DOMAIN, cliques=(("a", 0), ("c", "a")))
CELLS = list(itertools.product(*DOMAIN.states))
ADJACENCIES = list(Adjacency)


def frame(records: Any) -> pd.DataFrame:
    """Data frame of a sequence of records of the contract's domain."""
    columns = zip(*records, strict=True) if len(records) else ([], [], [])
    return pd.DataFrame(dict(zip(DOMAIN.variables, map(list, columns), strict=True)))


def sample(size: int, seed: int = 0) -> pd.DataFrame:
    """Frame of uniformly drawn records."""
    return frame([CELLS[i] for i in np.random.default_rng(seed).integers(0, len(CELLS), size)])


def cost(law: NoiseLaw, difference: np.ndarray) -> Fraction:
    """Exact worst loss of noise on numbers that move by this difference: rho of Gaussian noise, else epsilon."""
    moved = np.ravel(difference).tolist()
    if law.kernel == "absolute":
        return Fraction(sum(map(abs, moved))) / Fraction(law.scale)
    if law.kernel == "square":
        return Fraction(sum(shift**2 for shift in moved)) / (2 * Fraction(law.scale) ** 2)
    return Fraction(sum(worst_log_ratio(law, shift) for shift in moved))


def worst_log_ratio(law: NoiseLaw, shift: int) -> float:
    """Largest log ratio of an integer law's probabilities a shift apart, by enumeration to far in its tails.

    It is rounded down to 13 decimals: floating point may have added as much.
    """
    reach = math.ceil(60 * law.standard_deviation) + abs(shift)
    k = np.arange(-reach, reach + 1)
    return math.floor(float(np.max(law.log_density(k) - law.log_density(k + shift))) * 1e13) / 1e13


class Replay(NoiseSource):
    """Answers the same whatever it was given."""

    is_simulated = False

    def add(self, counts, law):
        return np.arange(counts.size, dtype=np.int64)

    def words(self, size):
        return np.arange(1, size + 1, dtype=np.uint64) << np.uint64(32)


class Undrawn(NoiseSource):
    """Must not be asked for anything."""

    is_simulated = False

    def add(self, counts, law):
        raise AssertionError("noise was drawn")

    words = add


class Silent(Replay):
    """Adds nothing, so that a release shows what the mechanism counted."""

    def add(self, counts, law):
        return np.array(counts, dtype=np.int64)


def released(mechanism: Any, network: Any, data: Any, source: NoiseSource, **given: Any) -> Any:
    """Release by `release` itself, all noise from this source."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "noise_source", lambda rng: source)
        return mechanism.release(network, data, **given)


def without_generators(patch: pytest.MonkeyPatch) -> None:
    """Refuse every generator of NumPy, which is no source of privacy noise."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("privacy noise must not come from a generator of NumPy")

    for name in ("default_rng", "Generator", "random"):
        patch.setattr(np.random, name, refuse)


class Account:
    """Ledger that remembers, or refuses."""

    def __init__(self, refuse: bool = False) -> None:
        self.refuse, self.spent = refuse, []

    def spend(self, guarantee: Any, provenance: Any) -> None:
        if self.refuse:
            raise PrivacyError("the budget is spent")
        self.spent.append((guarantee, provenance))


@dataclass(frozen=True, eq=False, kw_only=True)
class Sums:
    """Noise that was added to whole numbers."""

    exact: np.ndarray
    law: NoiseLaw

    @property
    def public(self) -> Any:
        """What must not depend on the records."""
        return self.exact.shape, self.law

    def rho(self, other: Sums) -> Fraction:
        """What it costs beside the same step of a neighbour, zero-concentrated."""
        spent = cost(self.law, other.exact - self.exact)
        return spent if self.law.kernel == "square" else spent**2 / 2

    def epsilon(self, other: Sums) -> Fraction | float:
        """The same, pure: Gaussian noise has no such cost."""
        change = other.exact - self.exact
        return math.inf if self.law.kernel == "square" and change.any() else cost(self.law, change)


@dataclass(frozen=True, eq=False, kw_only=True)
class Choices:
    """The best candidates of each row, by scores with noise: by default the exponential mechanism.

    All log-ratios of the probabilities of two neighbours lie in an interval of the changes' range over the scale,
    which holds 0. That costs its square over eight (`bayesprivmrf.privacy.selection`); where it is known alone that
    none is larger in size, as of the largest score with Laplace noise, half of the square: `part`.
    """

    scores: np.ndarray
    scales: np.ndarray
    eligible: np.ndarray
    count: int = 1
    roundings: int = 1
    part: Fraction = Fraction(1, 8)

    @property
    def public(self) -> Any:
        """What must not depend on the records."""
        shown = self.scales.tolist(), self.eligible.tolist(), self.count, self.roundings, self.part
        return self.scores.shape, *shown

    def ranges(self, other: Choices) -> list[Fraction]:
        """Range of the log-ratios of each row's choice, what its rounding adds included."""
        found = []
        for change, mask, scale in zip(
            other.scores - self.scores, self.eligible, self.scales, strict=True
        ):
            moved = change[mask]
            rounding = self.roundings * self.count**2 * Fraction(selection.ROUNDING)
            found.append(Fraction(int(moved.max() - moved.min())) / Fraction(scale) + rounding)
        return found

    def rho(self, other: Choices) -> Fraction:
        """What they cost beside the same step of a neighbour, zero-concentrated."""
        return self.count * self.part * sum(r**2 for r in self.ranges(other))

    def epsilon(self, other: Choices) -> Fraction:
        """The same, pure."""
        return self.count * sum(self.ranges(other))


class Recorder(NoiseSource):
    """Draws answers once, then gives the same again whatever the records are; keeps the exact numbers behind each."""

    is_simulated = True

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.generator = seed, np.random.default_rng(seed)
        self.steps: list[Any] = []
        self.answers: list[Any] = []

    def rewind(self) -> list[Any]:
        """Return the steps of the run that has ended, and begin another one."""
        steps, self.steps = self.steps, []
        return steps

    def answered(self, step: Any, draw: Callable[[], Any]) -> Any:
        """Keep a step and return its answer: drawn in the first run, the same in all others."""
        self.steps.append(step)
        if len(self.answers) < len(self.steps):
            self.answers.append(draw())
        return self.answers[len(self.steps) - 1]

    def add(self, counts, law):
        exact = np.array(counts, dtype=np.int64)
        return self.answered(
            Sums(exact=exact, law=law), lambda: exact + law.draw(exact.shape, self.generator)
        )

    def choose_several(self, scores, scale, count, eligible=None):  # type: ignore[override]
        mask = np.ones(np.shape(scores), bool) if eligible is None else np.array(eligible)
        step = Choices(
            scores=np.array(scores, dtype=np.int64),
            scales=np.full(len(mask), scale),
            eligible=mask,
            count=count,
        )
        noisy = np.where(
            mask, step.scores / scale + self.generator.gumbel(size=mask.shape), -np.inf
        )
        return self.answered(step, lambda: np.argsort(-noisy, axis=1)[:, :count])

    def words(self, size):
        """Refuse: coins cost nothing by themselves, and what depends on them is not seen."""
        raise AssertionError(
            "a replay knows no cost of coins; override `words` where they are accounted for"
        )


def spent(guarantee: PrivacyGuarantee, here: list[Any], there: list[Any]) -> Fraction | float:
    """What two neighbours' steps cost together, in the form of a guarantee: rho, or epsilon.

    A delta is none of a step's: it is for the answers that only one of two neighbours gives.
    """
    form = "epsilon" if guarantee.rho is None else "rho"
    return sum((getattr(a, form)(b) for a, b in zip(here, there, strict=True)), Fraction(0))


def replayed(
    mechanism: Any,
    network: Any,
    data: Any,
    neighbours: Iterable[Any],
    source: Recorder | None = None,
    spent: Callable[[Any, list[Any], list[Any]], Any] = spent,
    *,
    enough: float = math.inf,
) -> Any:
    """Return the largest cost of one release's answers, and hold the release to be the same on all neighbours.

    Every draw is recorded with the exact numbers that it protects. On a neighbour each draw gives what it gave: what
    is released is then the same file, and the costs of the draws, each by its own formula, add up to the release's.
    Neighbours after the first one that costs more than `enough` are left out.
    """
    source = Recorder() if source is None else source
    before = everything(mechanism, network, data, source)
    promise = mechanism.promise(network)
    here, largest = source.rewind(), 0
    for other in neighbours:
        same = everything(mechanism, network, other, source) == before
        assert same, "something that no noise protects is released"
        there = source.rewind()
        assert [step.public for step in there] == [step.public for step in here], (
            "noise depends on the records"
        )
        largest = max(largest, spent(promise, here, there))
        if largest > enough:
            break
    return largest


def everything(mechanism: Any, network: Any, data: Any, source: NoiseSource) -> Any:
    """Return all that a release lets out: its files byte by byte, what it shows, and its warnings."""
    with warnings.catch_warnings(record=True) as caught, tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("always")
        release = released(mechanism, network, data, source)
        files = []
        for place, part in enumerate(getattr(release, "releases", [release])):
            part.save(Path(folder) / str(place))
            files.append((Path(folder) / str(place)).read_bytes())
        held = repr(getattr(release, "__dict__", None))  # what no file keeps as well
    return files, repr(release), held, [str(warning.message) for warning in caught]


def neighbours_of(
    data: pd.DataFrame, others: pd.DataFrame, adjacency: Adjacency
) -> list[pd.DataFrame]:
    """Return data without the first or the last record, and with each of some others more, or in its place."""
    without = [data.iloc[1:], data.iloc[:-1]]
    fewer = [data] if adjacency is Adjacency.ADD_OR_REMOVE_ONE else without
    more = [
        pd.concat([rest, others.iloc[[place]]], ignore_index=True)
        for rest in fewer
        for place in range(len(others))
    ]
    return [*without, *more] if adjacency is Adjacency.ADD_OR_REMOVE_ONE else more


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
class ReplayContract:
    """Inherit, and override `make`; and `network`, `data` and `others` where your mechanism takes other ones.

    All noise must come from the `source` that `_randomise` is given, and be added to what a record moves. `least` is
    the share of the promise that the worst neighbour costs at least: data that move nothing would show nothing.
    """

    network: Any = MODEL
    least = 0.9

    def make(self, **settings: Any) -> Mechanism:
        raise NotImplementedError

    def data(self) -> Any:
        """Return the records."""
        return sample(50)

    def others(self) -> Any:
        """Return records that neighbours have."""
        return frame(CELLS)

    @pytest.mark.parametrize("adjacency", ADJACENCIES)
    def test_a_release_replayed_on_neighbours_is_the_same_and_costs_no_more_than_promised(
        self, adjacency
    ):
        mechanism = self.make(adjacency=adjacency)
        promise = mechanism.promise(self.network)
        if promise.adjacency is not adjacency:
            pytest.skip("the mechanism is for the other relation")
        given = neighbours_of(self.data(), self.others(), adjacency)
        most = promise.epsilon if promise.rho is None else promise.rho
        found = replayed(mechanism, self.network, self.data(), given)
        assert found <= most, f"a release costs {float(found):.4g}, and promises {most:.4g}"
        assert found >= self.least * most, (
            "no neighbour moves what is released by much; take other data"
        )


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
class TablesContract(ReplayContract):
    """Inherit, and override `make` and `budget`."""

    budget: float

    def make(self, **settings: Any) -> StatisticsMechanism:
        raise NotImplementedError

    # the settings

    def test_settings_are_frozen_and_keyword_only(self):
        mechanism = self.make()
        assert type(mechanism).__dataclass_params__.frozen
        for field in dataclasses.fields(mechanism):
            assert field.kw_only
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(mechanism, field.name, None)
        assert hash(mechanism) == hash(self.make())
        assert mechanism == self.make()

    def test_release_is_final(self):
        with pytest.raises(TypeError, match="must not override `release`"):
            type("Loud", (type(self.make()),), {"release": lambda self, network, data: data})

        class Mixin:
            def release(self, network, data):
                return data

        with pytest.raises(TypeError, match="must not override `release`"):
            type("Sly", (Mixin, type(self.make())), {})
        with pytest.raises(TypeError, match="must not override `promise`"):
            type("Vain", (type(self.make()),), {"promise": lambda self, network: None})

    # the sensitivity

    def tables_of(self, mechanism: StatisticsMechanism, records: Any) -> list[np.ndarray]:
        counted = released(mechanism, MODEL, frame(records), Silent()).tables.flat
        return np.split(counted, MODEL.offsets[1:-1])

    def neighbours(self, adjacency: Adjacency):
        """Pairs of neighbouring data sets: every record alone, and beside the first and the last one."""
        for common in [(), (CELLS[0],), (CELLS[-1],)]:
            if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
                yield from ((common, (*common, one)) for one in CELLS)
            else:
                yield from (
                    ((*common, a), (*common, b)) for a, b in itertools.permutations(CELLS, 2)
                )

    @pytest.mark.parametrize("adjacency", ADJACENCIES)
    def test_sensitivity_and_joint_loss_match_brute_force_over_all_neighbours(self, adjacency):
        mechanism = self.make(adjacency=adjacency)
        laws = mechanism.release(MODEL, sample(5)).noise
        seen: dict[Any, list[np.ndarray]] = {}
        for records in itertools.chain.from_iterable(self.neighbours(adjacency)):
            key = tuple(sorted(Counter(map(CELLS.index, records)).items()))
            if key not in seen and not (adjacency is Adjacency.REPLACE_ONE and not records):
                seen[key] = self.tables_of(mechanism, records)
        l1 = l2 = loss = 0.0
        for pair in self.neighbours(adjacency):
            keys = [tuple(sorted(Counter(map(CELLS.index, records)).items())) for records in pair]
            differences = [a - b for a, b in zip(*(seen[key] for key in keys), strict=True)]
            l1 = max(l1, *(float(np.abs(d).sum()) for d in differences))
            l2 = max(l2, *(float(np.sqrt((d**2).sum())) for d in differences))
            loss = max(loss, sum(cost(law, d) for law, d in zip(laws, differences, strict=True)))
        assert l1 == mechanism.l1_sensitivity
        assert l2 == pytest.approx(mechanism.l2_sensitivity, rel=1e-15)
        assert l2 <= mechanism.l2_sensitivity
        assert self.budget * (1 - 1e-12) <= loss <= self.budget * (1 + 1e-15)

    @pytest.mark.parametrize("adjacency", ADJACENCIES)
    def test_opendps_own_map_promises_no_more_than_was_asked(self, adjacency):
        mechanism = self.make(adjacency=adjacency)
        laws = mechanism.release(MODEL, sample(5)).noise
        laplace = laws[0].kernel == "absolute"
        promised = promised_loss(
            laws, mechanism.l1_sensitivity if laplace else mechanism.l2_sensitivity
        )
        assert promised <= Fraction(self.budget)
        assert promised >= Fraction(self.budget) * (1 - Fraction(1, 10**12))

    # the release

    @pytest.mark.parametrize("adjacency", ADJACENCIES)
    def test_what_is_promised_beforehand_is_what_a_release_states(self, adjacency):
        mechanism = self.make(adjacency=adjacency)
        assert mechanism.promise(MODEL) == mechanism.release(MODEL, sample(50)).guarantee

    @pytest.mark.parametrize("adjacency", ADJACENCIES)
    def test_guarantee_relation_unit_and_provenance_are_stamped(self, adjacency):
        release = self.make(adjacency=adjacency).release(MODEL, sample(50))
        assert release.guarantee.adjacency is adjacency
        assert release.guarantee.unit == "record"
        assert self.budget in (release.guarantee.epsilon, release.guarantee.rho)
        assert release.provenance.mechanism == type(self.make()).__name__
        assert {"bayesprivmrf", "opendp", "numpy"} <= set(release.provenance.versions)
        assert not release.provenance.simulated

    def test_seeded_noise_is_marked_simulated_and_repeats(self):
        first, second = (self.make().release(MODEL, sample(50), rng=3) for _ in range(2))
        assert first.provenance.simulated
        assert "simulated" in repr(first).lower()
        np.testing.assert_array_equal(first.tables.flat, second.tables.flat)

    def test_secure_noise_is_fresh_each_time_and_of_whole_numbers(self):
        data = sample(50)
        flats = [self.make().release(MODEL, data).tables.flat for _ in range(6)]
        assert len({flat.tobytes() for flat in flats}) == 6
        assert all(flat.dtype == np.int64 for flat in flats)

    def test_a_release_and_its_warning_let_out_nothing_of_the_data_but_the_noisy_counts(
        self, tmp_path
    ):
        # the whole of `release`, with its provenance and its ledger, and noise that hides everything
        seen = []
        for size, seed in ((50, 0), (61, 1), (0, 2)):
            account = Account()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                release = released(self.make(), MODEL, sample(size, seed), Replay(), ledger=account)
            assert release.total is None
            release.save(tmp_path / "a.release")
            shown = (repr(release), html_of(release), repr(vars(release)), repr(release.provenance))
            told = [str(warning.message) for warning in caught]
            seen.append(
                ((tmp_path / "a.release").read_bytes(), *shown, told, repr(account.spent), release)
            )
        assert seen[0] == seen[1] == seen[2]

    def test_joint_loss_is_kept_with_redirected_values_impossible_cells_and_lazy_frames(self):
        public = ModelSpecification(
            domain=DOMAIN, cliques=MODEL.cliques, impossible=((("a", "u"), (0, 7)),)
        )
        redirected = {"missing": {"a": "v", 0: 6, "c": False}, "other": {"a": "v", 0: 6}}
        columns = [["u", "v", None, "zz"], [7, 5, 6, None, 99], [True, False, None]]
        schema = {"a": pl.String, "0": pl.Int64, "c": pl.Boolean}
        records = [r for r in itertools.product(*columns) if r[:2] != ("u", 7)]
        mechanism = self.make(**redirected)

        def tables(given):
            return released(mechanism, public, given, Silent()).tables.flat

        def rows(some):
            return pl.DataFrame(some, schema=schema, orient="row")

        alone = [tables(rows([record])) for record in records]
        # so a neighbour moves by one of these
        for together in (rows(records), rows(records).lazy()):
            np.testing.assert_array_equal(tables(together), sum(alone))
        distinct = np.unique(alone, axis=0)
        for adjacency in ADJACENCIES:
            laws = self.make(adjacency=adjacency, **redirected).release(public, rows(records)).noise
            if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
                moves = list(distinct)
            else:
                moves = [one - other for one, other in itertools.permutations(distinct, 2)]
            parts = [np.split(move, public.offsets[1:-1]) for move in moves]
            loss = max(sum(map(cost, laws, part)) for part in parts)
            assert self.budget * (1 - 1e-12) <= loss <= self.budget * (1 + 1e-15)

    def test_the_number_of_records_is_public_under_replace_one(self):
        assert self.make(adjacency="replace-one").release(MODEL, sample(31)).total == 31

    def test_an_empty_frame_gets_noise_under_add_or_remove_and_is_refused_under_replace_one(self):
        release = self.make().release(MODEL, frame([]))
        assert release.tables.flat.shape == (MODEL.size,)
        with pytest.raises(DataError, match="at least one record"):
            self.make(adjacency="replace-one").release(MODEL, frame([]))

    # the ledger

    def test_the_ledger_is_charged_once_with_what_is_promised(self):
        account = Account()
        release = self.make().release(MODEL, sample(50), ledger=account)
        assert account.spent == [(release.guarantee, release.provenance)]

    def test_nothing_is_charged_when_the_data_is_refused(self):
        account = Account()
        for data in (
            sample(5).drop(columns="a"),
            sample(5).assign(a="w"),
            sample(5).assign(a=None),
            [1, 2],
        ):
            with pytest.raises(DataError):
                self.make().release(MODEL, data, ledger=account)
        assert account.spent == []

    def test_no_noise_is_drawn_when_the_ledger_refuses(self):
        with pytest.raises(PrivacyError, match="budget is spent"):
            released(self.make(), MODEL, sample(50), Undrawn(), ledger=Account(refuse=True))
