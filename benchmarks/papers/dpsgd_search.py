"""Search over settings of `DPSGD` that pays for all its trials: the baseline of Bernstein et al. 2017.

A search within the budget was less accurate than the default settings in every cell measured, so the package
has no search.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

from bayesprivmrf.checks import one_of, positive_finite, probability
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning import LearnedPotentials
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.dpsgd import DPSGD, AscentPlan, read_possible
from bayesprivmrf.mechanisms.reading.coded import CodedRecords
from bayesprivmrf.mechanisms.record_mechanisms import FrozenMapping, RecordMechanism, RecordPlan
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay
from bayesprivmrf.privacy import (
    Adjacency,
    CalibratedNoise,
    PrivacyGuarantee,
    calibrated_noise,
    promised_epsilon,
    require_fine_lattice,
)

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork


TRIED = ("steps", "sampling_rate", "clip", "learning_rate", "averaging")
"""Settings of `DPSGD` that a search may vary."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SearchPlan(RecordPlan):
    """The public part of a search.

    Parameters
    ----------
    trials
        Plan of each trial.
    epsilon, one_alone
        Epsilon of everything together, and of the costliest trial by itself, at the mechanism's delta.
    """

    trials: tuple[AscentPlan, ...]
    epsilon: float
    one_alone: float


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Trials:
    """Every model of a search over settings, released together.

    Parameters
    ----------
    settings
        The settings that were tried, in order.
    releases
        One a trial. Each carries the guarantee of the search as a whole, which holds for any choice among them.
    guarantee
        Guarantee of the search as a whole.
    one_alone
        The guarantee of a single trial alone. A choice among several trials does not satisfy it.
    """

    settings: tuple[Mapping[str, Any], ...]
    releases: tuple[LearnedPotentials, ...]
    guarantee: PrivacyGuarantee
    one_alone: PrivacyGuarantee

    statistics: ClassVar[None] = None
    _without_tables: ClassVar[str] = "each of its `releases` is a model already"

    def best(self, score: Callable[[LearnedPotentials], float]) -> LearnedPotentials:
        """Return the release of the highest score, the first of several.

        A score that looks at protected records spends budget that no guarantee here counts: use one of public
        knowledge, or of records that are not protected.
        """
        return max(self.releases, key=score)

    def __len__(self) -> int:
        return len(self.releases)

    def __repr__(self) -> str:
        simulated = any(release.provenance.simulated for release in self.releases)
        if simulated:
            mark = " (SIMULATED: protects nobody)"
        else:
            mark = ""
        if simulated:
            statement = self.releases[0].privacy_statement()
        else:
            statement = self.guarantee.sentence()
        return f"Trials{mark}\n  trials     {len(self)}\n  privacy    {statement}"


@final
@dataclass(frozen=True, kw_only=True)
class DPSGDSearch(RecordMechanism[SearchPlan, CodedRecords, Trials]):
    """Run `DPSGD` with every combination of some settings, and release all models at their true privacy cost.

    Every trial spends budget, whichever one you keep: the accountant composes all of them.

    Parameters
    ----------
    epsilon, delta
        Budget of the search or of each trial, as `covers` says.
    grid
        Setting of `DPSGD` (steps, sampling_rate, clip, learning_rate, averaging) to the values tried.
    covers
        ``"search"``: the whole search satisfies the budget. ``"trial"``: each trial alone
        does, as in published comparisons that tune on the same records; the guarantee then states what the search
        as a whole spends at `delta`, which is more.
    missing, other
        The declared states for missing and for undeclared values, as for `DPSGD`.

    Raises
    ------
    ArgumentError
        A setting is out of range, unknown or without values.

    Examples
    --------
    >>> len(DPSGDSearch(epsilon=1.0, delta=1e-6, grid={"clip": [1.0, 2.0], "steps": [100]}).trials)
    2
    """

    runs_from_file: ClassVar[bool] = False

    adjacency: ClassVar[Adjacency] = Adjacency.ADD_OR_REMOVE_ONE  # type: ignore[misc]
    epsilon: float
    delta: float
    grid: Mapping[str, Sequence[Any]]
    covers: Literal["search", "trial"] = "search"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("covers", self.covers, ("search", "trial"), remedy="'search' is honest")
        self._keep(
            epsilon=positive_finite("epsilon", self.epsilon),
            delta=probability("delta", self.delta, zero=False),
            grid=_checked_grid(self.grid),
        )
        _ = self.trials  # checks every value

    @property
    def trials(self) -> tuple[DPSGD, ...]:
        """Each combination of the grid, the last setting moving fastest, with the search's own epsilon and delta."""
        base = DPSGD(epsilon=self.epsilon, delta=self.delta)
        return tuple(
            replace(base, **dict(zip(self.grid, values, strict=True)))
            for values in product(*self.grid.values())
        )

    def _outlays(self, plan: SearchPlan, total: float | None) -> list[Outlay]:
        """Return the noisy number of records, every ascent, and all together, as `DPSGD` does."""
        count, *steps = [step for trial in plan.trials for step in trial.outlays(total)]
        return [count, *steps[::2], Outlay(step="all of this together", epsilon=plan.epsilon)]

    def _prepare(self, network: DiscreteMarkovNetwork | ModelSpecification) -> SearchPlan:
        trials = self.trials
        schedules = tuple(trial.schedule for trial in trials)
        if self.covers == "trial":
            alone = [
                calibrated_noise((schedule,), self.epsilon, self.delta) for schedule in schedules
            ]
            noise = CalibratedNoise(
                steps=tuple(one.steps[0] for one in alone), count=alone[0].count
            )
            epsilon = promised_epsilon(schedules, noise, self.delta)
            one_alone = self.epsilon
        else:
            noise = calibrated_noise(schedules, self.epsilon, self.delta)
            epsilon = self.epsilon
            singles = set(zip(schedules, noise.steps, strict=True))
            one_alone = max(
                promised_epsilon((schedule,), replace(noise, steps=(multiplier,)), self.delta)
                for schedule, multiplier in singles
            )
        plans = tuple(
            trial._planned(network, replace(noise, steps=(multiplier,)), one_alone)
            for trial, multiplier in zip(trials, noise.steps, strict=True)
        )
        smallest = min(plan.smallest_scale for plan in plans)
        require_fine_lattice(
            1 + sum(plan.ascent.drawn_noises for plan in plans), smallest, epsilon, self.delta
        )
        declared = self._declared(plans[0].specification)
        return SearchPlan(
            specification=declared.specification,
            missing=declared.missing,
            other=declared.other,
            trials=plans,
            epsilon=epsilon,
            one_alone=one_alone,
        )

    def _guarantee(self, plan: SearchPlan) -> PrivacyGuarantee:
        return PrivacyGuarantee(epsilon=plan.epsilon, delta=self.delta, adjacency=self.adjacency)

    def _read(self, plan: SearchPlan, data: Any, count: Hashable | None = None) -> CodedRecords:
        return read_possible(plan, self._records(plan, data, count))

    def _randomise(
        self, plan: SearchPlan, exact: CodedRecords, source: NoiseSource, stamp: Stamp
    ) -> Trials:
        total = plan.trials[0].total(exact, source)
        paths = [
            trial.ascent.run(exact.sensitive_codes, exact.sensitive_counts, total, source)
            for trial in plan.trials
        ]
        assert stamp.guarantee is not None
        return Trials(
            settings=tuple({name: getattr(trial, name) for name in TRIED} for trial in self.trials),
            releases=tuple(
                trial.released(path, total, stamp)
                for trial, path in zip(plan.trials, paths, strict=True)
            ),
            guarantee=stamp.guarantee,
            one_alone=replace(stamp.guarantee, epsilon=plan.one_alone),
        )


def _checked_grid(grid: Any) -> FrozenMapping[str, tuple[Any, ...]]:
    """Return the values to try for each setting."""
    if not isinstance(grid, Mapping) or not grid:
        raise ArgumentError(f"`grid` must map settings of DPSGD to the values tried, got {grid!r}.")
    checked = {}
    for name, values in grid.items():
        if name not in TRIED:
            raise ArgumentError(
                f"`grid` must name settings of DPSGD, got {name!r}; those are {', '.join(TRIED)}."
            )
        is_single = (
            isinstance(values, str)
            or not isinstance(values, Iterable)
            or getattr(values, "ndim", 1) == 0
        )
        if is_single or not (held := tuple(values)):
            raise ArgumentError(
                f"`grid` must hold a sequence of values for {name!r}, got {values!r}."
            )
        checked[name] = held
    return FrozenMapping(checked)
