r"""Marginals and their derivatives in zero-sum coordinates, as functions that other compiled code can call.

Let D be the matrix of `Effects.potentials`, and t(x) the sufficient statistics: for each coordinate β_i, the value of
its contrast at x. The model is :math:`p(x) = \exp(β·t(x) - A(β))`. `evaluate` returns

.. math:: μ, \qquad A, \qquad E\,t_i = (D^T μ)_i, \qquad E\,t_i^2 = \bigl((D ∘ D)^T μ\bigr)_i ;

The last two give the variances of t, which are the diagonal of the Fisher information of one record. `pull_back`
computes the vector-Jacobian product of μ by one multiplication with Σ, the symmetric covariance of the cells'
indicators.

**Products with D.** In a model without restrictions, D is block-diagonal with one block for each clique: the columns
of the Kronecker product of :math:`[1 \mid Q_v]` over the variables v of the clique that belong to a coordinate, where
Q_v has Helmert's contrasts. With :math:`e_j = -1 / \sqrt{j (j + 1)}`, contrast j is :math:`p_j = -j e_j` at state j,
:math:`e_j` at the states before it, and 0 at those after it. The product is applied axis by axis, with running sums
along each axis: entry i of :math:`[1 \mid Q] c` is :math:`c_0 + p_i c_i + \sum_{j > i} e_j c_j`. That takes a few
operations for each cell and axis. In a restricted model D is a sparse matrix.

`evaluate` passes the workspace of its sweeps to `pull_back`, so inference is done only once. No state is kept
between calls, so threads can share a `Plan`. Neither function holds Python's global interpreter lock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, kept, put
from bayesprivmrf.errors import ModelError
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.marginals.exact import (
    CompiledEngine,
    build,
    collect,
    distribute,
    prepare,
    tangent,
)
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

# positions in `PlanData.sizes`
_STEPS, _CELLS, _MESSAGES, _TABLES, _WORKSPACE, _SCRATCH, _SIZE = range(7)


class PlanData(NamedTuple):
    """Arrays of a `Plan`, as compiled functions read them.

    The first eight are those of the sweeps of marginal inference; the others multiply with D (`_design`).
    """

    code: np.ndarray
    maps: np.ndarray
    bounds: np.ndarray
    constants: np.ndarray  # cells that are 1 whatever the potentials are
    sizes: np.ndarray  # shape (7,); the module's constants name the positions
    scratch_sizes: np.ndarray
    support: np.ndarray  # mask of the cells that may occur; empty if all may
    base: FloatArray  # potentials at β = 0, then the constant part of A
    # D as a sparse matrix: where the entries of each cell begin; empty without restrictions
    rows: np.ndarray
    columns: np.ndarray
    entries: FloatArray
    # of each axis of each clique: first cell, repetitions before, states, repetitions after
    axes: np.ndarray
    places: np.ndarray  # cell at which each coordinate enters
    contrasts: FloatArray  # values p and e of Helmert's contrasts, shape (2, states)


@dataclass(frozen=True, eq=False)
class Plan:
    """Model that is prepared for `evaluate`.

    Parameters
    ----------
    effects
        The coordinates.
    base
        Potentials at β = 0 (`LogLinearFamily.base`), shape (cells,); None if all are 0.

    Raises
    ------
    ModelError
        The shape of the base is not (cells,), or (when the arrays are made) no joint state is possible.
    ModelTooLargeError
        Exact marginals need too much memory.
    """

    effects: Effects
    base: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.base is not None and self.base.shape != (self.effects.cells,):
            raise ModelError(
                f"`base` must have shape ({self.effects.cells},), got {self.base.shape}."
            )

    @cached_property
    def data(self) -> PlanData:
        """Arrays of the plan, as compiled functions read them."""
        # the sweeps must be compiled before any function that calls them is loaded, and each of those reads this data
        build("prepare", "collect", "distribute", "tangent")
        engine = marginal_engine(self.effects.cardinalities, self.effects.scopes)
        if not isinstance(engine, CompiledEngine):
            raise ModelError(
                "the log-linear posterior needs marginals that numba compiles; check the installation of `numba`."
            )
        if self.base is None:
            base = np.zeros(self.effects.cells)
        else:
            base = self.base
        if np.isfinite(base).all():
            support = np.zeros(0, dtype=np.uint8)
        else:
            support = engine.support(base)
        program = engine.program
        sizes = (
            program.steps, program.cells, program.messages, program.tables, program.workspace, program.scratch,
            self.effects.size,
        )  # fmt: skip
        rows, columns, entries, axes, places, contrasts = _design(self.effects)
        return PlanData(
            code=program.code,
            maps=program.maps,
            bounds=engine.bounds,
            constants=engine.constants,
            sizes=np.array(sizes, dtype=np.int64),
            scratch_sizes=engine.largest,
            support=support,
            base=np.append(base, engine.free_log_count),
            rows=rows,
            columns=columns,
            entries=entries,
            axes=axes,
            places=places,
            contrasts=contrasts,
        )

    def moments(self, beta: FloatArray) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Return A, μ, E t and E t² at one point β; with sums of logarithms where those of numbers underflow."""
        mu, log_partition_, mean, square, _ = evaluate(
            np.ascontiguousarray(beta, dtype=float), self.data
        )
        if math.isnan(log_partition_):
            engine = marginal_engine(self.effects.cardinalities, self.effects.scopes)
            log_partition_, mu = engine.marginals(
                self.data.base[:-1] + self.effects.potentials(beta[None])[0]
            )
            mean, square = _expected_statistics(mu, self.data)
        return log_partition_, mu, mean, square


def _design(effects: Effects) -> tuple[np.ndarray, ...]:
    r"""Return D in the form that compiled functions multiply with: sparse, or axis by axis.

    Returns
    -------
    tuple of ndarray
        D as a sparse matrix by rows, which is empty unless the model is restricted: where the entries of each cell
        begin, columns, and entries. Then four numbers for each axis of each clique (first cell, repetitions before
        the axis, states, repetitions after it); the cell at which each coordinate enters; and the two values of
        Helmert's contrasts, p and e, shape (2, states). These three are empty in a restricted model.
    """
    none = np.zeros(0, dtype=np.int64)
    if effects.matrix is not None:
        matrix = _sparse(effects)
        rows, columns = (part.astype(np.int64) for part in (matrix.indptr, matrix.indices))
        return (
            rows,
            columns,
            np.ascontiguousarray(matrix.data, dtype=float),
            none,
            none,
            np.zeros((2, 0)),
        )
    axes = []
    start = 0
    for scope in effects.scopes:
        shape = [effects.cardinalities[v] for v in scope]
        for axis, states in enumerate(shape):
            axes.append((start, math.prod(shape[:axis]), states, math.prod(shape[axis + 1 :])))
        start += math.prod(shape)
    steps = np.arange(max(effects.cardinalities, default=1), dtype=float)
    # the norm at j = 0, where there is no contrast, is set to 1
    values = np.stack([steps, -np.ones_like(steps)]) / np.sqrt(
        np.maximum(steps * (steps + 1.0), 1.0)
    )
    axes_of_all = np.array(axes, dtype=np.int64).ravel()
    return none, none, np.zeros(0), axes_of_all, effects.entry_cells.astype(np.int64), values


def _sparse(effects: Effects) -> Any:
    """Return D as a sparse matrix by rows; dense columns are made in chunks, which limits the memory."""
    from scipy.sparse import csr_array, hstack

    step = max((1 << 22) // max(effects.cells, 1), 1)  # 32 MiB of dense columns at once
    parts = [csr_array((effects.cells, 0))]
    for start in range(0, effects.size, step):
        unit = np.eye(min(step, effects.size - start), effects.size, start)
        parts.append(csr_array(effects.potentials(unit).T))
    return csr_array(hstack(parts, format="csr"))


@njit(nogil=True, **INNER)
def _from_contrasts(values, axes, contrasts):
    """Multiply the tables of all cliques by [1 | Q] along each of their axes, in place."""
    peak = contrasts[0]
    earlier = contrasts[1]
    for a in range(0, axes.size, 4):
        start = axes[a]
        before = axes[a + 1]
        states = axes[a + 2]
        after = axes[a + 3]
        for block in range(before):
            for place in range(after):
                first = start + block * states * after + place
                total = values[
                    first
                ]  # of the contrasts that have been passed, at the states before
                for j in range(states - 1, 0, -1):
                    own = values[first + j * after]
                    values[first + j * after] = total + peak[j] * own
                    total += earlier[j] * own
                values[first] = total


@njit(nogil=True, **INNER)
def _to_contrasts(values, axes, contrasts):
    r"""Multiply the tables of all cliques by the transpose of [1 | Q] along each of their axes, in place.

    Coordinate 0 is the sum of the cells y, and coordinate j is :math:`p_j y_j + e_j \sum_{i < j} y_i`. With squared
    contrasts the matrix is that of the squared entries.
    """
    peak = contrasts[0]
    earlier = contrasts[1]
    for a in range(0, axes.size, 4):
        start = axes[a]
        before = axes[a + 1]
        states = axes[a + 2]
        after = axes[a + 3]
        for block in range(before):
            for place in range(after):
                first = start + block * states * after + place
                total = values[first]  # of the states that have been passed
                for j in range(1, states):
                    own = values[first + j * after]
                    values[first + j * after] = peak[j] * own + earlier[j] * total
                    total += own
                values[first] = total


@njit(nogil=True, **INNER)
def potentials_at(beta, plan):
    """Return D β plus the potentials at β = 0, with minus infinity at impossible cells."""
    base = plan.base
    rows = plan.rows
    columns = plan.columns
    entries = plan.entries
    places = plan.places
    flat = np.zeros(base.size - 1)
    if rows.size:
        for c in range(flat.size):
            for k in range(rows[c], rows[c + 1]):
                flat[c] += entries[k] * beta[columns[k]]
    else:
        for k in range(places.size):
            flat[places[k]] = beta[k]
        _from_contrasts(flat, plan.axes, plan.contrasts)
    for c in range(flat.size):
        flat[c] += base[c]
    return flat


@njit(nogil=True, **INNER)
def _sweep(beta, plan, work, scales):
    """Collect messages, and return A; NaN where numbers underflow, so that a sampler rejects the point."""
    sizes = plan.sizes
    flat = potentials_at(beta, plan)
    # flags are compared numbers: each literal would be compiled separately
    tops, _ = prepare(flat, plan.bounds, work, sizes[_STEPS] >= 0)
    rest = collect(
        plan.code,
        sizes[_STEPS],
        plan.maps,
        work,
        scales,
        plan.support,
        sizes[_CELLS],
        sizes[_STEPS] < 0,
    )
    return tops + rest + plan.base[-1]


@njit(nogil=True, **INNER)
def log_partition_at(beta, plan):
    """Return A(β), nats."""
    sizes = plan.sizes
    return _sweep(beta, plan, np.empty(sizes[_WORKSPACE]), np.empty(sizes[_STEPS]))


@njit(nogil=True, **INNER)
def _parts(state, sizes):
    """Return the parts of the state of `marginals_at`: workspace and scales of the sweeps, and μ with messages."""
    workspace = sizes[_WORKSPACE]
    steps = sizes[_STEPS]
    return state[:workspace], state[workspace : workspace + steps], state[workspace + steps :]


@njit(nogil=True, **INNER)
def marginals_at(beta, plan):
    """Return μ and A at β, and the state that `pull_back` and `_covariance_product` need."""
    sizes = plan.sizes
    state = np.empty(sizes[_WORKSPACE] + sizes[_STEPS] + sizes[_CELLS] + sizes[_MESSAGES])
    work, scales, mu = _parts(state, sizes)
    value = _sweep(beta, plan, work, scales)
    if math.isnan(value):
        mu[:] = np.nan
        return mu[: sizes[_CELLS]], value, state
    # send messages back, and normalize the cells
    for c in plan.constants:
        mu[c] = 1.0
    distribute(plan.code, sizes[_STEPS], plan.maps, work, scales, sizes[_SCRATCH], mu)
    return mu[: sizes[_CELLS]], value, state


@njit(nogil=True, **INNER)
def statistics_of(flat, plan, power=1):
    """Return the transpose of D, or of its entries to a power (1 or 2), times a vector over the cells.

    For μ these are E t and E t².
    """
    rows = plan.rows
    columns = plan.columns
    entries = plan.entries
    places = plan.places
    contrasts = plan.contrasts
    result = np.zeros(plan.sizes[_SIZE])
    if rows.size:
        for c in range(rows.size - 1):
            for k in range(rows[c], rows[c + 1]):
                result[columns[k]] += entries[k] ** power * flat[c]
        return result
    values = flat.copy()
    _to_contrasts(values, plan.axes, contrasts if power == 1 else contrasts * contrasts)
    for k in range(places.size):
        result[k] = values[places[k]]
    return result


@njit(nogil=True, **INNER)
def moments_at(beta, plan):
    """Return μ, A, E t, E t² at β, and the state of `marginals_at`."""
    mu, value, state = marginals_at(beta, plan)
    return mu, value, statistics_of(mu, plan), statistics_of(mu, plan, 2), state


@njit(nogil=True, **INNER)
def _covariance_product(state, vector, plan):
    """Return Σ v over the cells."""
    sizes = plan.sizes
    scratch_sizes = plan.scratch_sizes
    work, scales, mu = _parts(state, sizes)
    gain = np.empty(mu.size + sizes[_TABLES])
    change = np.empty(mu.size)
    for c in plan.constants:
        change[c] = 0.0
    scratch = np.empty(2 * scratch_sizes[0] + 3 * scratch_sizes[1])
    tangent(
        plan.code,
        sizes[_STEPS],
        plan.maps,
        work,
        scales,
        scratch,
        scratch_sizes,
        mu,
        plan.bounds,
        vector,
        gain,
        change,
    )
    return change


@njit(nogil=True, **INNER)
def pull_back(state, by_mu, plan):
    """Return the derivative with respect to β of a function of μ, given its derivative with respect to μ.

    `state` is the state that `marginals_at` returned at β.
    """
    return statistics_of(_covariance_product(state, by_mu, plan), plan)


@njit(nogil=True, **INNER)
def _fisher_information(beta, plan):
    """Return the covariance of t at β, shape (d, d), which is the Fisher information of one record."""
    _, _, state = marginals_at(beta, plan)
    result = np.zeros((beta.size, beta.size))
    unit = np.zeros(beta.size)
    base = potentials_at(unit, plan)
    # column i of D, then Σ times it, then Dᵀ times that
    for i in range(beta.size):
        unit[i] = 1.0
        column = potentials_at(unit, plan)
        unit[i] = 0.0
        for c in range(column.size):
            if base[c] > -np.inf:
                column[c] = column[c] - base[c]
            else:
                column[c] = 0.0
        put(result[i], statistics_of(_covariance_product(state, column, plan), plan))
    return result


@njit(nogil=True, **INNER)
def _both_statistics(mu, plan):
    """Return E t and E t²."""
    return statistics_of(mu, plan), statistics_of(mu, plan, 2)


evaluate, fisher_information, _expected_statistics = (
    kept()(function.py_func) for function in (moments_at, _fisher_information, _both_statistics)
)
