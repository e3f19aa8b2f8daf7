r"""Rare states are merged for the fit, on noisy counts alone, and given back by their noisy shares.

A state whose noisy count is below a few deviations of its noise tells nothing in a table of several variables but
costs noise in each of its cells. All rare states of a variable become one. The fitted model :math:`q` of the merged
states :math:`c(x)` is that of the declared ones by

.. math:: p(x) = q(c(x)) \prod_v s_v(x_v), \qquad \sum_{x_v : c(x_v) = g} s_v(x_v) = 1,

:math:`s` being the shares of the noisy counts in their groups: the states of a group differ in how many records have
them, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.model.tables import FloatArray, IntArray

__all__ = ["Merging"]

RARE = 3.0
"""Deviations of the noise on its count below which a state is rare."""

MOST_GROUPS = 512
"""Groups of a variable: beyond them the rarest states are one, however many records they have."""

_LEAST = 0.5  # records: what a state counts at least when a group is shared out


@dataclass(frozen=True, kw_only=True)
class Merging:
    """Which states are one in the fit.

    Parameters
    ----------
    groups
        For each variable the group of each declared state, numbered from 0 by their first states.
    shares
        Share of each state in its group, positive.
    """

    groups: tuple[IntArray, ...]
    shares: tuple[FloatArray, ...]

    @classmethod
    def of(cls, noisy: Sequence[FloatArray], deviations: Sequence[float]) -> Merging:
        """Return the merging of rare states.

        Parameters
        ----------
        noisy
            Noisy counts of each variable's states, records.
        deviations
            Standard deviation of the noise on each of them, by variable.
        """
        groups = [_groups(y, RARE * sd) for y, sd in zip(noisy, deviations, strict=True)]
        shares = []
        for y, group in zip(noisy, groups, strict=True):
            positive = np.maximum(y, _LEAST)
            shares.append(positive / np.bincount(group, weights=positive)[group])
        return cls(groups=tuple(groups), shares=tuple(shares))

    @cached_property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of groups of each variable."""
        return tuple(int(group.max()) + 1 for group in self.groups)

    def is_merged(self, variable: int) -> bool:
        """Whether some states of a variable are one."""
        return self.cardinalities[variable] < len(self.groups[variable])

    def codes(self, codes: np.ndarray) -> np.ndarray:
        """Return records' groups for records' states, unsigned of shape (rows, p), each column in one piece."""
        found = np.empty(
            codes.shape, dtype=np.min_scalar_type(max(self.cardinalities, default=1) - 1), order="F"
        )
        for v, group in enumerate(self.groups):
            found[:, v] = group.astype(found.dtype)[codes[:, v]]
        return found

    def expanded(self, scopes: Sequence[tuple[int, ...]], tables: Sequence[FloatArray]) -> list[FloatArray]:
        """Return log potentials of the declared states from those of the groups; shares go to the first scope."""
        waiting, found = dict(enumerate(self.shares)), []
        for scope, table in zip(scopes, tables, strict=True):
            full = table[np.ix_(*(self.groups[v] for v in scope))]
            for axis, v in enumerate(scope):
                if (share := waiting.pop(v, None)) is not None:
                    full = full + np.log(share).reshape([-1 if a == axis else 1 for a in range(len(scope))])
            found.append(full)
        return found


def _groups(noisy: FloatArray, least: float) -> IntArray:
    """Return the group of each state: rare ones, if there are several, are one."""
    is_rare = noisy < least
    if noisy.size > MOST_GROUPS:
        is_rare[np.argsort(noisy, kind="stable")[: noisy.size - MOST_GROUPS + 1]] = True
    if is_rare.sum() < 2:
        return np.arange(noisy.size)
    labels = np.where(is_rare, -1, np.arange(noisy.size))
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]
