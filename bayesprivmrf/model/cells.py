"""Positions of coded rows in the tables of a model."""

from __future__ import annotations

import numpy as np

from bayesprivmrf.model.specification import ModelSpecification


def cells_of(specification: ModelSpecification, codes: np.ndarray) -> np.ndarray:
    """Return the flat positions of each record's cells, shape (rows, m); codes have shape (rows, p)."""
    cells = np.empty((len(codes), len(specification.scopes)), dtype=np.intp)
    starts = specification.offsets[:-1]
    for place, (scope, start) in enumerate(zip(specification.scopes, starts, strict=True)):
        position = np.zeros(len(codes), dtype=np.intp)
        for variable in scope:
            position *= specification.cardinalities[variable]
            position += codes[:, variable]
        cells[:, place] = position + start
    return cells
