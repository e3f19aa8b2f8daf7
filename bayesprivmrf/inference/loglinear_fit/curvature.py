"""Curvature of an objective as a matrix, and its minimum by quasi-Newton steps in the units of that curvature.

With J the derivative of the means, W their information and T⁻¹ the precision of the prior, the precision of the
posterior is J'WJ + T⁻¹, and C is its inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from bayesprivmrf.inference.optimize import Optimum, minimize
from bayesprivmrf.model.tables import FloatArray

# Share of the information of which a prior is a rounding error: a thousand times the precision of doubles, so that
# directions that the counts say nothing about keep three digits
_ROUNDED = 1e3 * float(np.finfo(float).eps)


class Whitener(Protocol):
    """A change of coordinates, z, in which a curvature is the identity or nearly so."""

    def step(self, whitened: FloatArray, /) -> FloatArray:
        """Return the move of the point for a move of z."""
        ...

    def gradient(self, gradient: FloatArray, /) -> FloatArray:
        """Return the gradient by z, given the gradient by the point."""
        ...


def whitened_minimum(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    curvature: Whitener,
    *,
    gradient_tolerance: float,
    iterations: int,
) -> tuple[FloatArray, Optimum]:
    """Minimize a smooth function by quasi-Newton steps in coordinates that are scaled by a curvature.

    Parameters
    ----------
    objective
        Value and gradient at a point.
    start
        The starting point, shape (d,).
    curvature
        Curvature at the starting point, by which coordinates are scaled to posterior standard deviations.
    gradient_tolerance, iterations
        As `bayesprivmrf.inference.optimize.minimize` has them, of the scaled coordinates.

    Returns
    -------
    point, optimum
        The minimum, and the end of the search, whose point (the move) and gradient are of the scaled coordinates.
    """

    def whitened(move: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective(start + curvature.step(move))
        return value, curvature.gradient(gradient)

    optimum = minimize(
        whitened,
        np.zeros(len(start)),
        gradient_tolerance=gradient_tolerance,
        iterations=iterations,
    )
    return start + curvature.step(optimum.point), optimum


@dataclass(frozen=True, eq=False, kw_only=True)
class DenseCurvature:
    """The precision as a matrix.

    Parameters
    ----------
    information
        J'WJ, shape (d, d).
    prior
        Diagonal of T⁻¹, shape (d,), positive where the information is singular.
    """

    information: FloatArray
    prior: FloatArray

    @property
    def formed(self) -> DenseCurvature:
        """The curvature itself, whose matrix is formed."""
        return self

    @cached_property
    def _factor(self) -> FloatArray:
        """L, in C order: its transpose lies as LAPACK wants it."""
        from scipy.linalg import lapack

        precision = self.information.copy()
        precision[np.diag_indices_from(precision)] += self.prior
        upper, failure = lapack.dpotrf(precision.T, overwrite_a=1)  # pyright: ignore[reportAttributeAccessIssue]
        if failure:  # rounding outweighs the prior where the tables say nothing
            root = np.sqrt(self.prior)
            values, vectors = np.linalg.eigh(self.information / np.outer(root, root))
            half = np.sqrt(np.maximum(values, 0.0) + 1.0)[:, np.newaxis] * vectors.T * root
            upper = np.linalg.qr(half, mode="r")
            upper *= np.sign(np.diag(upper))[:, np.newaxis]
        return upper.T

    @cached_property
    def _inverse(self) -> FloatArray:
        """L⁻¹: products with it are much faster than triangular systems one at a time."""
        from scipy.linalg import lapack

        if not self.prior.size:  # LAPACK prints an error where a model has no coordinates
            return self._factor
        inverse, _ = lapack.dtrtri(self._factor.T)  # pyright: ignore[reportAttributeAccessIssue]
        return inverse.T

    def step(self, whitened: FloatArray) -> FloatArray:
        """Return L⁻ᵀ z, a move of one posterior standard deviation for each unit of z in any direction."""
        return self._inverse.T @ whitened

    def gradient(self, gradient: FloatArray) -> FloatArray:
        """Return L⁻¹ g, the gradient by z."""
        return self._inverse @ gradient

    def solve(self, vector: FloatArray) -> FloatArray:
        """Return C v."""
        from scipy.linalg import cho_solve

        return cho_solve((self._factor, True), vector)

    @property
    def covariance(self) -> FloatArray:
        """C, shape (d, d)."""
        return self._inverse.T @ self._inverse

    @cached_property
    def variances(self) -> FloatArray:
        """Diagonal of C, shape (d,)."""
        return np.einsum("ij,ij->j", self._inverse, self._inverse)

    def mean_variances(self, jacobian: FloatArray) -> FloatArray:
        """Return the diagonal of J C J', shape (cells,), of J' with shape (d, cells)."""
        return np.square(self.gradient(jacobian)).sum(axis=0)

    @property
    def log_determinant(self) -> float:
        """Log determinant of the precision, nats."""
        return float(2 * np.log(np.diag(self._factor)).sum())


@dataclass(frozen=True, eq=False, kw_only=True)
class RootCurvature:
    """The precision by its square root, the rows of J'W^{1/2} and of T^{-1/2}.

    The information of a billion records leaves no digits for the prior in `DenseCurvature`, and along directions that
    the counts say nothing about only the prior is left. A QR decomposition of the root with pivots has these digits:
    the columns are taken in the order of what the others leave of them, so that the factor R is graded.

    Parameters
    ----------
    root
        J'W^{1/2}, shape (d, cells).
    prior
        Diagonal of T⁻¹, shape (d,), positive.
    """

    root: FloatArray
    prior: FloatArray

    @cached_property
    def _factors(self) -> Any:
        """Q, R and the order of the columns."""
        from scipy.linalg import qr

        stacked = np.vstack([self.root.T, np.diag(np.sqrt(self.prior))])
        return qr(stacked, mode="economic", pivoting=True, check_finite=False)

    @property
    def hides_prior(self) -> bool:
        """True if the smallest precision of the prior is a rounding error of the largest information."""
        most = float(np.square(self.root).sum(axis=1).max(initial=0.0))
        return most * _ROUNDED > float(self.prior.min(initial=np.inf))

    def mean_variances(self, jacobian: FloatArray) -> FloatArray:
        """Return the diagonal of J C J', shape (cells,), of J' with shape (d, cells)."""
        from scipy.linalg import solve_triangular

        _, upper, order = self._factors
        solved = solve_triangular(upper.T, jacobian[order], lower=True, check_finite=False)
        return np.square(solved).sum(axis=0)

    def step(self, scaled: FloatArray, pull: FloatArray) -> FloatArray:
        """Return C (J'W^{1/2} s - T^{-1/2} t), the least-squares step, shape (d,).

        Parameters
        ----------
        scaled
            s, residuals over their standard deviations, shape (cells,).
        pull
            t, the point over the standard deviations of its prior, shape (d,).
        """
        from scipy.linalg import solve_triangular

        orthogonal, upper, order = self._factors
        found = np.empty(len(self.prior))
        found[order] = solve_triangular(upper, orthogonal.T @ np.append(scaled, -pull))
        return found


def weighted_square(jacobian: FloatArray, weights: FloatArray) -> FloatArray:
    """Return J'WJ of J' with shape (d, cells); weights are at least 0."""
    scaled = jacobian * np.sqrt(weights)
    return scaled @ scaled.T  # BLAS sees the symmetry and does half of the work
