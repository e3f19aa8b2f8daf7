r"""Intervals for couplings learned by private Frank-Wolfe, to first order, from the search's expected path.

`bayesprivmrf.learning.frank_wolfe.expected_path` tells what a release is on average under a model with couplings A
whose margins are the measured ones, and how its errors arise. Both nodes of a pair are averaged,
:math:`\bar A_{ij} = (w_{ij} + w_{ji}) / 4`, and so are D, V and the influence of a record.

1. Newton's method finds the couplings :math:`A_0` with :math:`\bar A(A_0) = \hat A`, the released ones, as far as
   they tell; the fields follow from the measured margins (`frank_wolfe.by_regressions`). This undoes the shrinkage.
2. Near it :math:`\hat A - \bar A(A_0) = \mathcal{D} (A - A_0) + \text{error}`, where :math:`\mathcal{D}` is the
   response to the couplings, the fields moving with them so that margins stay. The error is that of choices, of
   sampling, and of the measured margins' noise and sampling, all as linear maps of the same records.
3. Errors are normal, of covariance :math:`(\mathcal{D}^\top \Sigma^{-1} \mathcal{D} + \tau^{-2})^{-1}` with
   :math:`\tau` half a nat, the deviation of a normal prior of mean 0: an odds ratio, :math:`e^{4A}`, between 1/27
   and 27 with a probability of .9. What the records hardly tell, as of two states that nobody has together, has a
   wide interval and no endless one; a larger coupling there is not held. Limits of fields are those of the normal
   law, limits of couplings bend with the number of people who have both states
   (`bayesprivmrf.learning.frank_wolfe.expected_path`).

4. The mean of a chosen atom is not the atom of the mean score, so that where scores vary much the path is a little
   off: where most pairs have no coupling, those that have one are found sooner than it says. A few releases are
   simulated at :math:`A_0`, by the regressions alone; their mean less the path's is taken off, with its variance.

Expectations are over records drawn from the model. Their labels are not looked at: the mean of a label
given the features is known, so the path's gradient is 0 at the model's own coefficients, however few they are.

**Where it holds.** The walk must settle: with few steps, each of them long, choices are far from their linear law,
and a coupling that is not there is hardly ever chosen at all. So there are at least `FEWEST_STEPS` steps, and as
many by the default for this budget and these records. Variables have two states and are measured by themselves, and
there are at most `MOST_VARIABLES`, for the maps about the model are of the size of all pairs. And Newton's method
must settle, and explain the released couplings, which it may not where the width was much too small. Elsewhere there
is no such interval, and the calibrated one takes its place. docs/explanation/frank-wolfe.md has measured coverage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from bayesprivmrf.learning.frank_wolfe.by_regressions import fit_fields, singles_plan
from bayesprivmrf.learning.frank_wolfe.expected_path import ExpectedPath, curved_limits, expected_path
from bayesprivmrf.learning.intervals.calibrated import replicates_of
from bayesprivmrf.learning.models.solution import warn_of_chains
from bayesprivmrf.learning.select_measure.measurement import Measured
from bayesprivmrf.model.tables import FloatArray, IntArray

if TYPE_CHECKING:
    from bayesprivmrf.inference.effects_fit.sampled import Fixed
    from bayesprivmrf.learning.models.pairwise import LearnedIsing
    from bayesprivmrf.privacy import DiscreteGaussian

FEWEST_STEPS, MOST_VARIABLES = 50, 50

_DRAWS, _ROWS = 60_000, 8_000  # records drawn; different ones up to which all of them are used
_REPLICATES = 8  # releases that tell what the path leaves out of the mean
_PRIOR = 0.5  # nats
_CLOSE, _UNSETTLED = 0.1, 0.5  # root mean square of a round's steps, in the couplings' deviations
_HALF = 0.5  # records


class PairMap(Protocol):
    """A map by logistic regressions: the part of `PairwiseByPairs` that its intervals need."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def cardinalities(self) -> tuple[int, ...]: ...
    @property
    def eligible(self) -> np.ndarray: ...
    @property
    def is_ising(self) -> bool: ...
    @property
    def singles(self) -> DiscreteGaussian | None: ...
    @property
    def radius(self) -> float: ...

    def steps_for(self, total: float | None) -> int:
        """Return the number of steps for a number of records."""

    def multiple(self, steps: int) -> float:
        """Return the scale of the choices' noise relative to the largest residual."""

    def couplings_of(self, regressed: tuple[FloatArray, FloatArray]) -> Fixed:
        """Return the potentials of pairs."""


def limits(
    learned: LearnedIsing, fitted: PairMap, prob: float, total: float, generator: np.random.Generator
) -> tuple[FloatArray, FloatArray] | None:
    """Return lower and upper limits of all couplings and fields, each in the order of the release's vector.

    ``None`` where they would not hold; see the module.

    Parameters
    ----------
    learned
        The release, with the single variables that it measured.
    fitted
        Its map.
    prob
        Coverage, in (0, 1).
    total
        N, records.
    generator
        Generator of the records drawn from the model.
    """
    if not has_linear_errors(learned, fitted, total):
        return None
    whole = _Linearised(learned, fitted, total, generator)
    whole.find()
    # no linearized limits where a coupling is five standard deviations from its expected value
    if whole.apart > _UNSETTLED or whole.missed > 5.0:
        return None
    whole.simulate()
    return whole.limits(prob)


def has_linear_errors(learned: LearnedIsing, fitted: PairMap, total: float) -> bool:
    """Return True if a release is of the kind, and of the signal, for which the walk is known to first order."""
    if not fitted.is_ising or fitted.singles is None or learned.statistics is None or learned.total is None:
        return False
    if len(fitted.cardinalities) > MOST_VARIABLES or not fitted.eligible.any():
        return False
    by_default = replace(fitted, steps=None)
    return min(fitted.steps_for(total), by_default.steps_for(total)) >= FEWEST_STEPS


class _Linearised:
    """A release, the model whose releases are on average like it, and the linear maps about it."""

    def __init__(
        self, learned: LearnedIsing, fitted: PairMap, total: float, generator: np.random.Generator
    ) -> None:
        assert learned.statistics is not None
        assert fitted.singles is not None
        self.learned, self.fitted, self.total, self.generator = learned, fitted, total, generator
        self.plan = singles_plan(fitted.cardinalities, fitted.singles)
        self.sums = np.asarray(learned.statistics.measurements[0].values, dtype=np.int64)
        steps = fitted.steps_for(learned.total)
        self.search: dict[str, Any] = {
            "radius": fitted.radius,
            "steps": steps,
            "multiple": fitted.multiple(steps),
        }
        p = len(self.sums)
        rows, columns = np.triu_indices(p, 1)
        kept = fitted.eligible[rows, columns]
        self.rows, self.columns = rows[kept], columns[kept]
        self.mask = np.column_stack([fitted.eligible, np.ones(p)]).astype(float)

    def find(self) -> None:
        """Newton's method for the likeliest couplings whose releases are on average the given ones."""
        A, h = self.learned.coupling_matrix.copy(), self.learned.field_vector.copy()
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
        self.A, self.h = A, h

    def linearise(self, A: FloatArray, h: FloatArray) -> None:
        """Draw records from a model, and find the expected path there and the maps from changes to answers."""
        model = self.learned.with_parameters((A, h))
        codes, has_mixed = model.solution.codes(_DRAWS, self.generator)
        if not has_mixed:
            warn_of_chains()
        different, counts = _different(codes)
        if len(different) > _ROWS:
            different, counts = codes[:_ROWS], np.ones(_ROWS)
        self.spins = 2.0 * different - 1.0
        self.weights: FloatArray = np.asarray(counts * (self.total / counts.sum()), dtype=np.float64)
        self.features = np.column_stack([self.spins, np.ones(len(self.spins))])
        self.truth = 2 * np.column_stack([A, h])
        self.path = expected_path(self.features, self.weights, self.truth, self.mask, **self.search)
        share = self.weights / self.total
        centred = self.spins - share @ self.spins
        self.spread = (centred * share[:, None]).T @ centred
        products = self.spins[:, self.rows] * self.spins[:, self.columns]
        crossed = (centred * share[:, None]).T @ products
        self.follows = -np.linalg.solve(self.spread, crossed)  # fields by couplings, margins held: (p, P)
        self.by_field = self._by_field(self.path)
        self.response = self._by_couplings(self.path) + self.by_field @ self.follows
        self.error = self._error(centred, share)
        # the tiny diagonal makes a singular matrix solvable
        self.weighed = np.linalg.solve(self.error + 1e-12 * np.eye(len(self.error)), self.response).T
        precision = self.weighed @ self.response + np.eye(len(self.error)) / _PRIOR**2
        self.covariance = np.linalg.inv((precision + precision.T) / 2)

    def _pairs(self, matrix: FloatArray) -> FloatArray:
        return matrix[self.rows, self.columns]

    @staticmethod
    def _both(w: FloatArray) -> FloatArray:
        """Couplings from both nodes' coefficients."""
        return (w + w.T) / 4

    def _place(self) -> IntArray:
        """Place of each pair of a node and another, -1 where there is none: shape (p, p)."""
        p = len(self.sums)
        found = np.full((p, p), -1, dtype=np.int64)
        found[self.rows, self.columns] = found[self.columns, self.rows] = np.arange(self.rows.size)
        return found

    def _by_couplings(self, path: ExpectedPath) -> FloatArray:
        """Response of the pairs' answers to the couplings alone, shape (P, P)."""
        found, place = np.zeros((self.rows.size, self.rows.size)), self._place()
        for i, own in enumerate(place):
            others = np.flatnonzero(own >= 0)
            found[np.ix_(own[others], own[others])] += path.response[i][np.ix_(others, others)] / 2
        return found

    def _by_field(self, path: ExpectedPath) -> FloatArray:
        """Response of the pairs' answers to the fields alone, shape (P, p)."""
        found = np.zeros((self.rows.size, len(self.sums)))
        for own, other in ((self.rows, self.columns), (self.columns, self.rows)):
            found[np.arange(own.size), own] += path.response[own, other, -1] / 2
        return found

    def _error(self, centred: FloatArray, share: FloatArray) -> FloatArray:
        """Covariance of the pairs' answers about the expected ones, given couplings: shape (P, P)."""
        found, place = np.zeros((self.rows.size, self.rows.size)), self._place()
        for i, own in enumerate(place):
            others = np.flatnonzero(own >= 0)
            found[np.ix_(own[others], own[others])] += self.path.choices[i][np.ix_(others, others)] / 16
        self.by_choices = found
        self.residuals = (self.spins - np.tanh(self.features @ self.truth.T / 2)) / 2
        # a record's part in the fields' error
        self.margin = np.linalg.solve(self.spread, centred.T).T / self.total
        influence = -self.margin @ self.by_field.T
        moved = np.einsum("ijk,rk->rij", self.path.sensitivity[:, :-1], self.features, optimize=True)
        moved *= self.residuals[:, :, None]
        influence += (moved[:, self.rows, self.columns] + moved[:, self.columns, self.rows]) / 4
        self.influence = influence
        mean, law = share @ self.spins, self.learned.total_noise
        noise = self.plan.one_way.variance * np.eye(mean.size)
        noise += (0.0 if law is None else law.variance) * np.multiply.outer(mean, mean)
        inverse = np.linalg.inv(self.spread) / self.total
        self.field_noise = inverse @ noise @ inverse.T
        sampling = (influence * self.weights[:, None]).T @ influence
        return found + sampling + self.by_field @ self.field_noise @ self.by_field.T

    def fields(self, A: FloatArray, start: FloatArray) -> FloatArray:
        """Return the fields that give couplings the measured margins."""
        none = np.zeros((0, 2), dtype=np.int64)
        measured = Measured(one_way=self.sums, pairs=none, two_way=self.sums[:0])
        spins = np.array([-1.0, 1.0])
        W = np.asarray(np.kron(A, np.outer(spins, spins)), dtype=np.float64)
        begin = np.asarray(np.kron(start, spins), dtype=np.float64)
        total = self.learned.total or self.total
        return fit_fields(measured, self.plan, total, self.fitted.couplings_of((W, begin)), begin).fields[
            1::2
        ]

    def simulate(self) -> None:
        """Find what the expected path leaves out of the mean answer, from a few releases of the regressions alone."""
        model = self.learned.with_parameters((self.A, self.h))
        alone = replace(model, map=replace(self.fitted, singles=None))
        draws = replicates_of(alone, _REPLICATES, self.generator, self.total)
        mean = np.mean([self._pairs(draw.coupling_matrix) for draw in draws], axis=0)
        self.missing = mean - self._pairs(self._both(self.path.mean[:, :-1]))

    def limits(self, prob: float) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper limits of all couplings and fields, each in the order of the release's vector."""
        from scipy.stats import norm

        A, covariance, h, spread = self.law()
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

    def law(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return mean and covariance of the pairs' couplings, and mean and variance of the fields."""
        gain = self.covariance @ self.weighed  # from the answers' error to the couplings'
        shift = gain @ self.missing
        noisier = gain @ (self.error / _REPLICATES) @ gain.T  # of the mean of so many releases
        # fields: the margins' error, and what follows from the couplings' error, by the same records and noise
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


def _different(codes: np.ndarray) -> tuple[np.ndarray, IntArray]:
    """Return the different rows of zeros and ones, and how often each occurs."""
    packed = np.packbits(codes.astype(bool), axis=1)
    keys = np.ascontiguousarray(packed).view([("", f"V{packed.shape[1]}")]).ravel()
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    return codes[first], counts
