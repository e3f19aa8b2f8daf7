"""Table 1 of Zhang, Kamath, Kulkarni and Wu 2020: how the records that learning needs grow with p."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bayesprivmrf.learning.sample_size.task import Goal

__all__ = ["TABLE_1", "Entry", "Privacy"]

type Privacy = Literal["none", "approximate", "zero-concentrated", "pure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of Table 1: how the records for an Ising model grow with p.

    Parameters
    ----------
    privacy, goal
        Row and column.
    order
        What the paper states, sharp up to constants where it begins with Theta.
    upper, lower
        Where the paper has each side.
    remark
        What is to be known of it.
    """

    privacy: Privacy
    goal: Goal
    order: str
    upper: str
    lower: str
    remark: str = ""


_LARGER = "counting all matchings, not 2^(p/2) models, the packing here gives p log p"

TABLE_1 = (
    Entry(
        privacy="none",
        goal="structure",
        order="Theta(log p)",
        upper="Wu, Sanghavi, Dimakis 2019",
        lower="Santhanam, Wainwright 2012",
    ),
    Entry(
        privacy="none",
        goal="parameters",
        order="Theta(log p)",
        upper="Wu, Sanghavi, Dimakis 2019",
        lower="Santhanam, Wainwright 2012",
    ),
    Entry(
        privacy="approximate",
        goal="structure",
        order="Theta(log p)",
        upper="Corollary 6.3",
        lower="as without privacy",
    ),
    Entry(
        privacy="approximate",
        goal="parameters",
        order="Theta(sqrt p)",
        upper="Theorem 3.8",
        lower="Theorem 5.1",
        remark="the upper bound has log(p)^2 besides",
    ),
    Entry(
        privacy="zero-concentrated",
        goal="structure",
        order="Theta(sqrt p)",
        upper="Theorem 3.8",
        lower="Theorem 7.1",
        remark="the upper bound has log(p)^2 besides; " + _LARGER.replace("p log p", "sqrt(p log p)"),
    ),
    Entry(
        privacy="zero-concentrated",
        goal="parameters",
        order="Theta(sqrt p)",
        upper="Theorem 3.8",
        lower="Theorem 5.1",
        remark="the upper bound has log(p)^2 besides",
    ),
    Entry(
        privacy="pure",
        goal="structure",
        order="Omega(p)",
        upper="none",
        lower="Theorem 7.1",
        remark=_LARGER,
    ),
    Entry(
        privacy="pure",
        goal="parameters",
        order="Omega(p)",
        upper="none",
        lower="Theorem 7.1",
        remark=_LARGER,
    ),
)
"""Table 1 of the paper, row by row: dependence on p alone, for Ising models."""
