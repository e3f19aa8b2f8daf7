"""`DPSGD`: differentially private stochastic gradient ascent on the likelihood of a declared model."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from bayesprivmrf.checks import at_least, positive_finite, probability, require, whole_number
from bayesprivmrf.errors import ModelError
from bayesprivmrf.interruption import stopped_details, warn_without_raising
from bayesprivmrf.learning.models.potentials import LearnedPotentials
from bayesprivmrf.learning.models.solution import Signal
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.gradient_ascent import (
    RATE_BITS,
    SMALLEST_CLIP,
    Ascent,
    AscentPath,
    GradientLattice,
)
from bayesprivmrf.mechanisms.reading.coded import CodedRecords
from bayesprivmrf.mechanisms.reading.counting import refuse_impossible
from bayesprivmrf.mechanisms.record_mechanisms import RecordMechanism, RecordPlan
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.cells import cells_of
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

# Largest number of steps; arbitrary, far more than any use: the default is a thousand
_LARGEST_STEPS = 10**5

# Lattice steps for one record, in the noisy number of records
_COUNT_STEPS = 1 << 28


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AscentPlan(RecordPlan):
    """The public part of a release: the ascent, and the noise on the number of records, in steps of 2^-28."""

    ascent: Ascent
    count_noise: DiscreteGaussian

    @property
    def smallest_scale(self) -> float:
        """Smallest scale of any noise, in steps of its lattice."""
        return min(self.count_noise.scale, self.ascent.noise.scale)

    @property
    def total_deviation(self) -> float:
        """Scale of the noise on the number of records, records."""
        return self.count_noise.scale / _COUNT_STEPS

    def total(self, exact: CodedRecords, source: NoiseSource) -> float:
        """Return a noisy number of records, at least 1.

        The exact number is first limited to 2^34, so that 64 bits hold it in steps. This never increases the
        difference of two numbers, and so not the sensitivity.
        """
        counted = min(exact.sensitive_number, 2**34) * _COUNT_STEPS
        noisy = source.add(np.array([counted], dtype=np.int64), self.count_noise)
        return max(float(noisy[0]) / _COUNT_STEPS, 1.0)

    def outlays(self, total: float | None) -> list[Outlay]:
        """Return the noisy number of records and the ascent as steps of a preview."""
        one = self.ascent
        share = self.ascent.numerator / 2.0**RATE_BITS
        step = f"ascent in {one.steps} steps, each on a share of {share:.3g} of the records, clipped at "
        counted = Outlay(
            step="number of records",
            count=1,
            noise_sd=self.count_noise.standard_deviation / _COUNT_STEPS,
        )
        ascent = Outlay(
            step=f"{step}{one.lattice.clip:.3g}",
            count=one.steps,
            noise_sd=one.noise.standard_deviation / one.lattice.steps,
            smallest_coupling=None if total is None else one.resolution(max(total, 1.0)),
        )
        return [counted, ascent]

    def released(self, path: AscentPath, total: float, stamp: Stamp) -> LearnedPotentials:
        """Return the release, from public or already noisy values only."""
        model = self.specification
        ascent = self.ascent
        details = {
            "status": "diverged" if path.is_bounded else "stopped early",
            "steps": path.steps,
            "sampling_rate": ascent.numerator / 2.0**RATE_BITS,
            "clip": ascent.lattice.clip,
            "noise_multiplier": ascent.noise.scale / ascent.lattice.sensitivity,
        }
        if path.steps:  # without steps none was used
            details["learning_rate"] = path.learning_rate
        details |= {"averaging": ascent.averaging, "total_deviation": self.total_deviation}
        if not path.is_bounded:
            details |= stopped_details() | Signal.of(total, self.total_deviation, (), ()).details
        tables = model.tables(path.potentials)
        return LearnedPotentials(
            domain=model.domain,
            total=total,
            details=details,
            model=model,
            tables=tables,
            **stamp.fields,
        )


@final
@dataclass(frozen=True, kw_only=True)
class DPSGD(RecordMechanism[AscentPlan, CodedRecords, LearnedPotentials]):
    r"""Fit a declared model by noisy clipped gradients: (epsilon, delta)-privacy, and no statistics released.

    Each step draws each record with probability q. The gradient of a drawn record's log-likelihood is its indicators
    minus the model's exact marginals, clipped to length c. The sum of these gradients gets Gaussian noise of scale z
    c, and is divided by q times a noisy number of records, which takes 2 % of the budget. z is the smallest
    multiplier at which T such steps and the number of records keep to the budget, by the accountant of dp-accounting.
    docs/explanation/dpsgd.md has the proof, including the discretization of the noise. Neighbors differ by one record
    more or less.

    This is the baseline of Bernstein et al. (2017). It gives one estimate without its uncertainty.

    Parameters
    ----------
    epsilon
        Budget, nats, positive.
    delta
        Second parameter of the guarantee, in (0, 1); it should be well below one over the number of records.
    steps
        T, the number of steps.
    sampling_rate
        q in (0, 1], rounded up to a multiple of 2^-53.
    clip
        c, the largest length of a record's gradient; :math:`\sqrt m` for m cliques by default, and at most
        :math:`\sqrt{2m}`, which clips nothing.
    learning_rate
        η, for the mean gradient; by default chosen from the noise, the noisy number of records and the model's
        largest curvature: see `bayesprivmrf.mechanisms.gradient_ascent.Ascent`.
    averaging
        Share of the iterates at the end that are averaged, in [0, 1]; 0 takes the last iterate only.
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
    _runs_compiled: ClassVar[bool] = True
    _accountant: ClassVar[str] = (
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
            steps=whole_number("steps", self.steps, 1, _LARGEST_STEPS, remedy="try 1000"),
            sampling_rate=positive_finite("sampling_rate", self.sampling_rate),
            averaging=at_least("averaging", self.averaging, 0),
        )
        rate = self.sampling_rate
        require(rate <= 1, "sampling_rate", "be at most 1", rate, "1 draws every record")
        require(
            self.averaging <= 1, "averaging", "be a share from 0 to 1", self.averaging, "try 0.5"
        )
        if self.clip is not None:
            self._keep(clip=positive_finite("clip", self.clip))
            remedy = "below it all gradients are clipped, as with a smaller learning rate"
            require(
                self.clip >= SMALLEST_CLIP,
                "clip",
                f"be at least {SMALLEST_CLIP:g}",
                self.clip,
                remedy,
            )
        if self.learning_rate is not None:
            self._keep(learning_rate=positive_finite("learning_rate", self.learning_rate))
            # arbitrary, far more than any use
            rate = self.learning_rate
            must = "be at most 1e+06"
            require(rate <= 1e6, "learning_rate", must, rate, "leave it out for a default")

    @property
    def noise_multiplier(self) -> float:
        """Noise multiplier z: the scale of the noise divided by the clip."""
        return calibrated_noise((self.schedule,), self.epsilon, self.delta).steps[0]

    @property
    def schedule(self) -> Schedule:
        """Steps of the ascent, for the accountant."""
        return Schedule(
            sampling_rate=math.ceil(self.sampling_rate * 2.0**RATE_BITS) / 2.0**RATE_BITS,
            steps=self.steps,
        )

    def ascent(self, specification: ModelSpecification, multiplier: float) -> Ascent:
        """Return the public settings of the ascent, with noise of a given multiple of its sensitivity."""
        lattice = GradientLattice.of(len(specification.cliques), self.clip)
        return Ascent(
            specification=specification,
            lattice=lattice,
            numerator=math.ceil(self.sampling_rate * 2.0**RATE_BITS),
            steps=self.steps,
            noise=DiscreteGaussian(math.nextafter(multiplier * lattice.sensitivity, math.inf)),
            learning_rate=self.learning_rate,
            averaging=self.averaging,
        )

    def _outlays(self, plan: AscentPlan, total: float | None) -> list[Outlay]:
        """Return the noisy number of records, the ascent, and a row for both together, which alone has a cost.

        Costs of steps over samples do not add up. ``noise_sd`` is the noise of each entry of a step's sum of clipped
        gradients, records. ``smallest_coupling`` is the smallest difference of potentials that the noise does not
        hide along the clearest direction.
        """
        return [*plan.outlays(total), Outlay(step="all of this together", epsilon=self.epsilon)]

    def _twin(self) -> DPSGD:
        return DPSGD(epsilon=1.0, delta=1e-3, steps=2, sampling_rate=1.0)

    def _prepare(self, network: DiscreteMarkovNetwork | ModelSpecification) -> AscentPlan:
        noise = calibrated_noise((self.schedule,), self.epsilon, self.delta)
        return self._planned(network, noise, self.epsilon)

    def _planned(
        self,
        network: DiscreteMarkovNetwork | ModelSpecification,
        noise: CalibratedNoise,
        epsilon: float,
    ) -> AscentPlan:
        """Return the plan with given noise, after a check of the public inputs.

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
        name = type(self).__name__
        # it fits the potentials of each clique separately
        remedy = (
            "declare the network without them, or release sums over the tied cliques and fit those"
        )
        must = "be given no ties, scores or levels"
        is_plain = not any(specification.sharing)
        require(is_plain, name, must, "some", remedy, error=ModelError)
        # refuses what would not fit
        marginal_engine(specification.cardinalities, specification.scopes)
        ascent = self.ascent(specification, noise.steps[0])
        count_noise = DiscreteGaussian(math.nextafter(noise.count * _COUNT_STEPS, math.inf))
        declared = self._declared(specification)
        plan = AscentPlan(
            specification=specification,
            missing=declared.missing,
            other=declared.other,
            ascent=ascent,
            count_noise=count_noise,
        )
        # one more for the number of records
        require_fine_lattice(1 + ascent.drawn_noises, plan.smallest_scale, epsilon, self.delta)
        return plan

    def _guarantee(self, plan: AscentPlan) -> PrivacyGuarantee:
        return PrivacyGuarantee(epsilon=self.epsilon, delta=self.delta, adjacency=self.adjacency)

    def _read(self, plan: AscentPlan, data: Any, count: Hashable | None = None) -> CodedRecords:
        return read_possible(plan, self._records(plan, data, count))

    def _randomise(
        self, plan: AscentPlan, exact: CodedRecords, source: NoiseSource, stamp: Stamp
    ) -> LearnedPotentials:
        total = plan.total(exact, source)
        release = plan.released(
            plan.ascent.run(exact.sensitive_codes, exact.sensitive_counts, total, source),
            total,
            stamp,
        )
        # from here on, only released numbers are used
        # a difference of 1 nat is larger than most of a model's
        if plan.ascent.resolution(total) > 1.0:
            warn_without_raising(
                f"at {about(total)} the noise hides differences of 1 nat between potentials, even along the clearest "
                "direction; spend more, take more records, or declare fewer cliques."
            )
        return release


def read_possible(plan: RecordPlan, records: CodedRecords) -> CodedRecords:
    """Return the records unchanged, after a check that none lies in a cell declared impossible."""
    # records at a time, a few MiB
    model = plan.specification
    chunk = 1 << 15
    if model.possible is not None:
        counts = np.zeros(model.size, dtype=np.int64)
        for start in range(0, len(records.sensitive_codes), chunk):
            np.add.at(
                counts, cells_of(model, records.sensitive_codes[start : start + chunk]).ravel(), 1
            )
        refuse_impossible(model, counts)
    return records
