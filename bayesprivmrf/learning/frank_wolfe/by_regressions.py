"""The common part of all maps by private regressions: settings, the number of steps, and the refit of fields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bayesprivmrf.inference.effects_fit.sampled import Fixed
from bayesprivmrf.interruption import interrupted_by, remember
from bayesprivmrf.learning.frank_wolfe.fields import FittedFields, FrankWolfeFit, fit_fields, singles_plan
from bayesprivmrf.learning.frank_wolfe.settings import STEPS_OF_LOGISTIC, default_steps
from bayesprivmrf.learning.models.saved import SavedMap
from bayesprivmrf.learning.select_measure.measurement import select_and_measure
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian
from bayesprivmrf.privacy.frank_wolfe import Exposure, step_scale


@dataclass(frozen=True, eq=False, kw_only=True)
class ByRegressions(SavedMap, ABC):
    r"""Abstract map from records to a model, by one or more private regressions a node.

    Parameters
    ----------
    width
        :math:`\lambda`, of the model's parameters; each map says of which.
    rho
        Budget of all regressions, nats.
    adjacency
        The neighbouring relation.
    steps
        T, or ``None`` for `default_steps` of the number of records.
    singles
        Noise of the sums or tables of single variables, paid for by itself, to which the fields are refitted;
        ``None`` for the fields of the regressions.
    """

    width: float
    rho: float
    adjacency: Adjacency
    steps: int | None = None
    singles: DiscreteGaussian | None = None

    _steps_factor: ClassVar[float] = STEPS_OF_LOGISTIC

    @property
    @abstractmethod
    def exposure(self) -> Exposure:
        """Exposure of the choices to one record."""

    @property
    def bound(self) -> float:
        """The width."""
        return self.width

    @property
    @abstractmethod
    def radius(self) -> float:
        """Radius of each regression's ball."""

    @property
    @abstractmethod
    def atoms(self) -> int:
        """Number of atoms of a choice."""

    @property
    @abstractmethod
    def reference(self) -> float:
        """How many times the first score of a parameter falls short of n times it and the largest residual."""

    @property
    @abstractmethod
    def _states(self) -> tuple[int, ...]:
        """Number of states of each variable."""

    @abstractmethod
    def _regressed_model(
        self, codes: np.ndarray, counts: IntArray, total: float | None, source: NoiseSource
    ) -> Any:
        """Return the model as the regressions have it; the arguments are those of `learn`."""

    @abstractmethod
    def _couplings(self, regressed: Any) -> Fixed:
        """Return all of it but the fields, as potentials."""

    @abstractmethod
    def _parts(self, regressed: Any, fitted: FittedFields | None) -> tuple[FloatArray, ...]:
        """Return the parameters of the release, with the fields that were refitted, if they were."""

    def steps_for(self, total: float | None) -> int:
        """Return T for a public or noisy number of records, which is unused where T is a setting."""
        if self.steps is not None:
            return self.steps
        assert total is not None
        return default_steps(total, self.radius, self.exposure, self.rho, self.adjacency, self._steps_factor)

    def multiple(self, steps: int) -> float:
        """Return the noise multiple of T steps."""
        return step_scale(self.exposure, self.rho, steps, self.adjacency)

    @final
    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float | None, source: NoiseSource
    ) -> tuple[FloatArray, ...]:
        """Return the parameters of the release that the map is for, by their names in it.

        Parameters
        ----------
        codes, counts
            Records as codes, shape (rows, p), and how many each row stands for.
        total
            Their number as far as it may be used: public or noisy; unused where T is a setting.
        source
            Source of the noise and of the random choices.
        """
        return self.fit(codes, counts, total, source).parts

    @final
    def fit(
        self, codes: np.ndarray, counts: IntArray, total: float | None, source: NoiseSource
    ) -> FrankWolfeFit:
        """Return what `learn` does, with what was measured of single variables; the arguments are the same."""
        if self.singles is None:
            regressed = self._regressed_model(codes, counts, total, source)
            return FrankWolfeFit(parts=self._parts(regressed, None))
        assert total is not None
        plan = singles_plan(self._states, self.singles)
        measured = select_and_measure(codes, counts, total, plan, source)
        regressed = self._regressed_model(codes, counts, total, source)
        fitted = None
        try:
            if interrupted_by() is None:
                fitted = fit_fields(measured, plan, total, self._couplings(regressed))
        except BaseException as error:
            remember(error)  # the fields of the regressions are kept
        return FrankWolfeFit(parts=self._parts(regressed, fitted), measured=measured, fields=fitted)
