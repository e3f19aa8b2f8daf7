"""Differentially private stochastic gradient ascent on the likelihood of a declared model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from bayesprivmrf.checks import at_least, positive_finite, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning.gradient_ascent import RATE_BITS, SMALLEST_CLIP, Ascent, GradientLattice
from bayesprivmrf.learning.models.potentials import LearnedPotentials
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.clipped_ascent import AscentMechanism, AscentPlan, released
from bayesprivmrf.mechanisms.noise_warning import warn_without_raising
from bayesprivmrf.mechanisms.reading.coded import CodedRecords
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import about
from bayesprivmrf.privacy import DiscreteGaussian, Schedule, calibrated_noise

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

LARGEST_STEPS = 10**5
LARGEST_LEARNING_RATE = 1e6
LARGEST_RESOLUTION = 1.0
"""Nats: where noise hides a difference of potentials as large as this, it hides nearly all there is."""

TRIED = ("steps", "sampling_rate", "clip", "learning_rate", "averaging")
"""Settings of one ascent, which a search may vary."""


@final
@dataclass(frozen=True, kw_only=True)
class DPSGD(AscentMechanism[LearnedPotentials]):
    r"""Fit a declared model by noisy clipped gradients: (epsilon, delta)-privacy, and no statistics released.

    A step draws each record with probability q, clips each drawn record's gradient of the log-likelihood, indicators
    minus the model's exact marginals, to length c, and adds Gaussian noise of scale z c to the sum. A noisy number of
    records, 2 % of the budget, scales it. z is the smallest at which the accountant of dp-accounting finds T such
    steps and the number within the budget; see docs/dpsgd.md for the proof, discretisation included. Neighbours
    differ by one record more or less.

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

    runs_from_file: ClassVar[bool] = True
    releases = (LearnedPotentials,)

    steps: int = 1000
    sampling_rate: float = 0.1
    clip: float | None = None
    learning_rate: float | None = None
    averaging: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in _checked({name: getattr(self, name) for name in TRIED}).items():
            object.__setattr__(self, name, value)

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

    def _prepare(self, network: DiscreteMarkovNetwork | ModelSpecification) -> AscentPlan:
        noise = calibrated_noise((self.schedule,), self.epsilon, self.delta)
        return self._planned(network, [self], noise, self.epsilon, self.epsilon)

    def _randomise(
        self, plan: AscentPlan, exact: CodedRecords, source: NoiseSource, stamp: Stamp
    ) -> LearnedPotentials:
        total = self._total(plan, exact, source)
        ascent = plan.ascents[0]
        release = released(plan, ascent, ascent.run(exact.codes, exact.counts, total, source), total, stamp)
        # from here on, only what was let out is looked at
        if ascent.resolution(total) > LARGEST_RESOLUTION:
            warn_without_raising(
                f"at {about(total)} the noise hides differences of {LARGEST_RESOLUTION:g} nat between "
                "potentials, even along the clearest direction; spend more, take more records, or declare fewer "
                "cliques."
            )
        return release


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of one ascent, each in its range."""
    steps = whole_number("steps", given["steps"], 1, LARGEST_STEPS, remedy="try 1000")
    found: dict[str, Any] = {"steps": steps, "clip": None, "learning_rate": None}
    for name in ("sampling_rate", "clip", "learning_rate"):
        if given[name] is not None or name == "sampling_rate":
            found[name] = positive_finite(name, given[name])
    if found["sampling_rate"] > 1:
        raise ArgumentError(
            f"`sampling_rate` must be at most 1, got {found['sampling_rate']!r}; 1 draws every record."
        )
    if found["clip"] is not None and found["clip"] < SMALLEST_CLIP:
        raise ArgumentError(
            f"`clip` must be at least {SMALLEST_CLIP:g}, got {found['clip']!r}; below it all gradients are clipped, "
            "and a smaller clip is no more than a smaller learning rate."
        )
    if found["learning_rate"] is not None and found["learning_rate"] > LARGEST_LEARNING_RATE:
        raise ArgumentError(
            f"`learning_rate` must be at most {LARGEST_LEARNING_RATE:g}, got {found['learning_rate']!r}; "
            "leave it out for a default."
        )
    averaging = at_least("averaging", given["averaging"], 0)
    if averaging > 1:
        raise ArgumentError(f"`averaging` must be a share from 0 to 1, got {averaging!r}; try 0.5.")
    return found | {"averaging": averaging}
