"""Softmax regressions, one a node, for variables of any number of states."""

from __future__ import annotations

import numpy as np

from bayesprivmrf.learning.frank_wolfe.node_regressions import UNIT, Design, NodeRegressions
from bayesprivmrf.model.tables import IntArray

# of the table of exponentials: products with `UNIT` and sums over states are exact in a double
_LARGEST = 2.0**40
_ROUNDING = 2.0**-20  # more than all roundings of a residual but the last one, to a whole number


class SoftmaxRegressions(NodeRegressions):
    r"""Softmax regressions, :math:`P(y = c | f) \propto e^{\langle w_c, f \rangle}`, each :math:`w_c` in a ball.

    Each state of each node is a regression to `NodeRegressions`, in this order.

    Parameters
    ----------
    design, labels, counts, radius
        See `NodeRegressions`; the radius is that of each state's ball.
    nodes
        Columns of `labels` to explain.
    states
        The number that each of them has, at least two.
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
        self._states = np.asarray(states, dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self._states)]).astype(np.int64)

    def _table(self) -> np.ndarray:
        r"""Return :math:`e^{\langle w, f \rangle}` by cell of the margin, whole numbers, never falling."""
        margin = self.cells()
        table = np.rint(_LARGEST * np.exp(self.radius * (margin - 1)))
        return np.maximum.accumulate(np.maximum(table, 1.0))

    @property
    def bounds(self) -> IntArray:
        r"""Return B for each state of each node, the same within a node.

        The own residual is largest where the own margin is least and the others are greatest; each of the others is
        rounded by a half at most.
        """
        table, norms = self.table, self.norms
        middle = table.size // 2
        high, low = table[middle + (norms >> self.shift)], table[middle + (-norms >> self.shift)]
        others = np.add.reduceat(high, self._starts[:-1]).repeat(self._states) - high
        share = np.maximum.reduceat(others / (low + others), self._starts[:-1])
        bounds = np.floor(UNIT * share + (self._states - 1) / 2 + _ROUNDING)
        return bounds.astype(np.int64).repeat(self._states)

    def _residuals(self, rows: slice, codes: np.ndarray, out: np.ndarray) -> None:
        from bayesprivmrf.learning.frank_wolfe.kernels import softmax_residuals

        of_records, of_move = self._arguments(rows, codes)
        softmax_residuals(*of_records, self._nodes, self._starts, *of_move, float(UNIT), out)
