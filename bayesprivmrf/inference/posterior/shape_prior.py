r"""Prior counts of a junction forest's rows: fixed, or learned table by table.

A row of clique C has the Dirichlet shapes

.. math:: α_i = α_0 + A_C\, R_C\, \prod_v m_{C,v}(x_v), \qquad α_0 = 0.1,

over the states x of the variables v that C has beside its separator, R_C of them. All rows of one table share A_C and
the margins m. Where A_C is small, a row's probabilities are mostly next to zero, whatever the separator's state;
where it is large, all rows of a table are alike and the clique's variables nearly independent of the separator,
with any margins. So both are likely that a uniform prior rules out. In standard normal positions z,

.. math:: \log A_C = ℓ - \log(1 + e^ℓ / 100), \quad ℓ = 1.5\, z_0 + z_C, \qquad
          m_{C,v} = \operatorname{softmax}(z_{C,v}),

z_0 being what the tables of a model have in common. α = 1, the uniform row, is near the centre of the prior.

A table of two variables that have the same states, a panel's two visits, may have one large cell in each row,
another in each: who stays. Rows that share margins do not expect that, and take those who go for noise. So such a
table is cut in two steps (`forest`), each with an A of its own: where those who go go to, with shapes as
above; and before that who stays and who goes, with

.. math:: α_{\text{stay}} = α_0 + \frac{A_C}{2 m_{\text{go}}}, \qquad
          α_{\text{go}} = α_0 + \frac{A_C}{2 m_{\text{stay}}}, \qquad m = \operatorname{softmax}(2 z),

which for m = 1/2 is the formula above, and otherwise keeps A_C the prior counts of whichever is rarer: a share of
one in a hundred is then not thought to be next to nothing because it is small. Where all rows keep alike and those
who leave choose alike, both A are large: quasi-independence (Goodman 1968). Where variables are independent the
second is.

The floor α_0 is what keeps a drowned cell's probability from being believed to be one in a million: of n records in
a row, a cell that nobody is in has the upper quantile of a Beta(α_0) variable, some records for any A_C. Without it
the likelihood of sticky tables, a few large cells beside many that noise hides, drives α to .03, and intervals for
the hidden ones to nothing ({doc}`posterior_mathematics`). In a long row most cells are empty, whatever the data, and
a constant floor would add up to people who are not there: all of a row's floors are at most 2 records together.

Given the shapes all is conjugate: rows are Dirichlet(α + n), and tables Dirichlet-multinomial.

References
----------
Goodman (1968). The analysis of cross-classified data: independence, quasi-independence, and interactions in
contingency tables with or without missing entries. JASA 63, 1091-1131.
Dennis (1991). On the hyper-Dirichlet type 1 and hyper-Liouville distributions. Communications in Statistics: Theory
and Methods 20, 4069-4081.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, kept
from bayesprivmrf.inference.posterior.forest import JunctionForest, RowTable
from bayesprivmrf.inference.posterior.relaxed.rows import digamma, trigamma
from bayesprivmrf.model.tables import FloatArray, IntArray

# α_0 of a short row, prior counts per cell: see above for what it keeps from happening
FLOOR = 0.1
# most prior counts that the floors of one row add up to; rows of more than 20 cells have smaller floors
FLOOR_OF_ROW = 2.0
# prior standard deviation of the part of log A that all tables have in common
SPREAD_IN_COMMON = 1.5
# prior standard deviation of each table's own part of log A
SPREAD_BETWEEN_TABLES = 1.0
# factor of z where m is of staying and going: log odds of standard deviation 2.8, so 1 in 300 at two of them
SPREAD_OF_STAYING = 2.0
# the two states of staying and going have the mean 1/2
_LOG_2 = math.log(2.0)
# bound of A, at which rows differ by a tenth: larger values cannot be distinguished, and would be a funnel to the
# sampler
LARGEST = 100.0


class ShapeTape(NamedTuple):
    """Arrays of the compiled code; a clique is one of ``forest.tables``, cells are as in ``forest.cells``."""

    fixed: FloatArray  # α of each cell where it is fixed, or the floor
    clique_cells: IntArray  # first cell of each clique, and the number of cells last
    clique_groups: IntArray  # first margin of each clique; one and the same where the shapes are fixed
    group_starts: IntArray  # first position of each margin m
    factor_starts: IntArray  # of each cell, where its margins' positions begin in `factors`
    factors: IntArray
    log_sizes: FloatArray  # log R of each clique
    stays: IntArray  # of each margin, 1 where it is of staying and going, else 0


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapePrior:
    """The prior of one forest's shapes.

    Parameters
    ----------
    forest
        The junction forest.
    concentration
        α of every cell; None where the shapes are learned.
    """

    forest: JunctionForest
    concentration: float | None = None

    @property
    def size(self) -> int:
        """Number of positions, standard normal a priori: z_0, a z_C for each clique, then the margins'."""
        return 0 if self.concentration is not None else int(self.tape.group_starts[-1])

    @property
    def settings(self) -> dict[str, float]:
        """The prior's settings, by name."""
        if self.concentration is not None:
            return {"concentration": float(self.concentration)}
        return {
            "concentration_floor": FLOOR,
            "concentration_floor_of_row": FLOOR_OF_ROW,
            "concentration_spread_in_common": SPREAD_IN_COMMON,
            "concentration_spread_between_tables": SPREAD_BETWEEN_TABLES,
            "log_odds_of_staying_spread": SPREAD_OF_STAYING * math.sqrt(2.0),
        }

    @cached_property
    def tape(self) -> ShapeTape:
        """The arrays."""
        forest, cells, tables = self.forest, self.forest.cells.size, self.forest.tables
        clique_cells = np.array([0, *(table.stop for table in tables)], np.int64)
        if self.concentration is not None or not cells:
            nothing = np.zeros(1, np.int64)
            return ShapeTape(
                fixed=np.full(cells, float(self.concentration or FLOOR)),
                clique_cells=clique_cells,
                clique_groups=np.zeros(len(tables) + 1, np.int64),
                group_starts=nothing,
                factor_starts=np.zeros(cells + 1, np.int64),
                factors=nothing[:0],
                log_sizes=np.zeros(len(tables)),
                stays=nothing[:0],
            )
        margins = [margin for table in tables for margin in table.margins]
        group_starts = 1 + len(tables) + np.cumsum([0, *(states for states, _ in margins)])
        clique_groups = np.cumsum([0, *(len(table.margins) for table in tables)])
        factors = [
            np.stack(
                [
                    start + state
                    for start, (_, state) in zip(group_starts[first:], table.margins, strict=False)
                ],
                1,
            )
            for first, table in zip(clique_groups, tables, strict=False)
        ]
        return ShapeTape(
            fixed=np.minimum(FLOOR, FLOOR_OF_ROW / np.repeat(forest.row_sizes, forest.row_sizes)),
            clique_cells=clique_cells,
            clique_groups=clique_groups.astype(np.int64),
            group_starts=group_starts.astype(np.int64),
            factor_starts=np.cumsum(
                [0, *(width for part in factors for width in [part.shape[1]] * len(part))]
            ),
            factors=np.concatenate([part.ravel() for part in factors]).astype(np.int64),
            log_sizes=np.array([sum(math.log(states) for states, _ in table.margins) for table in tables]),
            stays=np.array([table.step == "stay" for table in tables for _ in table.margins], np.int64),
        )

    def shapes(self, position: FloatArray) -> FloatArray:
        """α at positions of shape (..., size), shape (..., cells)."""
        flat = np.asarray(position, dtype=float).reshape(math.prod(position.shape[:-1]), self.size)
        result = _shapes_at(np.ascontiguousarray(flat), self.tape)
        return result.reshape(*position.shape[:-1], self.forest.cells.size)

    def judged(self, log_rows: FloatArray, shapes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log density of each table's rows given α, by their log-ratios, and the sum's standard score.

        From (cells, draws) to (tables, draws) and (draws,). The score is 0 on average given α, of variance 1.
        """
        forest = self.forest
        homes = np.searchsorted(self.tape.clique_cells, forest.row_starts[:-1], side="right") - 1
        rows = np.ascontiguousarray(log_rows), np.ascontiguousarray(shapes)
        return _judged_rows(*rows, forest.row_starts, homes, len(forest.tables))

    def standardised(self, shapes: FloatArray) -> FloatArray:
        """Return log A of each table in standard deviations of its prior, (cells, draws) to (tables, draws)."""
        if not self.size:
            return np.zeros((0, shapes.shape[1]))
        excess = shapes - self.tape.fixed[:, np.newaxis]
        levels = np.stack(
            [self._level(table, excess[table.start : table.stop]) for table in self.forest.tables]
        )
        return np.log(np.maximum(levels, 1e-300)) / math.hypot(SPREAD_IN_COMMON, SPREAD_BETWEEN_TABLES)

    @staticmethod
    def _level(table: RowTable, excess: FloatArray) -> FloatArray:
        """Return A of a table: its shapes' mean excess over the floor; the harmonic mean for staying and going."""
        if table.step != "stay":
            return excess.mean(axis=0)
        ways, firsts = np.unique(table.margins[0][1], return_index=True)
        return ways.size / (1.0 / np.maximum(excess[firsts], 1e-300)).sum(axis=0)


@njit(nogil=True, inline="always")
def spread_of(group, tape):
    """Return the factor of a margin's positions."""
    return SPREAD_OF_STAYING if tape.stays[group] else 1.0


@njit(nogil=True, error_model="numpy", **INNER)
def log_whole(group, position, tape):
    """Return the logarithm of the sum of a margin's exponentials."""
    start, stop = tape.group_starts[group], tape.group_starts[group + 1]
    spread, top, total = spread_of(group, tape), position[start], 0.0
    for k in range(start, stop):
        top = max(top, position[k])
    for k in range(start, stop):
        total += math.exp(spread * (position[k] - top))
    return spread * top + math.log(total)


@njit(nogil=True, error_model="numpy", **INNER)
def clique_shapes(clique, position, tape, shapes):
    """Write α of one clique's cells."""
    start, stop = tape.clique_cells[clique], tape.clique_cells[clique + 1]
    if tape.group_starts.size == 1:
        for cell in range(start, stop):
            shapes[cell] = tape.fixed[cell]
        return
    level = SPREAD_IN_COMMON * position[0] + SPREAD_BETWEEN_TABLES * position[1 + clique]
    level += tape.log_sizes[clique] - math.log1p(math.exp(level) / LARGEST)
    for group in range(tape.clique_groups[clique], tape.clique_groups[clique + 1]):
        log_sum = log_whole(group, position, tape)
        level -= log_sum
        if tape.stays[group]:
            place = tape.group_starts[group]
            level += 2.0 * (log_sum - _LOG_2) - SPREAD_OF_STAYING * (position[place] + position[place + 1])
    first = tape.clique_groups[clique]
    for cell in range(start, stop):
        log_part = level
        for k in range(tape.factor_starts[cell], tape.factor_starts[cell + 1]):
            log_part += spread_of(first + k - tape.factor_starts[cell], tape) * position[tape.factors[k]]
        shapes[cell] = tape.fixed[cell] + math.exp(log_part)


@njit(cache=True, nogil=True, error_model="numpy")
def turned(position, tape):
    """Return each margin's positions reflected, so that their mean, which does not change m, is one of them.

    With K states the reflection takes the first axis to (1, ..., 1) / √K. It keeps the standard normal distribution,
    and is its own inverse.
    """
    result = position.copy()
    for group in range(tape.group_starts.size - 1):
        start, stop = tape.group_starts[group], tape.group_starts[group + 1]
        if stop - start < 2:
            continue
        root = math.sqrt(stop - start)
        along = position[start]  # the product with the difference of the two axes
        for k in range(start, stop):
            along -= position[k] / root
        along *= root / (root - 1.0)  # twice over its squared length, 2 - 2 / √K
        result[start] -= along
        for k in range(start, stop):
            result[k] += along / root
    return result


@njit(nogil=True, error_model="numpy", **INNER)
def row_shapes(position, tape):
    """Return α of each cell, and the log prior density of the position up to a constant."""
    shapes, log_density = np.empty(tape.fixed.size), 0.0
    for clique in range(tape.clique_cells.size - 1):
        clique_shapes(clique, position, tape, shapes)
    for z in position:
        log_density -= 0.5 * z * z
    return shapes, log_density


@njit(cache=True, nogil=True, error_model="numpy")
def _shapes_at(positions, tape):
    """Return α of each cell, a row for each position."""
    shapes = np.empty((positions.shape[0], tape.fixed.size))
    for k in range(positions.shape[0]):
        own, _ = row_shapes(positions[k], tape)
        for cell in range(own.size):
            shapes[k, cell] = own[cell]
    return shapes


@njit(nogil=True, error_model="numpy")
def row_shapes_pullback(position, tape, shapes, by_shapes, by_density):
    """Return the derivative by the position, from those by α and by the log prior density."""
    result = -by_density * position
    if tape.group_starts.size == 1:
        return result
    for clique in range(tape.clique_cells.size - 1):
        # by the logarithm of each cell's excess over the floor: its margins' positions, and their sum for log A
        whole, first = 0.0, tape.clique_groups[clique]
        for cell in range(tape.clique_cells[clique], tape.clique_cells[clique + 1]):
            part = by_shapes[cell] * (shapes[cell] - tape.fixed[cell])
            whole += part
            for k in range(tape.factor_starts[cell], tape.factor_starts[cell + 1]):
                result[tape.factors[k]] += spread_of(first + k - tape.factor_starts[cell], tape) * part
        free = SPREAD_IN_COMMON * position[0] + SPREAD_BETWEEN_TABLES * position[1 + clique]
        by_free = whole / (1.0 + math.exp(free) / LARGEST)
        result[0] += SPREAD_IN_COMMON * by_free
        result[1 + clique] += SPREAD_BETWEEN_TABLES * by_free
        for group in range(tape.clique_groups[clique], tape.clique_groups[clique + 1]):
            log_sum, spread = log_whole(group, position, tape), spread_of(group, tape)
            for k in range(tape.group_starts[group], tape.group_starts[group + 1]):
                share = math.exp(spread * position[k] - log_sum)
                result[k] += spread * whole * (share - 1.0 if tape.stays[group] else -share)
    return result


@kept(error_model="numpy")
def _judged_rows(log_rows, shapes, row_starts, homes, cliques):
    """Compute `ShapePrior.judged`; the log density of a row has a known mean and variance given its α."""
    draws = shapes.shape[1]
    density, scores = np.zeros((cliques, draws)), np.zeros(draws)
    for draw in range(draws):
        excess, variance = 0.0, 0.0
        for row in range(row_starts.size - 1):
            mass, log_density = 0.0, 0.0
            for i in range(row_starts[row], row_starts[row + 1]):
                alpha = shapes[i, draw]
                mass += alpha
                log_density += alpha * log_rows[i, draw] - math.lgamma(alpha)
                excess += alpha * (log_rows[i, draw] - digamma(alpha))
                variance += alpha * alpha * trigamma(alpha)
            density[homes[row], draw] += log_density + math.lgamma(mass)
            excess += mass * digamma(mass)
            variance -= mass * mass * trigamma(mass)
        scores[draw] = excess / math.sqrt(max(variance, 1e-300))
    return density, scores
