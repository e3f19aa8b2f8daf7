"""Reader of noisy measurement files in the layout of the 2020 United States census."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable, listed
from bayesprivmrf.noise import NoiseDistribution
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.queries import Query
from bayesprivmrf.queries.kinds import TableQuery
from bayesprivmrf.readers.census_files import AskedQuery, LevelFiles, level_files
from bayesprivmrf.readers.columns import Groups, family, or_near, released
from bayesprivmrf.release import Measurement, NoisyStatistics

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

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
    noise: type[NoiseDistribution] | str = "discrete-gaussian",
    guarantee: PrivacyGuarantee | None = None,
    total: int | None = None,
) -> NoisyStatistics:
    r"""Return the release of noisy measurement files in the census layout.

    Each level of areas has a folder, such as ``Tract.parquet``, with the folders ``DPQuery`` and ``Constraint``. They
    may have partitions such as ``State=44``. The files are parquet or CSV. Their columns are ``geocode``,
    ``query_name``, ``value`` (a list of numbers), ``variance`` and, optionally, ``query_shape`` and ``sign``.

    Parameters
    ----------
    network
        The declared model. The states of each variable must be in the order of the file's axes, which the files do
        not state.
    source
        The folder that contains the folders of the levels.
    queries
        For the name of each query to read, its axes in the file's order: a tuple of variables, with None for an axis
        that the model does not have, which is summed over; ``()`` for the number of people; or a `queries.table` or
        `queries.coarsened`. Other queries are not read.
    levels
        The levels to read. An area of a level is the union of the model's areas whose geocodes begin with its
        geocode. For other geocodes, map the level to a mapping from each of its geocodes to the states of `area` in
        it. The model must hold all areas of each geography of a level.
    area
        The variable whose states are geocodes. None for a model of the single area `geocode`.
    geocode
        The single area of a model that has no variable for areas.
    constraints
        The exact counts and bounds in ``Constraint``, in the form of `queries`. If a constraint states the number of
        all people, it becomes the `total` of the release. A bound has the ``sign`` ``<=`` or ``>=`` (also ``le``,
        ``ge``); in files without signs, its name has ``ub`` or ``lb``. It is read as a count `noise.Within` an
        interval from 0 to the bound, or from the bound to the number of all people.
    state
        The partition to read, such as ``"44"`` for ``State=44``; all partitions by default.
    noise
        The family of the noise distribution. The files state its variance.
    guarantee
        The publisher's privacy guarantee, if there is one. This library cannot vouch for it.
    total
        The number of people, if it is public and no constraint states it.

    Returns
    -------
    NoisyStatistics
        The release, with one measurement for each query, level and noise distribution.

    Raises
    ------
    ArgumentError
        A query is not in the files, or an argument is missing.
    DataError
        A file, a column, an area or a query of an area is missing, repeated, or has another size than declared; or
        a constraint has an unknown sign.
    ModelError
        A query does not fit the model, or the numbers contradict each other.

    Notes
    -----
    The geocodes in the census files are those of its disclosure avoidance spine, which differs from the geography of
    the published tables: tribal areas are separate, and block groups were redrawn.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import bayesprivmrf as bpm
    >>> network = bpm.declare({"sex": ["male", "female"]}, [("sex",)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     inside = Path(folder, "Tract", "DPQuery")
    ...     inside.mkdir(parents=True)
    ...     rows = 'geocode,query_name,value,variance\n44001,sex_dpq,"[52, 48]",4.0\n'
    ...     _ = (inside / "tract.csv").write_text(rows)
    ...     release = bpm.readers.read_census(
    ...         network, folder, queries={"sex_dpq": ("sex",)}, levels=["Tract"], geocode="44001"
    ...     )
    >>> release.flat.tolist()
    [52.0, 48.0]
    """
    model = ModelSpecification.from_pgmpy(network)
    kind = family(noise)
    given = _levels(levels)
    asked = _axes("queries", queries)
    fixed = _axes("constraints", {} if constraints is None else constraints)
    if state is not None:
        instance_of("`state`", state, str, "be text", "write it in quotes")
    require(
        asked or fixed, "queries", "name at least one query", "none", "write {'total_dpq': (), ...}"
    )
    found: list[Measurement] = []
    constrained: list[tuple[AskedQuery, dict[str, tuple[Label, ...]], LevelFiles]] = []
    known: dict[str, frozenset[str]] = {}
    homes: dict[str, list[str]] = {}  # geocodes of the levels that are not mapped
    for level, mapped in given.items():
        codes = _candidates(model, area, geocode, mapped)
        for part, wanted in (("DPQuery", asked), ("Constraint", fixed)):
            if not wanted:
                continue
            files = level_files(source, level, part, state=state, names=wanted, geocodes=codes)
            for name in wanted:
                must = f"name queries in the files of the level {level!r}"
                seen = f"{name!r}{or_near(name, files.names)}; it has {', '.join(map(repr, sorted(files.names)))}"
                require(
                    name in files.names,
                    "queries" if part == "DPQuery" else "constraints",
                    must,
                    seen,
                )
            known[level] = known.get(level, frozenset()) | files.geocodes
            inside = _areas_of(model, area, geocode, mapped, files)
            homes |= {level: list(inside)} if mapped is None else {}
            for name, (axes, groups) in wanted.items():
                one = AskedQuery(model, area, kind, name, axes, groups, exact=part == "Constraint")
                if one.is_bound(inside, files):
                    constrained.append((one, inside, files))
                else:
                    found += one.measurements(inside, files)
    if area is not None:
        # Raise an error if a geography that is read contains areas that the model lacks
        codes = [str(label) for label in model.domain.states_of(area)]
        everywhere = frozenset().union(*known.values())
        for level, own_codes in homes.items():
            for code in own_codes:
                inside = [
                    each for each in everywhere if each.startswith(code) and len(each) > len(code)
                ]
                spare = [
                    e
                    for e in inside
                    if not any(own.startswith(e) or e.startswith(own) for own in codes)
                ]
                must = f"have all areas of {code!r} of the level {level!r}"
                seen = f"{len(spare)} of them are not states of {area!r}"
                remedy = "declare them, or leave the level out"
                require(not spare, "the model", must, seen, remedy, error=DataError)
    kept, exact = _without_total(model, found)
    number = exact if total is None else total
    must = "be the number of people in the constraints"
    remedy = "leave it out"
    require(exact in (None, number), "total", f"{must}, {exact}", total, remedy, error=ModelError)
    # without a number of people, the largest one that `LatentCounts` allows
    most = 10**10 if number is None else number
    for one, inside, files in constrained:
        kept += one.measurements(inside, files, most=most)
    return released(model, kept, guarantee=guarantee, total=number)


def _levels(levels: Any) -> dict[str, dict[str, tuple[Label, ...]] | None]:
    """Return the areas in each geocode of the levels; None for a level where they follow from the geocodes."""
    is_list = (
        isinstance(levels, Mapping | Sequence)
        and not isinstance(levels, str | bytes)
        and len(levels)
    )
    require(is_list, "levels", "be a list of levels, such as ['Tract']", levels)
    for level in levels:
        instance_of("each of `levels`", level, str, "be text", "write it in quotes")
    if not isinstance(levels, Mapping):
        require(len(set(levels)) == len(levels), "levels", "name each level once", list(levels))
        return dict.fromkeys(levels)
    found: dict[str, Any] = {}
    for level, codes in levels.items():
        must = f"map {level!r} to None or to a mapping from geocodes to areas"
        is_right = codes is None or isinstance(codes, Mapping)
        require(is_right, "levels", must, f"a {type(codes).__name__}")
        found[level] = None if codes is None else {}
        for code, areas in (codes or {}).items():
            what = f"the areas of {code!r} in `levels`"
            found[level][str(code)] = tuple(listed(what, areas, error=ArgumentError))
    return found


def _axes(argument: str, queries: Any) -> dict[str, tuple[tuple[Variable | None, ...], Groups]]:
    """Return the axes of each query, None for one to sum over, and the groups of states of coarsened axes."""
    remedy = "write {'hispanic * cenrace_dpq': ('hispanic', 'race')}"
    instance_of(argument, queries, Mapping, "map names of queries to their axes", remedy)
    found: dict[str, tuple[tuple[Variable | None, ...], Groups]] = {}
    for name, axes in queries.items():
        instance_of(f"each name in `{argument}`", name, str, "be text", "write it in quotes")
        if isinstance(axes, TableQuery):
            found[name] = axes.scope, {variable: dict(merged) for variable, merged in axes.groups}
            continue
        is_query = isinstance(axes, Query)
        require(
            not is_query, argument, "name tables or coarsened tables", f"another query for {name!r}"
        )
        what = f"the axes of {name!r} in `{argument}`"
        if isinstance(axes, str):
            given = [axes]
        else:
            given = listed(what, axes, error=ArgumentError)
        found[name] = tuple(given), {}
    return found


def _candidates(
    model: ModelSpecification,
    area: Variable | None,
    geocode: str | None,
    mapped: Mapping[str, Any] | None,
) -> set[str]:
    """Return the geocodes that may contain areas of the model: all prefixes of theirs, or those of a mapping."""
    must = "be given: the variable whose states are geocodes, or the single geocode"
    require((area is None) != (geocode is None), "either `area` or `geocode`", must, "both or none")
    if geocode is not None:
        instance_of("`geocode`", geocode, str, "be text", "write it in quotes")
    if mapped is not None:
        return set(mapped)
    if geocode is not None:
        return {str(geocode)}
    return set().union(*(_prefixes(str(label)) for label in model.domain.states_of(area)))


def _prefixes(code: str) -> set[str]:
    return {code[:length] for length in range(1, len(code) + 1)}


def _areas_of(
    model: ModelSpecification,
    area: Variable | None,
    geocode: str | None,
    mapped: dict[str, tuple[Label, ...]] | None,
    files: LevelFiles,
) -> dict[str, tuple[Label, ...]]:
    """Return the geocodes of a level, each with the model's areas in it."""
    if area is None:
        return {str(geocode): ()}
    if mapped is not None:
        return mapped
    inside: dict[str, tuple[Label, ...]] = {}
    for label in model.domain.states_of(area):
        homes = _prefixes(str(label)) & files.geocodes
        must = f"have a geocode that is a prefix of the area {str(label)!r}"
        seen = f"none; it has geocodes such as {min(files.geocodes, default='')!r}"
        remedy = "map its geocodes to areas in `levels`, or leave the level out"
        require(homes, f"the level {files.level!r}", must, seen, remedy, error=DataError)
        home = max(homes, key=len)
        inside[home] = (*inside.get(home, ()), label)
    return inside


def _without_total(
    model: ModelSpecification, found: Sequence[Measurement]
) -> tuple[list[Measurement], int | None]:
    """Return the measurements other than the exact number of all people, and that number; None if there is none."""
    kept = []
    totals = set()
    for each in found:
        bound = each.query.bind(model)
        if len(bound) == 1 and each.noise.is_exact and bound.total_weights is not None:
            totals.add(float(each.values[0]))
        else:
            kept.append(each)
    must = "agree on the number of people"
    require(
        len(totals) < 2, "exact constraints", must, sorted(totals), "correct one", error=ModelError
    )
    is_whole = all(number == int(number) for number in totals)
    must = "be whole"
    remedy = "correct the constraint"
    require(is_whole, "the exact number of people", must, "a fraction", remedy, error=ModelError)
    return kept, int(totals.pop()) if totals else None
