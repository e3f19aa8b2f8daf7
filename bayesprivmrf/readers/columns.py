"""Shared tools of the readers: columns of files and data frames, near spellings, numbers, noise, and the release.

The noise distribution of a published number follows from a stated family and a scale or variance. Every reader passes
its measurements to `released`, which checks that they describe one population in one unit.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bayesprivmrf.checks import instance_of, one_of, require, same_labels
from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable, codes_by_key, is_missing, label_key, listed
from bayesprivmrf.noise import NoiseDistribution, NoNoise
from bayesprivmrf.noise.base import contradiction
from bayesprivmrf.noise.continuous import named_law
from bayesprivmrf.noise.likelihood import Likelihood
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.queries import Query, coarsened, table, weighted
from bayesprivmrf.readers.text_files import read_table, repeated_error
from bayesprivmrf.release import Measurement, NoisyStatistics
from bayesprivmrf.release.given import noise_of_variance

# Numbers by their decimal mark, with thousands separated or not
_DECLARED = {
    mark: re.compile(
        rf"(?P<whole>[+-]?(\d+|\d{{1,3}}([{other} '’]\d{{3}})+))(?P<rest>([{mark}]\d+)?(e[+-]?\d+)?)",
        re.IGNORECASE,
    )
    for mark, other in ((".", ","), (",", "."))
}

type Columns = dict[str, Sequence[Any]]


def columns_of(source: Any, numbers: Iterable[str] = (), decimal: str | None = None) -> Columns:
    """Return the columns of a CSV or Parquet file, or of a data frame; the entries of a CSV file stay text.

    Parameters
    ----------
    source
        A path, a mapping from names to columns, or a data frame.
    numbers
        Names of columns of numbers. They may have decimal commas if semicolons separate the fields.
    decimal
        The decimal mark of these numbers in a CSV file, ``"."`` or ``","``, if it is declared.

    Raises
    ------
    ArgumentError
        The source is none of these.
    DataError
        The file cannot be read.
    """
    if isinstance(source, str | os.PathLike):
        return csv_columns(source, numbers, decimal)
    if isinstance(source, Mapping):
        must = "have the same index in the same order"
        remedy = "put them into one data frame"
        is_one = same_labels(source.values())
        what = "the columns of the noisy counts"
        require(is_one, what, must, "several", remedy, error=DataError)
        return {
            str(name): listed(f"the column {name!r}", column) for name, column in source.items()
        }
    import narwhals.stable.v2 as nw

    try:
        frame = nw.from_native(source)
    except TypeError:
        must = "be the path of a CSV or Parquet file or a data frame"
        raise ArgumentError(
            f"the noisy counts must {must}, got a {type(source).__name__}."
        ) from None
    if isinstance(frame, nw.LazyFrame):
        eager = frame.collect()
    else:
        eager = frame
    names = [str(name) for name in eager.columns]
    if len(set(names)) != len(names):
        raise repeated_error()
    return {
        name: eager.get_column(own).to_list()
        for name, own in zip(names, eager.columns, strict=True)
    }


def csv_columns(
    path: str | os.PathLike[str], numbers: Iterable[str] = (), decimal: str | None = None
) -> Columns:
    """Return the columns of a CSV or Parquet file; all entries of a CSV file are text, also empty ones.

    `columns_of` describes the arguments.
    """
    frame, separator = read_table(path, is_strict=True)
    columns = {str(name).strip(): frame[name] for name in frame}
    if len(columns) != frame.shape[1]:
        raise repeated_error()
    if separator:
        columns = {name: column.fillna("") for name, column in columns.items()}
    own = {name: columns[name] for name in numbers if name in columns}
    if separator and decimal is not None:
        plain = partial(_in_plain_form, decimal=decimal)
        columns |= {name: column.map(plain) for name, column in own.items()}
    elif separator == ";":
        _refuse_unclear_commas([entry for column in own.values() for entry in column])
        # points may separate thousands: beside one, no comma is read as that of a decimal
        if not any(column.str.contains(".", regex=False).any() for column in own.values()):
            columns |= {
                name: column.str.replace(",", ".", regex=False) for name, column in own.items()
            }
    # missing entries of Parquet files become None, because pandas.NA has no truth value
    return {
        name: column.astype(object).where(column.notna(), None).tolist()
        for name, column in columns.items()
    }


def _refuse_unclear_commas(entries: Iterable[str]) -> None:
    """Raise an error if commas or points could be those of decimals or of thousands, as in 1,410 alone."""
    marked = [entry for entry in entries if "," in entry or "." in entry]
    is_unclear = bool(marked) and all(_UNCLEAR.fullmatch(entry.strip()) for entry in marked)
    must = "show which mark is decimal"
    seen = "three digits after each comma or point, as in 1,410"
    remedy = "write `decimal=','` or `decimal='.'`, the mark of decimals"
    require(
        not is_unclear, "the numbers of a file with semicolons", must, seen, remedy, error=DataError
    )


def _in_plain_form(text: str, decimal: str) -> str:
    """Return the text of a number with a decimal point and nothing between thousands; other text as it is."""
    found = plain_number(text.strip(), decimal)
    must = f"have {decimal!r} as their decimal mark, and other marks between thousands alone"
    if found is not None:
        return found
    is_text = math.isnan(as_number(text))
    require(is_text, "the numbers of the file", must, "another form", error=DataError)
    return text


def plain_number(text: str, decimal: str) -> str | None:
    """Return the text of a number as Python writes it; None for other text.

    Parameters
    ----------
    text
        The text, without spaces at its ends.
    decimal
        The decimal mark, ``"."`` or ``","``. Thousands may be separated by the other one, a space or an apostrophe.

    Examples
    --------
    >>> plain_number("1.234,5", ","), plain_number("1.234", "."), plain_number("1.5", ",")
    ('1234.5', '1.234', None)
    """
    found = _DECLARED[decimal].fullmatch(text)
    if found is None:
        return None
    whole = re.sub(r"[^\d+-]", "", found["whole"])
    return f"{whole}{found['rest'].replace(',', '.')}"


def checked_decimal(decimal: Any) -> str | None:
    """Return a declared decimal mark, after a check that it is a point or a comma."""
    if decimal is None:
        return None
    return one_of("decimal", decimal, tuple(_DECLARED))


def near(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a name; None if no known name is similar."""
    names = list(known)
    # letters and digits without regard to case
    bare, *others = ("".join(filter(str.isalnum, str(each).casefold())) for each in (name, *names))
    found = difflib.get_close_matches(bare, others, n=1, cutoff=0.75)
    if found:
        return names[others.index(found[0])]
    return None


def or_near(name: str, known: Iterable[str]) -> str:
    """Return the end of a message that offers a similar known name; empty if there is none."""
    found = near(name, known)
    if found is None:
        return ""
    return f"; {found!r} is similar"


# Remedy for a missing column, for example where a title is above the header
_HEADER = "the first line of a file holds the names of its columns, with no title above it"


def chosen_columns(
    what: str, found: Mapping[str, Sequence[Any]], names: Mapping[Any, str], needed: Iterable[Any]
) -> dict[Any, Sequence[Any]]:
    """Return the columns that are there, by what the caller calls them; needed ones must be there.

    Parameters
    ----------
    what
        Description of the table.
    found
        All columns of the table.
    names
        The name in the table of each column that the caller knows.
    needed
        The columns that must be there, by what the caller calls them.
    """
    for key, name in names.items():
        is_there = name in found or key not in needed
        seen = f"none{or_near(name, found)}"
        require(is_there, what, f"have a column {name!r}", seen, _HEADER, error=DataError)
    # a misspelled column must not be ignored: a variable without a column is summed over
    missing = [name for name in names.values() if name not in found]
    remedy = "rename it or, for `read_counts`, map it in `columns`; give it another name if it is something else"
    for name in sorted(found.keys() - set(names.values())):
        other = near(name, missing)
        must = f"be called {other!r} if that is meant"
        require(other is None, f"the column {name!r}", must, repr(name), remedy, error=DataError)
    return {key: found[name] for key, name in names.items() if name in found}


def as_number(value: Any) -> float:
    """Return a value as a number; NaN if it is not a number, is a boolean, or is text with underscores."""
    if type(value).__name__ in {"bool", "bool_"} or (isinstance(value, str) and "_" in value):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def code_finder(states: Sequence[Label]) -> Callable[[Any], int | None]:
    """Return a function from a label to the position of the state that equals it, or else has its text.

    The function returns None for a label without such a state.
    """
    by_text = {str(state): code for code, state in enumerate(states)}
    by_key = codes_by_key(states)
    return lambda label: by_key.get(label_key(label), by_text.get(str(label)))


# A number whose thousands are separated, as in 1,410 or 1 410 or 1.410,5
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}([,.'’\s]\d{3})+([.,]\d+)?")
# A number that is 1410 or 1.41, as its mark separates thousands or decimals
_UNCLEAR = re.compile(r"[+-]?[1-9]\d{0,2}[,.]\d{3}")


def _is_grouped(value: Any) -> bool:
    """Return True for text that looks like a number with separators of thousands."""
    return isinstance(value, str) and _GROUPED.fullmatch(value.strip()) is not None


def number_of(
    what: str,
    value: Any,
    remedy: str = "leave out what was not answered",
    seen: str = "something else",
) -> float:
    """Return a finite number; a `DataError`, which does not show the value, if it is not one."""
    number = as_number(value)
    if not math.isfinite(number) and _is_grouped(value):
        remedy = (
            "write 1,410 as 1410, or give a frame that `pandas.read_csv(..., thousands=',')` read"
        )
        seen = f"{seen}, which looks like a number with separators of thousands"
    require(math.isfinite(number), what, "be finite numbers", seen, remedy, error=DataError)
    return number


def width_of(what: str, value: Any) -> float:
    """Return a finite number of at least 0, which states the width of noise; an `ArgumentError` otherwise."""
    number = as_number(value)
    if _is_grouped(value):
        seen = "a number with separators of thousands"
    else:
        seen = "another"
    require(0 <= number < math.inf, what, "be a finite number of at least 0", seen)
    return number


type Groups = Mapping[Variable, Mapping[Label, Sequence[Label]]]


def query_of(model: ModelSpecification, scope: Sequence[Variable], groups: Groups) -> Query:
    """Return the query of a table whose variables may be coarsened; without variables, the number of records."""
    if not scope:
        variable = model.domain.variables[0]
        return coarsened(variable, groups={variable: {"all": model.domain.states_of(variable)}})
    if groups:
        return coarsened(*scope, groups=groups)
    return table(*scope)


# Published number and its likelihood; None if the count may be any
type Number = tuple[float, Likelihood] | None


def measured_numbers(
    model: ModelSpecification, query: Query, numbers: Sequence[Number]
) -> list[Measurement]:
    """Return one measurement for each likelihood among the numbers of a query, in its order; None is not measured."""
    rows: dict[Likelihood, list[int]] = {}
    for row, number in enumerate(numbers):
        if number is not None:
            rows.setdefault(number[1], []).append(row)
    found = []
    for law, chosen in rows.items():
        values = np.array([numbers[row][0] for row in chosen])  # type: ignore[index]
        own = query
        if len(chosen) < len(numbers):
            bound = query.bind(model)
            (scope,) = bound.scopes
            labels = [bound.labels[row] for row in chosen]
            own = weighted(*scope, matrix=bound.matrix[chosen], labels=labels)
        found.append(Measurement(own, values, law))
    return found


def released(
    model: ModelSpecification,
    measurements: Sequence[Measurement],
    *,
    guarantee: PrivacyGuarantee | None,
    total: int | None,
) -> NoisyStatistics:
    """Return the release of the measurements that were read.

    Raises
    ------
    ModelError
        The measurements give contradictory estimates of the number of records.
    """
    release = NoisyStatistics.from_measurements(
        model, measurements, guarantee=guarantee, total=total
    )
    sums, precisions = release._sums_and_precisions
    if total is not None:
        sums = np.append(sums, total)
        precisions = np.append(precisions, math.inf)
    pair = contradiction(sums, 1 / np.sqrt(precisions))
    seen = " and ".join(f"{sums[place]:,.0f} records" for place in pair or ())
    must = "describe one population in one unit"
    remedy = "check whether one is in thousands, is a share, or has a standard deviation for its variance"
    require(pair is None, "the tables", must, seen, remedy, error=ModelError)
    return release


def family(noise: Any) -> type[NoiseDistribution]:
    """Return the noise distributions of a family, given as a class or by its name in files.

    Raises
    ------
    ArgumentError
        The value is neither a class of noise distributions nor a known name.
    """
    if isinstance(noise, type) and issubclass(noise, NoiseDistribution):
        return noise
    must = "be a family of noise distributions, such as DiscreteGaussian or 'discrete-gaussian'"
    return named_law(instance_of("noise", noise, str, must))


def is_likelihood(noise: Any) -> bool:
    """Return True for one distribution or rule, False for a family, a name or a mapping."""
    return isinstance(noise, Likelihood)


def stated_noise(count: int, noise: Any, columns: Mapping[str, Sequence[Any]]) -> list[Likelihood]:
    """Return the noise distribution of each row.

    Parameters
    ----------
    count
        Number of rows.
    noise
        The distribution of all rows, a family whose parameter each row states, or None.
    columns
        The columns, of which ``law``, ``scale`` and ``variance`` are about the noise.

    Raises
    ------
    ArgumentError
        A distribution is not stated, is stated twice, lacks its parameter, or has two contradictory parameters.
    """
    columns = {name: columns[name] for name in ("law", "scale", "variance") if name in columns}
    if is_likelihood(noise):
        must = f"be a family of distributions beside a column `{min(columns, default='')}`"
        require(not columns, "noise", must, "a distribution", "leave one of them out")
        return [noise] * count
    must = "be left out beside a column `law`, which states the distribution of each row"
    require("law" not in columns or noise is None, "noise", must, noise)
    must = "be stated, because a variance does not determine it"
    remedy = "write noise='discrete-gaussian' or noise=Laplace(2.0), or add a column `law`"
    is_stated = "law" in columns or noise is not None
    require(is_stated, "the distribution of the noise", must, "none", remedy)
    known: dict[Any, Likelihood] = {}
    found = []
    for row in range(count):
        own = {name: column[row] for name, column in columns.items()}
        key = tuple(map(str, own.values()))
        if key not in known:
            kind = family(str(own["law"]).strip() if "law" in own else noise)
            known[key] = _distribution(kind, own.get("scale"), own.get("variance"))
        found.append(known[key])
    return found


def _distribution(kind: type[NoiseDistribution], scale: Any, variance: Any) -> NoiseDistribution:
    """Return the distribution of a family from a scale or a variance, or from both if they agree."""
    has_scale = not _is_empty(scale)
    has_variance = not _is_empty(variance)
    if kind is NoNoise and not has_scale and not has_variance:
        return NoNoise()
    what = f"the distribution {kind.name!r}"
    must = "have a `scale` or a `variance` in each row"
    require(has_scale or has_variance, what, must, "neither", "add one")
    by_scale = None
    if has_scale:
        try:
            by_scale = kind(width_of("`scale`", scale))  # type: ignore[call-arg]
        except TypeError:
            what = f"a `scale` alone does not determine the distribution {kind.name!r}"
            raise ArgumentError(f"{what}; give the distribution as `noise`.") from None
    if has_variance:
        by_variance = noise_of_variance(kind, width_of("`variance`", variance))
    else:
        by_variance = None
    if by_scale is None or by_variance is None:
        return by_scale or by_variance  # type: ignore[return-value]
    # a thousandth, because published figures are rounded
    is_close = math.isclose(by_scale.variance, by_variance.variance, rel_tol=1e-3)
    must = f"agree and have one unit for the distribution {kind.name!r}"
    seen = "a contradiction in some row"
    require(is_close, "`scale` and `variance`", must, seen, "leave the wrong column out")
    return by_scale


def _is_empty(value: Any) -> bool:
    return is_missing(value) or (isinstance(value, str) and not value.strip())
