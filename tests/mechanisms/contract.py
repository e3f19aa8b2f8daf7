"""The contract that every mechanism releasing tables must keep: inherit, set `make` and `budget`, and run."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from notebook import html_of

from bayesprivmrf.errors import DataError, PrivacyError
from bayesprivmrf.mechanisms import StatisticsMechanism, base, promised_loss
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.privacy import Adjacency, NoiseLaw

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


def cost(law: NoiseLaw, difference: np.ndarray) -> float:
    """Exact worst loss of one table's noise when the table moves by this difference (epsilon; else rho)."""
    if law.kernel == "absolute":
        return float(np.abs(difference).sum()) / law.scale
    if law.kernel == "square":
        return float((difference.astype(float) ** 2).sum()) / (2 * law.scale**2)
    return sum(worst_log_ratio(law, int(shift)) for shift in difference)


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


class Account:
    """Ledger that remembers, or refuses."""

    def __init__(self, refuse: bool = False) -> None:
        self.refuse, self.spent = refuse, []

    def spend(self, guarantee: Any, provenance: Any) -> None:
        if self.refuse:
            raise PrivacyError("the budget is spent")
        self.spent.append((guarantee, provenance))


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
class TablesContract:
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
        """Every pair of neighbouring data sets of at most two records, as multisets."""
        for common in [(), *((cell,) for cell in CELLS)]:
            if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
                yield from ((common, (*common, one)) for one in CELLS)
            else:
                yield from (((*common, a), (*common, b)) for a, b in itertools.permutations(CELLS, 2))

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
        promised = promised_loss(laws, mechanism.l1_sensitivity if laplace else mechanism.l2_sensitivity)
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

    def test_a_release_and_its_warning_let_out_nothing_of_the_data_but_the_noisy_counts(self, tmp_path):
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
            seen.append(((tmp_path / "a.release").read_bytes(), *shown, told, repr(account.spent), release))
        assert seen[0] == seen[1] == seen[2]

    def test_joint_loss_is_kept_with_redirected_values_impossible_cells_and_lazy_frames(self):
        public = ModelSpecification(domain=DOMAIN, cliques=MODEL.cliques, impossible=((("a", "u"), (0, 7)),))
        redirected = {"missing": {"a": "v", 0: 6, "c": False}, "other": {"a": "v", 0: 6}}
        columns = [["u", "v", None, "zz"], [7, 5, 6, None, 99], [True, False, None]]
        schema = {"a": pl.String, "0": pl.Int64, "c": pl.Boolean}
        records = [r for r in itertools.product(*columns) if r[:2] != ("u", 7)]
        mechanism = self.make(**redirected)

        def tables(rows):
            native = pl.DataFrame(rows, schema=schema, orient="row")
            eager, lazy = (
                released(mechanism, public, given, Silent()).tables.flat for given in (native, native.lazy())
            )
            np.testing.assert_array_equal(eager, lazy)
            return eager

        alone = [tables([record]) for record in records]
        np.testing.assert_array_equal(tables(records), sum(alone))  # so a neighbour moves by one of these
        distinct = np.unique(alone, axis=0)
        for adjacency in ADJACENCIES:
            some = pl.DataFrame(records, schema=schema, orient="row")
            laws = self.make(adjacency=adjacency, **redirected).release(public, some).noise
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
        for data in (sample(5).drop(columns="a"), sample(5).assign(a="w"), sample(5).assign(a=None), [1, 2]):
            with pytest.raises(DataError):
                self.make().release(MODEL, data, ledger=account)
        assert account.spent == []

    def test_no_noise_is_drawn_when_the_ledger_refuses(self):
        with pytest.raises(PrivacyError, match="budget is spent"):
            released(self.make(), MODEL, sample(50), Undrawn(), ledger=Account(refuse=True))
