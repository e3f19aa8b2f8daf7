"""The learning map of `SelectMeasure` with a degree, which a release stores as public settings.

`learn` chooses and measures pairs (`bayesprivmrf.mechanisms.select_measure.one_choice`), and `fit` turns the noisy
numbers into couplings (`bayesprivmrf.learning.select_measure.couplings`). The mechanism runs both on records; anybody
who has the release can run them on rows drawn from the released model. `learned.couplings_interval()` calls
`linearised`, whose limits `bayesprivmrf.learning.select_measure.couplings_interval` derives, and
`bayesprivmrf.learning.select_measure.left_out` for pairs that were left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.files import Json
from bayesprivmrf.interruption import remember
from bayesprivmrf.learning.models.maps import SavedMap, mechanism_module
from bayesprivmrf.learning.select_measure.couplings import FittedCouplings, fit_couplings
from bayesprivmrf.learning.select_measure.couplings_interval import (
    CouplingLimits,
    linearised_limits,
)
from bayesprivmrf.learning.select_measure.measurement import Measured, MeasurementPlan
from bayesprivmrf.learning.select_measure.refit_model import Noise
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import DiscreteGaussian
from bayesprivmrf.release.codec import Fields

if TYPE_CHECKING:
    from bayesprivmrf.learning.models.pairs import LearnedPairs


@dataclass(frozen=True, slots=True, kw_only=True)
class CouplingsByMeasurement(SavedMap):
    """Learning map that selects pairs, measures them and fits a pairwise model.

    Parameters
    ----------
    plan
        Plan of selection and measurement.
    total_noise
        Distribution of the noise on the number of records; ``None`` for a public number.
    """

    plan: MeasurementPlan
    total_noise: DiscreteGaussian | None

    kind = "couplings-by-measurement"

    def as_dict(self) -> dict[str, Json]:
        """Return plain values that JSON can hold; `from_dict` is the inverse."""
        if self.total_noise is None:
            noise = None
        else:
            noise = self.total_noise.scale
        return {"kind": self.kind, "plan": self.plan.as_dict(), "total_noise": noise}

    @classmethod
    def from_dict(cls, content: Fields, basis: tuple[int, ...]) -> CouplingsByMeasurement:
        """Return the map that `as_dict` described."""
        noise = content.positive("total_noise", optional=True)
        return cls(
            plan=MeasurementPlan.from_dict(Fields(content["plan"]), basis),
            total_noise=None if noise is None else DiscreteGaussian(noise),
        )

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float, source: NoiseSource
    ) -> tuple[FloatArray, FloatArray]:
        """Return couplings and fields as arrays of the release's class; see `LearningMap.learn`."""
        mechanism = mechanism_module("select_measure.one_choice")
        measured = mechanism.measured_on_rows(codes, counts, total, self.plan, source)
        fitted = self.fit(measured, total)
        return fitted.coupling_matrix, fitted.field_vector

    @property
    def _total_variance(self) -> float:
        if self.total_noise is None:
            return 0.0
        return self.total_noise.variance

    def fit(self, measured: Measured, total: float) -> FittedCouplings:
        """Return couplings estimated from noisy numbers; equal numbers give equal estimates."""
        try:
            return fit_couplings(measured, self.plan, total, self._total_variance)
        except BaseException as error:
            remember(error)
            return fit_couplings(
                measured, self.plan, total, self._total_variance, is_interrupted=True
            )

    def linearised(
        self, learned: LearnedPairs, prob: float, total: float, generator: np.random.Generator
    ) -> CouplingLimits:
        """Return lower and upper limits of all couplings and fields, each in the order of the release's vector.

        Parameters
        ----------
        learned
            A model learned by this map.
        prob
            Coverage, in (0, 1).
        total
            Number of records N.
        generator
            Generator for records drawn from the model; a `SamplingWarning` says if the chains did not mix.

        Raises
        ------
        ModelError
            The fit failed and a smaller model replaces it, whose errors differ from those derived here.
        """
        noise = Noise(plan=self.plan, total_variance=self._total_variance)
        return linearised_limits(learned, noise, prob, total, generator)
