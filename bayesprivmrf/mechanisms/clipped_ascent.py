"""The common base of mechanisms that fit a declared model by noisy clipped gradients."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, final

import numpy as np

from bayesprivmrf.checks import positive_finite, probability
from bayesprivmrf.errors import ModelError
from bayesprivmrf.interruption import stopped_details
from bayesprivmrf.learning.gradient_ascent import RATE_BITS, Ascent, AscentPath, cells_of, drawn_noises
from bayesprivmrf.learning.models.noise_alone import Told
from bayesprivmrf.learning.models.potentials import LearnedPotentials
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.mechanisms.base import Mechanism, Stamp
from bayesprivmrf.mechanisms.reading.coded import CodedRecords, read_records
from bayesprivmrf.mechanisms.reading.counting import refuse_impossible
from bayesprivmrf.mechanisms.settings import checked_redirect, redirect_codes
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay, checked_total, outlay_preview
from bayesprivmrf.privacy import (
    Adjacency,
    CalibratedNoise,
    DiscreteGaussian,
    PrivacyGuarantee,
    require_fine_lattice,
)

if TYPE_CHECKING:
    import pandas as pd
    from pgmpy.models import DiscreteMarkovNetwork

LARGEST_COUNT = 2**34
"""The number of records is held to this before noise is added: `_COUNT_STEPS` times it fits in 64 bits."""

_COUNT_STEPS = 1 << 28  # lattice steps a record of the noisy number of records
_CHUNK = 1 << 15


class Trial(Protocol):
    """Settings of one ascent."""

    def ascent(self, specification: ModelSpecification, multiplier: float) -> Ascent:
        """Return the ascent with noise of that multiple of its sensitivity."""
        ...


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AscentPlan:
    """The public part of a release.

    Parameters
    ----------
    specification
        The declared model.
    ascents
        One a trial.
    count_noise
        Law of the noise on the number of records, in steps of 2^-28.
    epsilon, one_alone
        Epsilon of everything together, and of the costliest trial by itself, at the mechanism's delta.
    missing, other
        Codes that take missing and undeclared values.
    """

    specification: ModelSpecification
    ascents: tuple[Ascent, ...]
    count_noise: DiscreteGaussian
    epsilon: float
    one_alone: float
    missing: Mapping[Variable, int]
    other: Mapping[Variable, int]


@dataclass(frozen=True, kw_only=True)
class AscentMechanism[ReleaseT](
    Mechanism["DiscreteMarkovNetwork | ModelSpecification", AscentPlan, CodedRecords, ReleaseT]
):
    """Common base of one ascent and of a search; neighbours differ by one record added or removed."""

    takes_count: ClassVar[bool] = True

    epsilon: float
    delta: float
    missing: Label | Mapping[Variable, Label] | None = None
    other: Label | Mapping[Variable, Label] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive_finite("epsilon", self.epsilon))
        object.__setattr__(self, "delta", probability("delta", self.delta, zero=False))
        for name in ("missing", "other"):
            object.__setattr__(self, name, checked_redirect(name, getattr(self, name)))

    @final
    def preview(
        self, network: DiscreteMarkovNetwork | ModelSpecification, total: float | None = None
    ) -> pd.DataFrame:
        """Tell what a release will do with its budget, before any data is read or budget spent.

        Parameters
        ----------
        network
            The declared model.
        total
            A public guess of the number of records, to compare the noise with.

        Returns
        -------
        DataFrame
            One row for the noisy number of records, one an ascent, and one for all together, which alone has a cost:
            those of steps over samples do not add up. ``noise_sd`` is that of each entry of a step's sum of clipped
            gradients, records; see `bayesprivmrf.planning.outlay_preview`, whose ``smallest_coupling`` is here the
            smallest difference of potentials that the noise does not hide along the clearest direction.

        Raises
        ------
        ArgumentError, ModelError
            `release` would raise the same before it reads anything; or ``total`` is no number of records.
        """
        plan = self._prepare(network)
        known = None if total is None else checked_total(total)
        count = plan.count_noise.standard_deviation / _COUNT_STEPS
        ascents = [
            Outlay(
                step=f"ascent in {one.steps} steps, each on a share of {one.numerator / 2.0**RATE_BITS:.3g} of the "
                f"records, clipped at {one.lattice.clip:.3g}",
                count=one.steps,
                noise_sd=one.noise.standard_deviation / one.lattice.steps,
                smallest_coupling=None if known is None else one.resolution(max(known, 1.0)),
            )
            for one in plan.ascents
        ]
        together = Outlay(step="all of this together", epsilon=plan.epsilon)
        return outlay_preview(
            [Outlay(step="number of records", count=1, noise_sd=count), *ascents, together], known
        )

    def _planned(
        self,
        network: DiscreteMarkovNetwork | ModelSpecification,
        trials: Sequence[Trial],
        noise: CalibratedNoise,
        epsilon: float,
        one_alone: float,
    ) -> AscentPlan:
        """Return the plan of some trials with given noise, all that is public checked."""
        specification = ModelSpecification.from_pgmpy(network)
        if not specification.cliques_declared:
            raise ModelError(
                f"{type(self).__name__} must know the model's cliques, but the network declares none; "
                "declare `cliques`, or learn the pairs by SelectMeasure (`select-measure` on the command line)."
            )
        if any(specification.sharing):
            raise ModelError(
                f"{type(self).__name__} fits each clique's potentials by themselves, and the network relates some; "
                "declare it without ties, scores and levels (`tied`, `ordinal`, `levels`), or "
                "release sums over the tied cliques and fit those."
            )
        if not specification.cliques:
            raise ModelError("the network must have at least one variable, got none; declare one.")
        marginal_engine(specification.cardinalities, specification.scopes)  # refuses what would not fit
        ascents = tuple(
            trial.ascent(specification, multiplier)
            for trial, multiplier in zip(trials, noise.steps, strict=True)
        )
        count_noise = DiscreteGaussian(math.nextafter(noise.count * _COUNT_STEPS, math.inf))
        singly = [((ascent,), one_alone) for ascent in ascents]
        for some, promised in [(ascents, epsilon), *singly]:
            smallest = min(count_noise.scale, *(ascent.noise.scale for ascent in some))
            require_fine_lattice(drawn_noises(some), smallest, promised, self.delta)
        return AscentPlan(
            specification=specification,
            ascents=ascents,
            count_noise=count_noise,
            epsilon=epsilon,
            one_alone=one_alone,
            missing=redirect_codes("missing", self.missing, specification),
            other=redirect_codes("other", self.other, specification),
        )

    @final
    def _guarantee(self, plan: AscentPlan) -> PrivacyGuarantee:
        return PrivacyGuarantee(epsilon=plan.epsilon, delta=self.delta, adjacency=Adjacency.ADD_OR_REMOVE_ONE)

    @final
    def _read(self, plan: AscentPlan, data: Any, count: Hashable | None = None) -> CodedRecords:
        model = plan.specification
        records = read_records(model.domain, data, missing=plan.missing, other=plan.other, count=count)
        if model.possible is not None:
            held = np.zeros(model.size, dtype=np.int64)
            for start in range(0, len(records.codes), 1 << 15):
                held += np.bincount(
                    cells_of(model, records.codes[start : start + (1 << 15)]).ravel(), minlength=model.size
                )
            refuse_impossible(model, held)
        return records

    @final
    def _total(self, plan: AscentPlan, exact: CodedRecords, source: NoiseSource) -> float:
        """Return a noisy number of records, at least 1.

        The exact one is held to 2^34, which moves no two numbers apart: whatever it is, nothing overflows.
        """
        counted = min(exact.records, LARGEST_COUNT) * _COUNT_STEPS
        noisy = source.add(np.array([counted], dtype=np.int64), plan.count_noise)
        return max(float(noisy[0]) / _COUNT_STEPS, 1.0)


def released(
    plan: AscentPlan, ascent: Ascent, path: AscentPath, total: float, stamp: Stamp
) -> LearnedPotentials:
    """Return the release; only what is public or already noisy is in it."""
    model, lattice = plan.specification, ascent.lattice
    deviation = plan.count_noise.scale / _COUNT_STEPS
    told = Told.by(total, deviation, (), ())
    return LearnedPotentials(
        domain=model.domain,
        total=total,
        details={
            "status": "diverged" if path.is_bounded else "stopped early",
            "steps": path.steps,
            "sampling_rate": ascent.numerator / 2.0**RATE_BITS,
            "clip": lattice.clip,
            "noise_multiplier": ascent.noise.scale / lattice.sensitivity,
            **({"learning_rate": path.learning_rate} if path.steps else {}),  # none was used
            "averaging": ascent.averaging,
            "total_deviation": deviation,
            **({} if path.is_bounded else stopped_details() | told.details),
        },
        model=model,
        tables=model.tables(path.potentials),
        **stamp.fields,
    )
