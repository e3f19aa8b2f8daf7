"""Curvature of the noise-aware objective at a point: it scales the search and gives each mean's uncertainty.

With J the derivative of the mean counts, W the cells' information and T⁻¹ the prior's precision, the posterior's
precision is J'WJ + T⁻¹ and C its inverse. There are two forms. The dense one is exact. For large models the other
uses products with J alone, and knows C through samples: x = C (J'W^½ ε + T^-½ ε') has covariance C for independent
standard normal ε, and each needs one linear system, solved by conjugate gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.inference.family import Linearized
from bayesprivmrf.model.tables import FloatArray

# random sign vectors for a diagonal, and normal vectors for a low-rank part; arbitrary: a preconditioner may be
# rough, and changes the number of products only
_SAMPLES = 12
# Largest number of products for one linear system
CONJUGATE_GRADIENTS = 100

# Relative residual at which conjugate gradients stop: below the error of twelve samples
_RESIDUAL = 1e-2


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
        from scipy.linalg import blas

        # X L' = J: of the transposes, which lie as BLAS wants them
        half = blas.dtrsm(1.0, self._factor.T, jacobian.T, side=1)  # pyright: ignore[reportAttributeAccessIssue]
        return np.einsum("cd,cd->c", half, half)

    @property
    def log_determinant(self) -> float:
        """Log determinant of the precision, nats."""
        return float(2 * np.log(np.diag(self._factor)).sum())


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledCurvature:
    """The precision by products; C through a few samples.

    Parameters
    ----------
    linearized
        Mean counts with the products of their derivative.
    weights
        W of each cell, shape (cells,).
    prior
        Diagonal of T⁻¹, shape (d,), positive.
    """

    linearized: Linearized
    weights: FloatArray
    prior: FloatArray

    @property
    def formed(self) -> None:
        """None, because no matrix is formed."""
        return None

    @cached_property
    def diagonal(self) -> FloatArray:
        """Estimate of the precision's diagonal by random signs (Hutchinson's), shape (d,)."""
        rng = np.random.default_rng(0)
        diagonal = np.zeros_like(self.prior)
        for _ in range(_SAMPLES):
            signs = rng.choice([-1.0, 1.0], size=len(self.weights))
            diagonal += self.linearized.backward(np.sqrt(self.weights) * signs) ** 2 / _SAMPLES
        return diagonal + self.prior

    @cached_property
    def _scaling(self) -> FloatArray:
        return 1 / np.sqrt(self.diagonal)

    def step(self, whitened: FloatArray) -> FloatArray:
        """Return a move of about one conditional standard deviation for each unit of z."""
        return self._scaling * whitened

    def gradient(self, gradient: FloatArray) -> FloatArray:
        """Return the gradient by z."""
        return self._scaling * gradient

    @cached_property
    def _samples(self) -> FloatArray:
        """Draws of N(0, C), shape (samples, d)."""
        rng = np.random.default_rng(1)
        drawn = []
        for _ in range(_SAMPLES):
            cells = np.sqrt(self.weights) * rng.standard_normal(len(self.weights))
            right = self.linearized.backward(cells) + np.sqrt(self.prior) * rng.standard_normal(
                len(self.prior)
            )
            drawn.append(self.solve(right))
        return np.array(drawn)

    def solve(self, vector: FloatArray) -> FloatArray:
        """Return C v, to one percent of v's norm, by preconditioned conjugate gradients."""
        inverse = self._scaling**2
        solution, residual = np.zeros_like(vector), vector.copy()
        direction = inverse * residual
        weight = residual @ direction
        first = weight
        for _ in range(CONJUGATE_GRADIENTS):
            if not weight > _RESIDUAL**2 * first:
                break
            image = self.times(direction)
            length = weight / (direction @ image)
            solution += length * direction
            residual -= length * image
            scaled = inverse * residual
            weight, before = residual @ scaled, weight
            direction = scaled + (weight / before) * direction
        return solution

    def times(self, vector: FloatArray) -> FloatArray:
        """Return the curvature times a direction, shape (d,)."""
        inner = self.weights * self.linearized.forward(vector)
        return self.linearized.backward(inner) + self.prior * vector

    @property
    def variances(self) -> FloatArray:
        """Estimate of the diagonal of C, shape (d,); sums over many coordinates are accurate, entries rough."""
        return np.minimum(np.mean(self._samples**2, axis=0), 1 / self.prior)

    def mean_variances(self) -> FloatArray:
        """Return an estimate of the diagonal of J C J', shape (cells,)."""
        return np.mean([self.linearized.forward(sample) ** 2 for sample in self._samples], axis=0)


def weighted_square(jacobian: FloatArray, weights: FloatArray) -> FloatArray:
    """Return J'WJ of J' with shape (d, cells); weights are at least 0."""
    scaled = jacobian * np.sqrt(weights)
    return scaled @ scaled.T  # BLAS sees the symmetry and does half of the work
