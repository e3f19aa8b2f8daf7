r"""Mode of a log-linear model from noisy means of its effects, under a normal prior that enters as a ridge.

In the orthonormal zero-sum coordinates of `bayesprivmrf.model.effects` the model is
:math:`\log p(x) = \beta^\top \phi(x) - A(\beta)`, :math:`\phi` being the contrasts of single variables and their
products. From noisy means :math:`t` of :math:`\phi` every fit of the library that weighs the prior by the curvature
at one point minimizes the convex function

.. math:: A(\beta) - t^\top \beta + \tfrac12 \sum_s \lambda_s \beta_s^2

(`bayesprivmrf.inference.optimize.ridge_mode`), with ridges :math:`\lambda` of its own.
`bayesprivmrf.inference.loglinear_fit.reweighted` has the fit that weighs the prior by the curvature at the mode
itself.
For pairs of variables

.. math:: \lambda_s = \frac{1}{\tau^2} \Bigl( \frac{v_s}{F_s} + \frac1N \Bigr) .

:math:`F_s` is the variance of :math:`\phi_s` in one record, :math:`v_s` the variance of the noise on :math:`t_s`, and
:math:`F_s / N` that of sampling. Near its minimum the first part is :math:`\tfrac12 F_s (\beta_s - \hat\beta_s)^2`,
while the estimate's error has variance :math:`(v_s + F_s / N) / F_s^2`; a normal prior of standard deviation
:math:`\tau` beside a likelihood of that precision, on the scale of the first part, is the penalty. It keeps every
minimum finite.

There are two methods. *Exact*: quasi-Newton steps with exact means. *Gibbs*: Newton steps with means and covariance
of draws from chains that follow the coordinates. The iterates of the last rounds are averaged, so that the error of
the draws is that of all of them together. The model's graph and its alphabets, which are public, decide between the
two (`is_narrow`).

Only noisy means enter here. Callers choose the effects, and give t, v and F.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bayesprivmrf.chains.gibbs import mixing_of
from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.loglinear_fit.moments import Eliminated, Inference
from bayesprivmrf.inference.loglinear_fit.sampled import NOTHING_FIXED, Fixed, Sampled
from bayesprivmrf.inference.optimize import one_blas_thread, ridge_mode
from bayesprivmrf.marginals import forecast
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

# Prior deviation of an effect's coordinate, nats: 1 for two-state couplings, 1.4 for fields
PRIOR_DEVIATION = 2.0

# Multiplications of one exact evaluation up to which inference is exact: some tenths of a second
LARGEST_WORK = 1e8

# The most steps of an exact search; those that settle take 20 to 200
ITERATIONS = 500

# Gradient at which an exact search has converged: far below the noise of any mean
_TOLERANCE = 1e-6


# Rounds of the Gibbs method: those that renew the covariance, and the limits of those that are averaged
_NEWTON_ROUNDS, _FEWEST_ROUNDS, _MOST_ROUNDS = 4, 4, 64

# Most draws of a round, and most numbers of their matrix of features (256 MB in single precision)
_DRAWS, _CELLS = 1 << 14, 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFit:
    """A fitted pairwise model.

    Parameters
    ----------
    effects
        The coordinates: pairs, and every variable by itself.
    coordinates
        β, shape (d,), nats.
    inference
        ``"exact"`` or ``"gibbs"``.
    status
        ``"converged"``, or ``"approximate"`` where sampling was used; ``"not trusted"`` where the search did not
        end, or the chains did not mix.
    details
        Numbers on the way.
    means
        Means of φ in the fitted model, shape (d,): exact, or those of the draws; ``None`` where the fit kept none.
    """

    effects: Effects
    coordinates: FloatArray
    inference: Inference
    status: str
    details: dict[str, Any] = field(default_factory=dict)
    means: FloatArray | None = None


def is_narrow(cardinalities: Sequence[int], scopes: Sequence[tuple[int, ...]]) -> bool:
    """Return True if exact inference in a model takes at most `LARGEST_WORK` multiplications."""
    try:
        return forecast(cardinalities, scopes).multiplications <= LARGEST_WORK
    except ModelTooLargeError:
        return False


def fit_means(
    effects: Effects,
    means: FloatArray,
    ridges: FloatArray,
    worth: float,
    generator: np.random.Generator | int,
    *,
    start: FloatArray | None = None,
    inference: Inference | None = None,
    fixed: Fixed = NOTHING_FIXED,
    iterations: int = ITERATIONS,
) -> PairFit:
    """Return the estimate from noisy means.

    Parameters
    ----------
    effects
        The model's coordinates.
    means, ridges
        t and λ, shape (d,).
    worth
        How many exact records would tell as much as the means: rules how many draws are made.
    generator
        Generator of the Gibbs sampler, or its seed.
    start
        β to begin at; 0 by default.
    inference
        How means and covariances are found; `is_narrow` decides unless it is given.
    fixed
        Further potentials, which are known.
    iterations
        The most of a search by exact inference.
    """
    scopes = (*fixed.scopes, *effects.scopes)
    if inference is None:
        if is_narrow(effects.cardinalities, scopes):
            inference = "exact"
        else:
            inference = "gibbs"
    if start is None:
        begin = np.zeros(effects.size)
    else:
        begin = start
    if inference == "exact":
        with one_blas_thread():
            found = ridge_mode(
                Eliminated(effects, fixed=fixed).means,
                means,
                ridges,
                begin,
                gradient_tolerance=_TOLERANCE,
                iterations=iterations,
                memory=30,  # number of gradients that an exact search keeps
            )
        point = np.nan_to_num(found.point)
        return PairFit(
            effects=effects,
            coordinates=point,
            inference="exact",
            status="converged" if found.status is Status.CONVERGED else "not trusted",
            means=np.nan_to_num(found.gradient) + means - ridges * point,
            details={"iterations": found.iterations},
        )
    return _by_sampling(
        effects, means, ridges, begin, worth, np.random.default_rng(generator), fixed
    )


def closed_form(
    effects: Effects, tables: Sequence[FloatArray], singles: Sequence[FloatArray]
) -> FloatArray:
    r"""Return the coordinates of :math:`\theta_{ij} = \log b_{ij} / (b_i b_j)`, :math:`\theta_i = \log b_i`.

    With these potentials the tables b are a fixed point of loopy belief propagation (pseudo-moment matching): the
    exact answer on trees, and a start elsewhere.

    Parameters
    ----------
    effects
        The model's coordinates: the pairs' scopes first, then one scope for each variable.
    tables, singles
        b, positive, each of sum one: one table a pair, one a variable.
    """
    scopes = effects.scopes[: len(tables)]
    parts = [
        np.log(table) - np.log(singles[i])[:, None] - np.log(singles[j])
        for (i, j), table in zip(scopes, tables, strict=True)
    ]
    flat = np.concatenate(
        [part.ravel() for part in parts] + [np.log(b) for b in singles] + [np.zeros(0)]
    )
    return effects.coordinates(flat)


def _by_sampling(
    effects: Effects,
    means: FloatArray,
    ridges: FloatArray,
    start: FloatArray,
    worth: float,
    generator: np.random.Generator,
    fixed: Fixed,
) -> PairFit:
    moments = Sampled(effects, generator, fixed)
    chains = moments.chains
    lanes = chains.codes.shape[1]
    draws = max(min(_DRAWS, _CELLS // max(effects.size, 1)) // lanes, 16)
    beta = start.copy()
    sample = np.zeros((0, effects.size), dtype=np.float32)
    step = np.zeros_like
    chains.advance(moments.potentials(beta), 1, 100)
    for _ in range(_NEWTON_ROUNDS):
        sample = moments.features(beta, draws)
        step = _newton(sample, ridges)
        beta += step(means - sample.mean(axis=0) - ridges * beta)
    # with 20 draws a record, the draws add a twentieth to the variance of the noise
    wanted = 20 * worth / (4 * draws * lanes)
    rounds = int(min(max(math.ceil(wanted), _FEWEST_ROUNDS), _MOST_ROUNDS))
    iterates = np.zeros(effects.size)
    gradients = np.zeros(effects.size)
    for _ in range(rounds):
        potentials = moments.potentials(beta)
        chains.advance(potentials, 1, 5)
        marginals = chains.marginals(potentials, 4 * draws)[fixed.potentials.size :]
        gradient = means - effects.pull_back(marginals) - ridges * beta
        beta += step(gradient)
        iterates += beta / rounds
        gradients += gradient / rounds
    codes = chains.advance(moments.potentials(beta), draws)
    mixing = mixing_of(codes, chains.cards, chains.scopes, moments.potentials(beta))
    # sweeps depend on each other, so a mean of draws may be off by a few times its deviation if they did not
    deviation = sample.std(axis=0) / math.sqrt(4 * draws * lanes * rounds)
    off = float((np.abs(gradients) / np.maximum(deviation, 1e-12)).max(initial=0.0))
    trusted = (
        mixing.trusted
        and off <= 4 * math.sqrt(2 * math.log(effects.size + 2))
        and np.isfinite(iterates).all()
    )
    return PairFit(
        effects=effects,
        coordinates=np.nan_to_num(iterates),
        inference="gibbs",
        status="approximate" if trusted else "not trusted",
        details={
            "draws": 4 * draws * lanes * rounds,
            "energy_rhat": mixing.energy_rhat,
            "gradient": off,
        },
        means=means - ridges * iterates - gradients,
    )


def _newton(sample: np.ndarray, ridges: FloatArray) -> Callable[[FloatArray], FloatArray]:
    r"""Return the map from a gradient to :math:`(\hat\Sigma + \lambda)^{-1} g`, held to a largest entry.

    The sample covariance is drawn to its diagonal by the share d / (d + rows), for with fewer rows than coordinates
    it is singular. It is factorised, or where that is too much, conjugate gradients multiply by the sample.
    """
    from scipy.linalg import cho_factor, cho_solve
    from scipy.sparse.linalg import LinearOperator, cg

    rows, size = sample.shape
    centred = sample - sample.mean(axis=0)
    share = size / (size + rows)
    diagonal = share * centred.var(axis=0) + ridges + 1e-9
    weight = (1 - share) / rows

    def product(vector: np.ndarray) -> np.ndarray:
        return weight * (centred.T @ (centred @ vector.astype(np.float32))) + diagonal * vector

    # for more coordinates conjugate gradients are faster than a factorization
    if size <= 1500:
        factor = cho_factor(weight * (centred.T @ centred).astype(np.float64) + np.diag(diagonal))
    else:
        operator: Any = LinearOperator
        factor = operator((size, size), matvec=product, dtype=np.float64)

    def step(gradient: FloatArray) -> FloatArray:
        if size <= 1500:
            found = cho_solve(factor, gradient)
        else:
            found = cg(factor, gradient, rtol=0.01, maxiter=50)[0]
        # a Newton step from draws is at most 0.5 nats long, because draws err far from the optimum
        return found * min(1.0, 0.5 / max(float(np.abs(found).max(initial=0.0)), 1e-12))

    return step
