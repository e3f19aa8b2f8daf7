"""Noisy counts in long form: one row a number, with the states that it counts and the law of its noise."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ArgumentError, DataError, UndeclaredStateError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable, label_key, listed
from bayesprivmrf.noise import NoiseLaw
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.readers.columns import columns_of, near, or_near, query_of, released
from bayesprivmrf.readers.laws import stated_laws, values_and_laws
from bayesprivmrf.release import Measurement, NoisyStatistics
from bayesprivmrf.release.given import by_law, refuse_proportions

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# Columns that are no variables, by the names that the layout gives them
_ROLES = ("value", "variance", "scale", "law", "query")

type _Level = Mapping[Label, Sequence[Label]]


def read_counts(
    network: DiscreteMarkovNetwork | ModelSpecification,
    source: str | os.PathLike[str] | Any,
    *,
    noise: NoiseLaw | type[NoiseLaw] | str | None = None,
    groups: Mapping[Variable, _Level | Sequence[_Level]] | None = None,
    columns: Mapping[Any, str] | None = None,
    everything: str = "*",
    withheld: Mapping[Any, tuple[int, int]] | None = None,
    guarantee: PrivacyGuarantee | None = None,
    total: int | None = None,
) -> NoisyStatistics:
    """Release of noisy counts that somebody else published in long form.

    Parameters
    ----------
    network
        The declared model; each table lies inside one of its cliques.
    source
        A file (``.csv``, ``.csv.gz`` or ``.parquet``; fields separated by commas, tabs, or semicolons, and then
        perhaps with decimal commas) or a data frame, with a row for each noisy number. Its columns are the variables,
        whose entries are declared states; ``value``; and optionally ``law`` (the noise distribution's name in files,
        such as ``discrete-gaussian``), ``scale`` and ``variance`` of the noise, and ``query``. A variable without a
        column, or with an empty entry or the entry `everything`, is summed over. Rows of the same variables form one
        table; ``query`` distinguishes tables of the same variables.
    noise
        The law of all noise; or its family, a class or a name, whose parameter stands in each row.
    groups
        For a variable, the groups of states that rows may have in place of a state, as in `queries.coarsened`; or a
        list of several such partitions, as of areas.
    columns
        The file's name of a variable or of one of the columns above, where it differs.
    everything
        The entry that says that a variable is summed over.
    withheld
        Entries of ``value`` that stand for a count which was withheld, each with the least and the largest number
        that it may stand for, both included: ``{"<10": (0, 9)}``. Where noise of whole numbers was added before,
        noisy counts may be negative, so that the least is one that the noise does not reach, such as -1000; the
        row's law is that noise, or ``none``. `LatentCounts` reads such a release (`bayesprivmrf.noise.Within`).
    guarantee
        The publisher's promise, if there is one. This library cannot vouch for it.
    total
        The number of records, where it is public.

    Raises
    ------
    ArgumentError
        A law is not stated, or lacks its parameter; groups are no partition; or bounds of withheld counts are none.
    DataError
        A column is missing, a cell is missing or repeated, or a value is no number.
    ModelError
        The tables do not fit the model, or contradict each other on the number of records.
    UndeclaredStateError
        A row has a state that was not declared.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> network = bpm.declare({"smokes": ["no", "yes"], "ill": ["no", "yes"]}, [("smokes", "ill")])
    >>> rows = {"smokes": ["no", "yes", "no", "no", "yes", "yes"], "ill": ["*", "*", "no", "yes", "no", "yes"],
    ...         "value": [61.5, 40.0, 52.0, 9.5, 30.0, 8.0], "scale": [1, 1, 3, 3, 3, 3]}
    >>> release = bpm.readers.read_counts(network, rows, noise="laplace")
    >>> [each.query for each in release.measurements]
    [table('smokes'), table('smokes', 'ill')]
    """
    model = ModelSpecification.from_pgmpy(network)
    instance_of(
        "everything", everything, str, "be the text that stands for all states", "leave it out for '*'"
    )
    called = columns if isinstance(columns, Mapping) else {}
    numbers = [str(called.get(role, role)) for role in ("value", "scale", "variance")]
    held = _named(model, columns_of(source, numbers), columns)
    count = len(held["value"])
    if not count:
        raise DataError("the noisy counts must have a row at least, got none.")
    laws = stated_laws(
        count, noise, names=held.get("law"), scales=held.get("scale"), variances=held.get("variance")
    )
    values, laws = values_and_laws(held["value"], laws, withheld)
    levels = _levels(model, groups)
    places = {
        v: _places(model, v, held[v], levels.get(v, []), everything)
        for v in model.domain.variables
        if v in held
    }
    names = held.get("query", [""] * count)
    tables: dict[Any, list[int]] = {}
    for row in range(count):
        key = tuple((v, place[row][0]) for v, place in places.items() if place[row] is not None)
        tables.setdefault((str(names[row]), key), []).append(row)
    refuse_proportions([values[rows] for rows in tables.values()])
    measurements: list[Measurement] = []
    for (_, key), rows in tables.items():
        chosen = {v: levels[v][level - 1] for v, level in key if level}
        codes = [[places[v][row][1] for v, _ in key] for row in rows]
        sizes = [len(chosen.get(v, model.domain.states_of(v))) for v, _ in key]
        order = _in_order([v for v, _ in key], codes, sizes)
        placed = [rows[k] for k in order]
        query = query_of(model, [v for v, _ in key], chosen)
        measurements += by_law(model, query, values[placed], [laws[row] for row in placed])
    return released(model, measurements, guarantee=guarantee, total=total)


def _named(
    model: ModelSpecification, found: Mapping[str, Sequence[Any]], columns: Mapping[Any, str] | None
) -> dict[Any, Sequence[Any]]:
    """Return the columns by variable and role; a file need not have all of them, but must have the values."""
    must = f"map variables, or {', '.join(_ROLES)}, to columns"
    called = dict(instance_of("columns", {} if columns is None else columns, Mapping, must))
    wanted: list[Any] = [*model.domain.variables, *_ROLES]
    for name in called:
        require(name in wanted, "columns", must, f"{name!r}{or_near(str(name), map(str, wanted))}")
    held = {}
    for name in wanted:
        column = str(called.get(name, name))
        if column in found:
            held[name] = found[column]
        elif name in called or name == "value":
            raise DataError(
                f"the noisy counts must have a column {column!r}, got none{or_near(column, found)}."
            )
    spare = [column for column in found if column not in {str(called.get(n, n)) for n in held}]
    for column in spare:
        meant = near(column, [str(n) for n in wanted if n not in held])
        if meant is not None:
            raise DataError(
                f"the column {column!r} must be called {meant!r} if that is meant; rename it, or say so in "
                "`columns`; rename it as well where it is something else."
            )
    if not any(variable in held for variable in model.domain.variables):
        raise DataError(
            "the noisy counts must have a column of some variable, got none; the variables are "
            f"{', '.join(map(repr, model.domain.variables))}."
        )
    return held


def _levels(model: ModelSpecification, groups: Any) -> dict[Variable, list[_Level]]:
    """Return the partitions of each variable that has some, checked."""
    found: dict[Variable, list[_Level]] = {}
    groups = instance_of("groups", {} if groups is None else groups, Mapping, "map variables to groups")
    for variable, given in groups.items():
        partitions = [given] if isinstance(given, Mapping) else listed(f"the groups of {variable!r}", given)
        for level in partitions:
            # refuses what is none
            query_of(model, [variable], {variable: level}).bind(_alone(model, variable))
        found[variable] = partitions
    return found


def _alone(model: ModelSpecification, variable: Variable) -> ModelSpecification:
    model.domain.index(variable)
    return ModelSpecification(domain=model.domain, cliques=tuple((v,) for v in model.domain.variables))


def _places(
    model: ModelSpecification,
    variable: Variable,
    entries: Sequence[Any],
    levels: Sequence[_Level],
    everything: str,
) -> list[Any]:
    """Return the level and code of each entry of a column; None where the variable is summed over."""
    meant = {"", everything} & set(map(str, chain(model.domain.states_of(variable), *levels)))
    if meant:
        raise ArgumentError(
            f"`everything` and empty entries stand for all states of {variable!r}, which has {min(meant)!r} as a "
            "state or group too; choose another `everything`, or rename the state."
        )
    known: dict[Any, tuple[int, int]] = {}
    for number, labels in enumerate([model.domain.states_of(variable), *levels]):
        for code, label in enumerate(labels):
            if (str(label) in known) or label_key(label) in known:
                raise ArgumentError(
                    f"the groups of {variable!r} must have labels of their own, got {label!r} twice, or as a state; "
                    "rename the group."
                )
            known[str(label)] = known[label_key(label)] = (number, code)
    places = []
    for entry in entries:
        if entry is None or entry != entry or (isinstance(entry, str) and entry.strip() in {"", everything}):
            places.append(None)
            continue
        place = known.get(label_key(entry)) or known.get(str(entry).strip())
        if place is None:
            raise UndeclaredStateError(
                f"the column of {variable!r} must hold declared states, labels of `groups`, or {everything!r}, got "
                "something else; declare it, or say in `groups` what it holds. The states are "
                f"{', '.join(map(repr, model.domain.states_of(variable)))}."
            )
        places.append(place)
    return places


def _in_order(scope: Sequence[Variable], codes: Sequence[Sequence[int]], sizes: Sequence[int]) -> list[int]:
    """Return the rows of a table in C order of its cells, each of which is there once."""
    cells, name = math.prod(sizes), f"the table of {tuple(scope)!r}" if scope else "the number of records"
    flat = [int(np.ravel_multi_index(code, sizes)) if sizes else 0 for code in codes]
    if len(set(flat)) < len(flat):
        raise DataError(
            f"{name} must have each cell once, got {len(flat) - len(set(flat))} rows for cells that it has already; "
            "add a column `query` that tells measurements of the same variables apart."
        )
    if len(flat) < cells:
        raise DataError(
            f"{name} must have a row for each of its {cells} cells, got {len(flat)}. What was withheld tells "
            "something as well, so that leaving it out would mislead: add the rows, with a mark that `withheld` "
            "explains, or leave out the table."
        )
    return list(np.argsort(flat))
