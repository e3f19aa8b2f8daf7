"""Reader of noisy counts in long form: each row has one number, its states and its noise distribution."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import DataError, UndeclaredStateError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import (
    Label,
    Variable,
    is_missing,
    label_key,
    listed,
    other_form,
    require_hashable,
)
from bayesprivmrf.model.labels import is_total_name
from bayesprivmrf.model.tables import free_names
from bayesprivmrf.noise import Likelihood, NoiseDistribution
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.readers.columns import (
    checked_decimal,
    chosen_columns,
    code_finder,
    columns_of,
    measured_numbers,
    or_near,
    query_of,
    released,
    stated_noise,
)
from bayesprivmrf.readers.grids import grids_of
from bayesprivmrf.readers.numbers_of_tables import stated_numbers
from bayesprivmrf.readers.published_tables import PublishedTables, is_printed
from bayesprivmrf.release import Measurement, NoisyStatistics
from bayesprivmrf.release.given import refuse_proportions

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# Names of the columns that are not variables
_ROLES = ("value", "variance", "scale", "law", "query")

type _Level = Mapping[Label, Sequence[Label]]


def read_counts(
    network: DiscreteMarkovNetwork | ModelSpecification,
    source: str | os.PathLike[str] | Any,
    *,
    noise: Likelihood | type[NoiseDistribution] | str | Mapping[Any, Likelihood] | None = None,
    groups: Mapping[Variable, _Level | Sequence[_Level]] | None = None,
    columns: Mapping[Any, str] | None = None,
    everything: str = "*",
    missing: Label | None = None,
    withheld: Mapping[Any, Any] | None = None,
    decimal: str | None = None,
    guarantee: PrivacyGuarantee | None = None,
    total: int | None = None,
) -> NoisyStatistics:
    """Return the release of counts that somebody else published, in long form or as a printed table.

    Parameters
    ----------
    network
        The declared model. Each table lies inside one of its cliques.
    source
        A table in long form: a file (``.csv``, ``.csv.gz`` or ``.parquet``) or a data frame with a row for each noisy
        number; or a table as it is printed, such as `read_folder` describes. The second is recognized by a `noise`
        that changes counts, or the lack of a column ``value``, and what was found is printed. In long form, fields of
        a text file are separated by commas, tabs or semicolons; with semicolons, numbers may have decimal commas.
        The columns are the variables, whose entries are declared states; ``value``; and optionally ``law`` (the name
        of the noise distribution in files, such as ``discrete-gaussian``), ``scale`` and ``variance`` of the noise,
        and ``query``. A variable with one of these names gets an underscore here and in `columns`: ``value_``. A
        variable is summed over if it has no column, or if its entry is `everything`. Rows with the same variables
        form one table; ``query`` distinguishes several tables of the same variables.
    noise
        The distribution or rule of all rows; a family, as a class or a name, whose parameter is in each row; or, for
        a printed table, a mapping as in `read_folder`.
    groups
        For a variable, the groups of states that rows may have in place of a state, as in `queries.coarsened`; or a
        list of several such partitions, such as levels of areas.
    columns
        The file's name of a variable or of one of the columns above, if it differs.
    everything
        The entry that marks a variable as summed over. Write ``""`` if empty entries do so.
    missing
        The declared state for empty entries, by which SQL engines write the group of missing values (``NULL``). They
        are refused if neither this nor ``everything=""`` says what they mean.
    withheld
        The marks of withheld counts in ``value``, each with its smallest and largest possible count:
        ``{"<10": (0, 9)}``; with None for any count; or, if it has no digit, with a number: ``{"-": 0}``. If integer
        noise was added before counts were withheld, a noisy count may be negative: the lower bound is then a number
        that the noise cannot reach, such as -1000, and the row's ``law`` is that noise. Otherwise ``law`` is
        ``none``. Only `LatentCounts` fits such a release (`bayesprivmrf.noise.Within`). Beside a rule such as
        ``Rounded(5)``, every estimator does.
    decimal
        The decimal mark of the numbers in a text file, ``"."`` or ``","``. The other one may then separate thousands.
    guarantee
        The publisher's privacy guarantee, if there is one. This library cannot vouch for it.
    total
        The number of records, if it is public.

    Returns
    -------
    NoisyStatistics
        The release, with one measurement for each table and each noise distribution in it.

    Raises
    ------
    ArgumentError
        A noise distribution is not stated or lacks its parameter, the groups are not a partition, the bounds of a
        withheld count are invalid, or `missing` is no declared state.
    DataError
        A column is missing, a cell is missing or repeated, or a value is not a number.
    ModelError
        The tables do not fit the model, are proportions, or contradict each other about the number of records.
    UndeclaredStateError
        A row has a state that was not declared, or an empty entry without a meaning.

    Warns
    -----
    ConsistencyWarning
        The tables look like percentages.

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
    must = "be the text that stands for all states"
    instance_of("everything", everything, str, must, "leave it out for '*'")
    _check_missing(model, missing, everything)
    if isinstance(columns, Mapping):
        called = columns
    else:
        called = {}
    is_plain = everything == "*" and missing is None and groups is None
    if is_plain and is_printed(source, noise, called):
        printed = PublishedTables(model, noise, withheld, columns, decimal)
        return printed.release(printed.read(grids_of(source)), guarantee=guarantee, total=total)
    numbers = [str(called.get(role, role)) for role in ("value", "scale", "variance")]
    found = columns_of(source, numbers, checked_decimal(decimal))
    _require_long(model, found, numbers[0])
    own, stated_by = _named(model, found, columns)
    count = len(stated_by["value"])
    require(count, "the noisy counts", "have at least one row", "none", error=DataError)
    stated = stated_noise(count, noise, stated_by)
    numbers_of_rows = stated_numbers(stated_by["value"], stated, withheld)
    levels = _levels(model, groups)
    labels = {v: [model.domain.states_of(v), *levels.get(v, [])] for v in own}
    places = {v: _places(v, entries, labels[v], everything, missing) for v, entries in own.items()}
    names = stated_by.get("query", [""] * count)
    tables: dict[Any, list[int]] = {}
    for row in range(count):
        key = tuple((v, place[row][0]) for v, place in places.items() if place[row] is not None)
        tables.setdefault((str(names[row]), key), []).append(row)
    shown = [
        np.array([number[0] for number in map(numbers_of_rows.__getitem__, rows) if number])
        for rows in tables.values()
    ]
    refuse_proportions(shown, total)
    measurements: list[Measurement] = []
    for (_, key), rows in tables.items():
        chosen = {v: levels[v][level - 1] for v, level in key if level}
        codes = [[places[v][row][1] for v, _ in key] for row in rows]
        sizes = [len(chosen.get(v, model.domain.states_of(v))) for v, _ in key]
        order = _in_order([v for v, _ in key], codes, sizes)
        placed = [rows[k] for k in order]
        query = query_of(model, [v for v, _ in key], chosen)
        measurements += measured_numbers(model, query, [numbers_of_rows[row] for row in placed])
    return released(model, measurements, guarantee=guarantee, total=total)


def _check_missing(model: ModelSpecification, missing: Any, everything: str) -> None:
    """Raise an error if empty entries have two meanings, or a meaning that no variable has."""
    if missing is not None:
        must = "be one state for all variables"
        remedy = "declare it for each that has empty entries"
        require(not isinstance(missing, Mapping), "missing", must, "a mapping", remedy)
        require_hashable("`missing`", missing)
        is_declared = any(
            code_finder(states)(missing) is not None for states in model.domain.states
        )
        must = "be a declared state of a variable, and None beside everything=''"
        remedy = "declare the state that stands for missing values"
        require(is_declared and everything.strip(), "missing", must, repr(missing), remedy)


def _require_long(
    model: ModelSpecification, found: Mapping[str, Sequence[Any]], value: str
) -> None:
    """Raise an error if a table in wide form is given, with a column for each state of a variable."""
    for variable, states in zip(model.domain.variables, model.domain.states, strict=True):
        is_wide = value not in found and len(found.keys() & set(map(str, states))) > 1
        must = "have a row for each number"
        seen = f"a column for each state of {variable!r}"
        remedy = "reshape the frame by `frame.melt(...)`, or give its counts to `NoisyStatistics.from_tables`"
        require(not is_wide, "the noisy counts", must, seen, remedy, error=DataError)


def _named(
    model: ModelSpecification, found: Mapping[str, Sequence[Any]], columns: Mapping[Any, str] | None
) -> tuple[dict[Variable, Sequence[Any]], dict[str, Sequence[Any]]]:
    """Return the columns of variables and the other columns; only the column of values must be there.

    A variable that is called like another column, such as ``value``, has an underscore in files and in `columns`.
    """
    must = f"map variables, or {', '.join(_ROLES)}, to columns"
    called = dict(instance_of("columns", {} if columns is None else columns, Mapping, must))
    variables = dict(
        zip(free_names(model.domain.variables, _ROLES), model.domain.variables, strict=True)
    )
    wanted: list[Any] = [*variables, *_ROLES]
    for name in called:
        require(name in wanted, "columns", must, f"{name!r}{or_near(str(name), map(str, wanted))}")
    names = {name: str(called.get(name, name)) for name in wanted}
    for name, variable in variables.items():
        is_there = name == variable or names[name] in found
        must = f"have a column {names[name]!r} for the variable {variable!r}, which is called like another column"
        remedy = f"rename it, or map {name!r} to it in `columns`"
        require(is_there, "the noisy counts", must, "none", remedy, error=DataError)
    named = chosen_columns("the noisy counts", found, names, {"value", *called})
    own = {variable: named[name] for name, variable in variables.items() if name in named}
    seen = f"none of {', '.join(map(repr, model.domain.variables))}"
    must = "have a column for at least one variable"
    require(own, "the noisy counts", must, seen, error=DataError)
    return own, {role: named[role] for role in _ROLES if role in named}


def _levels(model: ModelSpecification, groups: Any) -> dict[Variable, list[_Level]]:
    """Return the partitions of each variable that has groups, after a check that they are partitions."""
    found: dict[Variable, list[_Level]] = {}
    groups = instance_of(
        "groups", {} if groups is None else groups, Mapping, "map variables to groups"
    )
    for variable, given in groups.items():
        if isinstance(given, Mapping):
            partitions = [given]
        else:
            partitions = listed(f"the groups of {variable!r}", given)
        model.domain.index(variable)
        apart = ModelSpecification(
            domain=model.domain, cliques=tuple((v,) for v in model.domain.variables)
        )
        for level in partitions:
            # binding the query raises an error if the groups are not a partition
            query_of(model, [variable], {variable: level}).bind(apart)
        found[variable] = partitions
    return found


def _places(
    variable: Variable,
    entries: Sequence[Any],
    levels: Sequence[Iterable[Label]],
    everything: str,
    missing: Label | None,
) -> list[Any]:
    """Return the level and the code of each entry of a column; None if the variable is summed over.

    The first level has the states, and the others the labels of groups. Empty entries are the state `missing`.
    """
    meant = {"", everything} & set(map(str, chain(*levels)))
    must = f"be no state or group of {variable!r}"
    seen = repr(min(meant, default=""))
    remedy = "choose another `everything`, or rename the state"
    require(not meant, "`everything` and empty entries", must, seen, remedy)
    known: dict[Any, tuple[int, int]] = {}
    for number, labels in enumerate(levels):
        for code, label in enumerate(labels):
            is_new = str(label) not in known and label_key(label) not in known
            must = "have labels that no state and no other group has"
            require(
                is_new, f"the groups of {variable!r}", must, f"{label!r} again", "rename the group"
            )
            known[str(label)] = known[label_key(label)] = (number, code)
    for number, labels in enumerate(levels):
        # data frames may store the day of a date as its midnight
        for code, label in enumerate(labels):
            other = other_form(label)
            if other is not None:
                known.setdefault(label_key(other), (number, code))
    states = [*levels[0]]
    if missing is None:
        code = None
    else:
        code = code_finder(states)(missing)
    empty = None if code is None else (0, code)
    is_summed = not everything.strip()  # empty entries stand for all states
    places = []
    for row, entry in enumerate(entries, start=1):
        if is_missing(entry):
            text = ""
        else:
            text = str(entry).strip()
        is_mark = isinstance(entry, str) and text == everything
        if is_mark or (not text and is_summed):
            places.append(None)
            continue
        if text:
            place = known.get(label_key(entry)) or known.get(text)
        else:
            place = empty
        if place is None:
            raise _unknown_entry(variable, row, text, states, everything)
        places.append(place)
    return places


def _unknown_entry(
    variable: Variable, row: int, text: str, states: Sequence[Label], everything: str
) -> UndeclaredStateError:
    """Return the error for an entry without a meaning, which shows no entry but the usual names of a total."""
    must = f"hold declared states, labels of `groups`, or {everything!r}"
    seen = f"another entry in row {row}"
    listing = ", ".join(map(repr, states))
    remedy = f"declare the state, or list its states in `groups`. The declared states are {listing}"
    if not text:
        seen = f"an empty entry in row {row}"
        remedy = "name its declared state in `missing=`, or write everything='' if it stands for all states"
        if everything != "*":  # a mark that the caller chose
            remedy = f"name its declared state in `missing=`, or write {everything!r} in it if it stands for all"
    elif is_total_name(text):
        seen = f"{text!r} in row {row}"
        remedy = f"leave out rows of totals, or write everything={text!r} to read them"
    return UndeclaredStateError(f"the column of {variable!r} must {must}, got {seen}; {remedy}.")


def _in_order(
    scope: Sequence[Variable], codes: Sequence[Sequence[int]], sizes: Sequence[int]
) -> list[int]:
    """Return the rows of a table in C order of its cells; an error if a cell is missing or repeated."""
    cells = math.prod(sizes)
    if scope:
        name = f"the table of {tuple(scope)!r}"
    else:
        name = "the number of records"
    flat = [int(np.ravel_multi_index(code, sizes)) if sizes else 0 for code in codes]
    repeated = len(flat) - len(set(flat))
    remedy = "add a column `query` that distinguishes measurements of the same variables"
    seen = f"{repeated} further rows for the same cells"
    require(not repeated, name, "have each cell once", seen, remedy, error=DataError)
    remedy = "add rows of withheld counts, which are informative, with a mark for `withheld`, or leave out the table"
    must = f"have a row for each of its {cells} cells"
    require(len(flat) == cells, name, must, len(flat), remedy, error=DataError)
    return list(np.argsort(flat))
