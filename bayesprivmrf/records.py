"""Records from a file, and the declared recoding of their values into states.

This is the sensitive side: what `read_records` and `recode` return is data, not a release. They read no state, bound
or type off the data: a value becomes a state by the rule that the model file declares, or stays as it is, and
counting then refuses it. `read_declaration` reads the model file, which is public.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bayesprivmrf.mechanisms.reading.coded import recode
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.readers.text_files import read_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_declaration", "read_records", "recode"]


def read_records(path: str | Path) -> pd.DataFrame:
    """Return the records of a CSV or Parquet file, as they are written.

    Parameters
    ----------
    path
        ``.csv``, ``.csv.gz`` (a header, then one record a line; UTF-8, fields separated by commas, semicolons or
        tabs, as the header has them) or ``.parquet``.

    Returns
    -------
    DataFrame
        The records. From CSV every column is text, so that ``01`` stays ``01`` and ``NA`` stays a label; only an
        empty field is missing, in quotes or not. The declared states decide later which columns are read as
        numbers. From Parquet the columns keep their types, also where values are missing: pandas' nullable ones.

    Raises
    ------
    DataError
        As `bayesprivmrf.readers.text_files.read_table` raises it.

    Notes
    -----
    Every line of a CSV file after the first is a record: a line with fewer fields than the header lacks its last
    values, a blank line all of them. They are missing, and counting refuses them where the model does not declare
    a state for them. A column without a name is left out.
    """
    return read_table(path).columns
