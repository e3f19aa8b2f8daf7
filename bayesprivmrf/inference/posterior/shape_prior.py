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

The floor α_0 is what keeps a drowned cell's probability from being believed to be one in a million: of n records in
a row, a cell that nobody is in has the upper quantile of a Beta(α_0) variable, some records for any A_C. Without it
the likelihood of sticky tables, a few large cells beside many that noise hides, drives α to .03, and intervals for
the hidden ones to nothing ({doc}`posterior_mathematics`). In a long row most cells are empty, whatever the data, and
a constant floor would add up to people who are not there: all of a row's floors are at most 2 records together.

Given the shapes all is conjugate: rows are Dirichlet(α + n), and tables Dirichlet-multinomial.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesprivmrf.inference.posterior.junction_forest import JunctionForest
from bayesprivmrf.inference.posterior.row_weights import digamma, trigamma
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within

__all__ = ["ShapePrior", "ShapeTape", "clique_shapes", "log_whole", "row_shapes", "row_shapes_pullback"]

FLOOR = 0.1
"""α_0 of a short row, prior counts a cell."""
FLOOR_OF_ROW = 2.0
"""Most prior counts that the floors of one row add up to; rows of more than 20 cells have smaller ones."""
SPREAD_IN_COMMON = 1.5
"""Prior standard deviation of what the tables' log A have in common."""
SPREAD_BETWEEN_TABLES = 1.0
"""Prior standard deviation of each table's own part of log A."""
LARGEST = 100.0
"""Bound of A, at which rows differ by a tenth: more cannot be told from it, and would be a funnel to the sampler."""


class ShapeTape(NamedTuple):
    """The arrays that compiled code takes; cliques are numbered along the forest, cells as in ``forest.cells``."""

    fixed: FloatArray  # α of each cell where it is fixed, or the floor
    clique_cells: IntArray  # first cell of each clique, and the number of cells last
    clique_groups: IntArray  # first margin of each clique; one and the same where the shapes are fixed
    group_starts: IntArray  # first position of each margin m
    factor_starts: IntArray  # of each cell, where its margins' positions begin in `factors`
    factors: IntArray
    log_sizes: FloatArray  # log R of each clique


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
        }

    @cached_property
    def tape(self) -> ShapeTape:
        """The arrays."""
        forest, cells = self.forest, self.forest.cells.size
        cliques = len(forest.order)
        rank = np.empty(cliques, np.int64)
        rank[list(forest.order)] = np.arange(cliques)
        home = np.searchsorted(forest.offsets, forest.cells, side="right") - 1
        clique_cells = np.searchsorted(rank[home], np.arange(cliques + 1)).astype(np.int64)
        if self.concentration is not None or not cells:
            nothing = np.zeros(1, np.int64)
            return ShapeTape(
                fixed=np.full(cells, float(self.concentration or FLOOR)),
                clique_cells=clique_cells,
                clique_groups=np.zeros(cliques + 1, np.int64),
                group_starts=nothing,
                factor_starts=np.zeros(cells + 1, np.int64),
                factors=nothing[:0],
                log_sizes=np.zeros(cliques),
            )
        clique_groups, group_starts, log_sizes = [0], [1 + cliques], []
        factors: list[list[int]] = [[] for _ in range(cells)]
        for k, clique in enumerate(forest.order):
            scope = forest.scopes[clique]
            own = [v for v in scope if v not in forest.separators[clique]]
            log_sizes.append(sum(math.log(forest.cardinalities[v]) for v in own))
            here = np.arange(clique_cells[k], clique_cells[k + 1])
            inside = forest.cells[here] - forest.offsets[clique]
            for v in own:
                states = cells_within(forest.cardinalities, (v,), scope)[inside]
                for cell, state in zip(here, states, strict=True):
                    factors[cell].append(group_starts[-1] + int(state))
                group_starts.append(group_starts[-1] + forest.cardinalities[v])
            clique_groups.append(len(group_starts) - 1)
        return ShapeTape(
            fixed=np.minimum(FLOOR, FLOOR_OF_ROW / np.repeat(forest.row_sizes, forest.row_sizes)),
            clique_cells=clique_cells,
            clique_groups=np.array(clique_groups, np.int64),
            group_starts=np.array(group_starts, np.int64),
            factor_starts=np.cumsum([0] + [len(own) for own in factors], dtype=np.int64),
            factors=np.array([place for own in factors for place in own], dtype=np.int64),
            log_sizes=np.array(log_sizes),
        )

    def shapes(self, position: FloatArray) -> FloatArray:
        """α at positions of shape (..., size), shape (..., cells)."""
        flat = np.asarray(position, dtype=float).reshape(math.prod(position.shape[:-1]), self.size)
        result = _shapes_at(np.ascontiguousarray(flat), self.tape)
        return result.reshape(*position.shape[:-1], self.forest.cells.size)

    def judged(self, log_rows: FloatArray, shapes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log density of each clique's rows given α, by their log-ratios, and the sum's standard score.

        From (cells, draws) to (cliques, draws) and (draws,). The score is 0 on average given α, of variance 1.
        """
        forest = self.forest
        homes = np.searchsorted(self.tape.clique_cells, forest.row_starts[:-1], side="right") - 1
        rows = np.ascontiguousarray(log_rows), np.ascontiguousarray(shapes)
        return _judged_rows(*rows, forest.row_starts, homes, len(forest.order))

    def standardised(self, shapes: FloatArray) -> FloatArray:
        """Log A of each clique in standard deviations of its prior, (cells, draws) to (cliques, draws)."""
        if not self.size:
            return np.zeros((0, shapes.shape[1]))
        first = self.tape.clique_cells[:-1]
        means = (
            np.add.reduceat(shapes - self.tape.fixed[:, np.newaxis], first)
            / np.diff(self.tape.clique_cells)[:, np.newaxis]
        )
        return np.log(np.maximum(means, 1e-300)) / math.hypot(SPREAD_IN_COMMON, SPREAD_BETWEEN_TABLES)


@njit(nogil=True, error_model="numpy")
def log_whole(group, position, tape):
    """Logarithm of the sum of a margin's exponentials."""
    start, stop = tape.group_starts[group], tape.group_starts[group + 1]
    top, total = position[start], 0.0
    for k in range(start, stop):
        top = max(top, position[k])
    for k in range(start, stop):
        total += math.exp(position[k] - top)
    return top + math.log(total)


@njit(nogil=True, error_model="numpy")
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
        level -= log_whole(group, position, tape)
    for cell in range(start, stop):
        log_part = level
        for k in range(tape.factor_starts[cell], tape.factor_starts[cell + 1]):
            log_part += position[tape.factors[k]]
        shapes[cell] = tape.fixed[cell] + math.exp(log_part)


@njit(nogil=True, error_model="numpy")
def row_shapes(position, tape):
    """α of each cell, and the log prior density of the position but for its constant."""
    shapes, log_density = np.empty(tape.fixed.size), 0.0
    for clique in range(tape.clique_cells.size - 1):
        clique_shapes(clique, position, tape, shapes)
    for z in position:
        log_density -= 0.5 * z * z
    return shapes, log_density


@njit(cache=True, nogil=True, error_model="numpy")
def _shapes_at(positions, tape):
    """α of each cell, a row for each position."""
    shapes = np.empty((positions.shape[0], tape.fixed.size))
    for k in range(positions.shape[0]):
        own, _ = row_shapes(positions[k], tape)
        for cell in range(own.size):
            shapes[k, cell] = own[cell]
    return shapes


@njit(nogil=True, error_model="numpy")
def row_shapes_pullback(position, tape, shapes, by_shapes, by_density):
    """Derivative by the position, from those by α and by the log prior density."""
    result = -by_density * position
    if tape.group_starts.size == 1:
        return result
    for clique in range(tape.clique_cells.size - 1):
        whole = 0.0
        for cell in range(tape.clique_cells[clique], tape.clique_cells[clique + 1]):
            part = by_shapes[cell] * (shapes[cell] - tape.fixed[cell])
            whole += part
            for k in range(tape.factor_starts[cell], tape.factor_starts[cell + 1]):
                result[tape.factors[k]] += part
        free = SPREAD_IN_COMMON * position[0] + SPREAD_BETWEEN_TABLES * position[1 + clique]
        by_free = whole / (1.0 + math.exp(free) / LARGEST)
        result[0] += SPREAD_IN_COMMON * by_free
        result[1 + clique] += SPREAD_BETWEEN_TABLES * by_free
        for group in range(tape.clique_groups[clique], tape.clique_groups[clique + 1]):
            log_sum = log_whole(group, position, tape)
            for k in range(tape.group_starts[group], tape.group_starts[group + 1]):
                result[k] -= whole * math.exp(position[k] - log_sum)
    return result


@njit(cache=True, nogil=True, error_model="numpy")
def _judged_rows(log_rows, shapes, row_starts, homes, cliques):
    """What `ShapePrior.judged` gives; the log density of a row has a known mean and variance given its α."""
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
