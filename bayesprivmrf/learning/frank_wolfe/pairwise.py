"""Learning maps of pairwise models by node-wise regressions: one softmax, or one logistic for each pair of states."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np

from bayesprivmrf.files import Json
from bayesprivmrf.inference.loglinear_fit.sampled import Fixed
from bayesprivmrf.learning.frank_wolfe.by_regressions import ByRegressions, FittedFields
from bayesprivmrf.learning.frank_wolfe.node_regressions import (
    RESIDUAL_UNIT,
    Design,
    LogisticRegressions,
    NodeRegressions,
)
from bayesprivmrf.learning.models.maps import require_states, written_pairs
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy.selection import Exposure
from bayesprivmrf.release.codec import Fields


class SoftmaxRegressions(NodeRegressions):
    r"""Softmax regressions, :math:`P(y = c | f) \propto e^{\langle w_c, f \rangle}`, each :math:`w_c` in a ball.

    `NodeRegressions` treats each state of each node as a regression, in this order.

    Parameters
    ----------
    design, labels, counts, radius
        See `NodeRegressions`; each state has a ball of this radius.
    nodes
        Columns of `labels` that are dependent variables.
    states
        Number of states of each of them, at least two.
    """

    def __init__(
        self,
        design: Design,
        labels: np.ndarray,
        counts: IntArray,
        radius: float,
        nodes: np.ndarray,
        states: tuple[int, ...],
    ) -> None:
        super().__init__(design, labels, counts, sum(states), radius)
        self._nodes = np.asarray(nodes, dtype=np.int64)
        self.owners = self._nodes.repeat(states)
        self._states = np.asarray(states, dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self._states)]).astype(np.int64)

    def _table(self) -> np.ndarray:
        r"""Return :math:`e^{\langle w, f \rangle}` by cell of the margin, in nondecreasing whole numbers."""
        margin = self.cells()
        # largest entry 2^40: products with `RESIDUAL_UNIT` and sums over states are exact in double precision
        table = np.rint(2.0**40 * np.exp(self.radius * (margin - 1)))
        return np.maximum.accumulate(np.maximum(table, 1.0))

    @property
    def bounds(self) -> IntArray:
        r"""Public bound B for each state of each node, the same within a node.

        The residual of the record's own state is largest where its margin is smallest and the others are largest.
        Rounding changes each of the others by at most a half.
        """
        table = self.table
        norms = self.norms
        middle = table.size // 2
        high = table[middle + (norms >> self.shift)]
        low = table[middle + (-norms >> self.shift)]
        others = np.add.reduceat(high, self._starts[:-1]).repeat(self._states) - high
        share = np.maximum.reduceat(others / (low + others), self._starts[:-1])
        # 2^-20 exceeds all rounding errors of a residual before it becomes a whole number
        bounds = np.floor(RESIDUAL_UNIT * share + (self._states - 1) / 2 + 2.0**-20)
        return bounds.astype(np.int64).repeat(self._states)

    def _residuals(self, rows: slice, codes: np.ndarray, out: np.ndarray) -> None:
        from bayesprivmrf.learning.frank_wolfe.atoms import softmax_residuals

        of_records, of_move = self._arguments(rows, codes)
        softmax_residuals(
            *of_records, self._nodes, self._starts, *of_move, float(RESIDUAL_UNIT), out
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class PairwiseByRegressions(ByRegressions):
    r"""Abstract learning map of a pairwise model.

    .. math:: P(x) \propto \exp\Bigl(\sum_{i<j} W_{ij}(x_i, x_j) + \sum_i \theta_i(x_i)\Bigr)

    Tables are centered: :math:`\sum_a W_{ij}(a, b) = \sum_b W_{ij}(a, b) = \sum_a \theta_i(a) = 0`. The width is
    :math:`\lambda = \max_{i,a} \sum_j \max_b |W_{ij}(a, b)| + |\theta_i(a)|`. The estimate of a coupling is the
    average over both nodes.

    Parameters
    ----------
    cardinalities
        Number of states of each variable; a variable with one state has no couplings.
    eligible
        Public mask of the couplings to learn, symmetric, False on the diagonal: shape (p, p).
    width
        Bound :math:`\lambda` on the centered tables.
    is_ising
        Whether results have the form of an Ising model, for variables with two states.
    rho, adjacency, steps, singles
        See `ByRegressions`.
    """

    cardinalities: tuple[int, ...]
    eligible: np.ndarray
    is_ising: bool = False

    @property
    def atoms(self) -> int:
        """Number of atoms of a choice: all signs of each group of features and of the constant."""
        return 2 + sum(2 if k == 2 else 2**k for k in self.cardinalities if k > 1)

    @property
    def reference(self) -> float:
        """Factor by which the first score of a coupling is below n times the coupling and the largest residual.

        It is k / 2 if each pair of states has a regression, where k is the median number of states.
        """
        return self._usual_states / 2

    @property
    def states(self) -> tuple[int, ...]:
        """Number of states of each variable."""
        return self.cardinalities

    @property
    def _usual_states(self) -> float:
        return float(np.median([k for k in self.cardinalities if k > 1]))

    @abstractmethod
    def _by_state(self, coefficients: FloatArray) -> FloatArray:
        """Return one row for each state of each node from one for each regression."""

    def _parts(
        self, regressed: tuple[FloatArray, FloatArray], fitted: FittedFields | None
    ) -> tuple[FloatArray, FloatArray]:
        r"""Return couplings and fields by state, shapes (K, K) and (K,).

        An Ising model has :math:`A_{ij} = W_{ij}(1, 1)` and :math:`h_i = \theta_i(1)`, shapes (p, p) and (p,).
        """
        if fitted is None:
            W, theta = regressed
        else:
            W = regressed[0]
            theta = fitted.fields
        if self.is_ising:
            return (W[1::2, 1::2], theta[1::2])
        return (W, theta)

    def eligible_groups(self, regressions: NodeRegressions) -> np.ndarray:
        """Return the mask of the variables that may be coupled, and of the constant."""
        is_coupled = np.array(self.cardinalities) > 1
        eligible = (self.eligible & is_coupled)[regressions.owners]
        return np.pad(eligible, ((0, 0), (0, 1)), constant_values=True)  # the constant

    def model_of(self, coefficients: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the centered tables of couplings and fields."""
        return self._centred(self._by_state(coefficients))

    def couplings_of(self, regressed: tuple[FloatArray, FloatArray]) -> Fixed:
        """Return the nonzero couplings as potentials of their pairs."""
        W, _ = regressed
        own = [slice(*ends) for ends in zip(self.starts, self.starts[1:], strict=False)]
        blocks = {(i, j): W[own[i], own[j]] for i in range(len(own)) for j in range(i)}
        kept = {pair: block.ravel() for pair, block in blocks.items() if block.any()}
        return Fixed(tuple(kept), np.concatenate([np.zeros(0), *kept.values()]))

    def as_dict(self) -> dict[str, Json]:
        """Return the settings as JSON values."""
        pairs = np.argwhere(np.triu(self.eligible)).tolist()
        is_complete = len(pairs) == math.comb(len(self.eligible), 2)
        # the order of the entries in a file
        names = ("kind", "cardinalities", "width", "rho", "steps", "is_ising")
        content = (
            dict.fromkeys(names) | super().as_dict() | {"pairs": None if is_complete else pairs}
        )
        own = {"cardinalities": self.cardinalities, "is_ising": self.is_ising}
        return content | own | self._written_singles()

    @classmethod
    def from_dict(cls, content: Fields, basis: tuple[int, ...]) -> Self:
        """Return the map with settings from a file."""
        require_states(content, basis)
        p = len(basis)
        is_complete = content["pairs"] is None
        if is_complete:
            rows, columns = np.triu_indices(p, 1)
        else:
            rows, columns = written_pairs(content, "pairs", p).T
        eligible = np.zeros((p, p), dtype=bool)
        eligible[rows, columns] = eligible[columns, rows] = True
        return cls(
            cardinalities=basis,
            eligible=eligible,
            is_ising=content.truth("is_ising"),
            **cls._common(content),
        )

    def _centred(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return centered tables, with means moved into the fields, averaged over both nodes of each pair."""
        column, factor = self._columns
        tables = rows[:, column] * factor
        means = np.add.reduceat(tables, self.starts[:-1], axis=1) / np.array(self.cardinalities)
        fields = rows[:, -1] + means.sum(axis=1)
        tables -= means.repeat(self.cardinalities, axis=1)
        both = np.column_stack([tables, fields])
        means = (
            np.add.reduceat(both, self.starts[:-1], axis=0) / np.array(self.cardinalities)[:, None]
        )
        both -= means.repeat(self.cardinalities, axis=0)
        tables = both[:, :-1]
        fields = both[:, -1]
        return (tables + tables.T) / 2, fields

    @cached_property
    def starts(self) -> IntArray:
        """First state of each variable, and the number K of states."""
        return np.concatenate([[0], np.cumsum(self.cardinalities)]).astype(np.int64)

    @cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Column of the design for each state, and the value of the feature in that state (0 for none)."""
        column = []
        factor = []
        start = 0
        for k in self.cardinalities:
            column += [start] * k if k <= 2 else range(start, start + k)
            factor += {1: [0.0], 2: [-1.0, 1.0]}.get(k, [1.0] * k)
            start += k if k > 2 else 1
        return np.array(column), np.array(factor)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class PairwiseBySoftmax(PairwiseByRegressions):
    r"""Learning map by one softmax regression for each node.

    .. math:: P(x_i = a | x) \propto \exp\Bigl(\sum_j W_{ij}(a, x_j) + \theta_i(a)\Bigr)

    The coefficients of each state lie in a ball of radius :math:`\lambda`, by the definition of the width.
    """

    kind = "softmax-regressions"
    # measured; see docs/explanation/frank-wolfe.md
    _steps_factor: ClassVar[float] = 0.16

    @property
    def exposure(self) -> Exposure:
        """Exposure of the choices to one record."""
        return Exposure.of_softmax(self.cardinalities)

    @property
    def radius(self) -> float:
        """Radius of each state's ball: the width."""
        return self.width

    @property
    def reference(self) -> float:
        r"""Return k - 1: residuals of a state are up to :math:`1 - 1/k`, and :math:`n / k` records are in it."""
        return self._usual_states - 1

    def regressions(self, codes: np.ndarray, counts: IntArray) -> NodeRegressions:
        """Return one softmax regression for each node of several states."""
        nodes = np.flatnonzero(np.array(self.cardinalities) > 1)
        states = tuple(self.cardinalities[i] for i in nodes)
        design = Design.with_constant(codes, self.cardinalities)
        return SoftmaxRegressions(design, codes, counts, self.radius, nodes, states)

    def _by_state(self, coefficients: FloatArray) -> FloatArray:
        rows = np.zeros((self.starts[-1], coefficients.shape[1]))
        rows[np.array(self.cardinalities).repeat(self.cardinalities) > 1] = coefficients
        return rows


@dataclass(frozen=True, eq=False, kw_only=True)
class PairwiseByPairs(PairwiseByRegressions):
    r"""Learning map by one logistic regression for each pair of states of each node.

    .. math:: P(x_i = a | x_i \in \{a, b\}, x)
        = \sigma\Bigl(\sum_j W_{ij}(a, x_j) - W_{ij}(b, x_j) + \theta_i(a) - \theta_i(b)\Bigr).

    The coefficients :math:`U_{ab}` lie in a ball of radius :math:`2 \lambda`. Since the rows of W sum to 0,
    :math:`W_{ij}(a, \cdot) = \frac{1}{k} \sum_b U_{ab}(j, \cdot)` with :math:`U_{ba} = -U_{ab}`.

    For two states, -1 and +1, this is an Ising model's :math:`P(x_i = 1 | x) = \sigma(2 \sum_j A_{ij} x_j + 2 h_i)`
    with :math:`W_{ij}(a, b) = A_{ij} a b` and :math:`\theta_i(a) = h_i a`, one regression for each node.
    """

    kind = "pair-regressions"

    @property
    def exposure(self) -> Exposure:
        """Exposure of the choices to one record."""
        return Exposure.of_pairs(self.cardinalities)

    @cached_property
    def _pairs(self) -> np.ndarray:
        """Node, state of y = +1 and state of y = -1, one row for each regression."""
        return np.array(
            [
                (i, a, b)
                for i, k in enumerate(self.cardinalities)
                for a in range(k)
                for b in range(a)
            ]
        )

    def regressions(self, codes: np.ndarray, counts: IntArray) -> NodeRegressions:
        """Return one logistic regression for each pair of states of each node."""
        node, positive, negative = self._pairs.T
        design = Design.with_constant(codes, self.cardinalities)
        return LogisticRegressions(design, codes, counts, self.radius, node, (positive, negative))

    def linearised(
        self, learned: Any, prob: float, total: float, generator: np.random.Generator
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return first-order limits of the parameters of a release, or ``None`` if they would not hold.

        `bayesprivmrf.learning.frank_wolfe.interval` derives them and states their conditions.
        """
        from bayesprivmrf.learning.frank_wolfe.interval import limits

        return limits(learned, self, prob, total, generator)

    def _by_state(self, coefficients: FloatArray) -> FloatArray:
        rows = np.zeros((self.starts[-1], coefficients.shape[1]))
        node, positive, negative = self._pairs.T
        share = coefficients / np.array(self.cardinalities)[node, None]
        np.add.at(rows, self.starts[node] + positive, share)
        np.add.at(rows, self.starts[node] + negative, -share)
        return rows


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class OneRegression(PairwiseByPairs):
    r"""Learning map of one two-state variable given the others, by its regression of `PairwiseByPairs` alone.

    The log odds of its second state are :math:`c + \sum_j w_j(x_j)`, and each w sums to 0.

    Parameters
    ----------
    target
        Position of the dependent variable, which has two states.
    width
        Half the radius of the ball :math:`|c| + \sum_j \max_b |w_j(b)| \le R` that is searched.
    cardinalities, eligible, rho, adjacency, steps
        See `PairwiseByRegressions`.
    """

    target: int

    @property
    def exposure(self) -> Exposure:
        """Exposure of the choices of one regression to one record."""
        return Exposure.of_logistic(1)

    @property
    def atoms(self) -> int:
        """Number of atoms of a choice, without those of the target."""
        return super().atoms - 2

    @property
    def reference(self) -> float:
        """Return the reference 2: the first score of a log odds effect w is n w / 2 times the largest residual."""
        return 2.0

    @cached_property
    def _pairs(self) -> np.ndarray:
        return np.array([(self.target, 1, 0)])

    def eligible_groups(self, regressions: NodeRegressions) -> np.ndarray:
        """Return the mask of the variables that may have an effect, and of the constant: shape (1, p + 1)."""
        is_eligible = self.eligible[self.target] & (np.array(self.cardinalities) > 1)
        return np.append(is_eligible, True)[None]

    def log_odds_of(self, coefficients: FloatArray) -> tuple[FloatArray, float]:
        """Return the effects w of the states of all variables, 0 for the target's, and the intercept c.

        The tables of all pairs, which `learn` returns, would take memory of the order of p squared.
        """
        states = np.array(self.cardinalities)
        column, factor = self._columns
        effects = coefficients[0, column] * factor
        means = np.add.reduceat(effects, self.starts[:-1]) / states
        return effects - means.repeat(states), float(coefficients[0, -1] + means.sum())
