"""Production of one figure: compute the missing cells, and write the table and the picture."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import cgm, cgm_findings, cgm_pictures, drawing, prising, zhang, zhang_findings
from .cells import compute, kept_rows
from .experiments import COLUMNS
from .registry import FIGURES, DataName, paper_of
from .sources import FILES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

CELLS = "cells"
PAPERS: dict[str, Any] = {"prising": prising, "cgm": cgm, "zhang": zhang}
"""The module of each paper, with its `FULL` and `QUICK` scale."""

NOTE_SIMULATED = "simulation: no person's data, seeded noise"
NOTE_REAL = "computed from real outcomes, unprotected: an evaluation, no release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A figure that was made.

    Parameters
    ----------
    name
        The figure's name in the registry.
    table, picture
        The files.
    cells, kept
        How many cells there are, and how many of them an earlier run had computed.
    unmixed
        Largest R-hat of the simulations, where it is above 1.2; 0 where none is.
    finding
        The part of the paper's figure that the table reproduces, and what differs, in words; empty where
        docs/benchmarks/papers.md alone says so.
    is_real
        Whether real data were read, unprotected.
    """

    name: str
    table: Path
    picture: Path
    cells: int
    kept: int
    unmixed: float
    finding: str
    is_real: bool


def lacking(name: str, published: Mapping[DataName, Any]) -> list[str]:
    """Name the files that a figure needs and that are missing."""
    return [FILES[need] for need in FIGURES[name].needs if need not in published]


def reproduce(
    name: str,
    scale: Any,
    published: Mapping[DataName, Any],
    folder: Path,
    *,
    seed: int,
    jobs: int = 1,
    begin: Callable[[int], None] = lambda count: None,
    advance: Callable[[], None] = lambda: None,
) -> Made | None:
    """Write a figure's table and picture; None where every network that it needs is lacking.

    Parameters
    ----------
    name
        The figure's name in the registry.
    scale
        ``FULL`` or ``QUICK`` of the paper's module, one of `PAPERS`; the latter's files end in ``-quick``.
    published
        Networks and sequences at hand.
    folder
        Is made where it does not exist; its folder ``cells`` keeps what was computed, for the next run.
    seed
        Seed of graphs, outcomes and noise. Equal seeds give equal tables, whatever `jobs` is.
    jobs
        Processes side by side.
    begin, advance
        Called with the number of cells, and once a cell.

    Raises
    ------
    ArgumentError
        There is no such figure.
    DataError
        A file is not what it should be.
    """
    import pandas as pd

    cells = PAPERS[paper_of(name)].cells_of(name, scale, published, seed)
    if not cells:
        return None
    store = folder / CELLS
    store.mkdir(parents=True, exist_ok=True)
    kept = sum(kept_rows(store, cell) is not None for cell in cells)
    begin(len(cells))
    rows = compute(cells, store, jobs=jobs, advance=advance)
    info = FIGURES[name]
    is_real = info.unprotected and any(need in published for need in info.needs)
    note = NOTE_REAL if is_real else NOTE_SIMULATED
    if "estimator" in rows[0]:
        columns = COLUMNS
    else:
        columns = None
    table = pd.DataFrame(rows, columns=columns)
    if scale.name == "full":
        stem = name
    else:
        stem = f"{name}-{scale.name}"
    table_path = folder / f"{stem}.csv"
    picture_path = folder / f"{stem}.png"
    if name == "zhang-table1":
        summary = zhang_findings.slopes(table)
    else:
        summary = None
    if summary is not None:
        table.to_csv(folder / f"{stem}-errors.csv", index=False)
    (table if summary is None else summary).assign(seed=seed, note=note).to_csv(
        table_path, index=False
    )
    figure, finding = _shown(name, table, published)
    said = textwrap.fill(f"{finding} {note}".strip(), 130)
    figure.text(0.01, -0.01, said, fontsize=7, verticalalignment="top")
    figure.savefig(picture_path, dpi=150, bbox_inches="tight", metadata={"Description": note})
    return Made(
        name=name,
        table=table_path,
        picture=picture_path,
        cells=len(cells),
        kept=kept,
        unmixed=_unmixed(table),
        finding=finding,
        is_real=is_real,
    )


def _shown(name: str, table: pd.DataFrame, published: Mapping[DataName, Any]) -> tuple[Figure, str]:
    """Return the picture, and the sentence about it."""
    match paper_of(name):
        case "cgm":
            return cgm_pictures.draw(name, table), cgm_findings.finding(name, table)
        case "zhang":
            return zhang_findings.draw(name, table), zhang_findings.finding(name, table)
        case _:
            return drawing.draw(name, table, published), ""


def _unmixed(table: pd.DataFrame) -> float:
    if "energy_rhat" not in table:
        return 0.0
    largest = float(table[["energy_rhat", "order_rhat"]].astype(float).max(axis=None))
    return largest if largest > 1.2 else 0.0
