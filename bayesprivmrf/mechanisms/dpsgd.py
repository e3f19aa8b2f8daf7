"""Differentially private stochastic gradient ascent on the likelihood of a declared model."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from bayesprivmrf.checks import at_least, positive_finite, probability, require, whole_number
from bayesprivmrf.errors import ModelError
from bayesprivmrf.interruption import stopped_details
from bayesprivmrf.learning.gradient_ascent import (
    RATE_BITS,
    SMALLEST_CLIP,
    Ascent,
    AscentPath,
    GradientLattice,
    cells_of,
    drawn_noises,
)
from bayesprivmrf.learning.models.advice import Told
from bayesprivmrf.learning.models.potentials import LearnedPotentials
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.noise_warning import warn_without_raising
from bayesprivmrf.mechanisms.reading.coded import CodedRecords
from bayesprivmrf.mechanisms.reading.counting import refuse_impossible
from bayesprivmrf.mechanisms.settings import RecordMechanism, RecordPlan
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay, about
from bayesprivmrf.privacy import (
    Adjacency,
    CalibratedNoise,
    DiscreteGaussian,
    PrivacyGuarantee,
    Schedule,
    calibrated_noise,
    require_fine_lattice,
)

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# far beyond any use: a thousand steps are the default, and a gradient of a record is at most sqrt(2m) long
LARGEST_STEPS, LARGEST_LEARNING_RATE = 10**5, 1e6

# Nats: where noise hides a difference of potentials as large as this, it hides nearly all there is
LARGEST_RESOLUTION = 1.0

# The number of records is held to this before noise is added: `_COUNT_STEPS` times it fits in 64 bits
LARGEST_COUNT = 2**34

_COUNT_STEPS = 1 << 28  # lattice steps a record of the noisy number of records
_CHUNK = 1 << 15  # records whose cells are counted at a time, a few MiB


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AscentPlan(RecordPlan):
    """The public part of a release: the ascent, and the noise on the number of records in steps of 2^-28."""

    ascent: Ascent
    count_noise: DiscreteGaussian

    @property
    def smallest_scale(self) -> float:
        """Smallest scale of all noise, in steps of its lattice."""
        return min(self.count_noise.scale, self.ascent.noise.scale)

    @property
    def total_deviation(self) -> float:
        """Scale of the noise on the number of records, records."""
        return self.count_noise.scale / _COUNT_STEPS

    def total(self, exact: CodedRecords, source: NoiseSource) -> float:
        """Return a noisy number of records, at least 1.

        The exact one is held to 2^34, which moves no two numbers apart: whatever it is, nothing overflows.
        """
        counted = min(exact.records, LARGEST_COUNT) * _COUNT_STEPS
        noisy = source.add(np.array([counted], dtype=np.int64), self.count_noise)
        return max(float(noisy[0]) / _COUNT_STEPS, 1.0)

    def outlays(self, total: float | None) -> list[Outlay]:
        """Return the noisy number of records and the ascent as steps of a preview."""
        one = self.ascent
        return [
            Outlay(
                step="number of records",
                count=1,
                noise_sd=self.count_noise.standard_deviation / _COUNT_STEPS,
            ),
            Outlay(
                step=f"ascent in {one.steps} steps, each on a share of {one.numerator / 2.0**RATE_BITS:.3g} of the "
                f"records, clipped at {one.lattice.clip:.3g}",
                count=one.steps,
                noise_sd=one.noise.standard_deviation / one.lattice.steps,
                smallest_coupling=None if total is None else one.resolution(max(total, 1.0)),
            ),
        ]

    def released(self, path: AscentPath, total: float, stamp: Stamp) -> LearnedPotentials:
        """Return the release; only what is public or already noisy is in it."""
        model, ascent = self.specification, self.ascent
        told = Told.by(total, self.total_deviation, (), ())
        return LearnedPotentials(
            domain=model.domain,
            total=total,
            details={
                "status": "diverged" if path.is_bounded else "stopped early",
                "steps": path.steps,
                "sampling_rate": ascent.numerator / 2.0**RATE_BITS,
                "clip": ascent.lattice.clip,
                "noise_multiplier": ascent.noise.scale / ascent.lattice.sensitivity,
                **({"learning_rate": path.learning_rate} if path.steps else {}),  # none was used
                "averaging": ascent.averaging,
                "total_deviation": self.total_deviation,
                **({} if path.is_bounded else stopped_details() | told.details),
            },
            model=model,
            tables=model.tables(path.potentials),
            **stamp.fields,
        )


@final
@dataclass(frozen=True, kw_only=True)
class DPSGD(RecordMechanism[AscentPlan, CodedRecords, LearnedPotentials]):
    r"""Fit a declared model by noisy clipped gradients: (epsilon, delta)-privacy, and no statistics released.

    A step draws each record with probability q, clips each drawn record's gradient of the log-likelihood, indicators
    minus the model's exact marginals, to length c, and adds Gaussian noise of scale z c to the sum. A noisy number of
    records, 2 % of the budget, scales it. z is the smallest at which the accountant of dp-accounting finds T such
    steps and the number within the budget; see docs/explanation/dpsgd.md for the proof, discretization included.
    Neighbors differ by one record more or less.

    This is the baseline of Bernstein et al. (2017): it gives one estimate, without its uncertainty.

    Parameters
    ----------
    epsilon
        Budget, nats, positive.
    delta
        Second parameter of the guarantee, in (0, 1); well below one over the number of records.
    steps
        T, the number of steps.
    sampling_rate
        q in (0, 1], rounded up to a multiple of 2^-53.
    clip
        c; :math:`\sqrt m` for m cliques by default, at most :math:`\sqrt{2m}`, which clips nothing.
    learning_rate
        η, for the mean gradient; by default from the noise, the noisy number of records and the model's largest
        curvature: see `bayesprivmrf.learning.gradient_ascent.clipped_gradients.Ascent`.
    averaging
        Share of the iterates, the last ones, that are averaged; 0 for the last one alone.
    missing, other
        See `bayesprivmrf.mechanisms.StatisticsMechanism`.

    Raises
    ------
    ArgumentError
        A setting is out of range.
    BayesPrivMRFError
        dp-accounting is not installed; raised at release.

    References
    ----------
    Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang 2016, Algorithm 1. Bernstein, McKenna, Sun, Sheldon, Hay,
    Miklau 2017, section 4.

    Examples
    --------
    >>> DPSGD(epsilon=1.0, delta=1e-6, sampling_rate=0.5).sampling_rate
    0.5
    """

    releases = (LearnedPotentials,)
    accountant: ClassVar[str] = (
        "its promise is computed by the accountant of dp-accounting, from public settings alone: see `spent_epsilon` "
        "of bayesprivmrf.privacy"
    )

    adjacency: ClassVar[Adjacency] = Adjacency.ADD_OR_REMOVE_ONE  # type: ignore[misc] # the accountant knows no other
    epsilon: float
    delta: float
    steps: int = 1000
    sampling_rate: float = 0.1
    clip: float | None = None
    learning_rate: float | None = None
    averaging: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(
            epsilon=positive_finite("epsilon", self.epsilon),
            delta=probability("delta", self.delta, zero=False),
            steps=whole_number("steps", self.steps, 1, LARGEST_STEPS, remedy="try 1000"),
            sampling_rate=positive_finite("sampling_rate", self.sampling_rate),
            clip=None if self.clip is None else positive_finite("clip", self.clip),
            averaging=at_least("averaging", self.averaging, 0),
        )
        if self.learning_rate is not None:
            self._keep(learning_rate=positive_finite("learning_rate", self.learning_rate))
        require(
            self.sampling_rate <= 1,
            "sampling_rate",
            "be at most 1",
            self.sampling_rate,
            "1 draws every record",
        )
        require(
            self.clip is None or self.clip >= SMALLEST_CLIP,
            "clip",
            f"be at least {SMALLEST_CLIP:g}",
            self.clip,
            "below it all gradients are clipped, and a smaller clip only acts as a smaller learning rate",
        )
        require(
            self.learning_rate is None or self.learning_rate <= LARGEST_LEARNING_RATE,
            "learning_rate",
            f"be at most {LARGEST_LEARNING_RATE:g}",
            self.learning_rate,
            "leave it out for a default",
        )
        require(self.averaging <= 1, "averaging", "be a share from 0 to 1", self.averaging, "try 0.5")

    @property
    def noise_multiplier(self) -> float:
        """z, the noise's scale over the clip."""
        return calibrated_noise((self.schedule,), self.epsilon, self.delta).steps[0]

    @property
    def _numerator(self) -> int:
        return math.ceil(self.sampling_rate * 2.0**RATE_BITS)

    @property
    def schedule(self) -> Schedule:
        """The steps as the accountant knows them."""
        return Schedule(sampling_rate=self._numerator / 2.0**RATE_BITS, steps=self.steps)

    def ascent(self, specification: ModelSpecification, multiplier: float) -> Ascent:
        """Return the public settings of the ascent, with noise of that multiple of its sensitivity."""
        lattice = GradientLattice.of(len(specification.cliques), self.clip)
        return Ascent(
            specification=specification,
            lattice=lattice,
            numerator=self._numerator,
            steps=self.steps,
            noise=DiscreteGaussian(math.nextafter(multiplier * lattice.sensitivity, math.inf)),
            learning_rate=self.learning_rate,
            averaging=self.averaging,
        )

    def _outlays(self, plan: AscentPlan, total: float | None) -> list[Outlay]:
        """Return the noisy number of records, the ascent, and all together, which alone has a cost.

        Costs of steps over samples do not add up. ``noise_sd`` is that of each entry of a step's sum of clipped
        gradients, records; ``smallest_coupling`` is here the smallest difference of potentials that the noise does
        not hide along the clearest direction.
        """
        return [*plan.outlays(total), Outlay(step="all of this together", epsilon=self.epsilon)]

    def _prepare(self, network: DiscreteMarkovNetwork | ModelSpecification) -> AscentPlan:
        noise = calibrated_noise((self.schedule,), self.epsilon, self.delta)
        return self._planned(network, noise, self.epsilon)

    def _planned(
        self, network: DiscreteMarkovNetwork | ModelSpecification, noise: CalibratedNoise, epsilon: float
    ) -> AscentPlan:
        """Return the plan with given noise, after a check of all that is public.

        Parameters
        ----------
        network
            The declared model.
        noise
            Noise of the steps and of the number of records.
        epsilon
            Epsilon that this noise promises at `delta`.
        """
        specification = self._with_cliques(network)
        if any(specification.sharing):
            raise ModelError(
                f"{type(self).__name__} fits each clique's potentials separately, and the network relates some of "
                "them; declare it without ties, scores and levels (`tied`, `ordinal`, `levels`), or "
                "release sums over the tied cliques and fit those."
            )
        marginal_engine(specification.cardinalities, specification.scopes)  # refuses what would not fit
        plan = AscentPlan(
            **self._declared(specification),
            ascent=self.ascent(specification, noise.steps[0]),
            count_noise=DiscreteGaussian(math.nextafter(noise.count * _COUNT_STEPS, math.inf)),
        )
        require_fine_lattice(drawn_noises([plan.ascent]), plan.smallest_scale, epsilon, self.delta)
        return plan

    def _guarantee(self, plan: AscentPlan) -> PrivacyGuarantee:
        return PrivacyGuarantee(epsilon=self.epsilon, delta=self.delta, adjacency=self.adjacency)

    def _read(self, plan: AscentPlan, data: Any, count: Hashable | None = None) -> CodedRecords:
        return read_possible(plan, self._records(plan, data, count))

    def _randomise(
        self, plan: AscentPlan, exact: CodedRecords, source: NoiseSource, stamp: Stamp
    ) -> LearnedPotentials:
        total = plan.total(exact, source)
        release = plan.released(plan.ascent.run(exact.codes, exact.counts, total, source), total, stamp)
        # from here on, only what was let out is looked at
        if plan.ascent.resolution(total) > LARGEST_RESOLUTION:
            warn_without_raising(
                f"at {about(total)} the noise hides differences of {LARGEST_RESOLUTION:g} nat between "
                "potentials, even along the clearest direction; spend more, take more records, or declare fewer "
                "cliques."
            )
        return release


def read_possible(plan: RecordPlan, records: CodedRecords) -> CodedRecords:
    """Return the records unchanged, after a check that none lies in a cell declared impossible."""
    model = plan.specification
    if model.possible is not None:
        held = np.zeros(model.size, dtype=np.int64)
        for start in range(0, len(records.codes), _CHUNK):
            cells = cells_of(model, records.codes[start : start + _CHUNK])
            held += np.bincount(cells.ravel(), minlength=model.size)
        refuse_impossible(model, held)
    return records
