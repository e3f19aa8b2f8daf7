"""Noisy measurement files in the layout of the United States census of 2020."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.noise import NoiseLaw, Within
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.queries import Query
from bayesprivmrf.queries.kinds import TableQuery
from bayesprivmrf.readers.census_files import Answers, LevelFiles, level_files, require_names
from bayesprivmrf.readers.laws import family
from bayesprivmrf.readers.scopes import query_of, released
from bayesprivmrf.release import Measurement, NoisyStatistics
from bayesprivmrf.release.given import by_law, law_of_variance

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

__all__ = ["read_census"]

_SIGNS = {
    "": "=",
    "=": "=",
    "==": "=",
    "eq": "=",
    "<=": "<=",
    "le": "<=",
    "ub": "<=",
    ">=": ">=",
    "ge": ">=",
    "lb": ">=",
}
"""What a constraint's sign says, or, where the files have none, a part of its name."""
_MOST = 10**10
"""The largest number of people where none is told: that up to which `LatentCounts` seeks it."""

type Axes = str | Sequence[Variable | None] | Query


def read_census(
    network: DiscreteMarkovNetwork | ModelSpecification,
    source: str | os.PathLike[str],
    *,
    queries: Mapping[str, Axes],
    levels: Sequence[str] | Mapping[str, Mapping[str, Sequence[Label]] | None],
    area: Variable | None = None,
    geocode: str | None = None,
    constraints: Mapping[str, Axes] | None = None,
    state: str | None = None,
    noise: type[NoiseLaw] | str = "discrete-gaussian",
    guarantee: PrivacyGuarantee | None = None,
    total: int | None = None,
) -> NoisyStatistics:
    """Release of noisy measurement files in the census layout.

    The layout is a folder for each level of areas, such as ``Tract.parquet``; in it ``DPQuery`` and ``Constraint``,
    with partitions such as ``State=44``; in these files, parquet or CSV, with the columns ``geocode``,
    ``query_name``, ``value`` (a list of numbers), ``variance`` and, where they are there, ``query_shape`` and
    ``sign``.

    Parameters
    ----------
    network
        The declared model. Its states stand in the order of the file's axes: nothing in the files tells that.
    source
        The folder that holds the levels' folders.
    queries
        For the name of each query to read, its axes in the file's order: variables, with None for an axis that the
        model does not have, which is summed over; ``()`` for the number of people; or a `queries.table` or
        `queries.coarsened`. Queries that are not named are not read.
    levels
        The levels to read. A level of several areas of the model is the sum of those whose geocodes begin with its
        own; for other geocodes, map the level to a mapping from each of its geocodes to the area's states. The
        model must hold all areas of each geography of a level.
    area
        The variable whose states are geocodes. None for a model of one area, `geocode`.
    geocode
        The one area of a model that has no variable for it.
    constraints
        The same as `queries` for exact counts and bounds, in ``Constraint``. Where one tells the number of all
        people, the release has it as its `total`. A bound, whose ``sign`` is ``<=`` or ``>=`` (``le``, ``ge``), or
        whose name has ``ub`` or ``lb`` where the files have no signs, is a count `noise.Within` 0 and it, or it and
        the number of all people.
    state
        The partition to read, as ``"44"`` of ``State=44``; all by default.
    noise
        The family of noise laws, whose variance the files state.
    guarantee
        What the publisher promised, if anything. This library cannot vouch for it.
    total
        The number of records, where it is public and no constraint tells it.

    Raises
    ------
    ArgumentError
        A query is not in the files, or an argument is missing.
    DataError
        A file, a column, an area or a query of an area is missing, repeated, or of another size than declared; or
        the sign of a constraint is none of the above.
    ModelError
        A query does not fit the model, or the numbers contradict each other.

    Notes
    -----
    The geocodes of the census's own files are those of its spine, which is not that of the published tables: tribal
    areas are apart, and block groups were drawn anew.
    """
    model = ModelSpecification.from_pgmpy(network)
    kind = family(noise)
    given = _levels(levels)
    asked = _axes("`queries`", queries)
    fixed = _axes("`constraints`", constraints or {})
    if not asked and not fixed:
        raise ArgumentError("`queries` must name a query at least, got none; write {'total_dpq': (), ...}.")
    found: list[Measurement] = []
    constrained: list[tuple[_Asked, dict[str, tuple[Label, ...]], LevelFiles]] = []
    known: dict[str, frozenset[str]] = {}
    areas: dict[str, dict[str, tuple[Label, ...]]] = {}
    for level, mapped in given.items():
        codes = _candidates(model, area, geocode, mapped)
        for part, wanted in (("DPQuery", asked), ("Constraint", fixed)):
            if not wanted:
                continue
            files = level_files(source, level, part, state=state, names=wanted, geocodes=codes)
            require_names("`queries`" if part == "DPQuery" else "`constraints`", wanted, files)
            known[level] = known.get(level, frozenset()) | files.geocodes
            areas[level] = _held(model, area, geocode, mapped, files)
            for name, axes in wanted.items():
                one = _Asked(
                    model=model, area=area, kind=kind, name=name, axes=axes, exact=part == "Constraint"
                )
                if one.is_bound(areas[level], files):
                    constrained.append((one, areas[level], files))
                else:
                    found += one.measurements(areas[level], files)
    _refuse_partial(model, area, {level: areas[level] for level in areas if given[level] is None}, known)
    kept, exact = _without_total(model, found)
    if None not in (exact, total) and exact != total:
        raise ModelError(
            f"`total` must be the number of people that the constraints tell, {exact}, got {total!r}; leave it out."
        )
    number = exact if total is None else total
    for one, held, files in constrained:
        kept += one.measurements(held, files, most=_MOST if number is None else number)
    return released(model, kept, guarantee=guarantee, total=number)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """One query or constraint of the files, for all areas of a level."""

    model: ModelSpecification
    area: Variable | None
    kind: type[NoiseLaw]
    name: str
    axes: Sequence[Variable | None] | TableQuery
    exact: bool

    def is_bound(self, areas: Mapping[str, Sequence[Label]], files: LevelFiles) -> bool:
        """Whether it bounds counts, in some area."""
        answers = (files.answers.get((code, self.name)) for code in areas)
        return self.exact and any(each is not None and self._sign(each.sign) != "=" for each in answers)

    def measurements(
        self, areas: Mapping[str, Sequence[Label]], files: LevelFiles, *, most: int = 0
    ) -> list[Measurement]:
        """Return the level's answers as one measurement, or several where the areas differ in their noise.

        `most` is the largest number of people that a count may be.
        """
        values, laws = [], []
        for code in areas:
            if (code, self.name) not in files.answers:
                raise DataError(
                    f"the level {files.level!r} must have the query {self.name!r} for the area {code!r}, "
                    f"got none; leave "
                    "the query or the area out."
                )
            answers = files.answers[code, self.name]
            numbers, law = self._summed(answers)
            sign = self._sign(answers.sign) if self.exact else "="
            if sign == "=":
                values.append(numbers)
                laws += [law] * numbers.size
                continue
            pairs = [_within(number, sign, most) for number in numbers]
            values.append(np.array([value for value, _ in pairs]))
            laws += [law for _, law in pairs]
        return by_law(self.model, self._query(areas), np.concatenate(values), laws)

    @property
    def _scope(self) -> tuple[Variable, ...]:
        scope = self.axes.scope if isinstance(self.axes, TableQuery) else self.axes
        return tuple(variable for variable in scope if variable is not None)

    @property
    def _groups(self) -> dict[Variable, dict[Label, Sequence[Label]]]:
        held = self.axes.groups if isinstance(self.axes, TableQuery) else ()
        return {variable: dict(merged) for variable, merged in held}

    def _query(self, areas: Mapping[str, Sequence[Label]]) -> Query:
        """Return the query on the model, with the area as its first axis where it is a variable."""
        scope, groups = self._scope, self._groups
        if self.area is None:
            return query_of(self.model, scope, groups)
        states = self.model.domain.states_of(self.area)
        if [tuple(held) for held in areas.values()] != [(label,) for label in states]:
            groups[self.area] = {code: labels for code, labels in areas.items()}  # noqa: C416
        return query_of(self.model, (self.area, *scope), groups)

    def _summed(self, answers: Answers) -> tuple[np.ndarray, NoiseLaw]:
        """Return one area's answers, summed over the axes that the model does not have, and their law."""
        shape, summed = self._shape(answers)
        table = np.array(answers.values).reshape(shape)
        law = law_of_variance(self.kind, 0.0 if self.exact else answers.variance)
        times = math.prod(shape[axis] for axis in summed)
        return table.sum(axis=summed).ravel(), law.summed(times)

    def _shape(self, answers: Answers) -> tuple[list[int], tuple[int, ...]]:
        """Return the shape of the file's table, and which axes are summed over."""
        axes = self.axes.scope if isinstance(self.axes, TableQuery) else self.axes
        domain, groups = self.model.domain, self._groups
        sizes = [None if v is None else len(groups.get(v, domain.states_of(v))) for v in axes]
        summed = tuple(axis for axis, size in enumerate(sizes) if size is None)
        whole = answers.shape or ()
        if not summed:
            shape = [size for size in sizes if size is not None]
            own, file = [size for size in shape if size != 1], [size for size in whole if size != 1]
            if len(own) == len(file) and own != file and math.prod(own) == len(answers.values):
                raise DataError(
                    f"the query {self.name!r} must have axes of {own} states, as declared, got {file} in the "
                    "files; write its axes in the file's order."
                )
        elif len(whole) == len(sizes):
            shape = [int(size) for size in whole]
        elif len(summed) == 1:
            others = math.prod(size for size in sizes if size is not None)
            shape = [size or len(answers.values) // others for size in sizes]
        else:
            raise ArgumentError(
                f"the axes of {self.name!r} must be as many as its `query_shape` in the files, "
                f"{len(whole)}, to tell which "
                f"are summed over, got {len(sizes)}."
            )
        fits = all(size in (None, own) for size, own in zip(sizes, shape, strict=True))
        if not fits or math.prod(shape) != len(answers.values):
            raise DataError(
                f"the query {self.name!r} must have "
                f"{' x '.join('any' if s is None else str(s) for s in sizes) or 1} "
                f"numbers, as its axes have states, got {len(answers.values)}"
                f"{f' of shape {whole}' if whole else ''}; declare the states of the file, in its order."
            )
        return shape, summed

    def _sign(self, sign: str) -> str:
        """Return ``=``, ``<=`` or ``>=``; where the files do not say, by the name."""
        words = set() if sign else {"lb", "ub"} & set(self.name.split("_"))
        spelt = _SIGNS.get("".join(words) or sign.lower())
        if spelt is None or len(words) > 1:
            raise DataError(
                f"the constraint {self.name!r} must have a sign among {', '.join(filter(None, _SIGNS))}, got "
                "another; leave it out of `constraints`: what is left is a valid, less informed release."
            )
        return spelt


def _within(bound: float, sign: str, most: int) -> tuple[float, NoiseLaw]:
    """Return the value and the law of a count that is at most, or at least, a bound."""
    lower, upper = (0.0, min(bound, most)) if sign == "<=" else (max(bound, 0.0), most)
    if not 0 <= lower <= upper:
        raise ModelError(
            "bounds must leave some number of people, but one is below zero, or above all people."
        )
    return Within.between(math.ceil(lower), math.floor(upper))


def _levels(levels: Any) -> dict[str, Mapping[str, Sequence[Label]] | None]:
    if isinstance(levels, Mapping):
        return dict(levels)
    if isinstance(levels, str) or not isinstance(levels, Sequence) or not levels:
        raise ArgumentError(f"`levels` must be a list of levels, such as ['Tract'], got {levels!r}.")
    if len(set(levels)) != len(levels):
        raise ArgumentError(f"`levels` must name each level once, got {list(levels)!r}.")
    return dict.fromkeys(levels)


def _axes(argument: str, queries: Any) -> dict[str, Any]:
    """Return the axes of each query: a tuple with None for axes to sum over, or a query of a table."""
    if not isinstance(queries, Mapping):
        raise ArgumentError(
            f"{argument} must map names of queries to their axes, got a {type(queries).__name__}; write "
            "{'hispanic * cenrace_dpq': ('hispanic', 'race')}."
        )
    found: dict[str, Any] = {}
    for name, axes in queries.items():
        if isinstance(axes, Query) and not isinstance(axes, TableQuery):
            raise ArgumentError(
                f"{argument} must have tables or coarsened tables, got another query for {name!r}."
            )
        if isinstance(axes, TableQuery):
            found[name] = axes
        else:
            found[name] = (axes,) if isinstance(axes, str) else tuple(axes)
    return found


def _candidates(
    model: ModelSpecification, area: Variable | None, geocode: str | None, mapped: Mapping[str, Any] | None
) -> set[str]:
    """Return the geocodes that may hold areas of the model: all beginnings of theirs, or those of a mapping."""
    if (area is None) == (geocode is None):
        raise ArgumentError(
            "one of `area` and `geocode` must be given: the variable whose states are geocodes, or the "
            "one area's."
        )
    if mapped is not None:
        return set(map(str, mapped))
    if geocode is not None:
        return {str(geocode)}
    return set().union(*(_beginnings(str(label)) for label in model.domain.states_of(area)))


def _beginnings(code: str) -> set[str]:
    return {code[:length] for length in range(1, len(code) + 1)}


def _held(
    model: ModelSpecification,
    area: Variable | None,
    geocode: str | None,
    mapped: Mapping[str, Sequence[Label]] | None,
    files: LevelFiles,
) -> dict[str, tuple[Label, ...]]:
    """Return the level's geocodes and the model's areas in each."""
    if area is None:
        return {str(geocode): ()}
    states = model.domain.states_of(area)
    if mapped is not None:
        return {str(code): tuple(held) for code, held in mapped.items()}
    held: dict[str, list[Label]] = {}
    for label in states:
        homes = _beginnings(str(label)) & files.geocodes
        if not homes:
            example = min(files.geocodes, default="")
            raise DataError(
                f"the level {files.level!r} must have a geocode with which the area {str(label)!r} "
                f"begins, got none; its "
                f"geocodes are such as {example!r}. Map the level's geocodes to areas in `levels`, or "
                f"leave it out."
            )
        held.setdefault(max(homes, key=len), []).append(label)
    return {code: tuple(labels) for code, labels in held.items()}


def _refuse_partial(
    model: ModelSpecification,
    area: Variable | None,
    areas: Mapping[str, Mapping[str, Sequence[Label]]],
    known: Mapping[str, frozenset[str]],
) -> None:
    """Raise where a geography that is read holds areas which the model does not."""
    if area is None:
        return
    codes = [str(label) for label in model.domain.states_of(area)]
    all_codes = frozenset().union(*known.values()) if known else frozenset()
    for level, held in areas.items():
        for code in held:
            inside = [each for each in all_codes if each.startswith(code) and len(each) > len(code)]
            spare = [e for e in inside if not any(own.startswith(e) or e.startswith(own) for own in codes)]
            if spare:
                raise DataError(
                    f"the model must hold all areas of {code!r} of the level {level!r}, but {len(spare)} "
                    f"of its areas are "
                    f"no states of {area!r}; declare them too, or leave the level {level!r} out."
                )


def _without_total(
    model: ModelSpecification, found: Sequence[Measurement]
) -> tuple[list[Measurement], int | None]:
    """Return the measurements that are not the exact number of all people, and that number where one is."""
    kept, totals = [], set()
    for each in found:
        bound = each.query.bind(model)
        if len(bound) == 1 and not each.noise.variance > 0 and bound.total_weights is not None:
            totals.add(float(each.values[0]))
        else:
            kept.append(each)
    if len(totals) > 1:
        raise ModelError(f"exact constraints must agree on the number of people, got {sorted(totals)}.")
    number = totals.pop() if totals else None
    if number is not None and number != int(number):
        raise ModelError("the exact number of people must be whole, got another; correct the constraint.")
    return kept, None if number is None else int(number)
