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
of draws from chains that follow the coordinates, in the loop of `bayesprivmrf.inference.loglinear_fit.search`. The
iterates of the last rounds are averaged, so that the error of the draws is that of all of them together. The model's
graph and its alphabets, which are public, decide between the
two (`is_narrow`).

Only noisy means enter here. Callers choose the effects, and give t, v and F.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from bayesprivmrf.chains.gibbs import mixing_of
from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.loglinear_fit.moments import Eliminated, MomentsMethod
from bayesprivmrf.inference.loglinear_fit.sampled import NOTHING_FIXED, Fixed, GibbsMoments
from bayesprivmrf.inference.loglinear_fit.search import Descent, Last, Phase, Turn, iterate
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

# Gradients that an exact search keeps
_MEMORY = 30

# Rounds of the Gibbs method that renew the covariance
_NEWTON_ROUNDS = 4

# Limits of the number of rounds that are averaged
_FEWEST_ROUNDS = 4
_MOST_ROUNDS = 64

# Most draws of a round, and most numbers of their matrix of features (256 MB in single precision)
_DRAWS = 1 << 14
_CELLS = 1 << 26

# Fewest draws of each chain in a round
_FEWEST_SWEEPS = 16

# Sweeps of an averaged round, in sweeps of a round that renews the covariance: they need no features
_LONGER = 4

# Draws for each record of equal information: the draws add a twentieth to the variance of the noise
_DRAWS_EACH = 20

# Sweeps dropped before the first round
_FIRST_WARM_UP = 100

# Coordinates up to which a matrix is factorized; for more, conjugate gradients are faster
_MOST_FACTORIZED = 1500

# Precision and most products of conjugate gradients; a step from draws is rough in any case
_RESIDUAL = 0.01
_PRODUCTS = 50

# Largest change of a coordinate in a Newton step from draws, nats, because draws err far from the optimum
_LARGEST_STEP = 0.5

# A step shorter than this counts as this long where it divides, nats
_TINY = 1e-12


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
        Converged, or approximate where sampling was used; not trusted where the search did not end, or the chains
        did not mix.
    details
        Numbers on the way.
    means
        Means of φ in the fitted model, shape (d,): exact, or those of the draws; ``None`` where the fit kept none.
    """

    effects: Effects
    coordinates: FloatArray
    inference: MomentsMethod
    status: Status
    details: dict[str, Any] = field(default_factory=dict)
    means: FloatArray | None = None


def is_narrow(cardinalities: Sequence[int], scopes: Sequence[tuple[int, ...]]) -> bool:
    """Return True if exact inference in a model takes at most `LARGEST_WORK` multiplications."""
    try:
        return forecast(cardinalities, scopes).multiplications <= LARGEST_WORK
    except ModelTooLargeError:
        return False


@dataclass(frozen=True, eq=False)
class MomentsFinder:
    """Method by which a fit finds means and covariances.

    Parameters
    ----------
    worth
        How many exact records would tell as much as the means of the fit: rules how many draws are made.
    generator
        Generator of the Gibbs sampler, or its seed.
    inference
        Method; `is_narrow` decides unless it is given.
    """

    worth: float
    generator: np.random.Generator | int
    inference: MomentsMethod | None = None

    def method(
        self, cardinalities: Sequence[int], scopes: Sequence[tuple[int, ...]]
    ) -> MomentsMethod:
        """Return the method for a model."""
        if self.inference is not None:
            return self.inference
        if is_narrow(cardinalities, scopes):
            return "exact"
        return "gibbs"


def fit_means(
    effects: Effects,
    means: FloatArray,
    ridges: FloatArray,
    finder: MomentsFinder,
    *,
    start: FloatArray | None = None,
    fixed: Fixed = NOTHING_FIXED,
) -> PairFit:
    """Return the estimate from noisy means.

    Parameters
    ----------
    effects
        The model's coordinates.
    means, ridges
        t and λ, shape (d,).
    finder
        How means and covariances are found.
    start
        β to begin at; 0 by default.
    fixed
        Further potentials, which are known.
    """
    scopes = (*fixed.scopes, *effects.scopes)
    if start is None:
        begin = np.zeros(effects.size)
    else:
        begin = start
    if finder.method(effects.cardinalities, scopes) == "exact":
        return _by_elimination(effects, means, ridges, begin, fixed)
    moments = GibbsMoments(effects, np.random.default_rng(finder.generator), fixed)
    return _by_sampling(_DrawnRidge(effects, moments, means, ridges), begin, finder.worth)


def _by_elimination(
    effects: Effects, means: FloatArray, ridges: FloatArray, start: FloatArray, fixed: Fixed
) -> PairFit:
    """Return the estimate by quasi-Newton steps with exact means."""
    with one_blas_thread():
        found = ridge_mode(
            Eliminated(effects, fixed=fixed).means,
            means,
            ridges,
            start,
            gradient_tolerance=_TOLERANCE,
            iterations=ITERATIONS,
            memory=_MEMORY,
        )
    point = np.nan_to_num(found.point)
    has_converged = found.status is Status.CONVERGED
    return PairFit(
        effects=effects,
        coordinates=point,
        inference="exact",
        status=Status.CONVERGED if has_converged else Status.NOT_TRUSTED,
        means=np.nan_to_num(found.gradient) + means - ridges * point,
        details={"iterations": found.iterations},
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


@dataclass(frozen=True, slots=True, eq=False)
class _DrawnRidge:
    """Noisy means with ridges, where the means and the covariance of the model are drawn.

    Parameters
    ----------
    effects, moments
        The model's coordinates, and its chains.
    means, ridges
        t and λ, shape (d,).
    """

    effects: Effects
    moments: GibbsMoments
    means: FloatArray
    ridges: FloatArray

    @property
    def lanes(self) -> int:
        """Number of chains."""
        return self.moments.chains.codes.shape[1]

    @property
    def sweeps(self) -> int:
        """Sweeps of a round that renews the covariance."""
        draws = min(_DRAWS, _CELLS // max(self.effects.size, 1))
        return max(draws // self.lanes, _FEWEST_SWEEPS)

    def renewed(
        self, beta: FloatArray, last: Last[_DrawnNewton] | None, turn: Turn
    ) -> _DrawnNewton:
        """Return the Newton step at an estimate, from new draws."""
        if last is None or turn.phase.expands:
            sample = self.moments.features(beta, self.sweeps)
            gradient = self.means - sample.mean(axis=0) - self.ridges * beta
            return _DrawnNewton(beta, gradient, _DrawnCurvature(sample, self.ridges))
        drawn = self.moments.swept_means(beta, _LONGER * self.sweeps)
        gradient = self.means - drawn - self.ridges * beta
        return _DrawnNewton(beta, gradient, last.weighted.curvature)


@dataclass(frozen=True, eq=False)
class _DrawnCurvature:
    r"""The matrix :math:`\hat\Sigma + \lambda` from draws.

    The sample covariance is drawn to its diagonal by the share d / (d + rows), for with fewer rows than coordinates
    it is singular. It is factorized, or where that is too much, conjugate gradients multiply by the sample.

    Parameters
    ----------
    sample
        Features of draws, shape (rows, d).
    ridges
        λ, shape (d,).
    """

    sample: np.ndarray
    ridges: FloatArray

    @cached_property
    def _solver(self) -> Callable[[FloatArray], FloatArray]:
        """The product of a vector with the inverse."""
        from scipy.linalg import cho_factor, cho_solve
        from scipy.sparse.linalg import LinearOperator, cg

        rows, size = self.sample.shape
        centred = self.sample - self.sample.mean(axis=0)
        share = size / (size + rows)
        diagonal = share * centred.var(axis=0) + self.ridges + 1e-9
        weight = (1 - share) / rows

        def product(vector: np.ndarray) -> np.ndarray:
            inner = centred.T @ (centred @ vector.astype(np.float32))
            return weight * inner + diagonal * vector

        if size <= _MOST_FACTORIZED:
            matrix = weight * (centred.T @ centred).astype(np.float64) + np.diag(diagonal)
            factor = cho_factor(matrix)
            return lambda vector: cho_solve(factor, vector)
        operator: Any = LinearOperator
        matrix = operator((size, size), matvec=product, dtype=np.float64)
        return lambda vector: cg(matrix, vector, rtol=_RESIDUAL, maxiter=_PRODUCTS)[0]

    def solve(self, vector: FloatArray) -> FloatArray:
        """Return the product of a vector with the inverse."""
        return self._solver(vector)


@dataclass(frozen=True, slots=True, eq=False)
class _DrawnNewton:
    r"""Newton step :math:`(\hat\Sigma + \lambda)^{-1} g` at an estimate.

    Parameters
    ----------
    beta, gradient
        The estimate, and the gradient g there, shape (d,).
    curvature
        The matrix, from draws at this estimate or an earlier one.
    """

    beta: FloatArray
    gradient: FloatArray
    curvature: _DrawnCurvature

    @property
    def has_settled(self) -> bool:
        """Return False: drawn means never settle."""
        return False

    def descended(self, turn: Turn) -> Descent:
        """Return the estimate after one step of limited length."""
        step = self.curvature.solve(self.gradient)
        longest = float(np.abs(step).max(initial=0.0))
        step = step * min(1.0, _LARGEST_STEP / max(longest, _TINY))
        return Descent(point=self.beta + step, gradient=self.gradient)


def _by_sampling(problem: _DrawnRidge, start: FloatArray, worth: float) -> PairFit:
    """Return the estimate by Newton steps from draws: the mean of the last rounds' estimates."""
    moments = problem.moments
    chains = moments.chains
    drawn = _LONGER * problem.sweeps * problem.lanes
    rounds = int(min(max(math.ceil(_DRAWS_EACH * worth / drawn), _FEWEST_ROUNDS), _MOST_ROUNDS))
    schedule = (
        Phase(rounds=_NEWTON_ROUNDS, may_end=False),
        Phase(rounds=rounds, weighs=False, expands=False, may_end=False, averages=True),
    )
    chains.advance(moments.potentials(start), 1, _FIRST_WARM_UP)
    found = iterate(problem.renewed, start, schedule)
    potentials = moments.potentials(found.point)
    codes = chains.advance(potentials, problem.sweeps)
    mixing = mixing_of(codes, chains.cards, chains.scopes, potentials)
    # sweeps depend on each other, so a mean of draws may be off by a few times its deviation if they did not
    sample = found.weighted.curvature.sample
    deviation = sample.std(axis=0) / math.sqrt(drawn * rounds)
    gradient = found.average_gradient
    off = float((np.abs(gradient) / np.maximum(deviation, _TINY)).max(initial=0.0))
    is_close = off <= 4 * math.sqrt(2 * math.log(problem.effects.size + 2))
    is_trusted = mixing.trusted and is_close and bool(np.isfinite(found.average).all())
    return PairFit(
        effects=problem.effects,
        coordinates=np.nan_to_num(found.average),
        inference="gibbs",
        status=Status.APPROXIMATE if is_trusted else Status.NOT_TRUSTED,
        details={
            "draws": drawn * rounds,
            "energy_rhat": mixing.energy_rhat,
            "gradient": off,
        },
        means=problem.means - problem.ridges * found.average - gradient,
    )
