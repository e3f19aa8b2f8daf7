r"""Noisy tables of the rounds, and the merging of rare states.

A state whose noisy count is below a few standard deviations of its noise adds no information to a table of several
variables, but noise in each of its cells. Rare states of a variable are therefore merged into groups for the fit. The
groups depend only on the noisy tables of single variables and on the declaration (`MergeRule`), so they are public.
The records are recoded, every later table counts groups, and its sensitivity is that of any other table.

A group of m states with noise of standard deviation σ on each count is *known* once its noisy count is
:math:`r σ \sqrt m`, where r is `RARE`. A merge loses the difference between its parts, so the smallest parts are
merged first, and a known group is merged no further. Without an order the rare states, from the smallest count on,
fill one group after the other. Among ordered states only neighbors are merged. The rare states between two common
ones form a run, and within a run the smallest group that is not known joins its smaller neighbor. A state that takes
missing or undeclared values is never merged with an answer.

If a variable is measured again, its counts are pooled for the shares. They also decide which states are rare, unless
a table of several variables was measured before (`Merging.by`). The fitted model :math:`q` of the groups :math:`c(x)`
gives the model of the declared states,

.. math:: p(x) = q(c(x)) \prod_v s_v(x_v), \qquad \sum_{x_v : c(x_v) = g} s_v(x_v) = 1,

where :math:`s` are the shares of the noisy counts in their groups. The states of a group differ only in their
frequency.

A table has three forms: a `MeasuredTable` as released, a `NoisyTable` for
`bayesprivmrf.learning.select_measure.round_fit`, and the answer to a query in the release's `statistics`, from which
a `MeasuredTable` can be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from bayesprivmrf.checks import truth
from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.model import Domain
from bayesprivmrf.model.domain import Label
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy import NoiseDistribution
from bayesprivmrf.queries import coarsened, table
from bayesprivmrf.queries.kinds import TableQuery
from bayesprivmrf.release import Measurement
from bayesprivmrf.release.codec import positions

# Standard deviations of noise below which a count makes a state rare. Variables of 371 states and more have a larger
# threshold, so that on average at most half an empty state exceeds it by chance.
RARE = 3.0

# Most groups of a variable; the rarest states beyond them form one group, whatever their counts
MOST_GROUPS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRule:
    """Public rule for which states of a variable may be merged.

    Parameters
    ----------
    is_ordered
        Whether scores were declared for its states; then only neighbors are merged.
    apart
        Positions of the states that take missing or undeclared values, which are never merged.
    """

    is_ordered: bool = False
    apart: tuple[int, ...] = ()

    def as_list(self) -> list[Any]:
        """Return plain values that JSON can hold; `restored` is the inverse."""
        return [self.is_ordered, list(self.apart)]

    @classmethod
    def restored(
        cls, written: Sequence[Any], cardinalities: Sequence[int]
    ) -> tuple[MergeRule, ...]:
        """Return the rules of all variables, as `as_list` wrote them; anything else is an error of the file."""
        return tuple(
            cls(is_ordered=truth("is_ordered", is_ordered), apart=positions(apart, states))
            for (is_ordered, apart), states in zip(written, cardinalities, strict=True)
        )


# Rule for a variable without an order and without a state for missing values
FREE = MergeRule()


@dataclass(frozen=True, kw_only=True)
class Merging:
    """Groups of states that the fit merges, and the share of each state in its group.

    Parameters
    ----------
    groups
        For each variable the group of each declared state, numbered from 0 by their first states.
    shares
        Share of each state in its group, positive.
    """

    groups: tuple[IntArray, ...]
    shares: tuple[FloatArray, ...]

    @classmethod
    def of(
        cls,
        noisy: Sequence[FloatArray],
        deviations: Sequence[float],
        rules: Sequence[MergeRule] | None = None,
    ) -> Merging:
        """Return the merging of rare states.

        Parameters
        ----------
        noisy
            Noisy counts of each variable's states, records.
        deviations
            Standard deviation of the noise on each of them, by variable.
        rules
            Rule for merging, by variable; by default all rare states may be merged.
        """
        groups = [
            _merged_states(y, max(RARE, ndtri(1 - 0.5 / y.size)) * sd, rule)
            for y, sd, rule in zip(noisy, deviations, rules or [FREE] * len(noisy), strict=True)
        ]
        return cls.shared(groups, noisy)

    @classmethod
    def by(
        cls,
        declared: Sequence[int],
        tables: Sequence[MeasuredTable],
        rules: Sequence[MergeRule] | None = None,
    ) -> Merging:
        """Return the merging given all tables, in the order of their measurement.

        Which states are one is decided by what was measured of single variables before the first table of several,
        which is of merged states; their shares by all that was.
        """
        first = next(
            (place for place, each in enumerate(tables) if len(each.scope) > 1), len(tables)
        )
        counts, deviations = single_counts(declared, tables[:first])
        return cls.shared(
            cls.of(counts, deviations, rules).groups, single_counts(declared, tables)[0]
        )

    @classmethod
    def released(
        cls,
        domain: Domain,
        measurements: Sequence[Measurement],
        groups: Sequence[Sequence[int]] | None = None,
    ) -> Merging:
        """Return the merging of a release, which does not depend on the rule that made it.

        Newer releases contain the groups. In an older release, each table of several variables tells which states
        are merged in it, and the groups of a variable in no such table are computed again.
        """
        tables = [MeasuredTable.of(each, domain) for each in measurements]
        counts = single_counts(domain.cardinalities, tables)[0]
        if groups is not None:
            return cls.shared((np.array(own, dtype=np.int64) for own in groups), counts)
        made = list(cls.by(domain.cardinalities, tables).groups)
        for query in (each.query for each in measurements):
            assert isinstance(query, TableQuery)
            merged = dict(query.groups)
            for variable in query.scope if len(query.scope) > 1 else ():
                own = np.arange(len(domain.states_of(variable)))
                for number, (_, states) in enumerate(merged.get(variable, ())):
                    own[[domain.code(variable, state) for state in states]] = number
                made[domain.index(variable)] = own
        return cls.shared(made, counts)

    @classmethod
    def shared(cls, groups: Iterable[IntArray], noisy: Sequence[FloatArray]) -> Merging:
        """Return the merging by groups, with shares from noisy counts of each variable's states, records."""
        # a state counts as at least half a record when its group is divided
        kept = tuple(groups)
        positive = [np.maximum(y, 0.5) for y in noisy]
        shares = (
            y / np.bincount(own, weights=y)[own] for y, own in zip(positive, kept, strict=True)
        )
        return cls(groups=kept, shares=tuple(shares))

    @cached_property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of groups of each variable."""
        return tuple(int(group.max()) + 1 for group in self.groups)

    def is_merged(self, variable: int) -> bool:
        """Return True if a variable has merged states."""
        return self.cardinalities[variable] < len(self.groups[variable])

    def parts(self, variable: int) -> list[list[int]]:
        """Return the positions of the states of each merged group."""
        group = self.groups[variable]
        return [np.flatnonzero(group == g).tolist() for g in np.flatnonzero(np.bincount(group) > 1)]

    def codes(self, codes: np.ndarray) -> np.ndarray:
        """Return the groups of the records' states, unsigned of shape (rows, p), contiguous by column."""
        found = np.empty(
            codes.shape, dtype=np.min_scalar_type(max(self.cardinalities, default=1) - 1), order="F"
        )
        for v, group in enumerate(self.groups):
            found[:, v] = group.astype(found.dtype)[codes[:, v]]
        return found

    def expanded(
        self, scopes: Sequence[tuple[int, ...]], tables: Sequence[FloatArray]
    ) -> list[FloatArray]:
        """Return log potentials of the declared states from those of the groups; shares go to the first scope."""
        waiting = dict(enumerate(self.shares))
        found = []
        for scope, merged in zip(scopes, tables, strict=True):
            full = merged[np.ix_(*(self.groups[v] for v in scope))]
            for axis, v in enumerate(scope):
                if (share := waiting.pop(v, None)) is not None:
                    full = full + np.log(share).reshape(
                        [-1 if a == axis else 1 for a in range(len(scope))]
                    )
            found.append(full)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyTable:
    """Noisy table of merged states.

    Parameters
    ----------
    scope
        Positions of variables, ascending.
    values
        Noisy counts, records, shape of the states.
    variance
        Noise variance of a cell, records squared: one number, or one a cell.
    """

    scope: Scope
    values: FloatArray
    variance: float | FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTable:
    """Noisy table as released.

    Parameters
    ----------
    scope
        Positions of variables, ascending.
    values
        Noisy counts in C order, whole numbers; of declared states for a single variable, else of merged ones.
    law
        Law of their noise.
    """

    scope: Scope
    values: IntArray
    law: NoiseDistribution

    @classmethod
    def of(cls, measurement: Measurement, domain: Domain) -> MeasuredTable:
        """Return the table of a measurement; the inverse of `measurement`."""
        query = measurement.query
        assert isinstance(query, TableQuery)
        scope = tuple(domain.index(variable) for variable in query.scope)
        return cls(scope=scope, values=measurement.values.ravel(), law=measurement.noise)  # type: ignore[arg-type]

    def merged(self, merging: Merging) -> NoisyTable:
        """Return the table of merged states, for the fit."""
        if len(self.scope) == 1:
            group = merging.groups[self.scope[0]]
            sizes = np.bincount(group).astype(float)
            counts = np.bincount(group, weights=self.values)
            return NoisyTable(scope=self.scope, values=counts, variance=self.law.variance * sizes)
        shape = [merging.cardinalities[v] for v in self.scope]
        values = self.values.reshape(shape).astype(float)
        return NoisyTable(scope=self.scope, values=values, variance=self.law.variance)

    def measurement(self, domain: Domain, merging: Merging) -> Measurement:
        """Return the table as an answer to a query of declared states."""
        names = [domain.variables[v] for v in self.scope]
        groups = {
            domain.variables[v]: _labelled(domain.states[v], merging.groups[v])
            for v in self.scope
            if len(self.scope) > 1 and merging.is_merged(v)
        }
        if groups:
            query = coarsened(*names, groups=groups)
        else:
            query = table(*names)
        return Measurement(query, self.values.ravel(), self.law)


def single_counts(
    declared: Sequence[int], tables: Sequence[MeasuredTable]
) -> tuple[list[FloatArray], list[float]]:
    """Return the counts of each variable's states in tables of that variable, and the deviation of their noise.

    Several tables of a variable are averaged by precision. One without any, which has one state, counts one, exactly.
    """
    sums = [np.zeros(k) for k in declared]
    precisions = np.zeros(len(declared))
    for each in tables:
        if len(each.scope) == 1:
            sums[each.scope[0]] += each.values / each.law.variance
            precisions[each.scope[0]] += 1 / each.law.variance
    counts = [
        y / precision if precision > 0 else np.ones(y.size)
        for y, precision in zip(sums, precisions.tolist(), strict=True)
    ]
    return counts, [
        1 / math.sqrt(precision) if precision > 0 else 0.0 for precision in precisions.tolist()
    ]


def parts_of(variables: int, scopes: Sequence[Scope]) -> IntArray:
    """Return each variable's independent part in a model of these scopes, by its smallest variable, shape (p,)."""
    part = np.arange(variables)
    for scope in scopes:
        own = part[list(scope)]
        part[np.isin(part, own)] = own.min(initial=variables)
    return part


def _labelled(states: Sequence[Label], group: IntArray) -> dict[Label, list[Label]]:
    """Return the states of each group by label; the label of a merged group has the number of its states."""
    found = {}
    for number in range(int(group.max()) + 1):
        held = [state for state, g in zip(states, group.tolist(), strict=True) if g == number]
        if len(held) == 1:
            label = held[0]
        else:
            label = f"{len(held)} rare states"
        # several groups may be of one size
        while len(held) > 1 and (label in states or label in found):
            label = f"({label})"
        found[label] = held
    return found


def _merged_states(noisy: FloatArray, least: float, rule: MergeRule = FREE) -> IntArray:
    """Return the group of each state by the module's rule, numbered in the order of first states.

    Parameters
    ----------
    noisy
        Noisy count of each state, records.
    least
        Smallest noisy count of a state that is not rare.
    rule
        Rule for merging.
    """
    is_free = np.ones(noisy.size, dtype=bool)
    is_free[list(rule.apart)] = False
    is_rare = is_free & (noisy < least)
    owner = np.arange(noisy.size)
    # too many to look at: neighbors are merged evenly
    if rule.is_ordered and noisy.size > MOST_GROUPS:
        parts = np.array_split(np.flatnonzero(is_free), MOST_GROUPS - len(rule.apart))
        groups = [own.tolist() for own in parts]
    elif rule.is_ordered:
        runs: list[list[int]] = [[]]  # of neighboring rare states
        for state in np.flatnonzero(is_free).tolist():
            if is_rare[state]:
                runs[-1].append(state)
            elif runs[-1]:
                runs.append([])
        groups = [own for run in runs if run for own in _neighbors(noisy, run, least)]
    else:
        if noisy.size > MOST_GROUPS:
            order = np.argsort(np.where(is_free, noisy, np.inf), kind="stable")
            is_rare[order[: noisy.size - MOST_GROUPS + 1]] = True
        groups = _filled(noisy, is_rare, least)
    for group in groups:
        owner[group] = min(group)
    _, first, inverse = np.unique(owner, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _filled(noisy: FloatArray, is_rare: np.ndarray, least: float) -> list[list[int]]:
    """Return groups of rare states, each filled from the smallest state on until its count is known."""
    groups: list[list[int]] = []
    # this many form one group, whatever their counts
    count = 0.0
    forced = noisy.size - MOST_GROUPS + 1
    for state in np.flatnonzero(is_rare)[np.argsort(noisy[is_rare], kind="stable")].tolist():
        if not groups or (
            count >= least * math.sqrt(len(groups[-1])) and len(groups[-1]) >= forced
        ):
            groups.append([])
            count = 0.0
        groups[-1].append(state)
        count += float(noisy[state])
    return groups


def _neighbors(noisy: FloatArray, run: list[int], least: float) -> list[list[int]]:
    """Return groups of neighbors in a run; the smallest group that is not known joins its smaller neighbor."""
    groups = [[state] for state in run]
    counts = noisy[run].tolist()
    while len(groups) > 1:
        short = [g for g, own in enumerate(groups) if counts[g] < least * math.sqrt(len(own))]
        if not short:
            break
        place = min(short, key=lambda g: counts[g])
        beside = [g for g in (place - 1, place + 1) if 0 <= g < len(groups)]
        left = min(place, min(beside, key=lambda g: counts[g]))
        groups[left : left + 2] = [groups[left] + groups[left + 1]]
        counts[left : left + 2] = [counts[left] + counts[left + 1]]
    return groups
