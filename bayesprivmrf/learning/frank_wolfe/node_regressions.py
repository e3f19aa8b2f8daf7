r"""Private Frank-Wolfe for regressions of each node on the others, in whole numbers.

Step t picks the atom that best follows the negative gradient at the last iterate, by the exponential mechanism. All
atoms so far, and the starting point 0, have equal weights in the iterate. The result is a mean of iterates:

.. math:: w_t = \frac{1}{t + 1} \sum_{k \le t} s_k = (1 - \mu_t)\, w_{t-1} + \mu_t s_t, \quad \mu_t = \frac{1}{t + 1},
    \qquad \bar w = \frac{\sum_t t^2 w_t}{\sum_t t^2} .

With noise this estimate needs half the steps of :math:`\mu_t = 2/(t + 2)` with the last iterate, and is more accurate
(docs/explanation/frank-wolfe.md). The choice of weights is post-processing and costs no budget.

An iterate is a mean of atoms with whole weights, so margins are whole numbers over a public divisor. A table of whole
numbers, in which 4096 stands for 1, maps margins to residuals. Sums over records are matrix products of whole
numbers: in single precision over blocks of 4000 records, whose partial sums stay below 2^24, or in double precision
if rows represent several records, below 2^53. Both are exact in any order of summation.

References
----------
Talwar, Thakurta, Zhang 2015. Zhang, Kamath, Kulkarni, Wu 2020, Algorithm 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bayesprivmrf.learning.frank_wolfe.atoms import Atoms
from bayesprivmrf.model.tables import FloatArray, IntArray

type _Four = tuple[Any, Any, Any, Any]

# Steps in a residual of 1
RESIDUAL_UNIT = 4096

# records in a block: residuals of at most RESIDUAL_UNIT + 90 then sum to less than 2^24
_BLOCK = 4000


@dataclass(frozen=True, eq=False, kw_only=True)
class Design:
    """Design matrix in groups of columns, one group for each variable.

    A variable with two codes has one column of signs, -1 for code 0 and +1 for code 1. A variable with k > 2 codes
    has k indicator columns.

    Parameters
    ----------
    codes
        Unsigned codes, shape (records, groups).
    cardinalities
        Number of codes of each group, at least 1; a group with one code is a column of -1.
    """

    codes: np.ndarray
    cardinalities: tuple[int, ...]

    @classmethod
    def with_constant(cls, codes: np.ndarray, cardinalities: tuple[int, ...]) -> Design:
        """Return the design with a constant of +1 as the last group."""
        ones = np.ones((len(codes), 1), dtype=codes.dtype)
        return cls(codes=np.hstack([codes, ones]), cardinalities=(*cardinalities, 2))

    @cached_property
    def starts(self) -> IntArray:
        """First column of each group, and the number of columns."""
        widths = [1 if k <= 2 else k for k in self.cardinalities]
        return np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)

    def fill(self, codes: np.ndarray, columns: np.ndarray) -> None:
        """Write the codes of some records, or their indicators, to an array of shape (rows, columns)."""
        if self.starts[-1] == len(self.cardinalities):
            columns[:] = codes
            return
        for group, (start, stop) in enumerate(zip(self.starts, self.starts[1:], strict=False)):
            own = codes[:, group, None]
            if stop - start > 1:
                columns[:, start:stop] = own == np.arange(stop - start)
            else:
                columns[:, start:stop] = own

    def featured(self, by_code: FloatArray, totals: FloatArray) -> FloatArray:
        """Return sums of products with features, from sums of products with codes and sums of residuals."""
        is_sign = np.diff(self.starts).repeat(np.diff(self.starts)) == 1
        # the sign of a code c is 2 c - 1
        return np.where(is_sign, 2 * by_code - totals[:, None], by_code)

    def steps(self, atoms: Atoms, weight: int) -> np.ndarray:
        """Return the change of the margin for each code of an atom's group, int32 of shape (rows, codes)."""
        widest = max(*self.cardinalities, 2)
        steps = np.zeros((atoms.groups.size, widest), dtype=np.int32)
        steps[:, : atoms.signs.shape[1]] = weight * atoms.signs.astype(np.int32)
        is_sign = np.diff(self.starts)[atoms.groups] == 1
        steps[is_sign, 1] = weight * atoms.signs[is_sign, 0].astype(np.int32)
        steps[is_sign, 0] = -steps[is_sign, 1]
        return steps


class NodeRegressions(ABC):
    """Abstract set of regressions on one design, with the current iterates of private Frank-Wolfe.

    Parameters
    ----------
    design
        Design matrix.
    labels
        Codes of the dependent variables, shape (records, nodes).
    counts
        Number of records that each row represents, shape (records,).
    regressions
        Number of regressions.
    radius
        Radius of each regression's ball.
    """

    def __init__(
        self, design: Design, labels: np.ndarray, counts: IntArray, regressions: int, radius: float
    ) -> None:
        self.design = design
        self.labels = labels
        self.counts = counts
        self.radius = radius
        self.workers = 1  # threads that sum over records
        self.owners = np.zeros(regressions, dtype=np.int64)  # node of each regression
        self.is_single = bool((counts == 1).all())
        self.margins = np.zeros((len(labels), regressions), dtype=np.int16)
        self.coefficients = np.zeros((regressions, int(design.starts[-1])), dtype=np.int64)
        self.total = 1  # total weight of the atoms; the starting point 0 has weight 1
        self.table = self._table()
        self._groups = np.zeros(regressions, dtype=np.int64)
        self._steps = np.zeros((regressions, max(*design.cardinalities, 2)), dtype=np.int32)

    @property
    def iterates(self) -> FloatArray:
        """Current coefficients of all regressions, shape (regressions, columns)."""
        return self.coefficients.astype(np.float64) * (self.radius / self.total)

    @property
    def norms(self) -> IntArray:
        r"""Largest margin of any possible record, :math:`\sum_g \max_{b \in g} |w_b|`, in units of margins."""
        return np.maximum.reduceat(np.abs(self.coefficients), self.design.starts[:-1], axis=1).sum(
            axis=1
        )

    @property
    def shift(self) -> int:
        """Number of bits of a margin that are dropped before the table lookup."""
        # the lookup table has at most 2^14 cells
        return max(self.total.bit_length() - 13, 0)

    def cells(self) -> np.ndarray:
        """Return the margin of each cell of the table, in radii from about -1 to 1; the middle of rounded cells."""
        cells = (self.total >> self.shift) + 1
        centre = 0.5 if self.shift else 0.0
        margins = (np.arange(-cells, cells + 1) + centre) * (2.0**self.shift / self.total)
        return np.clip(margins, -1.0, 1.0)

    @abstractmethod
    def _table(self) -> np.ndarray:
        """Return the table from which residuals are computed, nondecreasing in the cell of the margin."""

    @property
    @abstractmethod
    def bounds(self) -> IntArray:
        """Public bound B of the residual of any possible record at the iterates, for each regression."""

    @abstractmethod
    def _residuals(self, rows: slice, codes: np.ndarray, out: np.ndarray) -> None:
        """Add the last step to the margins of some records, and write their residuals times their counts.

        `codes` are those of the design for these records.
        """

    def _arguments(self, rows: slice, codes: np.ndarray) -> tuple[_Four, _Four]:
        """Return the kernels' arguments about some records, and about the last step."""
        of_records = self.margins[rows], codes, self.labels[rows], self.counts[rows]
        return of_records, (self._groups, self._steps, self.table, self.shift)

    def sums(self) -> IntArray:
        """Return the negative gradient, summed over records, times `RESIDUAL_UNIT`: shape (regressions, columns)."""
        blocks = range(0, len(self.margins), _BLOCK)
        work = self.margins.size * self.coefficients.shape[1]
        # with fewer products, starting the threads takes longer than the work
        if work > 10**7:
            workers = min(self.workers, len(blocks))
        else:
            workers = 1
        if workers > 1:
            with ThreadPoolExecutor(workers) as pool:
                parts = list(
                    pool.map(self._sums_over, [blocks[place::workers] for place in range(workers)])
                )
            sums, totals = (np.sum(found, axis=0) for found in zip(*parts, strict=True))
        else:
            sums, totals = self._sums_over(blocks)
        self._steps = np.zeros_like(self._steps)
        return self.design.featured(sums, totals).astype(np.int64)

    def _sums_over(self, blocks: range) -> tuple[FloatArray, FloatArray]:
        """Return sums of products of residuals with codes, and of residuals, over blocks of records."""
        sums = np.zeros(self.coefficients.shape)
        totals = np.zeros(len(self.coefficients))
        if self.is_single:
            kind = np.float32
        else:
            kind = np.float64
        out = np.empty((_BLOCK, self.margins.shape[1]), dtype=kind)
        columns = np.empty((_BLOCK, self.coefficients.shape[1]), dtype=kind)
        ones = np.ones(_BLOCK, dtype=kind)
        for start in blocks:
            rows = slice(start, start + _BLOCK)
            codes = self.design.codes[rows]
            size = len(codes)
            part = out[:size]
            block = columns[:size]
            self.design.fill(codes, block)
            self._residuals(rows, codes, part)
            sums += part.T @ block
            totals += ones[:size] @ part
        return sums, totals

    def move(self, atoms: Atoms, weight: int) -> None:
        """Add an atom with a whole weight to each iterate; the next call of `sums` updates the margins."""
        self.total += weight
        # int16 no longer holds the margins
        if self.total > 2**15 - 1 and self.margins.dtype == np.int16:
            self.margins = self.margins.astype(np.int32)
        self.table = self._table()
        self._groups, self._steps = atoms.groups, self.design.steps(atoms, weight)
        first = self.design.starts[atoms.groups]
        rows = np.arange(atoms.groups.size)
        for column in range(atoms.signs.shape[1]):
            sign = atoms.signs[:, column].astype(np.int64)
            here = np.flatnonzero(sign)
            self.coefficients[rows[here], first[here] + column] += weight * sign[here]


class LogisticRegressions(NodeRegressions):
    r"""Logistic regressions, :math:`P(y = 1 | f) = \sigma(\langle w, f \rangle)` in a ball of radius R.

    Parameters
    ----------
    design, labels, counts, radius
        See `NodeRegressions`.
    nodes
        Column of `labels` that is the dependent variable of each regression, shape (regressions,).
    state_pair
        Codes of y = +1 and of y = -1, each of shape (regressions,), by default 1 and 0; records with other codes are
        not in the regression.
    """

    def __init__(
        self,
        design: Design,
        labels: np.ndarray,
        counts: IntArray,
        radius: float,
        nodes: np.ndarray,
        state_pair: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        super().__init__(design, labels, counts, len(nodes), radius)
        self._nodes = self.owners = np.asarray(nodes, dtype=np.int64)
        if state_pair is None:
            state_pair = (np.ones(len(nodes)), np.zeros(len(nodes)))
        self._positive, self._negative = (np.asarray(each, np.int64) for each in state_pair)

    def _table(self) -> np.ndarray:
        r"""Return :math:`P = \operatorname{round}(4096\, \sigma)` by cell of the margin, int32, nondecreasing."""
        table = np.rint(RESIDUAL_UNIT * np.exp(-np.logaddexp(0.0, -self.radius * self.cells())))
        return np.maximum.accumulate(table).astype(np.int32)

    @property
    def bounds(self) -> IntArray:
        r"""Value of P at the largest margin of any record, at most about :math:`4096\, \sigma(R)`."""
        return self.table[self.table.size // 2 + (self.norms >> self.shift)].astype(np.int64)

    def _residuals(self, rows: slice, codes: np.ndarray, out: np.ndarray) -> None:
        from bayesprivmrf.learning.frank_wolfe.atoms import logistic_residuals

        of_records, of_move = self._arguments(rows, codes)
        logistic_residuals(*of_records, self._nodes, self._positive, self._negative, *of_move, out)


# Most steps: their margins fit 16 bits
LARGEST_STEPS = 30_000


def step_weights(steps: int) -> FloatArray:
    r"""Return the weights of the iterates in their mean, :math:`t^2 / \sum_t t^2`."""
    t = np.arange(1, steps + 1)
    return 6 * t**2 / (steps * (steps + 1) * (2 * steps + 1))
