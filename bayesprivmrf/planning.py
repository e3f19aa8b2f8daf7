"""What a budget buys, told before any of it is spent: public arithmetic on declared tables and noise laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.privacy import NoiseLaw

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["drowned_tables", "noise_preview", "possible_cells"]

RELATIVE_NOISE = 0.1
"""The noise of an even cell that `noise_preview` asks for: one tenth of what the cell holds."""


def possible_cells(specification: ModelSpecification) -> np.ndarray:
    """Return the number of cells of each measured table that may occur, shape (tables,)."""
    offsets = np.asarray(specification.offsets)
    if specification.possible is None:
        return np.diff(offsets)
    occupied = np.concatenate([[0], np.cumsum(specification.possible)])
    return np.diff(occupied[offsets])


def noise_preview(
    specification: ModelSpecification, noise: Sequence[NoiseLaw], total: float | None = None
) -> pd.DataFrame:
    r"""Return, for each table, its noise and the number of records that would rise above it.

    An even cell of a table of K possible cells holds N / K records. Noise of standard deviation s is one tenth of
    it at :math:`N = 10 K s`.

    Parameters
    ----------
    specification
        The declared model.
    noise
        The noise law of each table.
    total
        A public guess of the number of records; never the exact number where that is private.

    Returns
    -------
    DataFrame
        One row a table: ``clique``, ``cells`` (possible ones), ``noise_sd`` (records a cell),
        ``records_needed`` (N at which the noise is one tenth of an even cell); with `total` also
        ``even_cell`` (records) and ``relative_noise`` (noise over even cell).

    Raises
    ------
    ArgumentError
        ``total`` is negative or not a finite number.
    """
    import pandas as pd

    cells = possible_cells(specification)
    deviations = np.array([law.standard_deviation for law in noise], dtype=float)
    cliques = pd.Series(list(specification.cliques), dtype=object)
    frame = pd.DataFrame(
        {
            "clique": cliques,
            "cells": cells,
            "noise_sd": deviations,
            "records_needed": np.ceil(cells * deviations / RELATIVE_NOISE),
        }
    )
    if total is not None:
        if (
            isinstance(total, bool)
            or not isinstance(total, int | float | np.number)
            or not 0 <= total < np.inf
        ):
            raise ArgumentError(f"`total` must be a number of records, at least 0, got {total!r}; guess one.")
        frame["even_cell"] = total / cells
        with np.errstate(divide="ignore", invalid="ignore"):
            frame["relative_noise"] = np.where(deviations > 0, deviations * cells / total, 0.0)
    return frame


def drowned_tables(
    specification: ModelSpecification, noise: Sequence[NoiseLaw], total: float
) -> tuple[tuple[object, ...], ...]:
    """Return the cliques whose noise has a standard deviation above an even cell at this number of records."""
    cells = possible_cells(specification)
    return tuple(
        clique
        for clique, states, law in zip(specification.cliques, cells, noise, strict=True)
        if law.standard_deviation > max(total, 0.0) / states
    )
