r"""Sums that are known exactly or within bounds, in models of several cliques, and their arrays for compiled moves.

Each such number is a weighted sum over the cells of a table; let S be the variables on which its weights depend. A
*group* is a maximal S. The exact numbers of a group determine the counts of its *atoms*, which are sets of cells with
equal weights. Bounds apply to sets of cells. Records move in three ways. One record changes. A record is born or
dies, if N is private. Or two records that agree on a separator of a junction forest of the groups exchange their
values on one side of it.

**The moves reach every data set within the bounds** under two conditions. Every joint state is possible. In each
group, the atoms, the bounded sets and the *slices* (the cells with one state of a separator, for each separator) are
pairwise nested or disjoint; slices that are unions of atoms, whose sums are known, need not be.

The proof is by induction over the groups. Within one group, steps of one record link all tables within the bounds
(`bounds`), and the other variables are free. Now let G be a leaf with the separator σ, and D and D' two data sets
within the bounds. The family of G is nested, so the counts that G allows in each slice form an interval. Sets of G
that are unions of slices depend only on σ, and are bounds of the rest as well. With these intervals the rest has a
nested family again, and steps of one record and exchanges link its data sets. (Known slices add nothing to the rest,
and no step changes them.) Suppose a step removes a record from slice s and adds one to slice s'. Then G can make the
same step with a cell of s and a cell of s' (exchange property of M♮-convex sets). After an exchange within s, some
record has both the values that the rest removes and those that G removes. Once the rest of D equals that of D', the
tables of G have the same slices. Steps inside slices, of one record whose other values stay, lead to the tables of
D'; exchanges then permute the records of G within each slice. For exact tables along a junction tree these are the
quadratic moves of Dobra (2003). Around a cycle such moves do not reach every table (Diaconis and Sturmfels 1998), and
such tables are refused.

References
----------
Diaconis and Sturmfels (1998). Algebraic algorithms for sampling from conditional distributions. Annals of Statistics
26, 363-397.
Dobra (2003). Markov bases for decomposable graphical models. Bernoulli 9, 1093-1108.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.forest import JunctionForest, junction_forest
from bayesprivmrf.inference.posterior.whole_records.bounds import (
    Bounded,
    CrossingError,
    NestedSums,
    TableSums,
    half_widths,
    indicator,
    noiseless_numbers,
    part,
    reduced,
)
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within
from bayesprivmrf.model.tables import parent as home_of


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactSums:
    """Exact and bounded numbers of an evidence whose cliques are the bags of a junction forest.

    Parameters
    ----------
    evidence, forest
        Evidence of the releases, and the junction forest of its model's cliques.
    total
        Number of records N if it is public; None otherwise.
    """

    evidence: Evidence
    forest: JunctionForest
    total: int | None

    @cached_property
    def groups(self) -> list[TableSums]:
        """Groups: the maximal tables with exact or bounded sums, each with all known sums of its margins.

        Raises
        ------
        ModelError
            Moves of records might not reach every data set.
        """
        sums = list(self._numbers())
        scopes: list[tuple[int, ...]] = []
        for scope in sorted({scope for scope, *_ in sums}, key=lambda scope: (-len(scope), scope)):
            if not any(set(scope) <= set(other) for other in scopes):
                scopes.append(scope)
        groups: list[TableSums] = []
        for scope in scopes:
            home = home_of(self.forest.scopes, scope)
            assert home is not None  # every measured table is inside a clique
            supported = self.evidence.supported_cells[slice(*self.forest.offsets[home : home + 2])]
            place = self._within(scope, self.forest.scopes[home])
            possible = np.bincount(place, supported, self._size(scope)) > 0
            group = TableSums(scope=scope, home=home, possible=possible)
            groups.append(group)
            if self.total is not None:
                group.rows.append(np.ones(group.possible.size))
                group.answers.append(self.total)
            for own, weights, value, half in sums:
                if not set(own) <= set(scope):
                    continue
                row = weights[self._within(own, scope)]
                if half == 0:
                    group.rows.append(row)
                    group.answers.append(value)
                elif set(np.unique(row)) <= {0, 1}:
                    ends = max(math.ceil(value - half), 0), math.floor(value + half)
                    group.bounded.append(
                        Bounded(np.flatnonzero((row == 1) & group.possible), *ends)
                    )
                else:
                    self._refuse(scopes)
        self._refuse_zeros(scopes)
        return groups

    @cached_property
    def tree(self) -> JunctionForest:
        """Junction forest of the groups."""
        scopes = tuple(group.scope for group in self.groups)
        found = junction_forest(self.forest.cardinalities, scopes, None)
        if found is None:
            return self._refuse(scopes)
        return found

    @cached_property
    def families(self) -> list[list[Bounded]]:
        """Bounded sets of each group, which moves of records keep."""
        self._share_separators()
        try:
            return [group.family() for group in self.groups]
        except CrossingError:
            self._refuse([group.scope for group in self.groups])

    @cached_property
    def _allowed(self) -> list[list[Bounded]]:
        """Bounded sets, with impossible cells and with the range that child groups allow in each separator slice."""
        allowed = [list(family) for family in self.families]
        for clique in reversed(self.tree.order):
            group = self.groups[clique]
            parent = self.tree.parents[clique]
            size = group.possible.size
            separator = self.tree.separators[clique]
            if not group.possible.all():
                allowed[clique].append(Bounded(np.flatnonzero(~group.possible), 0, 0))
            slices = self._slices(clique, separator)
            is_determined = all(
                group.determined_sum(indicator(each, size)) is not None for each in slices
            )
            if is_determined:
                free = []
            else:
                free = [Bounded(each) for each in slices]
            try:
                NestedSums(size, allowed[clique] + free)
            except CrossingError:
                self._refuse([group.scope for group in self.groups])
            if parent >= 0 and not is_determined:
                ends = [part(allowed[clique], each, size).extent for each in slices]
                theirs = self._slices(parent, separator)
                allowed[parent] += [
                    Bounded(one, *two) for one, two in zip(theirs, ends, strict=True)
                ]
        return allowed

    @property
    def extent(self) -> tuple[int, int]:
        """Smallest and largest number of records within all bounds."""
        if self.groups:
            ends = [self._sums(root).extent for root in self.tree.roots]
        else:
            ends = []
        return max((low for low, _ in ends), default=0), min(
            (high for _, high in ends), default=1 << 60
        )

    def start(self, total: int, rough: FloatArray, rng: np.random.Generator) -> IntArray:
        """Draw the cells of the groups for a given number of records within all bounds, shape (records, groups).

        Parameters
        ----------
        total
            Number of records.
        rough
            Counts of the model's cells, shape (model size,), to which the drawn tables are close.
        rng
            Random generator.
        """
        found = np.zeros((total, len(self.groups)), np.int64)
        for clique in self.tree.order if self.groups else ():
            group = self.groups[clique]
            parent = self.tree.parents[clique]
            wanted = self._margin(group, rough)
            separator = self.tree.separators[clique]
            if parent < 0:
                counts = self._sums(clique).table(total, wanted)
                found[:, clique] = rng.permutation(np.repeat(np.arange(counts.size), counts))
                continue
            theirs = self._within(separator, self.groups[parent].scope)[found[:, parent]]
            for state, slice_ in enumerate(self._slices(clique, separator)):
                places = np.flatnonzero(theirs == state)
                inside = part(self._allowed[clique], slice_, group.possible.size)
                counts = inside.table(places.size, wanted[slice_])
                found[places, clique] = rng.permutation(np.repeat(slice_, counts))
        for own, group, family in zip(found.T, self.groups, self.families, strict=True):
            sums = np.bincount(own, minlength=group.possible.size)
            if not all(each.lowest <= sums[each.cells].sum() <= each.highest for each in family):
                raise ModelError(
                    "exact answers and bounds must allow records that are drawn clique by clique, but neighboring "
                    "cliques restrict each other across the variables that they share; leave some out, or add noise."
                )
        if self.groups:
            return found[np.lexsort(found.T)]
        return found

    def sides(self) -> Iterator[tuple[set[int], int, tuple[int, ...]]]:
        """Yield for each exchange of two records its variables, and the group and separator on which they agree."""
        if len(self.groups) < 2:
            return
        below = [set(group.scope) for group in self.groups]
        for clique in reversed(self.tree.order):
            parent = self.tree.parents[clique]
            separator = self.tree.separators[clique]
            if parent >= 0:
                below[parent] |= below[clique]
            if parent >= 0 or len(self.tree.roots) > 1:
                yield below[clique] - set(separator), clique, separator

    @cached_property
    def _homes(self) -> tuple[IntArray, IntArray]:
        """Clique of each of the forest's cells, and its position there."""
        homes = np.searchsorted(self.forest.offsets, self.forest.cells, side="right") - 1
        return homes, self.forest.cells - np.array(self.forest.offsets)[homes]

    @cached_property
    def codes(self) -> IntArray:
        """Cell of each group for each of the forest's cells in its home clique, and -1 for others."""
        (homes, local) = self._homes
        codes = np.full((len(self.groups), self.forest.cells.size), -1)
        for own, group in zip(codes, self.groups, strict=True):
            inside = homes == group.home
            own[inside] = self._within(group.scope, self.forest.scopes[group.home])[local[inside]]
        return codes

    @property
    def sets(self) -> tuple[IntArray, IntArray, IntArray]:
        """Pairs of one of the forest's cells and a bounded set that contains it, and the bounds of each set."""
        cells = [np.zeros(0, np.int64)]
        sets = [np.zeros(0, np.int64)]
        bounds = np.zeros((0, 2), np.int64)
        for own, group, family in zip(self.codes, self.groups, self.families, strict=True):
            for each in family:
                is_inside = np.zeros(group.possible.size, bool)
                is_inside[each.cells] = True
                is_all = is_inside[group.possible].all()
                if is_all and self.total is not None and each.lowest == each.highest == self.total:
                    continue  # the sum of all records, which is always N
                found = np.flatnonzero((own >= 0) & is_inside[own])
                cells.append(found)
                sets.append(np.full(found.size, len(bounds)))
                bounds = np.vstack([bounds, [each.lowest, each.highest]])
        return np.concatenate(cells), np.concatenate(sets), bounds

    @property
    def arrays(self) -> dict[str, IntArray]:
        """Arrays of the groups and of the exchanges for compiled moves, by their names in `RecordData`."""
        forest = self.forest
        (homes, local) = self._homes
        moves = list(self.sides())
        sides, shared = np.zeros((2, len(moves), homes.size), np.int64)
        for turn, (variables, group, separator) in enumerate(moves):
            for clique, scope in enumerate(forest.scopes):
                own = homes == clique
                digits = np.unravel_index(local[own], [forest.cardinalities[v] for v in scope])
                stride = 1
                for variable, digit in zip(scope[::-1], digits[::-1], strict=True):
                    if variable in variables:
                        sides[turn, own] += stride * digit
                    stride *= forest.cardinalities[variable]
            own = homes == self.groups[group].home
            shared[turn, own] = self._within(separator, forest.scopes[self.groups[group].home])[
                local[own]
            ]
        places = np.full(max(forest.offsets[-1], forest.cells.max(initial=-1) + 1), -1)
        places[forest.cells] = np.arange(forest.cells.size)
        own_homes = np.array([self.groups[group].home for _, group, _ in moves], np.int64)
        return {
            "codes": self.codes,
            "sides": sides,
            "shared": shared,
            "homes": np.argsort(forest.order)[own_homes].astype(np.int64),
            "flat": forest.cells.astype(np.int64),
            "places": places,
        }

    def _sums(self, clique: int) -> NestedSums:
        return NestedSums(self.groups[clique].possible.size, self._allowed[clique])

    def _margin(self, group: TableSums, counts: FloatArray) -> FloatArray:
        own = slice(*self.forest.offsets[group.home : group.home + 2])
        place = self._within(group.scope, self.forest.scopes[group.home])
        return np.maximum(np.bincount(place, counts[own], group.possible.size), 0.1)

    def _slices(self, clique: int, separator: tuple[int, ...]) -> list[IntArray]:
        """Return the cells of a group with each state of a separator."""
        place = self._within(separator, self.groups[clique].scope)
        return [np.flatnonzero(place == state) for state in range(self._size(separator))]

    def _share_separators(self) -> None:
        """Add to each group the exact sums on separators that its neighbors determine, until nothing changes."""
        done: set[tuple[int, int]] = set()
        for _ in self.groups:
            for clique, parent in enumerate(self.tree.parents):
                separator = self.tree.separators[clique]
                for one, other in ((clique, parent), (parent, clique)):
                    if parent < 0 or not separator or (clique, other) in done:
                        continue
                    theirs = self.groups[one]
                    slices = self._slices(one, separator)
                    sums = [
                        theirs.determined_sum(indicator(s, theirs.possible.size)) for s in slices
                    ]
                    if None in sums:
                        continue
                    done |= {(clique, one), (clique, other)}
                    mine = self.groups[other]
                    mine.rows += [
                        indicator(s, mine.possible.size) for s in self._slices(other, separator)
                    ]
                    mine.answers += [value for value in sums if value is not None]

    def _numbers(self) -> Iterator[tuple[tuple[int, ...], FloatArray, float, float]]:
        """Yield variables, weights on their cells, value, and half the width of the bounds of each exact number."""
        from scipy.sparse import eye_array

        evidence = self.evidence
        forest = self.forest
        matrix: Any = evidence.matrix
        if matrix is None:
            matrix = eye_array(forest.offsets[-1], format="csr")
        else:
            matrix = matrix.tocsr()
        halves = half_widths(evidence)
        for number in np.flatnonzero(noiseless_numbers(evidence)).tolist():
            own = slice(*matrix.indptr[number : number + 2])
            cells, entries = (
                part[own][matrix.data[own] != 0] for part in (matrix.indices, matrix.data)
            )
            homes = np.unique(np.searchsorted(forest.offsets, cells, side="right") - 1)
            if homes.size == 0:
                continue
            scope = forest.scopes[homes[0]]
            if homes.size > 1:
                self._refuse([forest.scopes[home] for home in homes])
            weights = np.zeros(np.diff(forest.offsets)[homes[0]])
            weights[cells - forest.offsets[homes[0]]] = entries
            own_scope, table = reduced(
                weights.reshape([forest.cardinalities[v] for v in scope]), scope
            )
            yield own_scope, table, float(evidence.noisy_counts[number]), float(halves[number])

    def _within(self, scope: Iterable[int], target: tuple[int, ...]) -> IntArray:
        return cells_within(self.forest.cardinalities, tuple(scope), target)

    def _size(self, scope: Iterable[int]) -> int:
        return math.prod(self.forest.cardinalities[v] for v in scope)

    def _refuse_zeros(self, scopes: list[tuple[int, ...]]) -> None:
        """Raise an error if impossible cells could keep the chain from reaching some data sets."""
        model = self.evidence.specification
        touched = {v for scope in scopes for v in scope}
        for combination in model.impossible if len(scopes) > 1 else ():
            own = {model.domain.index(variable) for variable, _ in combination}
            if own & touched and not any(own <= set(scope) for scope in scopes):
                raise ModelError(
                    "exact counts of several tables are not supported with impossible cells of other variables. "
                    "Leave `impossible` out, keep the exact counts of only one table, or use NoiseAwareMAP."
                )

    def _refuse(self, scopes: Iterable[Iterable[int]]) -> NoReturn:
        names = self.evidence.specification.domain.variables
        tables = ", ".join(str(tuple(names[v] for v in scope)) for scope in scopes)
        raise ModelError(
            "exact or bounded counts must be sums of cells that are nested or disjoint in each table, and their "
            f"tables must form a tree, got {tables}; otherwise the sampler would not reach every table. Leave some "
            "out, add the exact tables of the shared variables, state a noise, or (without bounds) use NoiseAwareMAP."
        )
