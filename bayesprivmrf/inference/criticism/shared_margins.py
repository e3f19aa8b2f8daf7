r"""Margins that several released tables share, and how far apart they are.

`bayesprivmrf.inference.criticism.verdict` derives the test. Which tables share a margin, and which of their cells add
up to it, depends on the layout of the tables alone. It is found once for a layout, so that the contrasts of all
margins take a few operations on whole arrays (`ReleasedMargins`). A margin by itself (`SharedMargin`) is formed only
where its p-value may be below 1, which few of a right release are.

That is known by a lower bound. Normal and Laplace noise, also discrete, have :math:`K(t) \ge \frac12 t^2 σ^2`,
with :math:`σ^2` the variance that is stated. At a contrast of c standard deviations Chernoff's bound is therefore at
least :math:`2 e^{-c^2/2}`, and Chebyshev's is :math:`1/c^2`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within, project
from bayesprivmrf.noise.likelihood import Likelihood
from bayesprivmrf.noise.tails import LOOKED_AT, combined, log_tails

# Variance of a table without noise, as a share of the smallest other one, so that it dominates the mean
_SURE = 1e-6
# Share of a squared bound below which a sum of squares surely stays within it: rounding, and `_SURE`, change less
_NEAR = 0.999
# Lower bound from which a p-value is 1: rounding changes less
_SURELY = 1 + 1e-9
# Contrast, as a share of the numbers whose difference it is, below which it is their rounding error
_ROUNDING = 1e-13
# Largest number of cells, counted once for each margin that they add up to, whose places are kept: 16 MB
_MOST_PLACES = 1_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedMargin:
    """Margin that several released tables share, each with its own noise.

    Parameters
    ----------
    label
        ``margin[a,b]``, of a wave ``margin[a,b] of wave 2``.
    positions
        Positions of the tables in the evidence.
    noisy, cells
        The margin of each table, and the number of possible cells that each number adds up; shape (tables, ...).
    laws
        Noise distribution, or other likelihood, of a cell in each table.
    own
        Variance of a cell that each number adds up, on average, records squared; shape (tables, ...).
    """

    label: str
    positions: tuple[int, ...]
    noisy: FloatArray
    cells: FloatArray
    laws: tuple[Likelihood, ...]
    own: FloatArray

    @cached_property
    def variances(self) -> FloatArray:
        """Noise variances of the numbers, records squared; infinite where no cell may occur."""
        own = np.maximum(self.own, _SURE * self.own[self.own > 0].min())
        return np.where(self.cells > 0, own * self.cells, np.inf)

    @cached_property
    def _possible(self) -> np.ndarray:
        """Mask of the margin's cells that may occur, shape (cells,)."""
        return self.cells[0].ravel() > 0

    @cached_property
    def _precision(self) -> FloatArray:
        """Precision of the possible numbers, shape (tables, possible cells)."""
        return 1 / self.variances.reshape(len(self.positions), -1)[:, self._possible]

    @cached_property
    def _share(self) -> FloatArray:
        """Weight w of each table in the mean, shape (tables, possible cells)."""
        return self._precision / self._precision.sum(axis=0)

    def _contrasts(self, margins: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the possible numbers of margins, shape (tables, ..., possible cells), and their contrasts."""
        lead = margins.shape[1 : margins.ndim - self.noisy.ndim + 1]
        numbers = margins.reshape(len(self.positions), *lead, -1)[..., self._possible]
        return numbers, numbers - np.einsum("tc,t...c->...c", self._share, numbers)

    @cached_property
    def _released(self) -> tuple[FloatArray, FloatArray]:
        """Possible numbers of the released margins, and their contrasts; shapes (tables, possible cells)."""
        return self._contrasts(self.noisy)

    @cached_property
    def strains(self) -> FloatArray:
        """Sum of squared contrasts of the released numbers in units of their noise, shape (possible cells,)."""
        numbers, exact = self._released
        contrasts = np.where(_are_rounding(exact, np.abs(numbers).max(axis=0)), 0.0, exact)
        return (self._precision * np.square(contrasts)).sum(axis=0)

    def tail(self, margins: FloatArray | None = None) -> FloatArray:
        """Return p-values of margins, shape (tables, ..., cells), or of the released ones; at most 1."""
        if margins is None:
            if np.isinf(_floors_of_strains(np.max(self.strains, keepdims=True, initial=0.0))).all():
                return np.ones(())
            numbers, exact = self._released
        else:
            numbers, exact = self._contrasts(margins)
        tables = len(self.positions)
        contrasts = np.where(_are_rounding(exact, np.abs(numbers).max(axis=0)), 0.0, exact)
        share = self._share
        cells = self.cells.reshape(tables, -1)[:, self._possible]
        noise = self.own.reshape(tables, -1)[:, self._possible] * cells
        deviations = np.sqrt(
            np.maximum(noise * (1 - 2 * share) + (noise * share**2).sum(axis=0), 0.0)
        )
        noisy = [place for place, law in enumerate(self.laws) if not law.is_exact]
        # two tables have one contrast, whose rounding is least beside the larger noise
        if tables == 2:
            judged = [max(noisy, key=lambda place: self.own[place].max())]
        else:
            judged = noisy
        smallest = np.ones(contrasts.shape[1:-1])
        for place in judged:
            own = contrasts[place]
            deviation = deviations[place]
            if (np.abs(own) > LOOKED_AT * deviation).any():
                weights = (np.arange(tables) == place)[:, np.newaxis] - share
                tails = log_tails(own, deviation, self.laws, weights, cells)
                smallest = np.minimum(smallest, combined(tails))
        return np.minimum(1.0, len(judged) * smallest)

    def farthest(self) -> tuple[int, int]:
        """Return the positions of the two tables that differ most in a number, in deviations of their noise."""

        def apart(places: tuple[int, int]) -> float:
            one, other = places
            deviations = np.sqrt(self.variances[one] + self.variances[other])
            return float((np.abs(self.noisy[one] - self.noisy[other]) / deviations).max())

        return max(combinations(range(len(self.positions)), 2), key=apart)


class _Overlap(NamedTuple):
    """Tables that share a margin: their wave, the variables of the margin, and the positions of the tables."""

    wave: int | None
    variables: tuple[int, ...]
    positions: tuple[int, ...]


class _Table(NamedTuple):
    """A whole table among the measurements."""

    wave: int | None
    scope: tuple[int, ...]
    is_exact: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class _Layout:
    """Cells of tables that add up to the margins that they share.

    The numbers of all margins are listed by margin, by table and by cell.

    Parameters
    ----------
    overlaps
        The margins.
    sources, targets
        Places of cells among all measured numbers, and the number that each is a part of, shape (places,).
    first
        The number of the first table that is of the same cell of the same margin, shape (numbers,).
    starts, table_starts
        First number of each margin, and of each of its tables; the number of all last.
    first_tables
        First table of each margin among the tables of all margins, shape (margins,).
    """

    overlaps: tuple[_Overlap, ...]
    sources: IntArray
    targets: IntArray
    first: IntArray
    starts: IntArray
    table_starts: IntArray
    first_tables: IntArray

    def summed(self, numbers: FloatArray) -> FloatArray:
        """Return the sums of measured numbers over the cells of all margins, shape (numbers,)."""
        return np.bincount(self.targets, numbers[self.sources], self.first.size)


@lru_cache(maxsize=16)
def _overlaps(tables: tuple[_Table | None, ...]) -> tuple[_Overlap, ...]:
    """Return the margins that several tables of the same people share, but for those of exact tables alone."""
    holders: dict[tuple[int | None, int], set[int]] = defaultdict(set)
    for position, table in enumerate(tables):
        if table is not None:
            for variable in table.scope:
                holders[table.wave, variable].add(position)
    shared = {}
    for own in holders.values():
        for one, other in combinations(sorted(own), 2):
            first = tables[one]
            second = tables[other]
            assert first is not None
            assert second is not None
            shared[first.wave, frozenset(first.scope) & frozenset(second.scope)] = None
    found = []
    for wave, overlap in shared:
        variables = tuple(sorted(overlap))
        common = set.intersection(*(holders[wave, v] for v in variables))
        positions = tuple(sorted(common))
        if not all((table := tables[place]) is None or table.is_exact for place in positions):
            found.append(_Overlap(wave, variables, positions))
    return tuple(found)


@lru_cache(maxsize=16)
def _layout(
    cardinalities: tuple[int, ...], tables: tuple[_Table | None, ...], offsets: tuple[int, ...]
) -> _Layout | None:
    """Return the layout of tables at some offsets; None if it has too many places."""
    overlaps = _overlaps(tables)
    sizes = np.diff(offsets)
    if sum(int(sizes[list(each.positions)].sum()) for each in overlaps) > _MOST_PLACES:
        return None
    sources = [np.zeros(0, int)]
    targets = [np.zeros(0, int)]
    first = [np.zeros(0, int)]
    starts = [0]
    table_starts = [0]
    first_tables = []
    for overlap in overlaps:
        first_tables.append(len(table_starts) - 1)
        cells = math.prod(cardinalities[v] for v in overlap.variables)
        begin = starts[-1]
        for number, position in enumerate(overlap.positions):
            table = tables[position]
            assert table is not None
            inside = cells_within(cardinalities, overlap.variables, table.scope)
            sources.append(np.arange(*offsets[position : position + 2]))
            targets.append(begin + number * cells + inside)
            first.append(begin + np.arange(cells))
            table_starts.append(table_starts[-1] + cells)
        starts.append(begin + cells * len(overlap.positions))
    return _Layout(
        overlaps=overlaps,
        sources=np.concatenate(sources),
        targets=np.concatenate(targets),
        first=np.concatenate(first),
        starts=np.array(starts),
        table_starts=np.array(table_starts),
        first_tables=np.array(first_tables, dtype=int),
    )


class _Strains(NamedTuple):
    """Contrasts of shared margins in units of their noise.

    Parameters
    ----------
    floors
        Lower bound of the p-value of each margin, shape (margins,).
    whole
        Sum of squares of all contrasts.
    contrasts
        Number of contrasts that are free, which is the mean of the sum.
    """

    floors: FloatArray
    whole: float
    contrasts: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedMargins:
    """All margins that released tables share.

    Parameters
    ----------
    evidence
        The releases.
    """

    evidence: Evidence

    @cached_property
    def _tables(self) -> tuple[_Table | None, ...]:
        """Each measurement that is a whole table with noise or without; None of others.

        Sums of ranges are ranges as well: whether others lie in them is tested beside the fit (`noise_misfit`).
        """
        evidence = self.evidence
        is_left_out = evidence.is_bounded | evidence.is_range
        found: list[_Table | None] = []
        for position, law in enumerate(evidence.noise):
            wave, scope = evidence.table_at(position)
            if (
                scope is None
                or is_left_out[slice(*evidence.offsets[position : position + 2])].any()
            ):
                found.append(None)
            else:
                found.append(_Table(wave, scope, law.is_exact))
        return tuple(found)

    @cached_property
    def overlaps(self) -> tuple[_Overlap, ...]:
        """The tables of each margin."""
        return _overlaps(self._tables)

    def __len__(self) -> int:
        """Return the number of margins."""
        return len(self.overlaps)

    @cached_property
    def strains(self) -> _Strains:
        """Contrasts of all margins together, in units of their noise."""
        evidence = self.evidence
        cardinalities = evidence.specification.domain.cardinalities
        layout = _layout(cardinalities, self._tables, evidence.offsets)
        if layout is None:
            return self._strains_of_each()
        return _strains(evidence, layout)

    def _strains_of_each(self) -> _Strains:
        """Return the strains of margins that are formed one by one."""
        each = [margin.strains for margin in map(self.margin, range(len(self)))]
        tables = [len(overlap.positions) for overlap in self.overlaps]
        return _Strains(
            _floors_of_strains(np.array([own.max(initial=0.0) for own in each])),
            float(sum(own.sum() for own in each)),
            sum((held - 1) * own.size for held, own in zip(tables, each, strict=True)),
        )

    def tails(self) -> FloatArray:
        """Return the p-value of each margin, shape (margins,)."""
        found = np.ones(len(self))
        for place in np.flatnonzero(self.strains.floors < _SURELY).tolist():
            found[place] = float(self.margin(place).tail())
        return found

    def label(self, place: int) -> str:
        """Return the name of a margin, such as ``margin[a,b]`` or ``margin[a,b] of wave 2``."""
        overlap = self.overlaps[place]
        variables = self.evidence.specification.domain.variables
        label = f"margin[{','.join(str(variables[v]) for v in overlap.variables)}]"
        if overlap.wave is None:
            return label
        return f"{label} of wave {overlap.wave}"

    def margin(self, place: int) -> SharedMargin:
        """Return a margin by itself."""
        evidence = self.evidence
        overlap = self.overlaps[place]
        noisy = []
        cells = []
        variances = []
        for position in overlap.positions:
            table = self._tables[position]
            assert table is not None
            block = slice(*evidence.offsets[position : position + 2])
            shape = [evidence.specification.cardinalities[v] for v in table.scope]
            mask = evidence.possible[block].reshape(shape)
            numbers = evidence.noisy_counts[block].reshape(shape) * mask
            noisy.append(project(numbers, table.scope, overlap.variables))
            cells.append(_cells_of_margin(mask, table.scope, overlap.variables))
            variances.append(
                _variance_of_cell(evidence, position, mask, cells[-1], overlap.variables)
            )
        return SharedMargin(
            label=self.label(place),
            positions=overlap.positions,
            noisy=np.stack(noisy),
            cells=np.stack(cells),
            laws=tuple(evidence.noise[position] for position in overlap.positions),
            own=np.stack(variances),
        )


def shared_margins(evidence: Evidence) -> list[SharedMargin]:
    """Return every margin that two released tables of the same people share, with all tables that contain it."""
    margins = ReleasedMargins(evidence=evidence)
    return [margins.margin(place) for place in range(len(margins))]


def _strains(evidence: Evidence, layout: _Layout) -> _Strains:
    """Return the strains of the margins of a layout; `SharedMargin.strains` has those of one."""
    if not layout.overlaps:
        return _Strains(np.zeros(0), 0.0, 0)
    possible = evidence.possible.astype(float)
    cells = layout.summed(possible)
    numbers = layout.summed(evidence.noisy_counts * possible)
    variances = layout.summed(evidence.noise_variance * possible)
    # the least variance of a cell with noise stands for no noise, as in `SharedMargin.variances`
    own = variances / np.maximum(cells, 1.0)
    least = np.minimum.reduceat(np.where(own > 0, own, np.inf), layout.starts[:-1])
    own = np.maximum(own, _SURE * np.repeat(least, np.diff(layout.starts)))
    # cells that cannot occur have no precision
    is_possible = (cells > 0) & (cells[layout.first] > 0)
    precision = np.divide(1.0, own * cells, out=np.zeros(cells.size), where=is_possible)
    weight = np.bincount(layout.first, precision, cells.size)
    mean = np.divide(
        np.bincount(layout.first, precision * numbers, cells.size),
        weight,
        out=np.zeros(cells.size),
        where=weight > 0,
    )
    largest = np.zeros(cells.size)
    np.maximum.at(largest, layout.first, np.abs(numbers))
    exact = numbers - mean[layout.first]
    contrasts = np.where(_are_rounding(exact, largest[layout.first]), 0.0, exact)
    by_cell = np.bincount(layout.first, precision * np.square(contrasts), cells.size)
    if evidence.is_additive and (evidence.kernels >= 0).all():
        share = np.divide(
            precision, weight[layout.first], out=np.zeros(cells.size), where=is_possible
        )
        of_cell = np.bincount(layout.first, variances * np.square(share), cells.size)
        spread = np.maximum(variances * (1 - 2 * share) + of_cell[layout.first], 0.0)
        floors = _floors(layout, _squares(contrasts, spread, is_possible), cells[layout.first] > 0)
    else:
        floors = _floors_of_strains(np.maximum.reduceat(by_cell, layout.starts[:-1]))
    is_repeated = (layout.first != np.arange(cells.size)) & (cells[layout.first] > 0)
    return _Strains(floors, float(by_cell.sum()), int(is_repeated.sum()))


def _are_rounding(contrasts: FloatArray, numbers: FloatArray) -> np.ndarray:
    """Return the mask of contrasts that are rounding errors of numbers of some size."""
    return np.abs(contrasts) < _ROUNDING * numbers


def _squares(contrasts: FloatArray, variances: FloatArray, is_told: np.ndarray) -> FloatArray:
    """Return squared contrasts over their variances, 0 where none is told."""
    has_some = is_told & (variances > 0)
    return np.divide(np.square(contrasts), variances, out=np.zeros(contrasts.size), where=has_some)


def _floors_of_strains(largest: FloatArray) -> FloatArray:
    """Return lower bounds of p-values from the largest sum of squares in a cell: no bound, or none is below 1.

    No contrast has a larger square, in units of its variance, than all contrasts of its cell together, so that none
    is judged where that sum is small.
    """
    return np.where(largest < _NEAR * LOOKED_AT**2, np.inf, 0.0)


def _floors(layout: _Layout, squares: FloatArray, is_possible: np.ndarray) -> FloatArray:
    """Return lower bounds of the p-values of the margins, by the lower bounds of the module's docstring.

    Parameters
    ----------
    layout
        The margins.
    squares
        Squared contrasts over their variances, shape (numbers,).
    is_possible
        Mask of the numbers whose cell of the margin may occur, shape (numbers,).
    """
    far = np.flatnonzero(squares > _NEAR * LOOKED_AT**2)
    logs = np.zeros(squares.size)
    own = squares[far]
    logs[far] = np.minimum(0.0, np.minimum(math.log(2) - 0.5 * own, -np.log(own)))
    tables = layout.table_starts[:-1]
    cells = np.add.reduceat(is_possible.astype(float), tables)
    together = chdtrc(2 * cells, -2 * np.add.reduceat(logs, tables))
    lowest = np.minimum.reduceat(logs, tables)
    least = np.exp(lowest)
    of_several = 2 * np.minimum(together, cells * least)
    of_tables = np.select([lowest == 0, cells > 1], [np.inf, of_several], least)
    return np.minimum.reduceat(of_tables, layout.first_tables)


def _cells_of_margin(
    mask: np.ndarray, scope: tuple[int, ...], variables: tuple[int, ...]
) -> FloatArray:
    """Return the number of possible cells that each number of a margin adds up."""
    if not mask.all():
        return project(mask.astype(float), scope, variables)
    shape = [mask.shape[scope.index(variable)] for variable in variables]
    return np.full(shape, mask.size / math.prod(shape))


def _variance_of_cell(
    evidence: Evidence,
    position: int,
    mask: np.ndarray,
    cells: FloatArray,
    variables: tuple[int, ...],
) -> FloatArray:
    """Return the mean variance of the cells that each number of a margin adds up, in the margin's shape."""
    variance = evidence.noise_variance[slice(*evidence.offsets[position : position + 2])]
    if evidence.noise[position].is_additive:  # all cells have the same
        return np.full(cells.shape, variance[0])
    _, scope = evidence.table_at(position)
    assert scope is not None
    summed = project(variance.reshape(mask.shape) * mask, scope, variables)
    return summed / np.maximum(cells, 1.0)
