r"""What exact inference bears of a model learned in rounds, and which tables it bears whatever is merged.

**A table that never fits.** Merging makes long columns shorter, which only noisy answers decide. A variable of one
group is in no table, so that a table of k variables of several states, if it is measured with all of them, has at
least two groups of each: :math:`2^k` cells, beside two of each other variable by itself. A model on its declared
states has the cells of the declared table whatever is merged. If such a model is beyond the limits, the table that
was asked for is not measured whatever the answers are: it is refused before data are read, and before a charge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.effects_fit.moments import Scope
from bayesprivmrf.marginals import array_forecast
from bayesprivmrf.marginals.layout import Layout
from bayesprivmrf.marginals.ordering import elimination_order
from bayesprivmrf.model import Domain

if TYPE_CHECKING:
    from bayesprivmrf.mechanisms.select_measure.plan import RoundsPlan


class Size:
    """What exact inference bears: cells of all cliques of merged states, and memory of declared states.

    Parameters
    ----------
    cardinalities
        Number of merged states of each variable.
    declared
        Number of declared states of each variable.
    cells, memory
        The most cells and bytes.
    """

    def __init__(
        self, cardinalities: Sequence[int], declared: Sequence[int], cells: int, memory: int
    ) -> None:
        self._cardinalities, self._declared = tuple(cardinalities), tuple(declared)
        self._cells, self._memory = cells, memory
        self._known: dict[frozenset[Scope], float] = {}
        self._most = max(
            _ratio(2 * math.prod(cardinalities), cells), _ratio(64 * math.prod(declared), memory)
        )

    def bears(self, scopes: Sequence[Scope], share: float = 1.0) -> bool:
        """Whether a model of these scopes is within a share of the size."""
        return self._most <= share or self.share(scopes) <= share

    def share(self, scopes: Sequence[Scope]) -> float:
        """Return what share of the size a model of these scopes takes; of one beyond it, a share above one."""
        edges = frozenset(part for scope in scopes for size in (1, 2) for part in combinations(scope, size))
        if edges not in self._known:
            self._known[edges] = self._taken(sorted(edges))
        return self._known[edges]

    def _taken(self, edges: Sequence[Scope]) -> float:
        layout = Layout.build(self._cardinalities, edges)
        order = elimination_order(layout.cardinalities, layout.scopes)
        cells = _ratio(array_forecast(layout, order).total_cells, self._cells)
        if cells > 1:
            return cells
        # an order for the merged states is near the best for the declared ones
        declared = array_forecast(Layout.build(self._declared, edges), order)
        return max(cells, _ratio(declared.memory_bytes, self._memory))


def _ratio(count: int, most: int) -> float:
    """Return a share, or two of what is more: a thousand columns have more joint states than a float can tell."""
    return min(count, 2 * most) / most


def require_tables_fit(plan: RoundsPlan, domain: Domain) -> None:
    """Refuse a workload with a table that does not fit whatever is merged; see the module.

    Raises
    ------
    ModelTooLargeError
        The first such table, by name, with the setting that would bear it.
    """
    least = [min(states, 2) for states in plan.declared]
    merged = Size(least, plan.declared, plan.maximum_cells, 1 << 62)
    whole = Size(least, plan.declared, plan.maximum_cells, plan.memory)
    alone = [(v,) for v in range(len(least))]
    for scope in plan.workload or ():
        cells = math.prod(least[v] for v in scope)
        has_cells = cells <= plan.maximum_cells and merged.bears([*alone, scope])
        if has_cells and whole.bears([*alone, scope]):
            continue
        names = ", ".join(str(domain.variables[v]) for v in scope)
        most = (
            f"{plan.memory >> 20} MiB for declared states" if has_cells else f"{plan.maximum_cells:,} cells"
        )
        remedy = "declare fewer states" if has_cells else "allow more by `maximum_cells`"
        raise ModelTooLargeError(
            f"`workload` must have tables that a model of {most} bears, got one of {len(scope)} variables ({names}), "
            f"which has at least {cells:,} cells however states are merged; {remedy}, or ask for smaller tables."
        )
