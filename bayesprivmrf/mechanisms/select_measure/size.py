r"""The size of a model that is learned in rounds: limits of exact inference, and time and memory of a release.

**Tables that never fit.** Noisy answers decide which states of long columns are merged, and a variable with one group
is in no table. So a measured table of k variables with several states has at least two groups of each: :math:`2^k`
cells, besides two for each other variable. A model on the declared states has the cells of the declared table,
whatever is merged. If such a model exceeds the limits, the requested table cannot be measured whatever the answers
are. It is refused before data are read or budget is charged.

**Time and memory** are forecast from public sizes only: variables, states, and a number of records. The work is a sum
of a few products of these sizes, each times a constant in processor seconds of one core; the constants were measured
on releases of hundreds of columns (`benchmarks/results/rounds-wide.csv`). Unknown quantities, such as the number of
near pairs and of steps of a fit, have typical values. The model is assumed to grow from a forest to the cells that
its rounds allow, or for many variables to half of them. A forecast of time is within a factor of about three. The
memory is an upper bound, except for the memory of the data frame itself.

The last fit learns prior scales (`bayesprivmrf.learning.rounds.learned_scales`) if the model has at most
`DENSE_LIMIT` coordinates d. Each of its renewals takes :math:`d + 50` products with the covariance, each of which
passes over all configurations or over the cells of the model, and factors d × d matrices. As d is not known in
advance, it is assumed to be six tenths of the coordinates of all single variables, pairs and triples, and at most the
number of cells of the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from bayesprivmrf.audit import Choices, Sums
from bayesprivmrf.checks import require_memory
from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.effects_fit.moments import MOST_CONFIGURATIONS, Scope
from bayesprivmrf.inference.noise_aware.objective import DENSE_LIMIT
from bayesprivmrf.learning.rounds.learned_scales import RENEWALS
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT, array_forecast
from bayesprivmrf.marginals.layout import Layout
from bayesprivmrf.marginals.ordering import elimination_order
from bayesprivmrf.mechanisms.select_measure.misfits import STEPS
from bayesprivmrf.mechanisms.select_measure.plan import (
    ROUND_SHARES,
    SINGLES_SHARE,
    RoundsPlan,
    Spending,
    choice_scale,
    counting_noise,
    numbers_of_tables,
    singles_noise,
    tables_noise,
)
from bayesprivmrf.model import Domain
from bayesprivmrf.planning import Outlay

# Seconds for one cell of the model in one step of a fit
_FIT = 90e-9


class Size:
    """Size limits of exact inference: cells of all cliques of merged states, and memory of declared states.

    Parameters
    ----------
    cardinalities
        Number of merged states of each variable.
    declared
        Number of declared states of each variable.
    cells, memory
        Largest number of cells and of bytes.
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
        """Return True if a model of these scopes is within a share of the size."""
        return self._most <= share or self.share(scopes) <= share

    def share(self, scopes: Sequence[Scope]) -> float:
        """Return the share of the size limit that a model of these scopes takes; above one if it does not fit."""
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
    """Return a share, limited to two: a thousand columns have more joint states than a float can represent."""
    return min(count, 2 * most) / most


def require_tables_fit(plan: RoundsPlan, domain: Domain) -> None:
    """Refuse a workload with a table that does not fit however states are merged; see the module.

    Raises
    ------
    ModelTooLargeError
        A table does not fit; the error names the first such table and the setting that would allow it.
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
            f"`workload` must have tables that fit a model of {most}, got one of {len(scope)} variables ({names}), "
            f"which has at least {cells:,} cells however states are merged; {remedy}, or ask for smaller tables."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The time and memory that a step takes.

    Parameters
    ----------
    seconds
        Seconds of one processor core.
    memory
        Largest number of bytes in use at once.
    """

    seconds: float
    memory: int


def forecast_rounds(plan: RoundsPlan, records: float) -> list[Forecast]:
    """Return a forecast of each step: single variables, then each round, and the last fit with the last round.

    Parameters
    ----------
    plan
        Plan of the rounds.
    records
        A public number of records, or a guess of it.
    """
    variables = len(plan.free)
    states = sum(plan.declared[v] for v in plan.free)
    tables = plan.workload or ()
    pairs = math.comb(variables, 2) if not tables else len(tables)
    cells_of_tree = states**2 / max(variables, 1)
    model = min(plan.maximum_cells, math.prod(plan.declared))
    width = 1 if max(plan.declared) <= 256 else 2
    # bytes: the program and its libraries, a value of a record, a pair, a cell of the model
    memory = (350 << 20) + 4 * width * records * len(plan.declared) + 300 * pairs + 1000 * model
    counted = 0.4e-9 * records  # seconds to count the records into one table
    cell_noise = 16e-6  # seconds for one cell of secure noise
    noise = cell_noise * min(model, 2 * cells_of_tree)
    # typical steps of a fit after a round and of the last fit, and share of the allowed cells in the last model
    steps_of_fit, steps_of_last, filled = (60, 20, 0.5) if plan.is_wide else (150, 500, 0.05)
    found = [Forecast(seconds=states * cell_noise + 20 * counted * variables, memory=int(memory))]
    for number in range(1, len(ROUND_SHARES) + 1):
        if plan.is_wide and number == 1:
            # a pair is scored against independence, counted in a basis, and considered by choices
            asked = pairs * (counted + 2e-5)
        elif plan.is_wide:
            # a near pair needs the model's table and its comparison
            asked = _near_pairs(plan, pairs) * (counted + 3e-5)
        else:
            # a pair of few variables needs its table, and a check that it fits in the model
            asked = pairs * (10 * counted + 1.5e-4 * variables)
        steps = steps_of_fit + (steps_of_last if number == len(ROUND_SHARES) else 0)
        share = filled * (number - 1) / (len(ROUND_SHARES) - 1)
        forest = min(cells_of_tree, model)
        cells = forest + share * (model - forest)
        fitting = steps * _FIT * cells + (_scales(plan, cells) if number == len(ROUND_SHARES) else 0.0)
        found.append(Forecast(seconds=0.1 + asked + noise + fitting, memory=int(memory)))
    return found


def _scales(plan: RoundsPlan, cells: float) -> float:
    """Return the seconds in which the last fit learns its scales; 0 if the model is probably too large for this."""
    free = [plan.declared[v] - 1 for v in plan.free]
    one, two, three = (sum(k**power for k in free) for power in (1, 2, 3))
    triples = (one**3 - 3 * one * two + 2 * three) / 6  # elementary symmetric sums of K - 1
    # the last model typically has six tenths of the effects of up to three variables; 0.4 to 1 were seen
    size = min(0.6 * (one + (one**2 - two) / 2 + triples), cells)
    if scopes := plan.workload or plan.inside:  # no effect reaches beyond them
        size = min(size, one + sum(math.prod(plan.declared[v] for v in scope) for scope in scopes))
    if size > DENSE_LIMIT:
        return 0.0
    # seconds: one product, of which a search takes 50, one configuration in it, and one entry of d³ in the factors
    configurations = math.prod(plan.declared)
    each = _FIT * cells if configurations > MOST_CONFIGURATIONS else 1.3e-8 * configurations
    return RENEWALS * ((size + 50) * (3e-5 + each) + 5e-10 * size**3)


def require_memory_of_rounds(plan: RoundsPlan, records: float = 0.0) -> None:
    """Refuse a release that would not fit in memory, before anything is read.

    Raises
    ------
    ModelTooLargeError
        The forecast is above the limit; the error states the forecast.
    """
    what = f"rounds over {len(plan.free):,} variables{_beside(records)}"
    remedy = "set a smaller `maximum_cells`, or learn groups of variables separately"
    needed = max(step.memory for step in forecast_rounds(plan, records))
    require_memory(what, needed, remedy, DEFAULT_MEMORY_LIMIT)


def round_outlays(plan: RoundsPlan, total: float | None) -> list[Outlay]:
    """Return the steps of a release for a preview.

    The tables that a round measures depend on earlier answers. The noise is that of as many tables as would connect
    all variables. With a number of records there is a forecast of time and memory as well, and a release that is too
    large is refused.
    """
    law = singles_noise(plan)
    forecasts: list[dict[str, Any]] = [{} for _ in range(len(ROUND_SHARES) + 1)]
    if total is not None:
        require_memory_of_rounds(plan, total)
        forecasts = [
            {"seconds": step.seconds, "memory_bytes": step.memory} for step in forecast_rounds(plan, total)
        ]
    alone = SINGLES_SHARE * plan.rho
    found = [
        Outlay(
            step="each variable by itself",
            rho=alone,
            count=len(plan.declared),
            noise_sd=law.standard_deviation,
            draws=(Sums(law=law, copies=len(plan.free) * plan.moved),),
            **forecasts[0],
        )
    ]
    tables = min(max(len(plan.free) - 1, 1), plan.most_tables)
    left = plan.rho - alone
    for number, share in enumerate(ROUND_SHARES, start=1):
        rho = min(share * (plan.rho - alone), left)
        rho, left = (left, 0.0) if number == len(ROUND_SHARES) else (rho, left - rho)
        noise = tables_noise(plan, Spending.of(rho).measuring, tables).standard_deviation
        step = f"round {number}: how many tables, which, and these (noise of {tables})"
        draws = _round_draws(plan, rho)
        found.append(Outlay(step=step, rho=rho, noise_sd=noise, draws=draws, **forecasts[number]))
    return found


def _round_draws(plan: RoundsPlan, rho: float) -> tuple[Sums | Choices, ...]:
    """Return the largest draws of a round, for an audit: as if every table of declared states stood out."""
    spent, most = Spending.of(rho), plan.most_tables
    numbers = len(numbers_of_tables(most))
    scale = choice_scale(plan, spent.choosing / most)
    return (
        Sums(law=counting_noise(plan, spent.counting, numbers), copies=numbers, shift=plan.moved * STEPS),
        Choices(scale=scale, score_range=plan.largest_change, copies=most),
        Sums(law=tables_noise(plan, spent.measuring, most), copies=most * plan.moved),
    )


def _beside(records: float) -> str:
    return f" and about {records:,.0f} records" if records else ""


def _near_pairs(plan: RoundsPlan, pairs: int) -> float:
    """Return the approximate number of near pairs in a later round."""
    mean = sum(plan.declared) / len(plan.declared)
    steps = plan.maximum_cells / 64 / mean**3  # cliques between the two
    return min(pairs, len(plan.free) * (1 + 6 * steps))
