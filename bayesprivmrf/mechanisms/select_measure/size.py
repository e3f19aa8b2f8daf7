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

The last fit learns prior scales (`bayesprivmrf.learning.select_measure.learned_scales`) if the model has at most
`DENSE_LIMIT` coordinates d. Each of its renewals takes :math:`d + 50` products with the covariance, each of which
passes over all configurations or over the cells of the model, and factors d × d matrices. As d is not known in
advance, it is assumed to be six tenths of the coordinates of all single variables, pairs and triples, and at most the
number of cells of the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from bayesprivmrf.audit import Choices, Sums
from bayesprivmrf.checks import require, require_memory
from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.loglinear_fit.moments import MOST_CONFIGURATIONS, Scope
from bayesprivmrf.inference.loglinear_fit.scale_prior import DENSE_LIMIT
from bayesprivmrf.learning.select_measure.learned_scales import RENEWALS
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT
from bayesprivmrf.marginals.layout import Layout, elimination_order
from bayesprivmrf.marginals.planning import BucketTree, array_forecast
from bayesprivmrf.mechanisms.record_mechanisms import noisy_sums
from bayesprivmrf.mechanisms.select_measure.misfits import MISFIT_STEPS
from bayesprivmrf.mechanisms.select_measure.plan import (
    ROUND_SHARES,
    SINGLES_SHARE,
    RoundsPlan,
    choice_scale,
    counting_noise,
    numbers_of_tables,
    round_spending,
    singles_noise,
    tables_noise,
)
from bayesprivmrf.model import Domain
from bayesprivmrf.planning import Outlay

# Seconds for one cell of the model in one step of a fit
_FIT = 90e-9
# Pairs' effects for each variable in the last model of wide rounds: 7 to 10 were seen with 69 and 100 columns
_PAIRS_A_VARIABLE = 9
# Time of a product of the derivative as a share of a step's, in wide models
_PRODUCT = 0.5


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
        self._cells = cells
        self._memory = memory
        self._known: dict[frozenset[Scope], float] = {}
        self._most = max(
            _ratio(2 * math.prod(cardinalities), cells), _ratio(64 * math.prod(declared), memory)
        )

    def bears(self, scopes: Sequence[Scope], share: float = 1.0) -> bool:
        """Return True if a model of these scopes is within a share of the size."""
        return self._most <= share or self.share(scopes) <= share

    def share(self, scopes: Sequence[Scope]) -> float:
        """Return the share of the size limit that a model of these scopes takes; above one if it does not fit."""
        edges = frozenset(
            part for scope in scopes for size in (1, 2) for part in combinations(scope, size)
        )
        if edges not in self._known:
            layout = Layout.build(self._cardinalities, sorted(edges))
            order = elimination_order(layout.cardinalities, layout.scopes)
            merged = array_forecast(BucketTree.build(layout, order))
            taken = _ratio(merged.total_cells, self._cells)
            if taken <= 1:
                # an order for the merged states is near the best for the declared ones
                declared = BucketTree.build(Layout.build(self._declared, sorted(edges)), order)
                taken = max(taken, _ratio(array_forecast(declared).memory_bytes, self._memory))
            self._known[edges] = taken
        return self._known[edges]


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
    size = Size(least, plan.declared, plan.maximum_cells, plan.memory)
    alone = [(v,) for v in range(len(least))]
    limit = f"{plan.maximum_cells:,} cells and {plan.memory >> 20} MiB for declared states"
    must = f"have tables that fit a model of {limit}"
    remedy = "allow more by `maximum_cells`, declare fewer states, or ask for smaller tables"
    for scope in plan.workload or ():
        cells = math.prod(least[v] for v in scope)
        names = ", ".join(str(domain.variables[v]) for v in scope)
        fits = cells <= plan.maximum_cells and size.bears([*alone, scope])
        given = f"one of {len(scope)} variables ({names}), of at least {cells:,} cells however states are merged"
        require(fits, "workload", must, given, remedy, error=ModelTooLargeError)


def forecast_rounds(plan: RoundsPlan, records: float) -> tuple[list[float], int]:
    """Return a forecast of the seconds of each step, and of the memory in bytes.

    The steps are the single variables, and each round; the last fit belongs to the last round.

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
    if not tables:
        pairs = math.comb(variables, 2)
    else:
        pairs = len(tables)
    cells_of_tree = states**2 / max(variables, 1)
    model = min(plan.maximum_cells, math.prod(plan.declared))
    width = 1 if max(plan.declared) <= 256 else 2
    # bytes: the program and its libraries, a value of a record, a pair, a cell of the model
    memory = (350 << 20) + 4 * width * records * len(plan.declared) + 300 * pairs + 1000 * model
    counted = 0.4e-9 * records  # seconds to count the records into one table
    cell_noise = 16e-6  # seconds for one cell of secure noise
    noise = cell_noise * min(model, 2 * cells_of_tree)
    # typical steps of a fit after a round and of the last fit, and share of the allowed cells in the last model
    if plan.is_wide:
        steps_of_fit = 60
        steps_of_last = 20
        filled = 0.5
    else:
        steps_of_fit = 150
        steps_of_last = 500
        filled = 0.05
    seconds = [states * cell_noise + 20 * counted * variables]
    for number in range(1, len(ROUND_SHARES) + 1):
        if plan.is_wide and number == 1:
            # a pair is scored against independence, counted in a basis, and considered by choices
            asked = pairs * (counted + 2e-5)
        elif plan.is_wide:
            # a near pair needs the model's table and its comparison; cliques of mean size lie between the two
            between = plan.maximum_cells / 64 / (sum(plan.declared) / len(plan.declared)) ** 3
            asked = min(pairs, variables * (1 + 6 * between)) * (counted + 3e-5)
        else:
            # a pair of few variables needs its table, and a check that it fits in the model
            asked = pairs * (10 * counted + 1.5e-4 * variables)
        steps = steps_of_fit + (steps_of_last if number == len(ROUND_SHARES) else 0)
        share = filled * (number - 1) / (len(ROUND_SHARES) - 1)
        forest = min(cells_of_tree, model)
        cells = forest + share * (model - forest)
        fitting = steps * _FIT * cells + (
            _scales(plan, cells) if number == len(ROUND_SHARES) else 0.0
        )
        seconds.append(0.1 + asked + noise + fitting)
    return seconds, int(memory)


def _scales(plan: RoundsPlan, cells: float) -> float:
    """Return the seconds in which the last fit learns its scales; 0 if the model is probably too large for this."""
    free = [plan.declared[v] - 1 for v in plan.free]
    one, two, three = (sum(k**power for k in free) for power in (1, 2, 3))
    triples = (one**3 - 3 * one * two + 2 * three) / 6  # elementary symmetric sums of K - 1
    # the last model typically has six tenths of the effects of up to three variables; 0.4 to 1 were seen
    size = min(0.6 * (one + (one**2 - two) / 2 + triples), cells)
    if plan.is_wide:
        size = min(size, one + _PAIRS_A_VARIABLE * two)
    if scopes := plan.workload or plan.inside:  # no effect reaches beyond them
        size = min(size, one + sum(math.prod(plan.declared[v] for v in scope) for scope in scopes))
    if size > DENSE_LIMIT:
        return 0.0
    # seconds: one product, of which a search takes 50, one configuration in it, and one entry of d³ in the factors
    configurations = math.prod(plan.declared)
    if plan.is_wide:
        each = _PRODUCT * _FIT * cells
    elif configurations > MOST_CONFIGURATIONS:
        each = _FIT * cells
    else:
        each = 1.3e-8 * configurations
    return RENEWALS * ((size + 50) * (3e-5 + each) + 5e-10 * size**3)


def require_memory_of_rounds(plan: RoundsPlan, records: float = 0.0) -> None:
    """Refuse a release that would not fit in memory, before anything is read.

    Raises
    ------
    ModelTooLargeError
        The forecast is above the limit; the error states the forecast.
    """
    if records:
        beside = f" and about {records:,.0f} records"
    else:
        beside = ""
    remedy = "set a smaller `maximum_cells`, or learn groups of variables separately"
    needed = forecast_rounds(plan, records)[1]
    require_memory(
        f"rounds over {len(plan.free):,} variables{beside}", needed, remedy, DEFAULT_MEMORY_LIMIT
    )


def round_outlays(plan: RoundsPlan, total: float | None) -> list[Outlay]:
    """Return the steps of a release for a preview.

    The tables that a round measures depend on earlier answers. The noise is that of as many tables as would connect
    all variables. With a number of records there is a forecast of time and memory as well, and a release that is too
    large is refused.
    """
    law = singles_noise(plan)
    alone = SINGLES_SHARE * plan.rho
    most = plan.most_tables
    seconds: Sequence[float | None] = [None] * (len(ROUND_SHARES) + 1)
    memory = None
    if total is not None:
        require_memory_of_rounds(plan, total)
        seconds, memory = forecast_rounds(plan, total)
    copies = len(plan.free) * plan.moved
    first = noisy_sums("each variable by itself", alone, len(plan.declared), law, copies)
    found = [replace(first, seconds=seconds[0], memory_bytes=memory)]
    tables = min(max(len(plan.free) - 1, 1), most)
    numbers = len(numbers_of_tables(most))
    left = plan.rho - alone
    for number, share in enumerate(ROUND_SHARES, start=1):
        if number == len(ROUND_SHARES):
            rho = left
        else:
            rho = min(share * (plan.rho - alone), left)
        left = left - rho
        for_counting, choosing, measuring = round_spending(rho)
        counting = counting_noise(plan, for_counting, numbers)
        scale = choice_scale(plan, choosing / most)
        # the largest draws of a round, for an audit: as if every table of declared states stood out
        draws = (
            Sums(law=counting, copies=numbers, shift=plan.moved * MISFIT_STEPS),
            Choices(scale=scale, score_range=plan.largest_change, copies=most),
            Sums(law=tables_noise(plan, measuring, most), copies=most * plan.moved),
        )
        found.append(
            Outlay(
                step=f"round {number}: how many tables, which, and these (noise of {tables})",
                rho=rho,
                noise_sd=tables_noise(plan, measuring, tables).standard_deviation,
                draws=draws,
                seconds=seconds[number],
                memory_bytes=memory,
            )
        )
    return found
