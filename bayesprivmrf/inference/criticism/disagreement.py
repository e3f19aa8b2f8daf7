r"""Test of released numbers against each other, whatever the model, by margins that several tables share.

A margin shared by tables i is :math:`y_i = m + η_i` in each of its cells, where :math:`η_i` is the sum of the noise
of the cells of table i that add up to it. With precisions :math:`p_i` and :math:`w_i = p_i / \sum_j p_j`, the
contrast

.. math:: r_i = y_i - \sum_j w_j y_j = \sum_j c_{ij} η_j, \qquad c_{ij} = δ_{ij} - w_j,

consists of noise only: it depends on no model, prior or estimate. With :math:`K_j(t) = \log E e^{t η_j}`, for which
each distribution has a bound (`NoiseDistribution.log_moment`), Chernoff's and Chebyshev's bounds on both tails give

.. math:: P(|r_i| \ge x) \le \min\Bigl(2 \exp\bigl\{\min_t \sum_j K_j(c_{ij} t) - t x\bigr\},
          \operatorname{var}(r_i) / x^2\Bigr),

a decreasing function of x. At the observed contrast it is a valid p-value, at any level and for any noise. A scaled
χ² approximation with the variance and kurtosis of :math:`\sum r^2` is not valid: it fails in the far tails of Laplace
noise, and for discrete noise that is mostly zero.

The cells of a margin contain different noise, so their p-values are independent. Two combinations are used for k
cells: Fisher's, :math:`-2 \sum \log p` against :math:`χ^2_{2k}`, for tables that differ everywhere, and k times the
smallest for tables that differ in one cell. Twice the smaller of the two is a p-value again; multiplied by the number
of contrasts it is the p-value of the margin. A contrast within two standard deviations is skipped: its p-value is 1.

Answers other than whole tables are tested by the residuals of least squares over all tables that agree with
each other (`least_squares`): :math:`r = (1 - U U') D^{-1/2} y`, with U a basis of the answers of such tables. Each
residual is a contrast of noise like the others; the p-value is the smallest one times their number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from scipy.special import chdtrc

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.projection import noise_residuals
from bayesprivmrf.model.tables import FloatArray, project
from bayesprivmrf.noise import NoiseDistribution

# Tail probability, divided by the number of tests, below which noisy numbers do not describe the same records
SMALLEST_TAIL = 1e-5
# Largest number of answers and of effects for which residuals of answers other than tables are judged
LARGEST = 400

# Standard deviations from which a contrast is judged
_LOOKED_AT = 2.0


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedMargin:
    """Margin that several released tables share, each with its own noise.

    Parameters
    ----------
    label
        ``margin[a,b]``, of a wave ``margin[a,b] of wave 2``.
    variables
        Positions of its variables.
    positions, scopes
        The tables, and the variables of each, in the order of its axes.
    noisy
        The margin of each table, shape (tables, ...).
    cells
        Number of possible cells that each number adds up, of that shape.
    laws
        Noise distribution of a cell in each table.
    """

    label: str
    variables: tuple[int, ...]
    positions: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    noisy: FloatArray
    cells: FloatArray
    laws: tuple[NoiseDistribution, ...]

    @cached_property
    def _own(self) -> FloatArray:
        """Noise variances of one cell of each table, records squared, shape (tables, 1, ...)."""
        own = np.array([law.variance for law in self.laws])
        return own.reshape(-1, *(1,) * (self.cells.ndim - 1))

    @cached_property
    def variances(self) -> FloatArray:
        """Noise variances of the numbers, records squared; infinite where no cell may occur."""
        # a table without noise gets a variance so small that it dominates the mean
        own = np.maximum(self._own, 1e-6 * self._own[self._own > 0].min())
        return np.where(self.cells > 0, own * self.cells, np.inf)

    def tail(self, margins: FloatArray | None = None) -> FloatArray:
        """Return p-values of margins, shape (tables, ..., cells), or of the released ones; at most 1."""
        margins = self.noisy if margins is None else margins
        tables, lead = len(self.positions), margins.shape[1 : margins.ndim - self.noisy.ndim + 1]
        possible = self.cells[0].ravel() > 0
        numbers = margins.reshape(tables, *lead, -1)[..., possible]
        precision = 1 / self.variances.reshape(tables, -1)[:, possible]
        share = precision / precision.sum(axis=0)
        contrasts = numbers - np.einsum("tc,t...c->...c", share, numbers)
        # smaller contrasts are rounding errors of the numbers whose differences they are
        contrasts[np.abs(contrasts) < 1e-13 * np.abs(numbers).max(axis=0)] = 0.0
        cells = self.cells.reshape(tables, -1)[:, possible]
        noise = self._own.reshape(tables, 1) * cells
        deviations = np.sqrt(np.maximum(noise * (1 - 2 * share) + (noise * share**2).sum(axis=0), 0.0))
        noisy = [place for place, law in enumerate(self.laws) if law.variance > 0]
        # two tables have one contrast, whose rounding is least beside the larger noise
        judged = [max(noisy, key=lambda place: self.laws[place].variance)] if tables == 2 else noisy
        smallest = np.ones(lead)
        for place in judged:
            own, deviation = contrasts[place], deviations[place]
            if (np.abs(own) > _LOOKED_AT * deviation).any():
                weights = (np.arange(tables) == place)[:, np.newaxis] - share
                tails = _log_tails(own, deviation, self._log_moments(weights, cells))
                smallest = np.minimum(smallest, _combined(tails))
        return np.minimum(1.0, len(judged) * smallest)

    def _log_moments(self, weights: FloatArray, cells: FloatArray) -> Callable[[int, FloatArray], FloatArray]:
        """Return bounds of the log moments of a cell's contrast at some rates; similar cells have the same."""
        known: dict[bytes, FloatArray] = {}

        def bounds(place: int, rates: FloatArray) -> FloatArray:
            key = weights[:, place].tobytes() + cells[:, place].tobytes()
            if key not in known:
                numbers = (weights[:, place].tolist(), cells[:, place].tolist())
                parts = Counter(
                    zip(self.laws, *numbers, strict=True)
                )  # identical tables are counted together
                moments = [
                    tables * count * law.log_moment(weight * rates)
                    for (law, weight, count), tables in parts.items()
                    if count > 0
                ]
                known[key] = np.sum(moments, axis=0)
            return known[key]

        return bounds

    def farthest(self) -> tuple[int, int]:
        """Return the positions of the two tables that differ most in a number, in deviations of their noise."""

        def apart(places: tuple[int, int]) -> float:
            one, other = places
            deviations = np.sqrt(self.variances[one] + self.variances[other])
            return float((np.abs(self.noisy[one] - self.noisy[other]) / deviations).max())

        return max(combinations(range(len(self.positions)), 2), key=apart)

    def discrepancy(self, margins: FloatArray) -> FloatArray:
        """Return the precision-weighted squared distance of margins, shape (tables, ..., cells), from their mean."""
        extra = margins.ndim - self.noisy.ndim
        precision = 1 / np.expand_dims(self.variances, tuple(range(1, 1 + extra)))
        mean = (precision * margins).sum(axis=0) / np.maximum(precision.sum(axis=0), 1e-300)
        axes = (0, *range(-(margins.ndim - 1 - extra), 0))
        return (precision * (margins - mean) ** 2).sum(axis=axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Worst disagreement between the numbers of one release or of several.

    Parameters
    ----------
    label
        Description of these numbers.
    tail
        Their p-value.
    tests
        Number of tests of which it is the smallest.
    between
        The two measurements that are farthest apart, in words; empty where they are not determined.
    """

    label: str
    tail: float
    tests: int
    between: str = ""

    @property
    def is_real(self) -> bool:
        """True if noise does not explain the disagreement."""
        return self.tail * self.tests < SMALLEST_TAIL

    def __str__(self) -> str:
        """Return the disagreement in words, with its remedy."""
        most = f", most of all {self.between}" if self.between else ""
        return (
            f"released tables disagree on {self.label} by more than their noise{most} (tail probability "
            f"{self.tail:.1g}, smallest of {self.tests}): they do not describe the same records, or their "
            "noise has another distribution; fit the releases apart, or ask who made them"
        )


def disagreement(evidence: Evidence) -> Disagreement | None:
    """Return the worst disagreement of all released numbers; None where no number was measured twice."""
    margins = shared_margins(evidence)
    found = [*((margin.label, float(margin.tail())) for margin in margins), *_residual(evidence)]
    if not found:
        return None
    worst = min(range(len(found)), key=lambda place: found[place][1])
    label, tail = found[worst]
    least = Disagreement(label=label, tail=tail, tests=len(found))
    if worst >= len(margins) or not least.is_real:
        return least
    places = margins[worst].farthest()
    return replace(least, between=" and ".join(evidence.name_of(margins[worst].positions[k]) for k in places))


def shared_margins(evidence: Evidence) -> list[SharedMargin]:
    """Return every margin that two released tables of the same people share, with all tables that contain it."""
    holders: dict[tuple[int | None, int], set[int]] = defaultdict(set)
    scopes: dict[int, tuple[int, ...]] = {}
    wave_of: dict[int, int | None] = {}
    for position, law in enumerate(evidence.noise):
        wave, scope = evidence.table_at(position)
        if scope is None or law.kernel == "within":
            continue
        wave_of[position], scopes[position] = wave, scope
        for variable in scope:
            holders[wave, variable].add(position)
    pairs = {pair: None for own in holders.values() for pair in combinations(sorted(own), 2)}
    shared = {(wave_of[one], frozenset(scopes[one]) & frozenset(scopes[other])): None for one, other in pairs}
    found = []
    for wave, overlap in shared:
        variables = tuple(sorted(overlap))
        positions = sorted(set.intersection(*(holders[wave, v] for v in variables)))
        if any(evidence.noise[p].variance > 0 for p in positions):
            found.append(_margin(evidence, wave, variables, {p: scopes[p] for p in positions}))
    return found


def _margin(
    evidence: Evidence, wave: int | None, variables: tuple[int, ...], scopes: dict[int, tuple[int, ...]]
) -> SharedMargin:
    domain, noisy, cells = evidence.specification.domain, [], []
    cardinalities = domain.cardinalities
    for position, scope in scopes.items():
        block = slice(*evidence.offsets[position : position + 2])
        shape = [cardinalities[v] for v in scope]
        table, mask = evidence.noisy_counts[block].reshape(shape), evidence.possible[block].reshape(shape)
        if mask.all():
            noisy.append(project(table, scope, variables))
            cells.append(np.full(noisy[-1].shape, table.size / max(noisy[-1].size, 1)))
        else:
            noisy.append(project(table * mask, scope, variables))
            cells.append(project(mask.astype(float), scope, variables))
    names = ",".join(str(domain.variables[v]) for v in variables)
    return SharedMargin(
        label=f"margin[{names}]" + ("" if wave is None else f" of wave {wave}"),
        variables=variables,
        positions=tuple(scopes),
        scopes=tuple(scopes.values()),
        noisy=np.stack(noisy),
        cells=np.stack(cells),
        laws=tuple(evidence.noise[p] for p in scopes),
    )


def _residual(evidence: Evidence) -> list[tuple[str, float]]:
    """Return the answer that the others contradict most, and its p-value; none if all are tables, or too many."""
    if evidence.queries is None or evidence.is_weighed or evidence.has_bounds:
        return []
    is_of_tables = all(evidence.table_at(place)[1] is not None for place in range(len(evidence.noise)))
    if is_of_tables or (found := noise_residuals(evidence, LARGEST)) is None:
        return []
    residuals, weights, seen = found
    laws = [evidence.noise[p] for p in np.searchsorted(evidence.offsets, seen, side="right") - 1]
    deviations = np.array([law.standard_deviation for law in laws])

    def log_moments(place: int, rates: FloatArray) -> FloatArray:
        used = np.flatnonzero(np.abs(weights[place]) > 1e-12)
        return np.sum([laws[k].log_moment(weights[place, k] / deviations[k] * rates) for k in used], axis=0)

    deviation = np.sqrt(np.square(weights).sum(axis=1))
    # a smaller share of a table's own noise in a contrast counts as zero
    told = np.flatnonzero(deviation > 1e-4)
    if not told.size:
        return []
    tails = _log_tails(residuals[told], deviation[told], lambda place, rates: log_moments(told[place], rates))
    worst = int(seen[told[int(np.argmin(tails))]])
    query = evidence.queries[int(np.searchsorted(evidence.offsets, worst, side="right")) - 1]
    return [(f"the answers to {query.query!r}", min(1.0, told.size * float(np.exp(tails.min()))))]


def _log_tails(
    contrasts: FloatArray, deviation: FloatArray, log_moments: Callable[[int, FloatArray], FloatArray]
) -> FloatArray:
    """Return logs of p-values of contrasts, shape (..., cells), by Chernoff's and Chebyshev's bounds.

    `log_moments` are those of the contrast in a cell at some rates; its standard deviation is given.
    """
    result = np.zeros(contrasts.shape)
    far = np.abs(contrasts) > _LOOKED_AT * deviation
    for place in np.flatnonzero(far.reshape(-1, far.shape[-1]).any(axis=0) & (deviation > 0)):
        own = np.abs(contrasts[..., place][far[..., place]])
        # t in the module's formula, over the standard deviation of the contrast; any t gives a bound
        rates = np.geomspace(0.3, 80.0, 80) / deviation[place]
        chernoff = np.log(2) + (log_moments(int(place), rates) - own[..., np.newaxis] * rates).min(axis=-1)
        chebyshev = 2 * np.log(deviation[place] / own)
        result[..., place][far[..., place]] = np.minimum(0.0, np.minimum(chernoff, chebyshev))
    return result


def _combined(log_tails: FloatArray) -> FloatArray:
    """Combine independent p-values, given by their logs, over the last axis; the result may exceed 1."""
    count = log_tails.shape[-1]
    if count == 0:
        return np.ones(log_tails.shape[:-1])
    together = chdtrc(2 * count, -2 * log_tails.sum(axis=-1))
    smallest = count * np.exp(log_tails.min(axis=-1))
    return 2 * np.minimum(together, smallest) if count > 1 else np.exp(log_tails[..., 0])
