r"""First-order intervals for couplings learned by private Frank-Wolfe, from the expected path of the search.

`bayesprivmrf.learning.frank_wolfe.expected_path` computes the expected release under a model with couplings A and the
measured margins, and the covariance of its errors. Both nodes of a pair are averaged,
:math:`\bar A_{ij} = (w_{ij} + w_{ji}) / 4`, and so are the response D, the covariance V of the choices and the
influence of a record.

1. Newton's method finds the couplings :math:`A_0` whose expected release :math:`\bar A(A_0)` is the released
   :math:`\hat A`, as far as the release determines them. The fields follow from the measured margins
   (`frank_wolfe.by_regressions`). This step undoes the shrinkage.
2. Near :math:`A_0`, :math:`\hat A - \bar A(A_0) = \mathcal{D} (A - A_0) + \text{error}`. Here :math:`\mathcal{D}`
   is the response to the couplings when the fields move with them so that margins stay the same. The error comes from
   the choices, from sampling, and from the noise and sampling of the measured margins; all are linear in the records.
3. Errors are treated as normal with covariance :math:`(\mathcal{D}^\top \Sigma^{-1} \mathcal{D} + \tau^{-2})^{-1}`.
   The normal prior of mean 0 has standard deviation :math:`\tau` = 0.5 nats: an odds ratio :math:`e^{4A}` is between
   1/27 and 27 with probability 0.9. Where records carry little information, as on two states that never occur
   together, the interval is wide but finite, and does not cover a larger coupling. Limits of fields are normal.
   Limits of couplings account for the number of records that have both states (`curved_limits`).
4. The mean of the chosen atoms differs from the atom of the mean score. Where most pairs have no coupling, the
   existing couplings are therefore found sooner than the expected path says. Eight releases are simulated at
   :math:`A_0`, by the regressions alone. Their mean minus that of the path is subtracted, and its variance added.

Expectations are over records drawn from the model. Their labels are not used: the mean of a label given the features
is known, so the gradient of the path is 0 at the model's own coefficients however few records are drawn.

**Conditions.** The search must be close to its linear approximation. With few, long steps it is not, and a coupling
of 0 is hardly ever chosen. The method therefore requires at least `_FEWEST_STEPS` steps, also by the default for this
budget and number of records; two states a variable, with single variables measured; and at most `_MOST_VARIABLES`
variables, because the linear maps have a row for each pair. Newton's method must converge and explain the released
couplings, which may fail where the width was much too small. Otherwise `couplings_interval` uses the calibrated
method. docs/explanation/frank-wolfe.md reports the measured coverage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.learning.calibrated import distinct_rows, replicates_of
from bayesprivmrf.learning.frank_wolfe.by_regressions import fit_fields, singles_plan
from bayesprivmrf.learning.frank_wolfe.expected_path import Walk, curved_limits, expected_path
from bayesprivmrf.learning.models.solution import warn_of_chains
from bayesprivmrf.learning.select_measure.measurement import Measured
from bayesprivmrf.model.tables import FloatArray, IntArray

if TYPE_CHECKING:
    from bayesprivmrf.learning.models.pairwise import LearnedIsing

# Fewest steps of the search, and most variables, for which intervals follow from the expected path
_FEWEST_STEPS = 50
_MOST_VARIABLES = 50

_DRAWS, _ROWS = 60_000, 8_000  # records drawn; all of them are used if at most 8,000 are distinct
_REPLICATES = 8  # simulated releases that estimate the bias of the expected path
_PRIOR = 0.5  # standard deviation of the prior of a coupling, nats
# root mean square step of a round, in standard errors: converged below the first, given up above the second
_CLOSE, _UNSETTLED = 0.1, 0.5
_HALF = 0.5  # records, so that a share is never 0 or 1


def limits(
    learned: LearnedIsing, fitted: Any, prob: float, total: float, generator: np.random.Generator
) -> tuple[FloatArray, FloatArray] | None:
    """Return lower and upper limits of all couplings and fields, or ``None`` if the module's conditions fail.

    Parameters
    ----------
    learned
        The release, with its measured single variables.
    fitted
        The map that made the release.
    prob
        Coverage, in (0, 1).
    total
        Number of records N.
    generator
        Generator for the records drawn from the model.

    Returns
    -------
    Two arrays in the order of the release's vector, nats.
    """
    if (
        not fitted.is_ising
        or fitted.singles is None
        or learned.statistics is None
        or learned.total is None
    ):
        return None
    if len(fitted.cardinalities) > _MOST_VARIABLES or not fitted.eligible.any():
        return None
    by_default = replace(fitted, steps=None)
    if min(fitted.steps_for(total), by_default.steps_for(total)) < _FEWEST_STEPS:
        return None
    whole = _Linearised(learned, fitted, total, generator)
    whole.find()
    # no linearized limits where a coupling is five standard deviations from its expected value
    if whole.apart > _UNSETTLED or whole.missed > 5.0:
        return None
    whole.simulate()
    return whole.limits(prob)


class _Linearised:
    """Linearization of the map at the model whose expected release is the given one."""

    def __init__(
        self, learned: LearnedIsing, fitted: Any, total: float, generator: np.random.Generator
    ) -> None:
        assert learned.statistics is not None
        assert fitted.singles is not None
        self.learned = learned
        self.fitted = fitted
        self.total = total
        self.generator = generator
        self.plan = singles_plan(fitted.cardinalities, fitted.singles)
        self.sums = np.asarray(learned.statistics.measurements[0].values, dtype=np.int64)
        steps = fitted.steps_for(learned.total)
        self.search = Walk(radius=fitted.radius, steps=steps, multiple=fitted.multiple(steps))
        p = len(self.sums)
        rows, columns = np.triu_indices(p, 1)
        kept = fitted.eligible[rows, columns]
        self.rows = rows[kept]
        self.columns = columns[kept]
        self.mask = np.column_stack([fitted.eligible, np.ones(p)]).astype(float)

    def find(self) -> None:
        """Find couplings whose expected release is the given one, by Newton's method."""
        A = self.learned.coupling_matrix.copy()
        h = self.learned.field_vector.copy()
        wanted = self._pairs(A)
        # at most six linearizations; arbitrary
        for remaining in reversed(range(6)):
            self.linearise(A, h)
            gap = wanted - self._pairs(self._both(self.path.mean[:, :-1]))
            step = self.covariance @ (self.weighed @ gap - self._pairs(A) / _PRIOR**2)
            self.missed = float((np.abs(gap) / np.sqrt(self.error.diagonal())).max(initial=0.0))
            self.apart = float(np.sqrt(np.mean(step**2 / self.covariance.diagonal())))
            if self.apart < _CLOSE or not remaining:
                break
            # no coupling moves by more than half a nat in one round
            step *= min(1.0, 0.5 / max(float(np.abs(step).max(initial=0.0)), 1e-12))
            A[self.rows, self.columns] += step
            A[self.columns, self.rows] += step
            h = self.fields(A, h + self.follows @ step)
        self.A = A
        self.h = h

    def linearise(self, A: FloatArray, h: FloatArray) -> None:
        """Draw records from a model, and compute the expected path and its derivatives there."""
        model = self.learned.with_parameters((A, h))
        codes, has_mixed = model.solution.codes(_DRAWS, self.generator)
        if not has_mixed:
            warn_of_chains()
        different, counts = distinct_rows(codes)
        if len(different) > _ROWS:
            different = codes[:_ROWS]
            counts = np.ones(_ROWS)
        self.spins = 2.0 * different - 1.0
        self.weights: FloatArray = np.asarray(
            counts * (self.total / counts.sum()), dtype=np.float64
        )
        self.features = np.column_stack([self.spins, np.ones(len(self.spins))])
        self.truth = 2 * np.column_stack([A, h])
        self.path = expected_path(self.features, self.weights, self.truth, self.mask, self.search)
        share = self.weights / self.total
        centred = self.spins - share @ self.spins
        self.spread = (centred * share[:, None]).T @ centred
        products = self.spins[:, self.rows] * self.spins[:, self.columns]
        crossed = (centred * share[:, None]).T @ products
        # fields by couplings, margins held: (p, P)
        self.follows = -np.linalg.solve(self.spread, crossed)
        pairs = self.rows.size
        response = self.path.response
        place = self._place()
        # response of the released couplings to the fields alone, and to the couplings alone
        self.by_field, by_couplings = np.zeros((pairs, len(self.sums))), np.zeros((pairs, pairs))
        for own, other in ((self.rows, self.columns), (self.columns, self.rows)):
            self.by_field[np.arange(pairs), own] += response[own, other, -1] / 2
        for node, own in enumerate(place):
            others = np.flatnonzero(own >= 0)
            by_couplings[np.ix_(own[others], own[others])] += (
                response[node][np.ix_(others, others)] / 2
            )
        self.response = by_couplings + self.by_field @ self.follows
        self.error = self._error(centred, share)
        # the tiny diagonal makes a singular matrix solvable
        self.weighed = np.linalg.solve(
            self.error + 1e-12 * np.eye(len(self.error)), self.response
        ).T
        precision = self.weighed @ self.response + np.eye(len(self.error)) / _PRIOR**2
        self.covariance = np.linalg.inv((precision + precision.T) / 2)

    def _pairs(self, matrix: FloatArray) -> FloatArray:
        return matrix[self.rows, self.columns]

    @staticmethod
    def _both(w: FloatArray) -> FloatArray:
        """Return couplings as the average of both nodes' coefficients."""
        return (w + w.T) / 4

    def _place(self) -> IntArray:
        """Return the position of each pair of nodes among the eligible pairs, -1 for others: shape (p, p)."""
        p = len(self.sums)
        found = np.full((p, p), -1, dtype=np.int64)
        found[self.rows, self.columns] = found[self.columns, self.rows] = np.arange(self.rows.size)
        return found

    def _error(self, centred: FloatArray, share: FloatArray) -> FloatArray:
        """Return the covariance of the released couplings given the true ones, shape (P, P)."""
        found = np.zeros((self.rows.size, self.rows.size))
        place = self._place()
        for i, own in enumerate(place):
            others = np.flatnonzero(own >= 0)
            found[np.ix_(own[others], own[others])] += (
                self.path.choices[i][np.ix_(others, others)] / 16
            )
        self.by_choices = found
        self.residuals = (self.spins - np.tanh(self.features @ self.truth.T / 2)) / 2
        # influence of each record on the error of the fields
        self.margin = np.linalg.solve(self.spread, centred.T).T / self.total
        influence = -self.margin @ self.by_field.T
        moved = np.einsum(
            "ijk,rk->rij", self.path.sensitivity[:, :-1], self.features, optimize=True
        )
        moved *= self.residuals[:, :, None]
        influence += (moved[:, self.rows, self.columns] + moved[:, self.columns, self.rows]) / 4
        self.influence = influence
        mean = share @ self.spins
        law = self.learned.total_noise
        noise = self.plan.one_way.variance * np.eye(mean.size)
        noise += (0.0 if law is None else law.variance) * np.multiply.outer(mean, mean)
        inverse = np.linalg.inv(self.spread) / self.total
        self.field_noise = inverse @ noise @ inverse.T
        sampling = (influence * self.weights[:, None]).T @ influence
        return found + sampling + self.by_field @ self.field_noise @ self.by_field.T

    def fields(self, A: FloatArray, start: FloatArray) -> FloatArray:
        """Return the fields for which a model with given couplings has the measured margins."""
        none = np.zeros((0, 2), dtype=np.int64)
        measured = Measured(one_way=self.sums, pairs=none, two_way=self.sums[:0])
        spins = np.array([-1.0, 1.0])
        W = np.asarray(np.kron(A, np.outer(spins, spins)), dtype=np.float64)
        begin = np.asarray(np.kron(start, spins), dtype=np.float64)
        total = self.learned.total or self.total
        return fit_fields(
            measured, self.plan, total, self.fitted.couplings_of((W, begin)), begin
        ).fields[1::2]

    def simulate(self) -> None:
        """Estimate the bias of the expected path from eight simulated releases of the regressions alone."""
        model = self.learned.with_parameters((self.A, self.h))
        alone = replace(model, map=replace(self.fitted, singles=None))
        draws = replicates_of(alone, _REPLICATES, self.generator, self.total)
        mean = np.mean([self._pairs(draw.coupling_matrix) for draw in draws], axis=0)
        self.missing = mean - self._pairs(self._both(self.path.mean[:, :-1]))

    def limits(self, prob: float) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper limits of all couplings and fields, each in the order of the release's vector."""
        from scipy.stats import norm

        A, covariance, h, spread = self.normal_approximation()
        margins = self.sums / (self.learned.total or self.total)
        q = np.clip((1 + margins) / 2, _HALF / self.total, 1 - _HALF / self.total)
        by_choices = np.clip(self.by_choices.diagonal() / self.error.diagonal(), 0.0, 1.0)
        shares = q[self.rows], q[self.columns]
        pairs = curved_limits(A, np.sqrt(covariance.diagonal()), _PRIOR, shares, by_choices, prob)
        half = float(norm.isf((1 - prob) / 2)) * np.sqrt(spread)
        low, high = (
            self.learned.flat(self._matrix(end), field)
            for end, field in zip(pairs, (h - half, h + half), strict=True)
        )
        return low, high

    def normal_approximation(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return mean and covariance of the pairs' couplings, and mean and variance of the fields."""
        # gain: the map from errors of the released couplings to errors of the estimated ones
        gain = self.covariance @ self.weighed
        shift = gain @ self.missing
        # variance of the bias estimate, a mean of few releases
        noisier = gain @ (self.error / _REPLICATES) @ gain.T
        # error of the fields: that of the margins plus the effect of errors in couplings, from the same records
        onwards = self.follows @ gain
        by_record = self.margin + self.influence @ onwards.T
        field = (by_record * self.weights[:, None]).T @ by_record
        by_noise = np.eye(len(self.h)) - onwards @ self.by_field
        field += by_noise @ self.field_noise @ by_noise.T + onwards @ self.by_choices @ onwards.T
        pulled = self.follows @ self.covariance / _PRIOR
        field += pulled @ pulled.T + self.follows @ noisier @ self.follows.T
        return (
            self._pairs(self.A) - shift,
            self.covariance + noisier,
            self.h - self.follows @ shift,
            field.diagonal(),
        )

    def _matrix(self, values: FloatArray) -> FloatArray:
        """Return the pairs' values as a symmetric matrix, 0 elsewhere."""
        found = np.zeros_like(self.A)
        found[self.rows, self.columns] = found[self.columns, self.rows] = values
        return found
