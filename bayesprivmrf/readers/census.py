"""Noisy measurement files in the layout of the United States census of 2020."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable, listed
from bayesprivmrf.noise import NoiseLaw
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.queries import Query
from bayesprivmrf.queries.kinds import TableQuery
from bayesprivmrf.readers.census_files import AskedQuery, LevelFiles, level_files, require_names
from bayesprivmrf.readers.columns import Groups, released
from bayesprivmrf.readers.laws import family
from bayesprivmrf.release import Measurement, NoisyStatistics

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# The largest number of people where none is told: that up to which `LatentCounts` seeks it
_MOST = 10**10

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
        The publisher's promise, if there is one. This library cannot vouch for it.
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
    asked = _axes("queries", queries)
    fixed = _axes("constraints", {} if constraints is None else constraints)
    if state is not None:
        _require_text("`state`", state)
    require(asked or fixed, "queries", "name a query at least", "none", "write {'total_dpq': (), ...}")
    found: list[Measurement] = []
    constrained: list[tuple[AskedQuery, dict[str, tuple[Label, ...]], LevelFiles]] = []
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
            for name, (axes, groups) in wanted.items():
                one = AskedQuery(
                    model=model,
                    area=area,
                    kind=kind,
                    name=name,
                    axes=axes,
                    groups=groups,
                    exact=part == "Constraint",
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


def _require_text(what: str, value: Any) -> None:
    """Raise unless a value is text."""
    if not isinstance(value, str):
        raise ArgumentError(f"{what} must be text, got {reprlib.repr(value)}; write it in quotes.")


def _levels(levels: Any) -> dict[str, Mapping[str, Sequence[Label]] | None]:
    if isinstance(levels, str | bytes) or not isinstance(levels, Mapping | Sequence) or not len(levels):
        raise ArgumentError(f"`levels` must be a list of levels, such as ['Tract'], got {levels!r}.")
    for level in levels:
        _require_text("each of `levels`", level)
    if isinstance(levels, Mapping):
        return {level: _mapped(level, codes) for level, codes in levels.items()}
    require(len(set(levels)) == len(levels), "levels", "name each level once", list(levels))
    return dict.fromkeys(levels)


def _mapped(level: str, codes: Any) -> dict[str, tuple[Label, ...]] | None:
    """Return the areas that each geocode of a level holds; None where the geocodes tell them."""
    if codes is None:
        return None
    must = f"map {level!r} to None or to a mapping from geocodes to areas"
    instance_of("levels", codes, Mapping, must)
    return {
        str(code): tuple(listed(f"the areas of {code!r} in `levels`", held, error=ArgumentError))
        for code, held in codes.items()
    }


def _axes(argument: str, queries: Any) -> dict[str, tuple[tuple[Variable | None, ...], Groups]]:
    """Return the axes of each query, None for one to sum over, and the groups of states of coarsened axes."""
    remedy = "write {'hispanic * cenrace_dpq': ('hispanic', 'race')}"
    instance_of(argument, queries, Mapping, "map names of queries to their axes", remedy)
    found: dict[str, tuple[tuple[Variable | None, ...], Groups]] = {}
    for name, axes in queries.items():
        _require_text(f"each name in `{argument}`", name)
        if isinstance(axes, TableQuery):
            found[name] = axes.scope, {variable: dict(merged) for variable, merged in axes.groups}
            continue
        is_query = isinstance(axes, Query)
        require(not is_query, argument, "have tables or coarsened tables", f"another query for {name!r}")
        what = f"the axes of {name!r} in `{argument}`"
        given = [axes] if isinstance(axes, str) else listed(what, axes, error=ArgumentError)
        found[name] = tuple(given), {}
    return found


def _candidates(
    model: ModelSpecification, area: Variable | None, geocode: str | None, mapped: Mapping[str, Any] | None
) -> set[str]:
    """Return the geocodes that may hold areas of the model: all beginnings of theirs, or those of a mapping."""
    if (area is None) == (geocode is None):
        raise ArgumentError(
            "one of `area` and `geocode` must be given: the variable whose states are geocodes, or the one area's."
        )
    if geocode is not None:
        _require_text("`geocode`", geocode)
    if mapped is not None:
        return set(mapped)
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
        return {code: tuple(held) for code, held in mapped.items()}
    held: dict[str, list[Label]] = {}
    for label in states:
        homes = _beginnings(str(label)) & files.geocodes
        if not homes:
            example = min(files.geocodes, default="")
            raise DataError(
                f"the level {files.level!r} must have a geocode with which the area {str(label)!r} begins, got none; "
                f"its geocodes are such as {example!r}. Map the level's geocodes to areas in `levels`, or leave it "
                "out."
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
                    f"the model must hold all areas of {code!r} of the level {level!r}, but {len(spare)} of its "
                    f"areas are no states of {area!r}; declare them too, or leave the level {level!r} out."
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
