r"""The noise of queries that are measured together: its scales, and the division of the budget between queries.

**Scales.** Noise of scale :math:`s_q` on each answer to query q costs
:math:`\max_x \sum_q s_q^{-p} \lVert A_q[:, x] \rVert_p^p` over records x, or over the differences of two: epsilon for
discrete Laplace noise (p = 1), 2 rho for discrete Gaussian noise (p = 2); see `bayesprivmrf.queries.sensitivity`. A
query whose own sensitivity is :math:`Δ_q` and whose share is :math:`w_q` gets a scale in proportion to
:math:`(Δ_q^p / w_q)^{1/p}`, so that alone it would spend its share. One common factor then makes all scales as small
as their joint cost allows. If no record attains every :math:`Δ_q` at once, this is less noise than the shares alone
would give.

**Shares.** The forecast variance f of the model's tables depends on the noise's precisions
:math:`t_q \propto (w_q / Δ_q^p)^k`, k = 1 for Gaussian noise, whose variance is :math:`s_q^2`, and k = 2 for Laplace
noise, whose variance is :math:`2 s_q^2` with the scale itself inverse to the share. Inverses of sums of matrices obey

.. math:: \Bigl(\sum_q t_q M_q\Bigr)^{+} \preceq M_0^{+} \Bigl(\sum_q \frac{t_{0q}^2}{t_q} M_q\Bigr) M_0^{+},
          \qquad M_0 = \sum_q t_{0q} M_q,

with equality at :math:`t = t_0` (joint convexity of :math:`X'Y^{-1}X`, at :math:`X_q = t_{0q} M_q`,
:math:`Y_q = t_q M_q`). So :math:`f(t) \le \sum_q h_q t_{0q}^2 / t_q` with :math:`h_q = -∂f/∂t_q`, and the shares that
minimize the right side, :math:`w_q \propto (h_q t_{0q} w_{0q}^k)^{1/(k+1)}`, never increase f. The search starts at
even shares and repeats this step. If each effect is measured by one query, the first step is the solution. For
Gaussian noise f is convex in w, and exceeds its minimum by at most :math:`\max_q (-∂f/∂w_q) - f`, which ends the
search. For Laplace noise f need not be convex: the result is no worse than even shares, and small changes do not
improve it.

**Large models.** Where f is too large to compute, the search minimizes the sum of the variances of all answers,
:math:`\sum_q r_q / t_q` for :math:`r_q` answers to query q. The shares are then
:math:`w_q \propto (r_q Δ_q^{pk})^{1/(k+1)}`, from sensitivities alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, wraps
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.mechanisms.calibration import refuse_excess
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian, DiscreteLaplace, NoiseDistribution
from bayesprivmrf.privacy.guarantee import root_up
from bayesprivmrf.queries import Query, Sensitivity, sensitivity
from bayesprivmrf.queries.forecast import Forecast, forecast
from bayesprivmrf.queries.sensitivity import moves

# Smallest share of a query, relative to an even split, however little it contributes to the model's tables
LEAST_SHARE = 1e-2

type NoiseKind = type[DiscreteLaplace] | type[DiscreteGaussian]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryNoise:
    """The noise of queries that are measured together.

    Parameters
    ----------
    laws
        Noise distribution of each query's answers.
    shares
        Share of each query in the budget, adding up to one; ``None`` if there is no budget.
    is_bound
        True if the sensitivity is an upper bound, so that there is more noise than the guarantee needs.
    """

    laws: tuple[NoiseDistribution, ...]
    shares: tuple[float, ...] | None = None
    is_bound: bool = False


def _kept[**P, T](function: Callable[P, T]) -> Callable[P, T]:
    """Keep the last results of a function of a model, queries and more; a preview and its release both need them."""

    @lru_cache(maxsize=32)
    def kept(written: str, *given: Any, **settings: Any) -> T:
        return function(*given, **settings)

    @wraps(function)
    def called(*given: Any, **settings: Any) -> T:
        model, queries = given[:2]
        # labels that compare equal may differ, as 1 and True do
        return kept(repr((model.domain.states, queries)), *given, **settings)

    return called  # type: ignore[return-value]


@_kept
def noise_of_queries(
    model: ModelSpecification,
    queries: tuple[Query, ...],
    law: NoiseKind,
    weights: Iterable[Any] | None,
    *,
    budget: float,
    adjacency: Adjacency,
    at_most: int | None = None,
) -> QueryNoise:
    """Return the noise that keeps to a joint budget: epsilon for Laplace noise, rho for Gaussian noise.

    Parameters
    ----------
    model, queries
        The declared model and the measured queries.
    law
        `DiscreteLaplace` or `DiscreteGaussian`.
    weights
        Share of each query, positive, normalized; by default the shares of least forecast variance.
    budget
        Joint budget, nats, positive.
    adjacency, at_most
        The neighboring relation, as for `bayesprivmrf.queries.sensitivity`.

    Raises
    ------
    ArgumentError
        No neighbor changes the answers to a query, a share is too small, or the budget makes a scale too large or too
        small.
    """
    stack = _Stack(
        law=law, model=model, queries=queries, budget=budget, adjacency=adjacency, at_most=at_most
    )
    own = stack.own_powers()
    if weights is not None:
        largest = max(weights)  # the sum of the weights themselves may overflow
        total = math.fsum(weight / largest for weight in weights)
        shares = tuple(weight / largest / total for weight in weights)
        must = "leave every query a share above 1e-15"
        given = f"{min(weights)!r} beside {largest!r}"
        require(min(shares) > 1e-15, "weights", must, given, "choose weights nearer to one")
        return stack.noise(own, shares)
    even = (1 / len(queries),) * len(queries)
    plain = stack.noise(own, even)
    if len(queries) == 1:
        return plain
    expected = forecast(
        model, queries, knows_total=adjacency is Adjacency.REPLACE_ONE and at_most is None
    )
    power = 2 if law is DiscreteLaplace else 1
    if expected is None:
        shares = least_answer_variance_shares(
            own, [len(query.bind(model)) for query in queries], power
        )
    else:
        shares = least_variance_shares(expected, own, power)
    split = stack.noise(own, shares)
    is_worse = expected is not None and _forecast(expected, split.laws) > _forecast(
        expected, plain.laws
    )
    return plain if is_worse else split


def least_variance_shares(expected: Forecast, own: ArrayLike, power: int) -> tuple[float, ...]:
    """Return the shares of a budget that minimize the forecast variance of the model's tables.

    Parameters
    ----------
    expected
        The forecast.
    own
        Sensitivity of each query alone, to the power p of its norm.
    power
        k of the module's derivation: 1 for Gaussian noise, 2 for Laplace noise.
    """
    cost = np.asarray(own, dtype=float)
    shares = np.full(len(cost), 1 / len(cost))
    # afterwards the shares are close to the best, and never worse than even ones
    for _ in range(500):
        precisions = (shares / cost) ** power
        variance, slopes, _ = expected.variance(precisions)
        if not math.isfinite(variance):
            break
        gains = slopes * precisions
        if not (gains / shares).max() > variance * (1 + 1e-3):  # within a thousandth of the minimum
            break
        wanted = (gains * shares**power) ** (1 / (power + 1))
        # a share of 0 could not grow again; the rest is below
        shares = np.maximum(wanted / wanted.sum(), 1e-12)
    least = LEAST_SHARE / len(cost)
    shares = np.maximum(shares / shares.sum(), least)
    return tuple((shares / shares.sum()).tolist())


def least_answer_variance_shares(
    own: ArrayLike, answers: ArrayLike, power: int
) -> tuple[float, ...]:
    """Return the shares of a budget that minimize the summed variance of all noisy answers.

    Parameters
    ----------
    own
        Sensitivity of each query alone, to the power p of its norm.
    answers
        Number of answers to each query.
    power
        k of the module's derivation: 1 for Gaussian noise, 2 for Laplace noise.
    """
    wanted = (np.asarray(answers, dtype=float) * np.asarray(own, dtype=float) ** power) ** (
        1 / (power + 1)
    )
    shares = np.maximum(wanted / wanted.sum(), LEAST_SHARE / len(wanted))
    return tuple((shares / shares.sum()).tolist())


@_kept
def fitted_deviations(
    model: ModelSpecification,
    queries: tuple[Query, ...],
    noise: tuple[NoiseDistribution, ...],
    *,
    knows_total: bool,
) -> tuple[float, ...]:
    """Return the forecast standard deviation of one answer to each query, once all answers are combined.

    Consistent tables are fitted to all noisy answers by generalized least squares, so no answer is worse than its own
    noise. Where the model is too large for a forecast, or some answers are exact, the result is the standard
    deviation of each query's own noise.
    """
    own = [law.standard_deviation for law in noise]
    variances = np.array([law.variance for law in noise])
    if variances.min() > 0:
        expected = forecast(model, queries, knows_total=knows_total)
    else:
        expected = None
    if expected is None:
        return tuple(own)
    sizes = np.array([len(query.bind(model)) for query in queries])
    fitted = np.sqrt(expected.variance(1 / variances)[2] / np.maximum(sizes, 1))
    return tuple(np.minimum(fitted, own).tolist())


def _forecast(expected: Forecast, laws: Sequence[NoiseDistribution]) -> float:
    """Return the forecast variance of the model's tables; infinite if some noise has a variance of zero."""
    variances = np.array([law.variance for law in laws])
    if variances.min() > 0:
        return expected.variance(1 / variances)[0]
    return math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stack:
    """Queries that are measured together, with the kind of noise and the budget."""

    law: NoiseKind
    model: ModelSpecification
    queries: tuple[Query, ...]
    budget: float
    adjacency: Adjacency
    at_most: int | None

    @property
    def norm(self) -> int:
        return 1 if self.law is DiscreteLaplace else 2

    def own_powers(self) -> tuple[float, ...]:
        """Return the sensitivity of each query alone, to the power p of its norm."""
        found = tuple(self._sensitivity(one).power for one in self.queries)
        for query, power in zip(self.queries, found, strict=True):
            given = f"{query!r}, whose answers follow from the declaration and a public number of records"
            require(
                power > 0,
                "queries",
                "have answers that depend on the records",
                given,
                "leave it out",
            )
        return found

    def noise(self, own: Sequence[float], shares: tuple[float, ...]) -> QueryNoise:
        """Return the noise of the queries at given shares of the budget."""
        if self.norm == 1:
            name = "epsilon"
            allowed = self.budget
        else:
            name = "rho"
            allowed = 2 * self.budget
        ratios = [
            (power / share) ** (1 / self.norm) for power, share in zip(own, shares, strict=True)
        ]
        whole = self._sensitivity(self.queries, ratios).power / allowed
        scales = [ratio * whole ** (1 / self.norm) for ratio in ratios]
        # noise of a smaller scale is no noise
        refuse_excess(name, self.budget, scales, "query", least=1e-9)
        # each pass widens all scales by one more unit in the last place, until OpenDP's maps keep to the budget
        for widening in range(1, 64 + len(scales)):
            laws = tuple(self.law(scale) for scale in scales)
            found = self._sensitivity(self.queries, scales)
            if found.power <= allowed and self._promised(laws, found) <= Fraction(self.budget):
                return QueryNoise(laws=laws, shares=shares, is_bound=not found.is_exact)
            scales = [
                math.nextafter(scale * (1 + widening * 2.0**-52), math.inf) for scale in scales
            ]
        raise ArgumentError(
            f"the noise scales for a budget of {self.budget!r} must keep to it by OpenDP's own maps, but do not; "
            "choose a budget or shares nearer to one."
        )

    def _sensitivity(self, queries: Any, scales: Sequence[float] | None = None) -> Sensitivity:
        given = {"norm": self.norm, "adjacency": self.adjacency, "at_most": self.at_most}
        return sensitivity(queries, self.model, scales=scales, **given)

    def _promised(
        self, laws: Sequence[DiscreteLaplace | DiscreteGaussian], found: Sensitivity
    ) -> Fraction:
        """Return the privacy loss by OpenDP's maps, for the neighbors that the stacked answers distinguish best."""
        bound = [query.bind(self.model) for query in self.queries]
        total = Fraction(0)
        for one, law in zip(moves(bound, found.neighbours), laws, strict=True):
            power = int((np.abs(one * (self.at_most or 1)) ** self.norm).sum())
            if power:
                total += Fraction(
                    law.measurement().map(power if self.norm == 1 else root_up(power))
                )
        return total
