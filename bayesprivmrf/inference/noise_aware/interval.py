r"""Approximate intervals for population probabilities, from the curvature at the noise-aware estimate.

Two errors add up. The uncertainty that the noise leaves about the parameters θ' of the N people who answered has
the covariance :math:`C = (J'WJ + T^{-1})^{-1}`, W being the information of the noise alone. The population differs
from those N people by sampling: :math:`θ \mid θ' ∼ N(θ', (N Σ + T^{-1})^{-1})`, Σ the covariance of the model's
statistics. A probability p of any cell has the derivative :math:`\operatorname{Cov}(1_{cell}, \cdot)` by the
potentials, and the interval is normal on the scale of :math:`\log \frac{p}{1-p}`, so that it stays between 0 and 1.
Given states of other variables, p and the covariance are those of the distribution that is clamped to them, which
has the same derivative. Answers without noise leave nothing unknown of θ' in their directions: C is conditioned on
them, where its matrix is formed; for larger models they count as rounded to whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bayesprivmrf.inference.mean_counts import with_total_held
from bayesprivmrf.inference.noise_aware.curvature import DenseCurvature, SampledCurvature, weighted_square
from bayesprivmrf.inference.noise_aware.mode import Mode
from bayesprivmrf.marginals import clamped, marginal_engine
from bayesprivmrf.model.tables import FloatArray

__all__ = ["standard_errors"]

_LOG_TOTAL = 1e-6
"""Prior precision of log N where the tables alone tell it."""


def standard_errors(
    mode: Mode, query: Sequence[int], given: Mapping[int, int]
) -> tuple[FloatArray, FloatArray]:
    """Probabilities of the joint states of some variables, and the standard error of each one's log-odds.

    Parameters
    ----------
    mode
        Where `noise_aware_mode` ended.
    query
        Positions of the variables.
    given
        States of other variables, on which the probabilities are conditional.

    Returns
    -------
    probabilities, errors
        Shape (cells,), in C order; a probability of 0 or 1 has the error 0.
    """
    means, model = mode.means, mode.means.evidence.specification
    engine = marginal_engine(model.cardinalities, (*model.scopes, tuple(query)), kind=means.inference)
    start = engine.offsets[-2]
    free = means.potentials(mode.coordinates)
    held = clamped(model.cardinalities, model.scopes, free, given)
    log_partition, marginals, product = engine.linearize(np.append(held, np.zeros(engine.size - start)))
    probabilities = marginals[start:]
    rows = np.empty((len(probabilities), means.effects.size))
    basis = np.zeros(engine.size)
    for position in range(len(probabilities)):
        basis[start + position] = 1.0
        rows[position] = means.effects.pull_back(product(basis)[:start])
        basis[start + position] = 0.0
    share = float(np.exp(log_partition - means.engine.log_partition(free))) if given else 1.0
    variances = _noise_variances(mode, rows) + _sampling_variances(mode, rows, probabilities, share)
    odds = probabilities * (1 - probabilities)
    errors = np.divide(np.sqrt(variances), odds, out=np.zeros_like(odds), where=odds > 0)
    return probabilities, errors


def _noise_variances(mode: Mode, rows: FloatArray) -> FloatArray:
    """Variance of each probability from what the noise leaves unknown of β and N."""
    is_free = mode.means.evidence.total_standard_error > 0
    prior = np.append(mode.prior.precision(mode.log_scales), _LOG_TOTAL if is_free else 1.0)
    linearized = mode.means.at(mode.point)
    weights = mode.noise_weights()
    padded = np.column_stack([rows, np.zeros(len(rows))])
    if isinstance(mode.curvature, DenseCurvature):
        jacobian = mode.means.jacobian(linearized)
        if not is_free:
            jacobian[-1] = 0.0
        curvature = DenseCurvature(information=weighted_square(jacobian, weights), prior=prior)
    else:
        linearized = linearized if is_free else with_total_held(linearized)
        curvature = SampledCurvature(linearized=linearized, weights=weights, prior=prior)
    variances = np.array([row @ curvature.solve(row) for row in padded])
    is_exact = mode.means.evidence.is_exact[mode.means.evidence.possible]
    if isinstance(curvature, DenseCurvature) and is_exact.any():
        variances -= _explained(curvature, mode.means.jacobian(linearized)[:, is_exact], padded)
    return np.maximum(variances, 0.0)


def _explained(curvature: DenseCurvature, held: FloatArray, rows: FloatArray) -> FloatArray:
    """Variance of each combination of coordinates that goes where answers without noise are given, B'x = 0.

    C B (B'C B)⁺ B'C is taken off the covariance C, which it leaves as the limit of ever less noise.
    """
    solved = curvature.solve(held)
    cross = rows @ solved
    return np.einsum("ij,ij->i", cross, cross @ np.linalg.pinv(held.T @ solved, rcond=1e-10, hermitian=True))


def _sampling_variances(mode: Mode, rows: FloatArray, probabilities: FloatArray, share: float) -> FloatArray:
    """Variance of each probability of the population given the N people, by NΣ + T⁻¹.

    For models whose matrices are not formed, p(1 - p)/N: that of a model without constraints, never below; N being
    the people with the states given, a share of all.
    """
    means, total = mode.means, float(np.exp(mode.log_total))
    if not isinstance(mode.curvature, DenseCurvature):
        return probabilities * (1 - probabilities) / (share * total)
    effects = means.effects
    _, _, product = means.engine.linearize(means.potentials(mode.coordinates))
    columns = effects.potentials(np.eye(effects.size))
    covariance = np.array([effects.pull_back(product(column)) for column in columns])
    covariance = covariance.reshape(effects.size, effects.size)
    information = 0.5 * total * (covariance + covariance.T)
    curvature = DenseCurvature(information=information, prior=mode.prior.precision(mode.log_scales))
    return np.array([max(row @ curvature.solve(row), 0.0) for row in rows])
