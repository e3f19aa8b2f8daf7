r"""Sums that are known exactly or within bounds, in models of several cliques, and moves of records that keep them.

Each such number is a sum over the cells of the variables S on which its weights depend. A *group* is a maximal
S. The exact numbers of a group determine the counts of its *atoms*, sets of cells with equal weights; bounds apply to
sets of cells. Records move in three ways: one record changes; a record is born or dies, if N is private; or
two records that agree on a separator of a junction forest of the groups exchange what lies on one side of it.

**They reach every data set within the bounds**, if every joint state is possible and in each group the atoms, the
bounded sets and the *slices* (the cells with one state of a separator, for each separator) are pairwise nested or
disjoint; slices that are unions of atoms, whose sums are known, need not be. The proof is by induction over the
groups. The tables of one group within the bounds are linked by steps of one record (`bounds`), and the variables
outside are free. Let G be a leaf with the separator σ, and D and D' two data sets within the bounds. What G allows
each slice to hold is an interval, as its family is nested; sets of G that are unions of slices depend on σ alone, and
are bounds of the rest as well. So the rest, with these intervals, has a nested family again, and is linked by steps
of one record and exchanges. (Known slices add nothing to it, and no step changes them.) A step that takes a record
out of the slice s and puts one into s' is made by G as well, by a cell of s and a cell of s' (exchange property of
M♮-convex sets), and some record has both what the rest takes out and what G takes out after an exchange within s.
When the rest of D is that of D', G's tables have the same slices, and steps inside slices, of one record whose other
values stay, lead to those of D'; then exchanges permute what G's records are within each slice. For exact tables
along a junction tree these are the quadratic moves of Dobra (2003); around a cycle such moves do not reach every
table (Diaconis and Sturmfels 1998), and are refused.

References
----------
Diaconis and Sturmfels (1998). Algebraic algorithms for sampling from conditional distributions. Annals of Statistics
26, 363-397.
Dobra (2003). Markov bases for decomposable graphical models. Bernoulli 9, 1093-1108.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.forest import JunctionForest, junction_forest
from bayesprivmrf.inference.posterior.records.bounds import (
    CONTRADICTION,
    Bounded,
    CrossingError,
    NestedSums,
    half_widths,
    held_numbers,
)
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within
from bayesprivmrf.model.tables import parent as home_of

# Rounding error up to which a solution of linear equations counts as exact
_ROUNDING = 1e-6


@dataclass(kw_only=True, eq=False)
class Group:
    """Exact and bounded sums of the cells of one table.

    Parameters
    ----------
    scope
        Its variables, ascending.
    home
        The first clique that holds them.
    possible
        Mask of its cells that may occur.
    rows, answers
        Weights of exact numbers on the cells, and these numbers.
    bounded
        Bounded sets of cells.
    """

    scope: tuple[int, ...]
    home: int
    possible: np.ndarray
    rows: list[FloatArray] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    bounded: list[Bounded] = field(default_factory=list)

    def tells(self, row: FloatArray) -> float | None:
        """Return the weighted sum of the table if the exact numbers determine it; None otherwise."""
        if not self.rows:
            return None
        design = np.array(self.rows)[:, self.possible].T
        weights = np.linalg.lstsq(design, row[self.possible], rcond=1e-10)[0]
        is_told = np.abs(design @ weights - row[self.possible]).max(initial=0.0) < _ROUNDING
        return float(weights @ self.answers) if is_told else None

    def family(self) -> list[Bounded]:
        """Return the atoms whose counts the exact numbers determine, and the bounded sets.

        Raises
        ------
        CrossingError
            The exact numbers determine only sums of atoms.
        """
        if not self.rows:
            return self.bounded
        columns, place = np.unique(np.array(self.rows)[:, self.possible], axis=1, return_inverse=True)
        is_told = columns.any(axis=0)
        counts, _, rank, _ = np.linalg.lstsq(columns[:, is_told], np.array(self.answers), rcond=1e-10)
        if rank < is_told.sum():
            raise CrossingError
        whole = np.rint(counts)
        near = _ROUNDING * max(1.0, np.abs(whole).max(initial=0.0))
        missed = np.abs(columns[:, is_told] @ whole - self.answers).max(initial=0.0)
        if np.abs(counts - whole).max(initial=0.0) > near or missed > near or (whole < 0).any():
            raise ModelError(CONTRADICTION)
        cells = np.flatnonzero(self.possible)
        atoms = [
            Bounded(cells[np.ravel(place) == atom], int(count), int(count))
            for atom, count in zip(np.flatnonzero(is_told), whole, strict=True)
        ]
        return atoms + self.bounded


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldSums:
    """Numbers without noise, of an evidence whose cliques are the bags of a junction forest.

    Parameters
    ----------
    evidence, forest
        The evidence of the releases, and the forest of its model's cliques.
    total
        N where it is public.
    """

    evidence: Evidence
    forest: JunctionForest
    total: int | None

    @cached_property
    def groups(self) -> list[Group]:
        """Largest tables with exact or bounded sums; each has all known sums of its margins.

        Raises
        ------
        ModelError
            Moves of records may not reach every data set.
        """
        held = list(self._numbers())
        scopes: list[tuple[int, ...]] = []
        for scope in sorted({scope for scope, *_ in held}, key=lambda scope: (-len(scope), scope)):
            if not any(set(scope) <= set(other) for other in scopes):
                scopes.append(scope)
        groups = [self._group(scope) for scope in scopes]
        for group in groups:
            if self.total is not None:
                group.rows.append(np.ones(group.possible.size))
                group.answers.append(self.total)
            for scope, weights, value, half in held:
                if not set(scope) <= set(group.scope):
                    continue
                row = weights[self._within(scope, group.scope)]
                if half == 0:
                    group.rows.append(row)
                    group.answers.append(value)
                elif set(np.unique(row)) <= {0, 1}:
                    ends = max(math.ceil(value - half), 0), math.floor(value + half)
                    group.bounded.append(Bounded(np.flatnonzero((row == 1) & group.possible), *ends))
                else:
                    self._refuse(scopes)
        self._refuse_zeros(scopes)
        return groups

    @cached_property
    def tree(self) -> JunctionForest:
        """A junction forest of the groups."""
        scopes = tuple(group.scope for group in self.groups)
        found = junction_forest(self.forest.cardinalities, scopes, None)
        return self._refuse(scopes) if found is None else found

    @cached_property
    def families(self) -> list[list[Bounded]]:
        """The bounded sets of each group, which moves of records keep."""
        self._tell_neighbours()
        try:
            return [group.family() for group in self.groups]
        except CrossingError:
            self._refuse([group.scope for group in self.groups])

    @cached_property
    def _allowed(self) -> list[list[Bounded]]:
        """Bounded sets with impossible cells, and the range that lower groups allow each slice of a separator."""
        allowed = [list(family) for family in self.families]
        for clique in reversed(self.tree.order):
            group, parent = self.groups[clique], self.tree.parents[clique]
            size, separator = group.possible.size, self.tree.separators[clique]
            if not group.possible.all():
                allowed[clique].append(Bounded(np.flatnonzero(~group.possible), 0, 0))
            slices = self._slices(clique, separator)
            is_told = all(group.tells(_indicator(each, size)) is not None for each in slices)
            try:
                NestedSums(size, allowed[clique] + ([] if is_told else [Bounded(each) for each in slices]))
            except CrossingError:
                self._refuse([group.scope for group in self.groups])
            if parent >= 0 and not is_told:
                ends = [_part(allowed[clique], each, size).extent for each in slices]
                theirs = self._slices(parent, separator)
                allowed[parent] += [Bounded(one, *two) for one, two in zip(theirs, ends, strict=True)]
        return allowed

    @property
    def extent(self) -> tuple[int, int]:
        """Least and largest number of records within all bounds."""
        ends = [self._sums(root).extent for root in self.tree.roots] if self.groups else []
        return max((low for low, _ in ends), default=0), min((high for _, high in ends), default=1 << 60)

    def start(self, total: int, rough: FloatArray, rng: np.random.Generator) -> IntArray:
        """Draw the groups' cells of a given number of records within all bounds, shape (records, groups).

        Parameters
        ----------
        rough
            Counts of the model's cells, shape (model size,), to which tables shall be near.
        """
        found = np.zeros((total, len(self.groups)), np.int64)
        for clique in self.tree.order if self.groups else ():
            group, parent = self.groups[clique], self.tree.parents[clique]
            wanted = self._margin(group, rough)
            separator = self.tree.separators[clique]
            if parent < 0:
                counts = self._sums(clique).table(total, wanted)
                found[:, clique] = rng.permutation(np.repeat(np.arange(counts.size), counts))
                continue
            theirs = self._within(separator, self.groups[parent].scope)[found[:, parent]]
            for state, slice_ in enumerate(self._slices(clique, separator)):
                places = np.flatnonzero(theirs == state)
                part = _part(self._allowed[clique], slice_, group.possible.size)
                counts = part.table(places.size, wanted[slice_])
                found[places, clique] = rng.permutation(np.repeat(slice_, counts))
        for own, group, family in zip(found.T, self.groups, self.families, strict=True):
            held = np.bincount(own, minlength=group.possible.size)
            if not all(each.lowest <= held[each.cells].sum() <= each.highest for each in family):
                raise ModelError(
                    "exact answers and bounds must be such that whole records can be found one clique after the "
                    "other, but here sums of neighbouring cliques bound each other across parts of what they share; "
                    "leave out some of these answers, or measure them with noise."
                )
        return found[np.lexsort(found.T)] if self.groups else found

    def sides(self) -> Iterator[tuple[set[int], int, tuple[int, ...]]]:
        """Yield for each exchange of two records its variables, and the group and separator to agree on."""
        if len(self.groups) < 2:
            return
        below = [set(group.scope) for group in self.groups]
        for clique in reversed(self.tree.order):
            parent, separator = self.tree.parents[clique], self.tree.separators[clique]
            if parent >= 0:
                below[parent] |= below[clique]
            if parent >= 0 or len(self.tree.roots) > 1:
                yield below[clique] - set(separator), clique, separator

    def _sums(self, clique: int) -> NestedSums:
        return NestedSums(self.groups[clique].possible.size, self._allowed[clique])

    def _margin(self, group: Group, counts: FloatArray) -> FloatArray:
        own = slice(*self.forest.offsets[group.home : group.home + 2])
        place = self._within(group.scope, self.forest.scopes[group.home])
        return np.maximum(np.bincount(place, counts[own], group.possible.size), 0.1)

    def _slices(self, clique: int, separator: tuple[int, ...]) -> list[IntArray]:
        """Return the cells of a group with each state of a separator."""
        place = self._within(separator, self.groups[clique].scope)
        return [np.flatnonzero(place == state) for state in range(self._size(separator))]

    def _tell_neighbours(self) -> None:
        """Add to each group the exact sums on separators that its neighbours determine, until nothing changes."""
        told: set[tuple[int, int]] = set()
        for _ in self.groups:
            for clique, parent in enumerate(self.tree.parents):
                separator = self.tree.separators[clique]
                for one, other in ((clique, parent), (parent, clique)):
                    if parent < 0 or not separator or (clique, other) in told:
                        continue
                    slices = [
                        _indicator(s, self.groups[one].possible.size) for s in self._slices(one, separator)
                    ]
                    sums = [self.groups[one].tells(row) for row in slices]
                    if None in sums:
                        continue
                    told |= {(clique, one), (clique, other)}
                    mine = self.groups[other]
                    mine.rows += [_indicator(s, mine.possible.size) for s in self._slices(other, separator)]
                    mine.answers += [value for value in sums if value is not None]

    def _numbers(self) -> Iterator[tuple[tuple[int, ...], FloatArray, float, float]]:
        """Yield variables, weights on their cells, value and half the distance of the bounds of each exact number."""
        from scipy.sparse import eye_array

        evidence, forest = self.evidence, self.forest
        matrix: Any = evidence.matrix
        matrix = eye_array(forest.offsets[-1], format="csr") if matrix is None else matrix.tocsr()
        halves = half_widths(evidence)
        for number in np.flatnonzero(held_numbers(evidence)).tolist():
            own = slice(*matrix.indptr[number : number + 2])
            cells, entries = (part[own][matrix.data[own] != 0] for part in (matrix.indices, matrix.data))
            homes = np.unique(np.searchsorted(forest.offsets, cells, side="right") - 1)
            if homes.size == 0:
                continue
            scope = forest.scopes[homes[0]]
            if homes.size > 1:
                self._refuse([forest.scopes[home] for home in homes])
            weights = np.zeros(np.diff(forest.offsets)[homes[0]])
            weights[cells - forest.offsets[homes[0]]] = entries
            told, table = _reduced(weights.reshape([forest.cardinalities[v] for v in scope]), scope)
            yield told, table, float(evidence.noisy_counts[number]), float(halves[number])

    def _group(self, scope: tuple[int, ...]) -> Group:
        home = home_of(self.forest.scopes, scope)
        assert home is not None  # what is measured lies inside the forest
        own = slice(*self.forest.offsets[home : home + 2])
        supported = self.evidence.supported_cells[own]
        place = self._within(scope, self.forest.scopes[home])
        return Group(scope=scope, home=home, possible=np.bincount(place, supported, self._size(scope)) > 0)

    def _within(self, scope: Iterable[int], target: tuple[int, ...]) -> IntArray:
        return cells_within(self.forest.cardinalities, tuple(scope), target)

    def _size(self, scope: Iterable[int]) -> int:
        return math.prod(self.forest.cardinalities[v] for v in scope)

    def _refuse_zeros(self, scopes: list[tuple[int, ...]]) -> None:
        """Raise an error if impossible cells could keep the chain from reaching some data sets."""
        model, touched = self.evidence.specification, {v for scope in scopes for v in scope}
        for combination in model.impossible if len(scopes) > 1 else ():
            own = {model.domain.index(variable) for variable, _ in combination}
            if own & touched and not any(own <= set(scope) for scope in scopes):
                raise ModelError(
                    "counts without noise of several tables are kept by exchanges between records, which impossible "
                    "cells of other variables may prevent, so that the sampler would not reach every table; leave "
                    "`impossible` out, keep the exact counts of one table alone, or use NoiseAwareMAP."
                )

    def _refuse(self, scopes: Iterable[Iterable[int]]) -> NoReturn:
        names = self.evidence.specification.domain.variables
        tables = ", ".join(str(tuple(names[v] for v in scope)) for scope in scopes)
        raise ModelError(
            "counts within bounds, and numbers without noise, must be of cells or of sums of cells that are nested "
            f"or disjoint in each table, and of tables that form a tree, got {tables}: the sampler would not reach "
            "every table; leave some out, tell the tables that these share, state the noise, or, without bounds, "
            "use NoiseAwareMAP."
        )


def _reduced(weights: FloatArray, scope: tuple[int, ...]) -> tuple[tuple[int, ...], FloatArray]:
    """Return the variables that weights depend on, ascending, and the weights on their cells."""
    first = [weights.take([0], axis=axis) for axis in range(weights.ndim)]
    kept = [axis for axis, one in enumerate(first) if not (weights == one).all()]
    table = weights[tuple(slice(None) if axis in kept else 0 for axis in range(weights.ndim))]
    order = np.argsort([scope[axis] for axis in kept])
    return tuple(sorted(scope[axis] for axis in kept)), np.transpose(table, order).ravel()


def _part(family: list[Bounded], cells: IntArray, size: int) -> NestedSums:
    """Return the sums inside a slice, with its cells renumbered; sets that are not inside it are left out."""
    place = np.full(size, -1)
    place[cells] = np.arange(cells.size)
    inside = [
        Bounded(place[each.cells], each.lowest, each.highest)
        for each in family
        if (place[each.cells] >= 0).all()
    ]
    return NestedSums(cells.size, inside)


def _indicator(cells: IntArray, size: int) -> FloatArray:
    row = np.zeros(size)
    row[cells] = 1.0
    return row
