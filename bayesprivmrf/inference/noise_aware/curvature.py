"""Curvature of the noise-aware objective of a large model at a point, and how long a search will take.

With J the derivative of the mean counts, W the cells' information and T⁻¹ the prior's precision, the posterior's
precision is J'WJ + T⁻¹ and C its inverse. Small models form that matrix
(`bayesprivmrf.inference.loglinear_fit.curvature`). For large ones the curvature here uses products with J alone, and
knows C through samples: x = C (J'W^½ ε + T^-½ ε') has covariance C for independent standard normal ε, and each needs
one linear system, solved by conjugate gradients.

**Forecasts.** A search evaluates the objective, and forms or samples the curvature once a round. Both visit every
cell of the elimination and every noisy count. Their number is known beforehand, and a constant pace turns it into
seconds on an ordinary core. No clock is read, so a forecast is given on every machine or on none. Evaluations are
not counted beforehand where the curvature is sampled: searches took from 5 to 22 rounds, and the forecast there is
the middle of what they needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bayesprivmrf.errors import ForecastWarning, warn_caller
from bayesprivmrf.inference.mean_counts import Linearized, MeanCounts
from bayesprivmrf.inference.optimize import UPDATES_KEPT
from bayesprivmrf.marginals import forecast
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.kernels import SQUARE

# random sign vectors for a diagonal, and normal vectors for a low-rank part; arbitrary: a preconditioner may be
# rough, and changes the number of products only
_SAMPLES = 12
# Largest number of products for one linear system
CONJUGATE_GRADIENTS = 100

# Relative residual at which conjugate gradients stop: below the error of twelve samples
_RESIDUAL = 1e-2

# Seconds from which a search says how long it will take
PATIENCE = 60.0

# What a search needs where the curvature is formed, in each round by one product a coordinate
DENSE_EVALUATIONS, DENSE_ROUNDS = 100, 10

# What it needs about where the curvature is sampled: a fifth to five times as much, by the number of rounds
EVALUATIONS, PRODUCTS = 2_000, 20_000

# Seconds of a product with the derivative: fixed, for a cell of a clique, for a multiplication of the elimination.
#
# Fitted within a factor of two to 13 models of 10 to 100,000 cells on one core (2.9 GHz, November 2026).
_CALL, _CELL, _MULTIPLICATION = 2e-5, 2.5e-8, 3e-9

# Seconds of one noisy count's expected loss and slope, by its distribution; measured on the same models
_NORMAL_COUNT, _LAPLACE_COUNT = 8e-8, 7.5e-7

# Seconds of one pass over one number that the optimizer stores
_KEPT = 1e-9


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
        """Return C v, to one percent of v's norm, by conjugate gradients in scaled coordinates."""
        from scipy.sparse.linalg import LinearOperator, cg

        scaling = self._scaling
        operator = LinearOperator

        def times(scaled: FloatArray) -> FloatArray:
            moved = scaling * scaled
            inner = self.weights * self.linearized.forward(moved)
            return scaling * (self.linearized.backward(inner) + self.prior * moved)

        product: Any = operator((vector.size, vector.size), matvec=times, dtype=float)  # pyright: ignore[reportCallIssue]
        return (
            scaling * cg(product, scaling * vector, rtol=_RESIDUAL, maxiter=CONJUGATE_GRADIENTS)[0]
        )

    @property
    def variances(self) -> FloatArray:
        """Estimate of the diagonal of C, shape (d,); sums over many coordinates are accurate, entries rough."""
        return np.minimum(np.mean(self._samples**2, axis=0), 1 / self.prior)

    def mean_variances(self) -> FloatArray:
        """Return an estimate of the diagonal of J C J', shape (cells,)."""
        return np.mean([self.linearized.forward(sample) ** 2 for sample in self._samples], axis=0)


def warn_if_slow(means: MeanCounts, kernels: IntArray, is_dense: bool) -> None:
    """Warn with a forecast where a search will take longer than a minute.

    Parameters
    ----------
    means
        The map to mean counts.
    kernels
        Codes of the noisy counts' kernels; the loss takes longer where the noise is not normal.
    is_dense
        Whether the curvature is formed.
    """
    product = product_seconds(means)
    is_normal = kernels == SQUARE
    counts = _LAPLACE_COUNT * (~is_normal).sum() + _NORMAL_COUNT * is_normal.sum()
    evaluation = float(counts) + 1.5 * product  # the marginals and one product back
    if is_dense:
        seconds = DENSE_EVALUATIONS * evaluation + DENSE_ROUNDS * means.size * product
    else:
        # an evaluation goes about six times over the gradients that the optimizer keeps; measured 5.4 to 8.2
        seconds = (
            EVALUATIONS * (evaluation + 6 * 2 * UPDATES_KEPT * means.size * _KEPT)
            + PRODUCTS * product
        )
    if seconds <= PATIENCE:
        return
    warn_caller(
        f"the noise-aware estimate of {kernels.size:,} noisy counts and {means.effects.size:,} coordinates, from "
        f"which posteriors begin as well, is forecast to take about {math.ceil(seconds / 60):,} minutes on one "
        "ordinary core; wait for it, declare smaller cliques or fewer states, or use CGM, whose evaluations are "
        "fewer. A model learned in rounds has its own fit: `solution`.",
        ForecastWarning,
    )


def product_seconds(means: MeanCounts) -> float:
    """Return approximate seconds of a product with the derivative of the mean counts and one with its transpose."""
    model = means.evidence.specification
    if means.inference == "loopy":  # its messages visit the declared tables alone
        return _CALL + _CELL * model.size
    cost = forecast(model.cardinalities, model.scopes)
    return _CALL + _CELL * cost.total_cells + _MULTIPLICATION * cost.multiplications
