r"""Marginals and their derivatives in zero-sum coordinates, as functions that other compiled code can call.

Let D be the matrix of `Effects.potentials`, and t(x) the sufficient statistics: for each coordinate β_i, the value of
its contrast at x. The model is :math:`p(x) = \exp(β·t(x) - A(β))`. `evaluate` returns

.. math:: μ, \qquad A, \qquad E\,t_i = (D^T μ)_i, \qquad E\,t_i^2 = \bigl((D ∘ D)^T μ\bigr)_i ;

The last two give the variances of t, which are the diagonal of the Fisher information of one record. `_pull_back`
computes the vector-Jacobian product of μ by one multiplication with Σ, the symmetric covariance of the cells'
indicators.

`evaluate` passes the workspace of its sweeps to `_pull_back`, so inference is done only once. No state is kept
between calls, so threads can share a `Plan`. Neither function holds Python's global interpreter lock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, kept
from bayesprivmrf.errors import ModelError
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.marginals.exact import CompiledEngine, build, collect, distribute, prepare, tangent
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

# positions in the sizes of `Plan.data`
_STEPS, _CELLS, _MESSAGES, _TABLES, _WORKSPACE, _SCRATCH, _SIZE = range(7)


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
            raise ModelError(f"`base` must have shape ({self.effects.cells},), got {self.base.shape}.")

    @cached_property
    def data(self) -> tuple[np.ndarray, ...]:
        """Arrays of the plan, which compiled functions take as one tuple."""
        # the sweeps must be compiled before any function that calls them is loaded, and each of those reads this data
        build("prepare", "collect", "distribute", "tangent")
        engine = marginal_engine(self.effects.cardinalities, self.effects.scopes)
        if not isinstance(engine, CompiledEngine):
            raise ModelError(
                "the log-linear posterior needs marginals that numba compiles; check the installation of `numba`."
            )
        base = np.zeros(self.effects.cells) if self.base is None else self.base
        support = np.zeros(0, dtype=np.uint8) if np.isfinite(base).all() else engine.support(base)
        program, matrix = engine.program, _sparse(self.effects)
        sizes = (
            program.steps, program.cells, program.messages, program.tables, program.workspace, program.scratch,
            self.effects.size,
        )  # fmt: skip
        return (
            program.code,
            program.maps,
            engine.bounds,
            engine.constants,
            np.array(sizes, dtype=np.int64),
            engine.largest,
            support,
            # potentials at β = 0; the last entry is the constant part of A
            np.append(base, engine.free_log_count),
            # D as a sparse matrix by rows: where the entries of each cell begin, columns, and entries
            matrix.indptr.astype(np.int64),
            matrix.indices.astype(np.int64),
            np.ascontiguousarray(matrix.data, dtype=float),
        )

    def moments(self, beta: FloatArray) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Return A, μ, E t and E t² at one point β; with sums of logarithms where those of numbers underflow."""
        mu, log_partition_, mean, square, _ = evaluate(np.ascontiguousarray(beta, dtype=float), self.data)
        if math.isnan(log_partition_):
            *_, base, rows, columns, entries = self.data
            engine = marginal_engine(self.effects.cardinalities, self.effects.scopes)
            log_partition_, mu = engine.marginals(base[:-1] + self.effects.potentials(beta[None])[0])
            mean, square = (
                _means.py_func(mu, rows, columns, powers, beta.size) for powers in (entries, entries**2)
            )
        return log_partition_, mu, mean, square


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
def _forward(beta, plan):
    """Return D β, with minus infinity at impossible cells."""
    base, rows, columns, entries = plan[7:]
    flat = np.empty(rows.size - 1)
    for c in range(flat.size):
        total = base[c]
        for k in range(rows[c], rows[c + 1]):
            total += entries[k] * beta[columns[k]]
        flat[c] = total
    return flat


@njit(nogil=True, **INNER)
def _sweep(beta, plan, work, scales):
    """Collect messages, and return A; NaN where numbers underflow, so that a sampler rejects the point."""
    code, maps, bounds, _, sizes, _, support, base, _, _, _ = plan
    flat = _forward(beta, plan)
    # flags are compared numbers: each literal would be compiled separately
    tops, _ = prepare(flat, bounds, work, sizes[_STEPS] >= 0)
    rest = collect(code, sizes[_STEPS], maps, work, scales, support, sizes[_CELLS], sizes[_STEPS] < 0)
    return tops + rest + base[-1]


@njit(nogil=True, **INNER)
def _log_partition(beta, plan):
    """Return A(β), nats."""
    sizes = plan[4]
    return _sweep(beta, plan, np.empty(sizes[_WORKSPACE]), np.empty(sizes[_STEPS]))


@njit(nogil=True, **INNER)
def _parts(state, sizes):
    """Return the parts of the state of `_marginals`: workspace and scales of the sweeps, and μ with messages."""
    workspace, steps = sizes[_WORKSPACE], sizes[_STEPS]
    return state[:workspace], state[workspace : workspace + steps], state[workspace + steps :]


@njit(nogil=True, **INNER)
def _marginals(beta, plan):
    """Return μ and A at β, and the state that `_pull_back` and `_covariance_product` need."""
    code, maps, _, constants, sizes, _, _, _, _, _, _ = plan
    state = np.empty(sizes[_WORKSPACE] + sizes[_STEPS] + sizes[_CELLS] + sizes[_MESSAGES])
    work, scales, mu = _parts(state, sizes)
    value = _sweep(beta, plan, work, scales)
    if math.isnan(value):
        mu[:] = np.nan
        return mu[: sizes[_CELLS]].copy(), value, state
    # send messages back, and normalize the cells
    for c in constants:
        mu[c] = 1.0
    distribute(code, sizes[_STEPS], maps, work, scales, sizes[_SCRATCH], mu)
    return mu[: sizes[_CELLS]].copy(), value, state


@njit(nogil=True, **INNER)
def _means(flat, rows, columns, entries, size):
    """Return Dᵀ times a vector over the cells; for μ this is E t."""
    result = np.zeros(size)
    for c in range(rows.size - 1):
        for k in range(rows[c], rows[c + 1]):
            result[columns[k]] += entries[k] * flat[c]
    return result


@njit(nogil=True, **INNER)
def _evaluate(beta, plan):
    """Return μ, A, E t, E t² at β, and the state of `_marginals`."""
    rows, columns, entries = plan[8:]
    mu, value, state = _marginals(beta, plan)
    mean = _means(mu, rows, columns, entries, beta.size)
    square = _means(mu, rows, columns, entries * entries, beta.size)
    return mu, value, mean, square, state


@njit(nogil=True, **INNER)
def _covariance_product(state, vector, plan):
    """Return Σ v over the cells."""
    code, maps, bounds, constants, sizes, scratch_sizes, _, _, _, _, _ = plan
    work, scales, mu = _parts(state, sizes)
    gain, change = np.empty(mu.size + sizes[_TABLES]), np.empty(mu.size)
    for c in constants:
        change[c] = 0.0
    scratch = np.empty(2 * scratch_sizes[0] + 3 * scratch_sizes[1])
    tangent(code, sizes[_STEPS], maps, work, scales, scratch, scratch_sizes, mu, bounds, vector, gain, change)
    return change


@njit(nogil=True, **INNER)
def _pull_back(state, by_mu, plan):
    """Return the derivative with respect to β of a function of μ, given its derivative with respect to μ.

    `state` is the state that `_marginals` returned at β.
    """
    rows, columns, entries = plan[8:]
    return _means(_covariance_product(state, by_mu, plan), rows, columns, entries, plan[4][_SIZE])


@njit(nogil=True, **INNER)
def _fisher_information(beta, plan):
    """Return the covariance of t at β, shape (d, d), which is the Fisher information of one record."""
    rows, columns, entries = plan[8:]
    _, _, state = _marginals(beta, plan)
    size, cells = beta.size, rows.size - 1
    result, vector = np.zeros((size, size)), np.empty(cells)
    # column i of D, then Σ times it, then Dᵀ times that
    for i in range(size):
        for c in range(cells):
            total = 0.0
            for k in range(rows[c], rows[c + 1]):
                if columns[k] == i:
                    total += entries[k]
            vector[c] = total
        change = _covariance_product(state, vector, plan)
        for c in range(cells):
            for k in range(rows[c], rows[c + 1]):
                result[i, columns[k]] += entries[k] * change[c]
    return result


evaluate, fisher_information = (kept()(function.py_func) for function in (_evaluate, _fisher_information))
