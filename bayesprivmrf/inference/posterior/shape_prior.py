r"""Dirichlet shapes (prior counts) of the rows of a junction forest: fixed, or learned for each table.

A row of clique C has the Dirichlet shapes

.. math:: α_i = α_0 + A_C\, R_C\, \prod_v m_{C,v}(x_v), \qquad α_0 = 0.1,

for the R_C states x of the variables v of C outside its separator. All rows of one table share A_C and the margins m.
If A_C is small, most probabilities of a row are close to 0. If it is large, all rows of a table are alike, and the
clique's variables are nearly independent of the separator, with any margins. The prior makes both plausible, unlike a
uniform prior on each row. In standard normal positions z,

.. math:: \log A_C = ℓ - \log(1 + e^ℓ / 100), \quad ℓ = 1.5\, z_0 + z_C, \qquad
          m_{C,v} = \operatorname{softmax}(z_{C,v}),

where z_0 is shared by all tables of the model. The uniform row, α = 1, is near the center of the prior.

A table of two variables with the same states, such as two visits of a panel, may have one large cell in each row, at
a different place in each row: the people who stay in their state. Rows with shared margins do not expect that, and
would attribute the few who move to noise. Such a table is therefore divided into two steps (`forest`), each with an A
of its own. The second step, where those who move go, has shapes as above. The first step, who stays and who moves,
has

.. math:: α_{\text{stay}} = α_0 + \frac{A_C}{2 m_{\text{go}}}, \qquad
          α_{\text{go}} = α_0 + \frac{A_C}{2 m_{\text{stay}}}, \qquad m = \operatorname{softmax}(2 z),

For m = 1/2 this is the formula above. Otherwise A_C is about the prior count of the rarer outcome, so a small share
is not pushed towards 0 only because it is small. If people stay with the same probability in all rows, and those who
leave choose alike, both A are large: quasi-independence (Goodman 1968). If the two variables are independent, only
the second A is large.

Several tables may be divided in this way, such as those of a chain of visits. The margins of those with the same
states have a part in common, c,

.. math:: m_{C,v} = \operatorname{softmax}(0.5\, c_v + 0.25\, z_{C,v}),

and :math:`2 c + 0.25 z_C` for staying and moving. If every table had margins of its own, panels would be pulled
towards few people who move. Noise hides their cells, but the large cells of those who stay show that states keep
their sizes, so that as many people enter a state as leave it. Unequal flows would be as plausible, the more so the
larger they are: each of d balanced flows divides the prior density by the number M of people who move, together by
M^d. In a chain of 16 states and 10 visits, d is about 144, and the shares of those who move were three posterior
deviations too low. Spreads that are learned would be a funnel: trajectories diverged on panels of three states.

The floor α_0 keeps the probability of a cell that noise hides from being estimated as one in a million. In a row of n
records, the upper quantile of an empty cell is at least that of a Beta(α_0) variable, some records for any A_C.
Without the floor, the likelihood of tables with a few large cells and many hidden ones drives α to 0.03, and the
intervals of the hidden cells shrink to nothing (see the page *The mathematics of the posterior*). In a long row most
cells are empty, and constant floors would add up to people who do not exist. Therefore the floors of one row add up
to at most 2 records.

Given the shapes, the model is conjugate: rows are Dirichlet(α + n), and tables are Dirichlet-multinomial.

References
----------
Goodman (1968). The analysis of cross-classified data: independence, quasi-independence, and interactions in
contingency tables with or without missing entries. JASA 63, 1091-1131.
Dennis (1991). On the hyper-Dirichlet type 1 and hyper-Liouville distributions. Communications in Statistics: Theory
and Methods 20, 4069-4081.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.special import gammaln, psi, zeta

from bayesprivmrf.compiled import INNER
from bayesprivmrf.inference.posterior.forest import JunctionForest
from bayesprivmrf.inference.posterior.noisy_tables import table_name
from bayesprivmrf.model.tables import FloatArray, IntArray

# α_0 of a short row, prior counts per cell; the module's docstring has the reason
FLOOR = 0.1
# largest sum of the floors of one row, prior counts; rows of more than 20 cells have smaller floors
FLOOR_OF_ROW = 2.0
# prior standard deviation of the part of log A that all tables share
SPREAD_COMMON_TO_TABLES = 1.5
# prior standard deviation of each table's own part of log A
SPREAD_BETWEEN_TABLES = 1.0
# factor of z in the margin of staying and moving: the log odds have the standard deviation 2.8, so that two standard
# deviations are odds of about 1 to 300
SPREAD_OF_STAYING = 2.0
# factors of z and of c in the margins of several tables that have a part in common. One standard deviation is a
# factor of 1.3 between tables and of 1.6 between states. On simulated panels of 10 states by 6 visits, in which noise
# hides the moves, N was 1.0 posterior deviations too low if moves go to all states alike, and 0.7 too high if they go
# to a few; with 0.35 and 0.9 it was 1.5 too low and 0.3 too high. Fresh ones are in the benchmark `hidden_moves`
SPREAD_OF_OWN_PART = 0.25
SPREAD_OF_COMMON_PART = 0.5
# bound of A, at which rows differ by a tenth: data cannot distinguish larger values, and the sampler would get lost
# among them
LARGEST_CONCENTRATION = 100.0
# smallest number of which a logarithm or a root is taken
_TINY = 1e-300


class ShapeData(NamedTuple):
    """Arrays that compiled code reads; a clique is one of ``forest.tables``, cells are as in ``forest.cells``."""

    fixed: FloatArray  # α of each cell if it is fixed, otherwise the floor
    clique_cells: IntArray  # first cell of each clique, then the number of cells
    clique_groups: IntArray  # first margin of each clique; all 0 if the shapes are fixed
    group_starts: IntArray  # first position of each margin m; the parts in common come after those of the tables
    factor_starts: IntArray  # where the positions of each cell's margins begin in `factors`
    factors: IntArray
    log_sizes: FloatArray  # log R of each clique
    stays: IntArray  # 1 for the margin of staying and moving, 0 for others
    shared_groups: (
        IntArray  # the part that a table's margin has in common with others; -1 if it has none
    )


class _Kind(NamedTuple):
    """Margins of one kind have a part in common: the step, the number of states, and the variable's states."""

    step: str
    size: int
    states: Hashable


class PriorDraws(NamedTuple):
    """Draws as the prior judges them: fields of `Finished`, each of shape (chain, draw)."""

    log_prior: dict[str, FloatArray]
    learned: dict[str, FloatArray]
    prior_fit: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapePrior:
    """Prior of the Dirichlet shapes of one junction forest.

    Parameters
    ----------
    forest
        The junction forest.
    concentration
        α of every cell, prior counts; None if the shapes are learned.
    """

    forest: JunctionForest
    concentration: float | None = None

    @property
    def size(self) -> int:
        """Number of positions, standard normal under the prior: z_0, each z_C, then those of the margins."""
        if self.concentration is not None:
            return 0
        return int(self.data.group_starts[-1])

    @property
    def settings(self) -> dict[str, float]:
        """Settings of the prior, by name."""
        if self.concentration is not None:
            return {"concentration": float(self.concentration)}
        found = {
            "concentration_floor": FLOOR,
            "concentration_floor_of_row": FLOOR_OF_ROW,
            "concentration_spread_in_common": SPREAD_COMMON_TO_TABLES,
            "concentration_spread_between_tables": SPREAD_BETWEEN_TABLES,
            "log_odds_of_staying_spread": SPREAD_OF_STAYING * math.sqrt(2.0),
        }
        if (self.data.shared_groups >= 0).any():
            found["log_margins_spread_in_common"] = SPREAD_OF_COMMON_PART
            found["log_margins_spread_between_tables"] = SPREAD_OF_OWN_PART
        return found

    @cached_property
    def data(self) -> ShapeData:
        """Arrays that compiled code reads."""
        forest = self.forest
        tables = self.forest.tables
        is_fixed = self.concentration is not None
        margins = [() if is_fixed else table.margins for table in tables]
        starts = 1 + len(tables) + np.cumsum([0, *(states for own in margins for states, _ in own)])
        clique_groups = np.cumsum([0, *map(len, margins)])
        # positions of the margins of each table's cells, shape (cells, margins)
        factors = [
            np.array(
                [start + state for start, (_, state) in zip(starts[first:], own, strict=False)]
            )
            .reshape(len(own), table.stop - table.start)
            .T
            for first, own, table in zip(clique_groups, margins, tables, strict=False)
        ]
        widths = np.repeat([part.shape[1] for part in factors], [len(part) for part in factors])
        shared_groups, shared_sizes = self._shared_margins()
        ends = starts[-1] + np.cumsum(shared_sizes)
        floors = np.minimum(FLOOR, FLOOR_OF_ROW / np.repeat(forest.row_sizes, forest.row_sizes))
        return ShapeData(
            fixed=np.full(floors.shape, float(self.concentration or 0.0)) if is_fixed else floors,
            clique_cells=np.array([0, *(table.stop for table in tables)], np.int64),
            clique_groups=clique_groups.astype(np.int64),
            group_starts=np.concatenate([starts, ends]).astype(np.int64),
            factor_starts=np.concatenate([[0], np.cumsum(widths)]).astype(np.int64),
            factors=np.concatenate([np.zeros(0), *(part.ravel() for part in factors)]).astype(
                np.int64
            ),
            log_sizes=np.array(
                [sum(math.log(states) for states, _ in own) for own in margins], float
            ),
            stays=np.array(
                [table.step == "stay" for table in tables if not is_fixed for _ in table.margins],
                np.int64,
            ),
            shared_groups=shared_groups,
        )

    def _shared_margins(self) -> tuple[IntArray, list[int]]:
        """Return the part in common of each margin, -1 for none, and the number of states of each of these parts."""
        kinds = self._kinds_of_margins
        common = [kind for kind in dict.fromkeys(kinds) if kind and kinds.count(kind) > 1]
        groups = np.full(len(kinds), -1, np.int64)
        for number, kind in enumerate(common):
            groups[[k for k, other in enumerate(kinds) if other == kind]] = len(kinds) + number
        return groups, [kind.size for kind in common]

    @property
    def _kinds_of_margins(self) -> list[_Kind | None]:
        """Kind of each margin; None for margins that have nothing in common with others."""
        if self.concentration is not None:
            return []
        kinds: list[_Kind | None] = []
        for table in self.forest.tables:
            for size, _ in table.margins:
                if table.step in ("stay", "move"):
                    # no table is divided without the states of the variables
                    assert self.forest.states is not None
                    kinds.append(_Kind(table.step, size, self.forest.states[table.scope[1]]))
                else:
                    kinds.append(None)
        return kinds

    def shapes(self, position: FloatArray) -> FloatArray:
        """Return α at positions of shape (..., size); the result has the shape (..., cells)."""
        flat = np.asarray(position, dtype=float).reshape(math.prod(position.shape[:-1]), self.size)
        result = _shapes_at(np.ascontiguousarray(flat), self.data)
        return result.reshape(*position.shape[:-1], self.forest.cells.size)

    def described(
        self, log_rows: FloatArray, shapes: FloatArray, lead: tuple[int, ...], names: Sequence[str]
    ) -> PriorDraws:
        """Return how the prior of the rows judges draws of them.

        Parameters
        ----------
        log_rows, shapes
            Log probabilities and shapes of the rows, shape (cells, draws).
        lead
            Number of chains and of draws per chain.
        names
            Name of each variable of the forest.
        """
        forest = self.forest
        tables = self.forest.tables
        # log density of each row's log ratios given α, of which the mean and the variance are known
        starts = forest.row_starts[:-1]
        mass = np.add.reduceat(shapes, starts)
        density = np.add.reduceat(shapes * log_rows - gammaln(shapes), starts) + gammaln(mass)
        excess = (shapes * (log_rows - psi(shapes))).sum(axis=0) + (mass * psi(mass)).sum(axis=0)
        # zeta(2, x) is ψ'(x)
        variance = (shapes**2 * zeta(2, shapes)).sum(axis=0) - (mass**2 * zeta(2, mass)).sum(axis=0)
        fit = excess / np.sqrt(np.maximum(variance, _TINY))
        rows_of = np.searchsorted([table.stop for table in tables], starts, side="right")
        homes = np.array([table.clique for table in tables], int)[rows_of]
        # log A of each table in prior standard deviations; A is the mean excess of the shapes over the floor
        above = np.maximum(shapes - self.data.fixed[:, np.newaxis], _TINY)
        learned = {}
        for table in tables if self.size else ():
            own = above[table.start : table.stop]
            level = own.mean(axis=0)
            if table.step == "stay":  # the harmonic mean for staying and moving
                ways, firsts = np.unique(table.margins[0][1], return_index=True)
                level = ways.size / (1.0 / own[firsts]).sum(axis=0)
            if table.step:
                kind = f"concentration_{table.step}"
            else:
                kind = "concentration"
            standardized = np.log(level) / math.hypot(
                SPREAD_COMMON_TO_TABLES, SPREAD_BETWEEN_TABLES
            )
            learned[table_name(kind, names, table.scope)] = standardized.reshape(lead)
        log_prior = {}
        for clique in forest.order:
            # sum over the steps of a clique's table
            own = density[homes == clique].sum(axis=0)
            log_prior[table_name("rows", names, forest.scopes[clique])] = own.reshape(lead)
        return PriorDraws(log_prior, learned, fit.reshape(lead))


@njit(nogil=True, inline="always")
def own_spread(group, data):
    """Return the factor by which a margin's own positions are multiplied."""
    if data.shared_groups[group] >= 0:
        return SPREAD_OF_OWN_PART
    if data.stays[group]:
        return SPREAD_OF_STAYING
    return 1.0


@njit(nogil=True, inline="always")
def shared_spread(group, data):
    """Return the factor by which the positions that a margin has in common with others are multiplied."""
    if data.stays[group]:
        return SPREAD_OF_STAYING
    return SPREAD_OF_COMMON_PART


@njit(nogil=True, error_model="numpy", **INNER)
def log_weights(group, position, data):
    """Return the logarithms of a margin's states before normalization."""
    start = data.group_starts[group]
    weights = own_spread(group, data) * position[start : data.group_starts[group + 1]]
    shared = data.shared_groups[group]
    if shared >= 0:
        first = data.group_starts[shared]
        spread = shared_spread(group, data)
        for k in range(weights.size):
            weights[k] += spread * position[first + k]
    return weights


@njit(nogil=True, error_model="numpy", **INNER)
def log_whole(weights):
    """Return the logarithm of the sum of a margin's exponentials."""
    top = weights[0]
    total = 0.0
    for k in range(weights.size):
        top = max(top, weights[k])
    for k in range(weights.size):
        total += math.exp(weights[k] - top)
    return top + math.log(total)


@njit(nogil=True, error_model="numpy", **INNER)
def clique_shapes(clique, position, data, shapes):
    """Write α of one clique's cells."""
    start = data.clique_cells[clique]
    stop = data.clique_cells[clique + 1]
    # fixed shapes
    if data.clique_groups[-1] == 0:
        for cell in range(start, stop):
            shapes[cell] = data.fixed[cell]
        return
    # log of A times R, less the normalization of the margins
    level = SPREAD_COMMON_TO_TABLES * position[0] + SPREAD_BETWEEN_TABLES * position[1 + clique]
    level += data.log_sizes[clique] - math.log1p(math.exp(level) / LARGEST_CONCENTRATION)
    origin = data.group_starts[data.clique_groups[clique]]
    last = data.group_starts[data.clique_groups[clique + 1]]
    weights = np.empty(last - origin)
    for group in range(data.clique_groups[clique], data.clique_groups[clique + 1]):
        own = log_weights(group, position, data)
        first = data.group_starts[group] - origin
        for k in range(own.size):
            weights[first + k] = own[k]
        log_sum = log_whole(own)
        level -= log_sum
        if data.stays[group]:
            # their mean share is 1/2
            level += 2.0 * (log_sum - math.log(2.0)) - (own[0] + own[1])
    # add the log weights of the states of each cell
    for cell in range(start, stop):
        log_part = level
        for k in range(data.factor_starts[cell], data.factor_starts[cell + 1]):
            log_part += weights[data.factors[k] - origin]
        shapes[cell] = data.fixed[cell] + math.exp(log_part)


@njit(cache=True, nogil=True, error_model="numpy")
def turned(position, data):
    """Reflect the positions of each margin, so that one coordinate is their mean, which does not change m.

    With K states the reflection maps the first axis to (1, ..., 1) / √K. It keeps the standard normal distribution
    and is its own inverse.
    """
    result = position.copy()
    for group in range(data.group_starts.size - 1):
        start = data.group_starts[group]
        stop = data.group_starts[group + 1]
        if stop - start < 2:
            continue
        root = math.sqrt(stop - start)
        along = position[start]  # inner product with the difference of the two axes
        for k in range(start, stop):
            along -= position[k] / root
        # times 2, divided by the squared length of that difference, 2 - 2 / √K
        along *= root / (root - 1.0)
        result[start] -= along
        for k in range(start, stop):
            result[k] += along / root
    return result


@njit(nogil=True, error_model="numpy", **INNER)
def row_shapes(position, data):
    """Return α of each cell, and the log prior density of the position except for its constant."""
    shapes = np.empty(data.fixed.size)
    log_density = 0.0
    for clique in range(data.clique_cells.size - 1):
        clique_shapes(clique, position, data, shapes)
    for z in position:
        log_density -= 0.5 * z * z
    return shapes, log_density


@njit(cache=True, nogil=True, error_model="numpy")
def _shapes_at(positions, data):
    """Return α of each cell, one row for each position."""
    shapes = np.empty((positions.shape[0], data.fixed.size))
    for k in range(positions.shape[0]):
        own, _ = row_shapes(positions[k], data)
        for cell in range(own.size):
            shapes[k, cell] = own[cell]
    return shapes


@njit(nogil=True, error_model="numpy")
def row_shapes_pullback(position, data, shapes, by_shapes, by_density):
    """Return the derivative with respect to the position, given those with respect to α and the log prior density."""
    result = -by_density * position
    if data.clique_groups[-1] == 0:
        return result
    # derivative with respect to the log weights of the tables' margins
    by_weights = np.zeros(data.group_starts[data.clique_groups[-1]])
    for clique in range(data.clique_cells.size - 1):
        # derivative with respect to the log excess of each cell over the floor; it goes to the states of the
        # cell's margins, and the sum over the cells to log A
        whole = 0.0
        for cell in range(data.clique_cells[clique], data.clique_cells[clique + 1]):
            part = by_shapes[cell] * (shapes[cell] - data.fixed[cell])
            whole += part
            for k in range(data.factor_starts[cell], data.factor_starts[cell + 1]):
                by_weights[data.factors[k]] += part
        # through the bound of A to z_0 and z_C
        free = SPREAD_COMMON_TO_TABLES * position[0] + SPREAD_BETWEEN_TABLES * position[1 + clique]
        by_free = whole / (1.0 + math.exp(free) / LARGEST_CONCENTRATION)
        result[0] += SPREAD_COMMON_TO_TABLES * by_free
        result[1 + clique] += SPREAD_BETWEEN_TABLES * by_free
        for group in range(data.clique_groups[clique], data.clique_groups[clique + 1]):
            # through the normalization of the margins
            weights = log_weights(group, position, data)
            log_sum = log_whole(weights)
            start = data.group_starts[group]
            for k in range(weights.size):
                share = math.exp(weights[k] - log_sum)
                by_weights[start + k] += whole * (share - 1.0 if data.stays[group] else -share)
            add_by_position(group, data, by_weights, result)
    return result


@njit(nogil=True, error_model="numpy", **INNER)
def add_by_position(group, data, by_weights, result):
    """Add the derivatives with respect to a margin's own and common positions."""
    start = data.group_starts[group]
    spread = own_spread(group, data)
    for k in range(start, data.group_starts[group + 1]):
        result[k] += spread * by_weights[k]
    if data.shared_groups[group] < 0:
        return
    first = data.group_starts[data.shared_groups[group]]
    spread = shared_spread(group, data)
    for k in range(start, data.group_starts[group + 1]):
        result[first + k - start] += spread * by_weights[k]
