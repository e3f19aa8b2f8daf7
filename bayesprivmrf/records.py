"""Records from a file, and the declared recoding of their values into states.

This is the sensitive side: what these functions return is data, not a release. They read no state, bound or
type off the data: a value becomes a state by the rule that the model file declares, or stays as it is, and
counting then refuses it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import BayesPrivMRFError, DataError
from bayesprivmrf.model.declaration_file import Declaration, RecodingRule
from bayesprivmrf.model.domain import Label, label_key

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_records", "recode"]


def read_records(path: str | Path) -> pd.DataFrame:
    """Records of a CSV or Parquet file, as they are written.

    Parameters
    ----------
    path
        ``.csv``, ``.csv.gz`` (a header, then records; UTF-8, fields separated by commas) or ``.parquet``.

    Returns
    -------
    DataFrame
        From CSV every column is text, so that ``01`` stays ``01`` and ``NA`` stays a label; only an empty
        field is missing. The declared states decide later which columns are read as numbers. From Parquet the
        columns keep their types.

    Raises
    ------
    DataError
        The file is missing, unreadable, cut short, or of another kind; a CSV row has more fields than the
        header, or the header has a name twice. The reader's own message is withheld, because it quotes the data.

    Notes
    -----
    A CSV row with fewer fields than the header lacks its last values: they are missing, and counting refuses
    them where the model does not declare a state for them. A column without a name is left out.
    """
    import pandas as pd

    file = Path(path)
    kinds = file.name.lower().split(".")[1:]
    problem = None
    try:
        if "csv" in kinds:
            return _csv_records(file)
        if "parquet" in kinds:
            return pd.read_parquet(file)
    except ImportError:
        problem = "reading Parquet needs pyarrow; install it, or convert the file to CSV."
    except OSError as error:
        problem = f"the data file {str(path)!r} cannot be read: {error.strerror or 'not a readable file'}."
    except EOFError:
        problem = f"the data file {str(path)!r} was cut short; take a fresh copy."
    except MemoryError:
        problem = (
            f"the data file {str(path)!r} does not fit in memory; give a frame of a lazy engine instead."
        )
    except pd.errors.EmptyDataError:
        problem = f"the data file {str(path)!r} is empty; it must begin with a header."
    except UnicodeDecodeError:
        problem = (
            f"the data file {str(path)!r} must be encoded in UTF-8; convert it, say with `iconv -t UTF-8`."
        )
    except BayesPrivMRFError:
        raise
    except Exception as error:  # the parsers' and decompressors' own kinds
        kind = "" if isinstance(error, ValueError) else f" ({type(error).__name__})"
        remedy = "check its header and rows."
        if "fields in line" in str(error):
            remedy = (
                "a row has more fields than the header. Fields are separated by commas, and one that holds a comma "
                "stands in double quotes; drop commas at the ends of rows."
            )
        problem = f"the data file {str(path)!r} is not well-formed{kind}: {remedy}"
    # raised outside the handlers: pandas quotes the offending field, and a context would carry that along
    raise DataError(problem or f"the data file must end in .csv, .csv.gz or .parquet, got {file.name!r}.")


def _csv_records(file: Path) -> pd.DataFrame:
    import pandas as pd

    # The header is read as a row among rows: told that it is one, pandas takes a surplus first field for an index
    # and shifts every column. In one piece, because only then is every row held against the first.
    whole = pd.read_csv(
        file,
        header=None,
        dtype=str,
        keep_default_na=False,
        na_values=[""],
        encoding="utf-8-sig",
        low_memory=False,
    )
    names = whole.iloc[0]
    repeated = names[names.notna() & names.duplicated()]
    if len(repeated):
        raise _repeated()
    records = whole.iloc[1:].reset_index(drop=True).loc[:, names.notna().to_numpy()]
    return records.set_axis(names.dropna().tolist(), axis="columns")


def recode(declaration: Declaration, data: Any) -> pd.DataFrame:
    """Records whose values are the declared states, by the declared rules.

    Parameters
    ----------
    declaration
        What the model file declares.
    data
        Any eager data frame that narwhals knows (pandas, Polars, PyArrow, ...).

    Returns
    -------
    DataFrame
        One column a declared variable, in declared order, same rows. A value that no rule covers stays as it is, and
        counting refuses it.

    Raises
    ------
    DataError
        `data` is not a data frame, lacks a declared column or has one twice, or holds values of a kind that
        cannot be looked up (lists, records). No message holds a value.

    Notes
    -----
    Text is compared with declared text as it stands; where the declaration has numbers (or true and false),
    text that spells one is taken for it. ``1`` and ``1.0`` are one value, ``True`` and ``1`` are two.
    """
    failure = None
    try:
        return _recoded_frame(declaration, _frame_of(data))
    except (BayesPrivMRFError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Polars or Arrow is no Exception
        failure = type(error).__name__
    raise DataError(
        f"the data could not be recoded: {failure} was raised, whose message is withheld because it may quote the "
        "data; columns must hold single values: text, numbers, dates or truth values."
    )


def _frame_of(data: Any) -> Any:
    import narwhals as nw

    is_repeated = False
    try:
        return nw.from_native(data, eager_only=True)
    except nw.exceptions.DuplicateError:
        is_repeated = True
    except TypeError:
        pass
    if is_repeated:
        raise _repeated()
    raise DataError(f"`data` must be a data frame, got {type(data).__name__}.")


def _repeated() -> DataError:
    return DataError("the data must have columns of distinct names, got one twice; drop or rename it.")


def _recoded_frame(declaration: Declaration, data: Any) -> pd.DataFrame:
    import pandas as pd

    frame = data.to_pandas()
    by_text = {str(column): column for column in frame.columns}
    columns: dict[str, Any] = {}
    for variable, rule in declaration.rules.items():
        if variable not in by_text:
            raise DataError(
                f"the data must have the column {variable!r}, which the model declares; the fields of a CSV file "
                "must be separated by commas, and its first row must name the columns."
            )
        if list(frame.columns).count(by_text[variable]) > 1:
            raise _repeated()
        columns[variable] = _recoded(frame[by_text[variable]], rule)
    return pd.DataFrame(columns, index=frame.index)


def _recoded(column: pd.Series, rule: RecodingRule) -> np.ndarray:
    """Labels of a column: each distinct value is looked up once."""
    codes, distinct = _distinct(column)
    labels = np.empty(len(distinct) + 1, dtype=object)
    labels[-1] = rule.missing  # the code -1 of a missing value
    if rule.breaks is not None:
        labels[:-1] = _binned(distinct, rule, rule.breaks)
    else:
        groups = [(label,) for label in rule.states] if rule.values is None else rule.values
        targets = rule.states if rule.values is None else rule.targets
        known = {label_key(v): t for group, t in zip(groups, targets, strict=True) for v in group}
        for position, value in enumerate(distinct):
            labels[position] = _looked_up(value, known, rule.other)
    return labels[codes]


def _distinct(column: pd.Series) -> tuple[np.ndarray, Any]:
    """Position of each value among the distinct ones (-1 for a missing value), and those."""
    import pandas as pd

    codes, distinct = pd.factorize(column)
    if column.dtype != object or not any(isinstance(v, bool) for v in column):
        return codes, distinct
    # pandas takes True and 1 for one value in a column of mixed types
    numbered: dict[tuple[bool, Any], int] = {}
    codes = np.array([-1 if pd.isna(v) else numbered.setdefault(label_key(v), len(numbered)) for v in column])
    return codes, [value for _, value in numbered]


def _looked_up(value: Any, known: dict[tuple[bool, Label], Label], other: Label | None) -> Any:
    for reading in (value, *_readings(value)):
        key = label_key(reading)
        if key in known:
            return known[key]
    return value if other is None else other


def _readings(value: Any) -> list[Any]:
    """What a text spells besides itself: an integer, a number, or a truth value."""
    if not isinstance(value, str):
        return []
    text = value.strip()
    if text.lower() in {"true", "false"}:
        return [text.lower() == "true"]
    readings: list[Any] = []
    for kind in (int, float):  # int first: a long code must not lose digits
        try:
            readings.append(kind(text))
        except ValueError:
            continue
    return readings


def _binned(distinct: Any, rule: RecodingRule, breaks: tuple[float, ...]) -> np.ndarray:
    import pandas as pd

    labels = np.array(distinct, dtype=object)
    is_boolean = np.array([isinstance(value, bool | np.bool_) for value in labels], dtype=bool)
    numbers = np.asarray(pd.to_numeric(pd.Series(labels, dtype=object), errors="coerce"), dtype=float)
    covered = np.isfinite(numbers) & ~is_boolean
    targets = np.empty(len(rule.targets), dtype=object)
    targets[:] = rule.targets
    # right-closed: a value equal to a break belongs to the bin that ends there
    labels[covered] = targets[np.searchsorted(breaks, numbers[covered], side="left")]
    if rule.other is not None:
        labels[~covered] = rule.other
    return labels
