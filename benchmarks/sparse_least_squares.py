r"""Generalised least squares of many noisy sums, some of them exact, with SciPy's sparse solvers.

Numbers y = A x + e are known of unknown counts x, with independent errors of the variances v, of which some are 0:
these rows are equality constraints. Rows of one entry and some variance add to a diagonal D and a right side b, as
they stand. The others, B x = z with the variances S, keep a multiplier each:

.. math:: \begin{pmatrix} D & B' \\ B & -S \end{pmatrix} \begin{pmatrix} x \\ m \end{pmatrix} =
          \begin{pmatrix} b \\ z \end{pmatrix}.

Eliminating the multipliers of noisy rows, m = (B x - z) / S, gives the normal equations, and what is left are the
conditions of Karush, Kuhn and Tucker for the exact ones. So a total over many cells is one sparse row and not a dense
block of A'WA. The upper left block of the inverse is the covariance of x: its entries come from one solve a column.

The matrix is factored with 1e-9 added to D and taken off -S, each in units of what stands there. It is then
quasi-definite, so that every order of elimination exists (Vanderbei 1995, SIAM Journal on Optimization 5, 100-113),
also where exact rows repeat each other. Refinement against the matrix itself takes the change out again.

Areas that lie inside areas: cells of the larger ones are unknowns as well, and exact rows say that they are sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
from scipy.sparse import (
    block_array,
    block_diag,
    csr_array,
    diags_array,
    eye_array,
    hstack,
    kron,
    vstack,
)
from scipy.sparse.linalg import splu

_SHIFT, _REFINEMENTS, _RESIDUAL = 1e-9, 20, 1e-8
"""Share of the typical entry that is added, solves at the most, and largest residual as a share of the right side."""


class SparseLeastSquares:
    """Least squares under rows of given variances.

    Parameters
    ----------
    rows
        A, shape (numbers, cells), sparse.
    variances
        Of each number, shape (numbers,); 0 for one that is exact. Exact numbers must agree, and all together must
        determine every cell.
    """

    def __init__(self, rows: Any, variances: np.ndarray) -> None:
        rows = csr_array(rows)
        rows.eliminate_zeros()
        self._single = (np.diff(rows.indptr) == 1) & (variances > 0)
        self._alone, self._several = rows[self._single], rows[~self._single]
        self._weights, self._variances = 1 / variances[self._single], variances[~self._single]
        self.numbers, self.cells = rows.shape
        self._diagonal = (self._alone.power(2).T @ self._weights).ravel()

    @cached_property
    def _matrix(self) -> Any:
        corner = [
            [diags_array(self._diagonal), self._several.T],
            [self._several, -diags_array(self._variances)],
        ]
        return block_array(corner, format="csc")

    @cached_property
    def factor(self) -> Any:
        """The factors of the shifted matrix; `factor.nnz` tells their size."""
        units = [part[part > 0].mean() if (part > 0).any() else 1.0 for part in self._parts]
        shift = np.repeat(
            [_SHIFT * units[0], -_SHIFT * units[1]], [len(part) for part in self._parts]
        )
        shifted = (self._matrix + diags_array(shift)).tocsc()
        options = {"SymmetricMode": True, "Equil": False}
        return splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)

    @property
    def _parts(self) -> tuple[np.ndarray, np.ndarray]:
        return self._diagonal, self._variances

    def _solve(self, right: np.ndarray) -> np.ndarray:
        solution = np.zeros_like(right)
        missed = right
        before = np.inf
        for _ in range(_REFINEMENTS):
            solution = solution + self.factor.solve(missed)
            missed = right - self._matrix @ solution
            left = np.abs(missed).max()
            if left >= before / 2:  # as small as rounding lets it be
                break
            before = left
        if not min(left, before) <= _RESIDUAL * np.abs(right).max():
            raise ValueError(
                "the rows do not determine every cell, or exact numbers contradict each other."
            )
        return solution

    def estimate(self, values: np.ndarray) -> np.ndarray:
        """Least squares of x, shape (cells,), from the numbers, shape (numbers,)."""
        known = self._alone.T @ (self._weights * values[self._single])
        return self._solve(np.concatenate([known, values[~self._single]]))[: self.cells]

    def variances(self, cells: Sequence[int], at_once: int = 16) -> np.ndarray:
        """Variance of some entries of x, one solve each, so many at once."""
        found = []
        for part in np.array_split(np.asarray(cells), max(1, -(-len(cells) // at_once))):
            right = np.zeros((self._matrix.shape[0], len(part)))
            right[part, np.arange(len(part))] = 1.0
            found.append(self._solve(right)[part, np.arange(len(part))])
        return np.concatenate(found)


def margins(sizes: Mapping[str, int], scope: Sequence[str]) -> Any:
    """Sums that a table of some variables is of the cells of all, sparse, in C order."""
    parts = [
        eye_array(size) if name in scope else np.ones((1, size)) for name, size in sizes.items()
    ]
    return csr_array(reduce(kron, parts, eye_array(1)))


def nested_rows(tables: Sequence[Any], parents: Sequence[np.ndarray], largest: int) -> Any:
    """Rows of levels of areas, the smallest first, and after them those that make the cells of larger areas sums.

    Parameters
    ----------
    tables
        What is measured of the cells of one area at each level, sparse, shape (numbers, cells of an area).
    parents
        Of each level but the last: the place of the area of the next level that holds each of its own.
    largest
        Number of areas of the last level.

    Returns
    -------
    sparse array
        Unknowns are the cells of all areas, level by level and area by area, and so are the measured numbers. The
        rows that follow are exact, and their numbers 0.
    """
    width = tables[0].shape[1]
    counts = [*map(len, parents), largest]
    measured = [kron(eye_array(n), table) for n, table in zip(counts, tables, strict=True)]
    sums = []
    for level, inside in enumerate(parents):
        shape = counts[level + 1], counts[level]
        holds = csr_array((np.ones(shape[1]), (inside, np.arange(shape[1]))), shape=shape)
        columns = [csr_array((shape[0] * width, n * width)) for n in counts]
        columns[level] = kron(holds, eye_array(width))
        columns[level + 1] = -eye_array(shape[0] * width)
        sums.append(hstack(columns))
    return vstack([block_diag(measured), *sums], format="csr")
