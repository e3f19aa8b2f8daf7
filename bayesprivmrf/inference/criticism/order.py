r"""Order of a chain: its test by tables of distant times, and rows whose order was not tested.

A chain of order m assumes that a state depends on the m states before it alone. Tables of single steps cannot test
that. A table of distant times, such as the first with the last, can: people who differ, or who remember, are more
alike over many steps than the chain predicts.

A chain with one transition matrix is fitted to the numbers :math:`y_a` of its steps, with mean :math:`N A μ(φ)` and
covariance :math:`V_a` (`bayesprivmrf.inference.transitions`). Let :math:`y_d` be the numbers of one distant
measurement. Under the chain their mean is :math:`N D μ_d`, where :math:`μ_d` is the product of the transition
matrices between the times. The same people were counted in both, so that :math:`y_d` is compared with its mean given
:math:`y_a`,

.. math:: r = y_d - N D μ_d - K (y_a - N A μ), \qquad K = V_{da} V_a^{-1} .

With the derivatives :math:`J_a, J_d` of both means and C the covariance of the estimated coordinates, r has
mean 0 and

.. math:: \operatorname{Cov} r = V_d - K V_{ad} + (J_d - K J_a)\, C\, (J_d - K J_a)' ,

where :math:`V_d` is the sampling covariance plus the variances of the noise. Coordinates are those of the best fit of
the chain, so that the model is judged and not the estimator. Of a whole table only the interactions are judged: its
margins are tables of single times. With a basis U of these contrasts and :math:`M = U (U' V U)^{-1} U'`, V having
1/12 added for the fraction of a count, the statistic is :math:`r' M r`. Its p-value is that of a scaled χ² with the
mean and the variance that `bayesprivmrf.inference.criticism.misfit` states. To that variance belong the fourth
cumulants of all noise. The noise :math:`η_a` of the steps enters r by :math:`-G η_a`, with

.. math:: G = K + (J_d - K J_a)\, C J_a' V_a^{-1} ,

and adds :math:`\sum_i κ_i (G' M G)_{ii}^2`. If few sums of steps were measured, a few draws of Laplace noise
decide r, whose tails are then theirs and not normal. The p-value is multiplied by the number of distant measurements.

Other chains have the distant tables among their measured numbers, and are judged by `misfit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, null_space
from scipy.special import chdtrc

from bayesprivmrf.errors import ModelError
from bayesprivmrf.escapes import printable
from bayesprivmrf.inference.criticism.noise_misfit import SMALLEST_MISFIT_TAIL
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.given_model import MeasuredNumbers
from bayesprivmrf.inference.transition_sums import NoisySums
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.chain import Chain, chain_of
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.kernels import SQUARE, code_of

# P-value below which the order is contradicted: half of that of a misfit, because the steps were tested before.
# The level was chosen on 600 simulated right chains. Of 1,500 others with a table of each step 0.7 % have a smaller
# p-value; of 500 chains that hardly move and have only sums of steps none; and all of 80 wrong chains have one
# (chain-order.csv)
_SMALLEST_TAIL = SMALLEST_MISFIT_TAIL / 2
# Variance of a count's fraction, records squared
_FRACTION = 1 / 12
# Numbers of the steps that are whitened at a time, so that many of them take little memory; it changes no result
_COLUMNS = 500
# Renewals of the covariance of the steps' numbers; the second one changes the statistic by less than 1 %
_RENEWALS = 2


def order_contradictions(
    evidence: Evidence, potentials: FloatArray
) -> tuple[tuple[str, ...], dict[str, float]]:
    """Describe how distant measurements contradict the order of a chain with one transition matrix.

    Beside the problem, with its remedy, stands the p-value, ``order_tail``; both are empty if nothing distant was
    measured, or if the fit has no finite moments.

    Parameters
    ----------
    evidence
        What was measured.
    potentials
        The estimate's potentials, shape (model size,), nats. The search for the best fit begins there.
    """
    if not evidence.distant:
        return (), {}
    try:
        with np.errstate(all="ignore"):
            fit = _FittedSteps.of(evidence, potentials)
            tails = [fit.tail(measured) for measured in evidence.distant]
    except (LinAlgError, ValueError):
        return (), {}
    if not np.isfinite(tails).all():
        return (), {}
    worst = int(np.argmin(tails))
    tail = min(1.0, len(tails) * tails[worst])
    if tail >= _SMALLEST_TAIL:
        return (), {"order_tail": tail}
    order = fit.sums.rows.chain.order
    problem = (
        f"the release contradicts the order of this chain: {_name_of(evidence.distant[worst])} is farther from "
        f"what a memory of {_steps(order)} predicts than noise and sampling explain (tail probability {tail:.1g}), "
        f"and answers over several steps are wrong; declare order {order + 1}, or cliques of the steps with a "
        "group variable for people who differ, or use answers about measured steps only"
    )
    return (printable(problem),), {"order_tail": tail}


def untested_order(evidence: Evidence, scopes: Sequence[Sequence[int]]) -> list[str]:
    """Return remarks on answers over times farther apart than a chain's order that no table holds together.

    Parameters
    ----------
    evidence
        What was measured.
    scopes
        Variables, by position, on whose joint distributions the answers rest.
    """
    model = evidence.specification.believed
    chain = _chain_or_none(model)
    if chain is None:
        return []
    tested = _tested_scopes(evidence)
    times = {variable: time for time, variable in enumerate(chain.positions)}
    remarks = []
    for scope in scopes:
        own = sorted((v for v in set(scope) if v in times), key=times.__getitem__)
        apart = [
            (one, other)
            for one, other in combinations(own, 2)
            if times[other] - times[one] > chain.order
            and not any({one, other} <= table for table in tested)
        ]
        if not apart:
            continue
        farthest = max(apart, key=lambda pair: times[pair[1]] - times[pair[0]])
        remarks.append(_untested(model, chain, farthest))
    return list(dict.fromkeys(remarks))


def untested_memory(evidence: Evidence) -> list[str]:
    """Return the remark on numbers about many steps, such as mean times, if no table holds distant times together.

    Parameters
    ----------
    evidence
        What was measured.
    """
    model = evidence.specification.believed
    chain = chain_of(model)
    places = [
        [time for time, variable in enumerate(chain.positions) if variable in table]
        for table in _tested_scopes(evidence)
    ]
    if any(own and own[-1] - own[0] > chain.order for own in places):
        return []
    return [_untested(model, chain, (chain.positions[0], chain.positions[-1]))]


def _untested(model: ModelSpecification, chain: Chain, ends: tuple[int, int]) -> str:
    """Return the remark on untested memory between two variables, given by position."""
    remark = f"memory beyond {_steps(chain.order)} not tested"
    if len(chain.positions) <= chain.order + 1:
        # no two times are farther apart than the order
        return remark
    first, last = (str(model.domain.variables[v]) for v in ends)
    return f"{remark}: measure ({first}, {last})"


def _steps(order: int) -> str:
    """Return a number of steps in words."""
    if order == 1:
        return "one step"
    return f"{order} steps"


def _name_of(measured: MeasuredNumbers) -> str:
    """Name a distant measurement within a sentence."""
    query = measured.query
    if not query.is_table:
        return f"the answer to {query.query!r}"
    *others, last = (str(variable) for variable in query.scopes[0])
    return f"the table of {', '.join(others)} and {last}"


def _chain_or_none(model: ModelSpecification) -> Chain | None:
    """Return the order of time of a model that `markov_chain` declares; None of any other."""
    try:
        return chain_of(model)
    except ModelError:
        return None


def _tested_scopes(evidence: Evidence) -> list[frozenset[int]]:
    """Return the scopes that were measured and compared with the model, by position."""
    # no misfit is computed beside counts within bounds
    if evidence.is_bounded.any():
        return []
    found = [scope for scope in evidence.measured_scopes if scope is not None]
    queries = [*(evidence.queries or ()), *(measured.query for measured in evidence.distant)]
    found += [scope for query in queries for scope in query.positions]
    return list(map(frozenset, found))


@dataclass(frozen=True, eq=False, kw_only=True)
class _FittedSteps:
    """Best fit of a chain to the numbers of its steps.

    Parameters
    ----------
    evidence
        What was measured.
    sums
        Mean and covariance of the steps' numbers.
    point
        The coordinates φ and log N, shape (size + 1,).
    covariance
        C, along the contrasts of π and P and log N.
    """

    evidence: Evidence
    sums: NoisySums
    point: FloatArray
    covariance: FloatArray

    @classmethod
    def of(cls, evidence: Evidence, potentials: FloatArray) -> _FittedSteps:
        """Return the best fit, searched from an estimate's potentials."""
        sums = NoisySums.of(evidence)
        numbers = evidence.possible_numbers[1]
        start = sums.rows.coordinates_of(sums.engine.marginals(potentials)[1])
        point = np.append(start, np.log(evidence.total))
        is_free = np.append(np.ones(len(start), bool), evidence.total_standard_error > 0)
        for _ in range(_RENEWALS):
            point, _ = sums.closest(numbers, point, is_free)
        return cls(
            evidence=evidence,
            sums=sums,
            point=point,
            covariance=sums.covariance(point, is_free),
        )

    @property
    def total(self) -> float:
        """N."""
        return float(np.exp(self.point[-1]))

    @cached_property
    def _steps(self) -> _Steps:
        """The steps' part of the conditional mean and covariance."""
        whiten = self.sums.whitening(self.point)
        slopes, mean = self.sums.jacobian(self.point, linear=True)
        residual = self.evidence.possible_numbers[1] - mean
        return _Steps(
            whiten=whiten, slopes=whiten(slopes), residual=whiten(residual[:, None])[:, 0]
        )

    def tail(self, measured: MeasuredNumbers) -> float:
        """Return the p-value of a distant measurement; 1 if it has no interactions."""
        distant = self._distant(measured)
        possible = distant.means > 0
        noise = measured.noise.error_variance(distant.means)
        values = measured.noise.estimate(measured.values)
        # rows of one person may be equal, which multiplies the variance by their number
        several = self.evidence.rows_of_one
        crossed = self._steps.whiten(distant.with_steps.T)
        residual = values - distant.means - crossed.T @ self._steps.residual
        left = distant.slopes - crossed.T @ self._steps.slopes
        sampling = several * (distant.covariance - crossed.T @ crossed)
        sampling += left @ self.covariance @ left.T
        contrasts = _contrasts(measured, possible)
        if not contrasts.shape[1]:
            return 1.0
        covariance = sampling + np.diag(noise)
        weights = _weights(contrasts, covariance)
        # fourth cumulants of the distant numbers and of the noise of the steps, each through what it adds to r' M r
        kurtosis = _fourth_cumulants(measured, noise, np.diag(distant.covariance))
        excess = float(kurtosis @ np.diag(weights) ** 2)
        by_steps = crossed.T + left @ self.covariance @ self._steps.slopes.T
        excess += self._excess_of_steps(weights, by_steps)
        return _tail(weights, residual, covariance, excess)

    def _excess_of_steps(self, weights: FloatArray, by_steps: FloatArray) -> float:
        """Return what fourth cumulants of the steps' noise add to the variance of the statistic.

        Parameters
        ----------
        weights
            M, shape (numbers, numbers).
        by_steps
            Derivative of the residual by the whitened numbers of the steps, shape (numbers, numbers of the steps).
        """
        noise = self.sums.noise
        is_normal = self.evidence.kernels[self.evidence.possible] == SQUARE
        own = np.empty(len(noise))
        for start in range(0, len(noise), _COLUMNS):
            place = slice(start, start + _COLUMNS)
            moves = by_steps @ self._steps.whiten(np.eye(len(noise))[:, place])
            own[place] = np.einsum("ik,ij,jk->k", moves, weights, moves)
        return float(np.where(is_normal, 0.0, 3 * noise**2 + noise) @ own**2)

    def _distant(self, measured: MeasuredNumbers) -> _Distant:
        """Return the moments of a distant measurement under the fit."""
        rows = self.sums.rows
        model = rows.model
        query = measured.query
        engine = marginal_engine(model.cardinalities, (*model.scopes, *query.positions))
        phi = self.point[:-1]
        potentials = np.zeros(engine.size)
        potentials[: model.size] = rows.potentials(phi)
        if model.possible is not None:
            potentials[: model.size][~model.possible] = -np.inf
        weights = np.zeros((len(query), engine.size))
        weights[:, model.size :] = query.matrix.toarray()
        _, marginals, product = engine.linearize(potentials)
        products = np.array([product(row) for row in weights])
        by_steps = products[:, : model.size]
        derivatives = rows.derivatives(phi, linear=True)
        means = self.total * (weights @ marginals)
        return _Distant(
            means=means,
            covariance=self.total * (products @ weights.T),
            with_steps=self.total * (self.sums.matrix @ by_steps.T).T,
            slopes=np.column_stack([self.total * (by_steps @ derivatives), means]),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Steps:
    """Whitening by :math:`V_a`, and the whitened :math:`J_a` and residual of the steps' numbers."""

    whiten: Any
    slopes: FloatArray
    residual: FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class _Distant:
    """Moments of the exact numbers of a distant measurement under the chain.

    Parameters
    ----------
    means
        :math:`N D μ_d`.
    covariance, with_steps
        Sampling covariance of the numbers, and with the numbers of the steps.
    slopes
        :math:`J_d`, by the contrasts of π and P and by log N.
    """

    means: FloatArray
    covariance: FloatArray
    with_steps: FloatArray
    slopes: FloatArray


def _fourth_cumulants(
    measured: MeasuredNumbers, noise: FloatArray, counts: FloatArray
) -> FloatArray:
    """Return the fourth cumulants of noisy numbers, given the variances of the noise and those of the counts."""
    cumulants = np.maximum(counts, 0.0)
    if code_of(measured.noise.smooth) != SQUARE:
        cumulants = cumulants + 3 * noise**2 + noise
    return cumulants


def _contrasts(measured: MeasuredNumbers, possible: np.ndarray) -> FloatArray:
    """Return an orthonormal basis of what is judged, shape (numbers, contrasts): of a table, its interactions."""
    query = measured.query
    size = len(possible)
    if not query.is_table:
        return np.eye(size)[:, possible]
    shape = [len(query.model.domain.states_of(v)) for v in query.scopes[0]]
    places = np.indices(shape).reshape(len(shape), size)
    margins = [
        own == state for own, states in zip(places, shape, strict=True) for state in range(states)
    ]
    inner = null_space(np.array(margins, float)[:, possible])
    found = np.zeros((size, inner.shape[1]))
    found[possible] = inner
    return found


def _weights(contrasts: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return M, by which contrasts of a residual are judged, shape (numbers, numbers)."""
    wide = contrasts.T @ covariance @ contrasts + _FRACTION * np.eye(contrasts.shape[1])
    return contrasts @ cho_solve(cho_factor(wide), contrasts.T)


def _tail(
    weights: FloatArray, residual: FloatArray, covariance: FloatArray, excess: float
) -> float:
    """Return the p-value of a residual, by a scaled χ²; `excess` is what fourth cumulants add to the variance."""
    product = weights @ covariance
    degrees = float(np.trace(product))
    variance = 2 * float((product * product.T).sum()) + excess
    scale = variance / (2 * degrees)
    value = max(float(residual @ weights @ residual), 0.0)
    return float(chdtrc(degrees / scale, value / scale))
