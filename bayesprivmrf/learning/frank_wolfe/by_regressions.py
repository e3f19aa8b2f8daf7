r"""The common part of all maps by private regressions: settings, the number of steps, and the refit of fields.

Fields refitted to measured single variables, given the couplings: what private Frank-Wolfe does not learn well.

A regression's ball is spent on couplings and field alike, and where states are rare a field is large and its
direction is nearly that of every feature. So a part of the budget measures each variable by itself, once, and
the fields are those of greatest likelihood for the noisy means t of single variables under the learned couplings W:

.. math:: \hat\beta = \arg\min_\beta \; \log Z(W, \beta) - t^\top \beta + \frac{1}{2 N \tau^2} \|\beta\|^2,

:math:`\beta` being the fields' coordinates (`bayesprivmrf.model.effects`) and :math:`\tau` 2 nats. The problem is
convex, and the model's margins are the measured ones but for about a record. A share of a state that noise puts below
half a record's is taken as that. Fields and couplings together no longer keep within the width. Means are exact
where the model is narrow enough (`is_narrow`), else from Gibbs sampling. All of it is post-processing of what was
released.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bayesprivmrf.inference.effects_fit.fit import PRIOR_DEVIATION, fit_means
from bayesprivmrf.inference.effects_fit.sampled import Fixed
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import interrupted_by, remember
from bayesprivmrf.learning.frank_wolfe.search import STEPS_OF_LOGISTIC, default_steps
from bayesprivmrf.learning.models.saved import SavedMap
from bayesprivmrf.learning.select_measure.measurement import Measured, MeasurementPlan, select_and_measure
from bayesprivmrf.learning.select_measure.targets import PairTargets
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian
from bayesprivmrf.privacy.frank_wolfe import Exposure, step_scale


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFields:
    """Fields of all variables' states, and how the model's margins compare with the measured ones.

    Parameters
    ----------
    fields
        States of all variables after another, each variable's adding to 0, nats: shape (K,).
    agrees
        Whether the model's margins are the measured ones but for noise and sampling.
    details
        Public numbers: how means were found, and the largest gap of a margin, a probability.
    """

    fields: FloatArray
    agrees: bool
    details: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrankWolfeFit:
    """The result of a map by Frank-Wolfe on records.

    Parameters
    ----------
    parts
        Parameters of the release, in its class's order.
    measured
        The noisy sums or tables of single variables; ``None`` where none were bought.
    fields
        How the fields were refitted to them; ``None`` as well.
    """

    parts: tuple[FloatArray, ...]
    measured: Measured | None = None
    fields: FittedFields | None = None


def singles_plan(cardinalities: tuple[int, ...], law: DiscreteGaussian) -> MeasurementPlan:
    """Return the plan that measures every variable by itself and no pair; two states everywhere have one sum each."""
    return MeasurementPlan(
        cardinalities=cardinalities,
        form="moments" if set(cardinalities) == {2} else "tables",
        candidates=np.zeros((0, 2), dtype=np.int64),
        count=0,
        one_way=law,
        two_way=law,
        selection_scale=None,
    )


def fit_fields(
    measured: Measured,
    plan: MeasurementPlan,
    total: float,
    couplings: Fixed,
    begin: FloatArray | None = None,
) -> FittedFields:
    """Return the fields that give the model its measured margins.

    Parameters
    ----------
    measured, plan
        The noisy sums or tables, and what is public about them.
    total
        Number of records, public or noisy, at least 1.
    couplings
        Cliques and potentials of all that is no field.
    begin
        Fields to begin at, shape (K,); by default those of independent variables.
    """
    cards = plan.cardinalities
    targets = PairTargets.of(measured, plan, total, 0.0)
    effects = Effects.of(cards, [(v,) for v in range(len(cards))])
    free = [v for (v,) in effects.subsets]
    if not free:
        return FittedFields(fields=np.zeros(sum(cards)), agrees=True, details={})
    shares = targets.shares()
    wanted = np.concatenate([contrasts(cards[v]).T @ shares[v] for v in free])
    ridges = np.full(effects.size, 1 / (targets.total * PRIOR_DEVIATION**2))
    near = np.concatenate([np.log(share) for share in shares]) if begin is None else begin
    start = effects.coordinates(near)
    measured_means = np.concatenate([targets.single[v] for v in free])
    spread = np.concatenate([targets.single_variances()[v] for v in free])
    noise = np.concatenate([np.full(cards[v] - 1, targets.single_noise[v]) for v in free])
    # a quarter of the draws of a fit of couplings: Monte Carlo errors are half the sampling errors
    worth = 0.25 * float(np.median(1 / (noise / spread + 1 / targets.total)))
    seed = zlib.crc32(measured.one_way.tobytes())  # so that the same release gives the same fields
    fit = fit_means(effects, wanted, ridges, worth, seed, start=start, fixed=couplings)
    assert fit.means is not None
    gap = fit.means - measured_means
    # a normal variable exceeds this limit in any of the margins with probability 0.001
    largest = float(np.sqrt(2 * np.log(2 * effects.size / 1e-3)))
    is_close = np.abs(gap) <= largest * np.sqrt(noise + spread / targets.total)
    agrees = fit.status != Status.NOT_TRUSTED and bool(is_close.all())
    tables = effects.tables(fit.coordinates)
    fields = [np.zeros(k) for k in cards]
    for v, table in zip(free, tables, strict=True):
        fields[v] = table
    largest_gap = max(float(np.abs(table).max()) for table in effects.tables(gap))
    details = {"inference": fit.inference, "margin_gap": largest_gap}
    return FittedFields(fields=np.concatenate(fields), agrees=agrees, details=details)


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
    def couplings_of(self, regressed: Any) -> Fixed:
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
                fitted = fit_fields(measured, plan, total, self.couplings_of(regressed))
        except BaseException as error:
            remember(error)  # the fields of the regressions are kept
        return FrankWolfeFit(parts=self._parts(regressed, fitted), measured=measured, fields=fitted)
