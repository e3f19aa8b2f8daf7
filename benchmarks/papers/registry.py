"""Figures by name, with their content and networks; loads nothing else, so that the command's help is quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

type NetworkName = Literal["blogs", "hiv"]
type DataName = NetworkName | Literal["msnbc", "biofam"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureInfo:
    """The content of a figure.

    Parameters
    ----------
    title
        One line.
    needs
        Published data that the user's files must hold: without one of them its panels are left out, and
        without any the whole figure.
    needs_file
        Whether nothing can be made without them.
    unprotected
        Whether it shows real data, or what was computed from them unprotected: such a figure is no release.
    """

    title: str
    needs: tuple[DataName, ...] = ()
    needs_file: bool = True
    unprotected: bool = False


FIGURES: dict[str, FigureInfo] = {
    "prising-fig1": FigureInfo(title="estimates against beta, Erdős-Rényi graph"),
    "prising-fig2": FigureInfo(
        title="mean squared error against n at beta = 0.5, Erdős-Rényi graphs"
    ),
    "prising-fig3": FigureInfo(
        title="mean squared error against n at beta = 1.5, Erdős-Rényi graphs"
    ),
    "prising-fig4": FigureInfo(title="mean squared error against edge density at beta = 0.5"),
    "prising-fig5": FigureInfo(title="mean squared error against edge density at beta = 1.5"),
    "prising-fig6": FigureInfo(title="the HIV network, drawn", needs=("hiv",), unprotected=True),
    "prising-fig7": FigureInfo(title="estimates against beta, HIV network", needs=("hiv",)),
    "prising-fig8": FigureInfo(
        title="cost of privacy against epsilon, HIV network, real outcomes",
        needs=("hiv",),
        unprotected=True,
    ),
    "prising-fig9": FigureInfo(
        title="the blogs' network, drawn", needs=("blogs",), unprotected=True
    ),
    "prising-fig10": FigureInfo(title="estimates against beta, blogs' network", needs=("blogs",)),
    "prising-fig11": FigureInfo(
        title="cost of privacy against epsilon, blogs' network, real outcomes",
        needs=("blogs",),
        unprotected=True,
    ),
    "prising-fig12": FigureInfo(
        title="mean squared error against epsilon, all networks",
        needs=("hiv", "blogs"),
        needs_file=False,
    ),
    "prising-fig13": FigureInfo(
        title="mean squared error near the real networks' estimates", needs=("hiv", "blogs")
    ),
    "cgm-fig1": FigureInfo(
        title="what goes wrong with naive MLE: error against N, projection, ridge"
    ),
    "cgm-fig2": FigureInfo(
        title="divergence from the truth against N, two graphs, by epsilon and method"
    ),
    "cgm-fig3a": FigureInfo(title="true against inferred edge marginals, Erdős-Rényi graph"),
    "cgm-fig3b": FigureInfo(
        title="held-out log-likelihood of a time-homogeneous chain against epsilon",
        needs=("msnbc", "biofam"),
        needs_file=False,
        unprotected=True,
    ),
    "zhang-table1": FigureInfo(
        title="records needed by the five algorithms: slopes beside the theorems'"
    ),
    "zhang-lower-bounds": FigureInfo(title="learners on the hard instances of the lower bounds"),
}
"""Chakraborty, Chatterjee and Dalal 2024, Bernstein et al. 2017, Zhang et al. 2020, each in the paper's order."""

ALL = ("prising-all", "cgm-all", "zhang-all")
"""Names for all figures of a paper."""


def paper_of(name: str) -> str:
    """Return the paper that a figure, or all figures, belong to: ``"prising"`` or ``"cgm"``."""
    return name.partition("-")[0]
