"""Records of a command: read, recoded by the model file, and split for an evaluation."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.errors import DataError
from bayesprivmrf.mechanisms.reading.frame import frame_of
from bayesprivmrf.mechanisms.reading.row_counts import Counts, warn_of_counts
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.declaration_file import Declaration
from bayesprivmrf.records import read_records, recode

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["recoded_records", "training_and_test"]

_TRAINING_SHARE = 0.75  # usual in comparisons of predictions; arbitrary
# Largest number of records of a frequency table, that of mechanisms which use whole records
_MOST_SPLIT = 2**27


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


def _units(specification: ModelSpecification, data: pd.DataFrame, count: str | None) -> np.ndarray:
    """Return how many records each row stands for."""
    column = Counts.of(count, specification.domain.variables, _MOST_SPLIT)
    return np.ones(len(data), dtype=np.int64) if column is None else column.units(data, frame_of(data))


def training_and_test(
    specification: ModelSpecification,
    data: pd.DataFrame,
    count: str | None,
    generator: np.random.Generator,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split the records at random, each with equal probability, whether a row is one record or several."""
    units = _units(specification, data, count)
    records = int(units.sum())
    train = int(_TRAINING_SHARE * records)
    if not 0 < train < records:
        raise DataError("`compare` needs at least 2 records, to hold some out.")
    if count is None:
        order = generator.permutation(len(data))
        return data.iloc[order[:train]], data.iloc[order[train:]]
    taken = generator.multivariate_hypergeometric(units, train, method="marginals")
    return data.assign(**{count: taken}), data.assign(**{count: units - taken})
