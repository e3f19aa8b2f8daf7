"""Table 1 of Zhang, Kamath, Kulkarni and Wu 2020: how the records that learning needs grow with p."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .lower_bounds import Goal

type Privacy = Literal["none", "approximate", "zero-concentrated", "pure"]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of Table 1: how the records for an Ising model grow with p.

    Parameters
    ----------
    privacy, goal
        Row and column.
    order
        The statement of the paper, sharp up to constants where it begins with Theta.
    upper, lower
        The places in the paper of each side.
    remark
        A remark on the entry.
    """

    privacy: Privacy
    goal: Goal
    order: str
    upper: str
    lower: str
    remark: str = ""


_SQUARED = "the upper bound has log(p)^2 besides"
_LARGER = "counting all matchings, not 2^(p/2) models, the packing here gives p log p"

TABLE_1 = (
    Entry(
        "none",
        "structure",
        "Theta(log p)",
        "Wu, Sanghavi, Dimakis 2019",
        "Santhanam, Wainwright 2012",
    ),
    Entry(
        "none",
        "parameters",
        "Theta(log p)",
        "Wu, Sanghavi, Dimakis 2019",
        "Santhanam, Wainwright 2012",
    ),
    Entry("approximate", "structure", "Theta(log p)", "Corollary 6.3", "as without privacy"),
    Entry("approximate", "parameters", "Theta(sqrt p)", "Theorem 3.8", "Theorem 5.1", _SQUARED),
    Entry(
        "zero-concentrated",
        "structure",
        "Theta(sqrt p)",
        "Theorem 3.8",
        "Theorem 7.1",
        f"{_SQUARED}; " + _LARGER.replace("p log p", "sqrt(p log p)"),
    ),
    Entry(
        "zero-concentrated", "parameters", "Theta(sqrt p)", "Theorem 3.8", "Theorem 5.1", _SQUARED
    ),
    Entry("pure", "structure", "Omega(p)", "none", "Theorem 7.1", _LARGER),
    Entry("pure", "parameters", "Omega(p)", "none", "Theorem 7.1", _LARGER),
)
"""Table 1 of the paper, row by row: dependence on p alone, for Ising models."""
