r"""Base class of learning maps by private regressions, and the refit of fields to measured single variables.

A regression's ball bounds couplings and field together. Where states are rare, the field is large and its direction
nearly that of every feature, so private Frank-Wolfe learns it poorly. Part of the budget therefore measures each
variable by itself, once. The fields are then the maximum a posteriori estimate for the noisy means t of single
variables given the learned couplings W:

.. math:: \hat\beta = \arg\min_\beta \; \log Z(W, \beta) - t^\top \beta + \frac{1}{2 N \tau^2} \|\beta\|^2,

where :math:`\beta` are the coordinates of the fields (`bayesprivmrf.model.effects`) and :math:`\tau` is 2 nats. The
problem is convex, and the model's margins equal the measured ones up to about a record. A share that noise puts below
half a record counts as half a record. Fields and couplings together may then exceed the width. Means are exact if the
model is narrow enough, else from Gibbs sampling. The refit is post-processing of the release.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bayesprivmrf.files import Json
from bayesprivmrf.inference.loglinear_fit.fit import PRIOR_DEVIATION, MomentsFinder, fit_means
from bayesprivmrf.inference.loglinear_fit.sampled import Fixed
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import interrupted_by, remember
from bayesprivmrf.learning.frank_wolfe.node_regressions import LARGEST_STEPS, NodeRegressions
from bayesprivmrf.learning.models.maps import SavedMap, mechanism_module
from bayesprivmrf.learning.select_measure.measurement import (
    Measured,
    MeasurementPlan,
)
from bayesprivmrf.learning.select_measure.targets import PairTargets
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian
from bayesprivmrf.privacy.selection import Exposure, step_scale
from bayesprivmrf.release.codec import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFields:
    """Fields refitted to measured margins, and their agreement with them.

    Parameters
    ----------
    fields
        Fields of the states of all variables, nats, shape (K,); those of a variable sum to 0.
    agrees
        Whether the model's margins equal the measured ones up to noise and sampling.
    details
        Public numbers: the method for means, and the largest gap of a margin, a probability.
    """

    fields: FloatArray
    agrees: bool
    details: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrankWolfeFit:
    """Parameters of a release by private Frank-Wolfe, noisy single variables, and refitted fields, if any."""

    parts: tuple[FloatArray, ...]
    measured: Measured | None = None
    fields: FittedFields | None = None


def singles_plan(cardinalities: tuple[int, ...], law: DiscreteGaussian) -> MeasurementPlan:
    """Return the plan that measures single variables only, as sums of spins if all variables have two states."""
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
    """Return the fields for which the model has the measured margins.

    Parameters
    ----------
    measured, plan
        Noisy sums or tables, and the plan that measured them.
    total
        Number of records, public or noisy, at least 1.
    couplings
        Cliques and potentials of the model without fields.
    begin
        Initial fields, shape (K,); by default those of independent variables.
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
    if begin is None:
        near = np.concatenate([np.log(share) for share in shares])
    else:
        near = begin
    start = effects.coordinates(near)
    measured_means = np.concatenate([targets.single[v] for v in free])
    spread = np.concatenate([targets.single_variances()[v] for v in free])
    noise = np.concatenate([np.full(cards[v] - 1, targets.single_noise[v]) for v in free])
    # a quarter of the draws of a fit of couplings: Monte Carlo errors are half the sampling errors
    worth = 0.25 * float(np.median(1 / (noise / spread + 1 / targets.total)))
    seed = zlib.crc32(measured.one_way.tobytes())  # so that the same release gives the same fields
    finder = MomentsFinder(worth, seed)
    fit = fit_means(effects, wanted, ridges, finder, start=start, fixed=couplings)
    assert fit.means is not None
    gap = fit.means - measured_means
    # under normal errors, some margin exceeds this limit with probability below 0.001
    largest = float(np.sqrt(2 * np.log(2 * effects.size / 1e-3)))
    is_close = np.abs(gap) <= largest * np.sqrt(noise + spread / targets.total)
    agrees = fit.status is not Status.NOT_TRUSTED and bool(is_close.all())
    tables = effects.tables(fit.coordinates)
    fields = [np.zeros(k) for k in cards]
    for v, table in zip(free, tables, strict=True):
        fields[v] = table
    largest_gap = max(float(np.abs(table).max()) for table in effects.tables(gap))
    details = {"inference": fit.inference, "margin_gap": largest_gap}
    return FittedFields(fields=np.concatenate(fields), agrees=agrees, details=details)


@dataclass(frozen=True, eq=False, kw_only=True)
class ByRegressions(SavedMap, ABC):
    r"""Abstract learning map by one or more private regressions for each node.

    Parameters
    ----------
    width
        Bound :math:`\lambda` on the parameters of a node; each map defines it.
    rho
        Budget of all regressions, nats.
    adjacency
        Neighboring relation.
    steps
        Number of steps T, or ``None`` for that of `steps_for`.
    singles
        Noise of the sums or tables of single variables, with a budget of its own, to which the fields are refitted;
        ``None`` to keep the fields of the regressions.
    """

    width: float
    rho: float
    adjacency: Adjacency
    steps: int | None = None
    singles: DiscreteGaussian | None = None

    # factor of the default steps of logistic regressions; measured, see docs/explanation/frank-wolfe.md
    _steps_factor: ClassVar[float] = 0.11

    @property
    @abstractmethod
    def exposure(self) -> Exposure:
        """Exposure of the choices to one record."""

    @property
    def radius(self) -> float:
        """Radius of each regression's ball: twice the width, because log odds of spins are twice the couplings."""
        return 2 * self.width

    @property
    @abstractmethod
    def atoms(self) -> int:
        """Number of atoms of a choice."""

    @property
    @abstractmethod
    def reference(self) -> float:
        """Factor by which the first score of a parameter is below n times the parameter and the largest residual."""

    @property
    @abstractmethod
    def states(self) -> tuple[int, ...]:
        """Number of states of each variable."""

    @abstractmethod
    def regressions(self, codes: np.ndarray, counts: IntArray) -> NodeRegressions:
        """Return the regressions at their start, for rows of codes and the number of records of each row."""

    @abstractmethod
    def eligible_groups(self, regressions: NodeRegressions) -> np.ndarray:
        """Return the public mask of the groups that each regression may choose, shape (regressions, groups)."""

    @abstractmethod
    def model_of(self, coefficients: FloatArray) -> Any:
        """Return the model from the coefficients of the regressions, shape (regressions, columns)."""

    @abstractmethod
    def couplings_of(self, regressed: Any) -> Fixed:
        """Return the couplings of the model as potentials, without its fields."""

    @abstractmethod
    def _parts(self, regressed: Any, fitted: FittedFields | None) -> tuple[FloatArray, ...]:
        """Return the parameters of the release, with the refitted fields if there are any."""

    def as_dict(self) -> dict[str, Json]:
        """Return the settings that all maps have as JSON values, besides the noise on single variables."""
        settings = {"kind": self.kind, "width": self.width, "rho": self.rho}
        return settings | {"adjacency": self.adjacency.value, "steps": self.steps}

    def _written_singles(self) -> dict[str, Json]:
        # files of releases without measured single variables lack this entry
        if self.singles is None:
            return {}
        return {"singles": self.singles.scale}

    @staticmethod
    def _common(content: Fields) -> dict[str, Any]:
        if "singles" in content:
            scale = content.positive("singles")
        else:
            scale = None
        return {
            "width": content.positive("width"),
            "rho": content.positive("rho"),
            "adjacency": Adjacency.checked(content.text("adjacency")),
            "steps": content.whole("steps", 1, LARGEST_STEPS, optional=True),
            "singles": None if scale is None else DiscreteGaussian(scale),
        }

    def steps_for(self, total: float | None) -> int:
        r"""Return T for a public or noisy number of records n, which is unused if T is a setting.

        The default is a factor times :math:`(R n / \kappa_1)^{2/3}`, at least 10. The excess loss per record after T
        steps is of the order :math:`R^2/T + R \kappa_1 \sqrt{T} / n`, where :math:`\kappa_1` is the noise multiple of
        a single step. This form minimizes it. The factor was measured (docs/explanation/frank-wolfe.md).
        """
        if self.steps is not None:
            return self.steps
        assert total is not None
        signal = self.radius * total / self.multiple(1)
        steps = math.ceil(self._steps_factor * signal ** (2 / 3))
        # a mean of fewer than ten atoms is too coarse even where noise is large; arbitrary
        return min(max(steps, 10), LARGEST_STEPS)

    def multiple(self, steps: int) -> float:
        """Return the noise multiple of T steps."""
        return step_scale(self.exposure, self.rho, steps, self.adjacency)

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float | None, source: NoiseSource
    ) -> tuple[FloatArray, ...]:
        """Return the parameters of the release, in the order of its class.

        Parameters
        ----------
        codes, counts
            Rows as codes, shape (rows, p), and the number of records that each row represents.
        total
            Public or noisy number of records; unused if T is a setting.
        source
            Source of the noise and of the random choices.
        """
        return self.fit(codes, counts, total, source).parts

    @final
    def fit(
        self, codes: np.ndarray, counts: IntArray, total: float | None, source: NoiseSource
    ) -> FrankWolfeFit:
        """Return the result of `learn` together with the measured single variables; the arguments are the same."""
        search = mechanism_module("frank_wolfe.search")
        return search.run_on_rows(self, codes, counts, total, source)

    @final
    def refitted(
        self, regressed: Any, measured: Measured | None, total: float | None
    ) -> FrankWolfeFit:
        """Return the parameters of the release, with fields refitted to measured single variables, if there are any.

        Parameters
        ----------
        regressed
            The model from the regressions.
        measured
            Noisy sums or tables of single variables; ``None`` to keep the fields of the regressions.
        total
            Public or noisy number of records.
        """
        if measured is None or self.singles is None:
            return FrankWolfeFit(parts=self._parts(regressed, None))
        assert total is not None
        plan = singles_plan(self.states, self.singles)
        fitted = None
        try:
            if interrupted_by() is None:
                fitted = fit_fields(measured, plan, total, self.couplings_of(regressed))
        except BaseException as error:
            remember(error)  # keep the fields of the regressions
        return FrankWolfeFit(parts=self._parts(regressed, fitted), measured=measured, fields=fitted)
