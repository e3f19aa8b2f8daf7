"""Records of a command: read, recoded by the model file, with the columns that are no variables but are used."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bayesprivmrf.mechanisms.reading.row_counts import warn_of_counts
from bayesprivmrf.model.declaration_file import Declaration
from bayesprivmrf.records import read_records, recode

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["recoded_records"]


def recoded_records(
    options: argparse.Namespace, declaration: Declaration, person: str | None = None
) -> pd.DataFrame:
    """Return the recoded records of a file, with its columns of counts (`--count`) and of persons as they are."""
    records = read_records(options.data)
    data = recode(declaration, records)
    if options.count is None:
        warn_of_counts(records, declaration.specification.domain.variables)
    for column in (options.count, person):
        if column in records.columns and column not in data:
            data[column] = records[column]
    return data
