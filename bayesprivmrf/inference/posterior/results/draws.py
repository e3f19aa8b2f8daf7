r"""Draws of a posterior as distributions: joint marginals, solutions, predictions, and rules for synthetic data.

If the model is decomposable, the potentials of a draw follow exactly from its marginals,

.. math:: θ_C = \log μ_C - \log μ_{S(C)}, \qquad A = 0,

where S(C) is the separator of C and its parent in the junction forest. Otherwise they follow from the zero-sum
effects.

**Synthetic data sets**, each drawn from its own draw of the posterior. Let Q be a quantity of the population. Set l
has n records that are drawn from :math:`p(x; θ_l)`, where :math:`θ_l` is an independent draw of the posterior given
the release. It gives an estimate :math:`q_l` with the sampling variance :math:`u_l`, computed as for a simple random
sample. Then

.. math:: q_l \mid θ_l \sim N(Q(θ_l), U), \qquad Q(θ_l) \mid \text{release} \sim N(\hat Q, V),

so the estimates vary around :math:`\hat Q` with the variance :math:`B = V + U`. The mean :math:`\bar q` of m
estimates determines :math:`\hat Q` up to a variance of B/m. Given all m estimates, the posterior of Q is therefore

.. math:: Q \sim N\bigl(\bar q,\; V + B/m\bigr), \qquad V + B/m = (1 + 1/m) B - U.

With B estimated by the variance b of the estimates, and U by :math:`\bar u`, this is the rule :math:`T = (1 + 1/m)\,
b - \bar u` for fully synthetic data (Raghunathan, Reiter and Rubin 2003, equation 4). The rule :math:`b/m + \bar u`
for partially synthetic data (Reiter 2003) would be wrong here, because it attributes the variation between data sets
to the synthesis alone, and ignores the uncertainty that the release leaves. The rule for multiple imputation,
:math:`(1 + 1/m)\, b + \bar u`, would count U twice.

T may be negative, because b is noisy if m is small. The interval does not use T. With a flat prior on log B,
:math:`(m - 1)\, b / B \sim χ^2_{m-1}`, and B is integrated out under the constraint :math:`B ≥ \bar u`,

.. math:: P(Q ≤ x) = E\Bigl[Φ\Bigl(\frac{x - \bar q}{\sqrt{(1 + 1/m) B - \bar u}}\Bigr) \Bigm| B ≥ \bar u\Bigr],

which is a proper distribution for every b. If V is at least U, as with synthetic data sets that are at least as large
as the data, nominal 90 % intervals have a coverage of 90 % with twenty or more data sets. With five data sets they
are conservative (96 %), because so few determine B poorly. Coverage is an average, and the
width of one interval can be off: take fifty data sets. At V = U, nine of ten widths are between 0.70 and 1.36 times
that of the posterior with fifty data sets. With twenty, they are between 0.68 and 1.62 times, and a quarter of the
widths from T are below three quarters of the posterior's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import number_array, probability, require, same_labels
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence, family_of
from bayesprivmrf.inference.least_squares import PooledTables, pool
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.row_mixing import Ending, ending_of
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.marginals.joint import (
    Elimination,
    Factor,
    between,
    conditional_factors,
    restricted,
)
from bayesprivmrf.marginals.junction import JunctionTrees, junction_trees
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Condition, given_error, share_given, shares_where_some
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within, parent

if TYPE_CHECKING:
    import pandas as pd


# Number of draws, in all chains together, for answers that need inference in each draw
THINNED = 1000
# Smallest probability of a possible cell whose logarithm is taken; smaller ones would underflow to minus infinity
_SMALLEST = 1e-300


@dataclass(frozen=True, eq=False, kw_only=True)
class Draws:
    """Posterior draws of one model.

    Parameters
    ----------
    evidence
        Evidence of the releases.
    finished
        The draws.
    status
        Status of the fit; solutions of single draws have the same status.
    """

    evidence: Evidence
    finished: Finished
    status: Status = Status.CONVERGED

    @property
    def model(self) -> ModelSpecification:
        """Model over the tables of the evidence."""
        return self.evidence.specification

    @property
    def shape(self) -> tuple[int, int]:
        """Number of chains, and number of draws per chain."""
        chains, draws = self.finished.total.shape
        return chains, draws

    @cached_property
    def _forest(self) -> JunctionTrees | None:
        """Junction forest over the cliques; None if the model is not decomposable."""
        return junction_trees(self.model.cardinalities, self.model.scopes)

    @cached_property
    def pooled(self) -> PooledTables:
        """Least-squares counts of the cliques' cells by the measurements alone, with the variances of their noise."""
        return pool(self.evidence)

    def synthetic(
        self, number: int, size: int | None, rng: np.random.Generator
    ) -> Iterator[pd.DataFrame]:
        """Yield data sets of `size` records, each from its own draw, with draws as far apart as possible.

        The default size is the posterior median of N, which is robust to a long upper tail.
        """
        evidence = self.evidence
        (chains, draws) = self.shape
        if size is None:
            seen = f"{evidence.estimated_total:,.0f} ± {evidence.total_standard_error:,.0f} by the release"
            must = "be given if the number of records cannot be distinguished from 0"
            require(evidence.has_total, "size", must, seen, "its posterior is mostly the prior")
            size = round(float(np.median(self.finished.total)))
        for place in np.linspace(0, chains * draws - 1, number).round().astype(int):
            yield self.solution(int(place // draws), int(place % draws)).sample(size, rng=rng)

    def mean_potentials(self) -> tuple[FloatArray, Status]:
        """Return potentials of the model with the mean marginals, exact or by maximum likelihood, and the status."""
        from bayesprivmrf.inference.optimize import PotentialFamily, match_marginals

        mean = self.finished.marginals.mean(axis=(0, 1))
        effects = self.finished.effects.mean(axis=(0, 1))
        potentials = self._potentials(mean, effects)
        family = self.evidence.family
        if self._forest is not None:
            return potentials, Status.CONVERGED
        own = PotentialFamily(family.engine("exact"), family.base)
        return match_marginals(own, mean, start=potentials)[:2]

    def _mean_of_interactions(self) -> tuple[FloatArray, Status]:
        """Return potentials of the interactions with their mean marginals, by maximum likelihood, and the status."""
        from bayesprivmrf.inference.optimize import PotentialFamily, match_marginals

        family = family_of(self.model.believed)
        mean = self.model.on_interactions(self.finished.marginals.mean(axis=(0, 1)))
        return match_marginals(PotentialFamily(family.engine("exact"), family.base), mean)[:2]

    def mean_solution(self, stats: Mapping[str, Any], problems: tuple[str, ...]) -> Solution:
        """Return the solution with the mean marginals: see `Posterior.solution`."""
        own = self.model.believed
        if own is self.model:
            potentials, status = self.mean_potentials()
        else:
            potentials, status = self._mean_of_interactions()
        return Solution(
            specification=own,
            potentials=own.tables(potentials),
            method="posterior mean",
            status=status if self.status is Status.CONVERGED else self.status,
            stats=stats,
            is_simulated=self.evidence.is_simulated,
            problems=problems,
            of_records=self.evidence.of_records,
        )

    def potentials(self, chain: int, draw: int) -> FloatArray:
        """Return the potentials of one draw, shape (cells,), nats."""
        return self._potentials(
            self.finished.marginals[chain, draw], self.finished.effects[chain, draw]
        )

    def _potentials(self, marginals: FloatArray, effects: FloatArray) -> FloatArray:
        """Return the potentials of clique marginals, with A = 0, or of effects if there is no junction forest."""
        model = self.model
        family = self.evidence.family
        if self._forest is None:
            return family.effects.full.potentials(np.nan_to_num(effects)) + family.base
        flat = np.log(np.maximum(marginals, _SMALLEST))
        for clique, separator in enumerate(self._forest.separators):
            if separator:
                start, stop = model.offsets[clique : clique + 2]
                states = cells_within(model.cardinalities, separator, model.scopes[clique])
                sums = np.bincount(states, weights=marginals[start:stop])
                flat[start:stop] -= np.log(np.maximum(sums, _SMALLEST))[states]
        flat[np.isneginf(family.base)] = -np.inf
        return flat

    def solution(self, chain: int, draw: int) -> Solution:
        """Return the distribution of one draw."""
        own = self.model.believed
        potentials = self.evidence.family.of_interactions(self.potentials(chain, draw))
        return Solution(
            specification=own,
            potentials=own.tables(potentials),
            method=f"posterior draw {draw} of chain {chain}",
            status=self.status,
            is_simulated=self.evidence.is_simulated,
        )

    def ending(self, drawn: FloatArray) -> Ending:
        """Return how rows ended, by the draws from which they were computed, shape (chain, draw, ...)."""
        return ending_of(self.status, drawn)

    def thinned(self, most: int) -> np.ndarray:
        """Return evenly spaced indices of draws, the same in every chain, about `most` in all chains together."""
        chains, draws = self.shape
        each = min(draws, max(1, most // chains))
        return np.linspace(0, draws - 1, each).round().astype(int)

    def log_prior(self, kept: int) -> dict[str, FloatArray]:
        """Return the log density of each part of the prior, at the `kept` draws that `thinned` selects."""
        places = np.linspace(0, self.shape[1] - 1, kept).round().astype(int)
        return {name: values[:, places] for name, values in self.finished.log_prior.items()}

    def pairs(self, most: int) -> Iterator[tuple[int, int]]:
        """Yield the chain and the draw of each thinned draw."""
        kept = self.thinned(most)
        for chain in range(self.shape[0]):
            for draw in kept:
                yield chain, int(draw)

    def joint(
        self, query: Sequence[int], given: Condition | None = None, *, of_records: bool = False
    ) -> FloatArray:
        """Return draws of the joint marginal of any variables, about `THINNED` if each draw needs inference.

        Parameters
        ----------
        query
            Positions of the variables.
        given
            States of other variables, on which the marginal is conditional.
        of_records
            Whether to return the number of records in each joint state, or its share given states of others. The
            shares are NaN in draws in which no record has these states.

        Returns
        -------
        ndarray
            Shape (chain, kept draws, K_v for v in query).
        """
        model = self.model
        given = given or {}
        names = [model.domain.variables[v] for v in (*query, *given)]
        if parent(model.scopes, [*query, *given]) is not None:
            if of_records:
                flat = self.finished.counts
            else:
                flat = self.finished.marginals
            table = model.project(flat, [*query, *given])
            if of_records:
                records = np.maximum(np.rint(table), 0.0)
                return shares_where_some(records, len(query), given)
            shares = share_given(table, len(query), given)
            if shares is None:
                raise given_error(model.domain, given, "draws of this posterior")
            return shares
        if of_records:
            raise ModelError(
                f"counts of the records exist only for variables that share a clique, got {names!r}; "
                'ask for of="population".'
            )
        tables = self._joint_apart(tuple(query), given)
        return tables.reshape(self.shape[0], -1, *tables.shape[1:])

    def _joint_apart(self, query: tuple[int, ...], given: Condition) -> FloatArray:
        """Return joint marginals of variables that share no clique, shape (kept draws, K_v for v in query).

        All thinned draws are eliminated together (`bayesprivmrf.marginals.joint`): from the marginals of the cliques
        between the asked variables where the model is decomposable, from the potentials of all cliques elsewhere.
        """
        model = self.model
        cards = model.cardinalities
        kept = self.thinned(THINNED)
        if self._forest is None:
            parents = dict.fromkeys(range(len(model.scopes)), -1)
        else:
            parents = between(model.scopes, self._forest.parents, [*query, *given])
        plan = Elimination.of(cards, [model.scopes[clique] for clique in parents], query)
        names = tuple(model.domain.variables[v] for v in query)
        remedy = (
            "ask for fewer variables at a time, or condition on states of some of them with `given`"
        )
        plan.require_memory(f"joint tables of {names!r}, whose variables share no clique,", remedy)
        pairs = [(chain, draw) for chain in range(self.shape[0]) for draw in kept]
        part = plan.part(len(pairs))
        found = []
        for start in range(0, len(pairs), part):
            chains, draws = np.array(pairs[start : start + part]).T
            factors = self._factors(chains, draws, parents)
            found.append(plan.joint(restricted(factors, cards, given)))
        tables = np.concatenate(found)
        if not np.isfinite(tables).all():
            raise given_error(model.domain, given, "draws of this posterior")
        return tables

    def _factors(
        self, chains: IntArray, draws: IntArray, parents: Mapping[int, int]
    ) -> list[Factor]:
        """Return factors of the distribution in some draws, over the cliques that `parents` names."""
        model = self.model
        is_impossible = np.isneginf(self.evidence.family.base)
        if self._forest is None:
            effects = np.nan_to_num(self.finished.effects[chains, draws])
            flat = self.evidence.family.effects.full.potentials(effects)
            flat = np.where(is_impossible, -np.inf, flat + self.evidence.family.base)
        else:
            flat = np.where(is_impossible, 0.0, self.finished.marginals[chains, draws])
        tables = {}
        for clique in parents:
            start, stop = model.offsets[clique : clique + 2]
            tables[clique] = flat[:, start:stop].reshape(len(flat), *model.shapes[clique])
        if self._forest is not None:
            return conditional_factors(model.scopes, tables, parents)
        # the largest potential of each table is 0, so that no exponential overflows
        return [
            Factor(scope=model.scopes[clique], values=np.exp(table - _largest(table)))
            for clique, table in tables.items()
        ]


def _largest(tables: FloatArray) -> FloatArray:
    """Return the largest entry of each draw's table, for broadcasting."""
    return tables.max(axis=tuple(range(1, tables.ndim)), keepdims=True)


def log_predictive(draws: Draws, states: np.ndarray, most: int) -> FloatArray:
    r"""Return the log of the mean over the posterior of the probability of each joint state.

    .. math:: p(x \mid y) = E[\,p(x; θ) \mid y\,]
        \approx \frac{1}{D} \sum_d \exp\Bigl(\sum_C θ_{d,C}(x_C) - A(θ_d)\Bigr)

    Parameters
    ----------
    draws
        Draws of the posterior.
    states
        Joint states, as codes, shape (number, variables).
    most
        Approximate number of draws over which the mean is taken.

    Returns
    -------
    ndarray
        Shape (number,), nats.
    """
    model = draws.model
    engine = marginal_engine(model.cardinalities, model.scopes)
    cells = [
        start + np.ravel_multi_index(tuple(states[:, v] for v in scope), shape)
        for start, scope, shape in zip(model.offsets, model.scopes, model.shapes, strict=False)
    ]
    pairs = list(draws.pairs(most))
    result = np.full(len(states), -np.inf)
    for chain, draw in pairs:
        potentials = draws.potentials(chain, draw)
        logs = sum((potentials[own] for own in cells), np.zeros(len(states)))
        result = np.logaddexp(result, logs - engine.log_partition(potentials))
    return result - np.log(len(pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedEstimate:
    """Estimate of a population quantity, combined from several synthetic data sets.

    Parameters
    ----------
    estimate
        Mean of the estimates.
    lower, upper
        Limits of the equal-tailed interval.
    prob
        Posterior probability of the interval.
    between, within
        Variance b of the estimates between data sets, and their mean sampling variance ū.
    variance
        T = (1 + 1/m) b - ū. It may be negative, and the interval does not use it.
    """

    estimate: float
    lower: float
    upper: float
    prob: float
    between: float
    within: float
    variance: float


def combine_estimates(
    estimates: Sequence[float] | FloatArray,
    variances: Sequence[float] | FloatArray,
    *,
    prob: float = 0.9,
) -> CombinedEstimate:
    """Combine the estimates from the data sets of `Posterior.synthetic`, one for each data set.

    Parameters
    ----------
    estimates
        Estimates q_l, one for each synthetic data set, shape (m,), at least two; take fifty or more, because with
        twenty the width of the interval is often a third off.
    variances
        Sampling variance u_l of each estimate, shape (m,), computed as if its data were a simple random sample.
    prob
        Posterior probability of the interval, between 0 and 1.

    Returns
    -------
    CombinedEstimate
        The combined estimate with its interval.

    Raises
    ------
    ArgumentError
        There are fewer than two estimates, their number differs from that of the variances, a number is not finite,
        or a variance is negative.

    References
    ----------
    Raghunathan, Reiter, Rubin (2003). Multiple imputation for statistical disclosure limitation. Journal of Official
    Statistics 19, 1-16.
    Reiter (2003). Inference for partially synthetic, public use microdata sets. Survey Methodology 29, 181-188.

    Examples
    --------
    >>> combined = combine_estimates([0.31, 0.28, 0.35, 0.30, 0.33], [0.0002] * 5)
    >>> round(combined.estimate, 3), round(combined.variance, 5)
    (0.314, 0.00068)
    """
    both = "`estimates` and `variances`"
    must = "have the same index in the same order"
    remedy = "write `variances.reindex(estimates.index)`"
    require(same_labels([estimates, variances]), both, must, "two", remedy)
    q = number_array("estimates", estimates, float)
    u = number_array("variances", variances, float)
    must = "have one number for each of at least two synthetic data sets"
    require(
        q.ndim == 1 and q.shape == u.shape and len(q) > 1,
        both,
        must,
        f"shapes {q.shape} and {u.shape}",
    )
    is_finite = np.isfinite(q).all() and np.isfinite(u).all() and (u >= 0).all()
    require(is_finite, both, "be finite, and `variances` at least 0", "others")
    prob = probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
    m = len(q)
    center = float(q.mean())
    between = float(q.var(ddof=1))
    within = float(u.mean())
    half = _half_width(m, between, within, prob)
    return CombinedEstimate(
        estimate=center,
        lower=center - half,
        upper=center + half,
        prob=prob,
        between=between,
        within=within,
        variance=(1 + 1 / m) * between - within,
    )


def _half_width(m: int, between: float, within: float, prob: float) -> float:
    """Return half the width of the interval, a quantile of a scale mixture of normal distributions around 0."""
    from scipy.optimize import brentq
    from scipy.special import gammainc, gammaincinv, ndtr

    if between == 0 and within == 0:
        return 0.0
    # B >= ū truncates the chi-squared variable (m - 1) b / B from above; half of it is a gamma variable
    shape = 0.5 * (m - 1)
    rate = 0.5 * (m - 1) * between
    if within > 0:
        most = float(gammainc(shape, rate / within))
    else:
        most = 1.0
    if most > 0:
        # the mixture is averaged over 500 quantiles of B
        levels = most * (np.arange(500) + 0.5) / 500
        spread = rate / gammaincinv(shape, levels)
    else:  # no variance between the data sets: B is at its lower end
        spread = np.full(1, within)
    deviations = np.sqrt(np.maximum((1 + 1 / m) * spread - within, within / m))

    def excess(x: float) -> float:
        return float(ndtr(x / deviations).mean()) - 0.5 * (1 + prob)

    # the widest component determines the tails of the mixture
    root: Any = brentq(excess, 0.0, 40.0 * float(deviations.max()))
    return float(root)
