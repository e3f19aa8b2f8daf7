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

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesprivmrf.compiled import INNER, kept
from bayesprivmrf.errors import ModelError
from bayesprivmrf.marginals import kernels, marginal_engine
from bayesprivmrf.marginals import sweeps as compiled
from bayesprivmrf.marginals.exact import CompiledEngine
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.model.ties import TiedEffects

_collect, _distribute, _prepare, _tangent = (
    compiled.collect,
    compiled.distribute,
    compiled.prepare,
    compiled.tangent,
)
# positions in `PlanData.sizes`; the mode has two, for linear and for logarithmic sums
_STEPS, _CELLS, _MESSAGES, _TABLES, _WORKSPACE, _SCRATCH, _MODES, _, _SIZE = range(9)


class PlanData(NamedTuple):
    """Arrays of a plan, in the order of the compiled functions' arguments."""

    code: NDArray[np.int64]
    maps: NDArray[np.int32]
    bounds: NDArray[np.int64]
    constants: NDArray[np.int64]
    sizes: NDArray[np.int64]
    scratch_sizes: NDArray[np.int64]
    support: NDArray[np.uint8]
    base: FloatArray  # potentials at β = 0; the last entry is the constant part of A
    rows: NDArray[np.int64]  # D as a sparse matrix by rows: where the entries of each cell begin
    columns: NDArray[np.int64]
    entries: FloatArray


@dataclass(frozen=True, eq=False)
class Plan:
    """Model that is prepared for `evaluate`; `Plan.of` makes it.

    Parameters
    ----------
    effects
        The coordinates.
    base
        Potentials at β = 0 (`LogLinearFamily.base`), shape (cells,); None if all are 0.
    """

    effects: Effects | TiedEffects
    base: FloatArray | None

    @classmethod
    def of(cls, effects: Effects | TiedEffects, base: FloatArray | None = None) -> Plan:
        """Return the plan of a model; plans are cached for the process.

        Raises
        ------
        ModelError
            The shape of the base is not (cells,), or no joint state is possible.
        ModelTooLargeError
            Exact marginals need too much memory.
        """
        if base is None or not base.any():
            return _plan(effects, None)
        if base.shape != (effects.cells,):
            raise ModelError(f"`base` must have shape ({effects.cells},), got {base.shape}.")
        return _plan(effects, base.tobytes())

    @cached_property
    def data(self) -> PlanData:
        """Arrays of the plan."""
        # the sweeps must be compiled before any function that calls them is loaded, and each of those reads this data
        compiled.build("prepare", "collect", "distribute", "tangent")
        engine = marginal_engine(self.effects.cardinalities, self.effects.scopes)
        if not isinstance(engine, CompiledEngine):
            raise ModelError(
                "the log-linear posterior needs marginals that numba compiles; check the installation of `numba`."
            )
        base = np.zeros(self.effects.cells) if self.base is None else self.base
        support = np.zeros(0, dtype=np.uint8) if np.isfinite(base).all() else engine.support(base)
        program, bounds, constants, scratch_sizes, free_log_count = engine.arrays
        rows, columns, entries = _sparse(self.effects)
        sizes = (
            program.steps, program.cells, program.messages, program.tables, program.workspace, program.scratch,
            kernels.LINEAR, kernels.LOGARITHMIC,  # passed as values: each literal would be compiled separately
            self.effects.size,
        )  # fmt: skip
        return PlanData(
            code=program.code,
            maps=program.maps,
            bounds=bounds,
            constants=constants,
            sizes=np.array(sizes, dtype=np.int64),
            scratch_sizes=scratch_sizes,
            support=support,
            base=np.append(base, free_log_count),
            rows=rows,
            columns=columns,
            entries=entries,
        )

    def moments(self, beta: FloatArray) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Return A, μ, E t and E t² at one point β."""
        mu, log_partition_, mean, square, _ = evaluate(np.ascontiguousarray(beta, dtype=float), *self.data)
        return log_partition_, mu, mean, square


@lru_cache(maxsize=32)
def _plan(effects: Effects | TiedEffects, base: bytes | None) -> Plan:
    return Plan(effects, None if base is None else np.frombuffer(base, dtype=float))


def _sparse(effects: Effects | TiedEffects) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
    """Return D as a sparse matrix by rows; dense columns are made in chunks, which limits the memory."""
    from scipy.sparse import csr_array, hstack

    step = max((1 << 22) // max(effects.cells, 1), 1)  # 32 MiB of dense columns at once
    parts = [csr_array((effects.cells, 0))]
    for start in range(0, effects.size, step):
        stop = min(start + step, effects.size)
        unit = np.zeros((stop - start, effects.size))
        unit[np.arange(stop - start), np.arange(start, stop)] = 1.0
        parts.append(csr_array(effects.potentials(unit).T))
    matrix = csr_array(hstack(parts, format="csr"))
    return (
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int64),
        np.ascontiguousarray(matrix.data, dtype=float),
    )


@njit(nogil=True, **INNER)
def _forward(beta, blocked, rows, columns, entries, cells):
    """Return D β, with minus infinity at impossible cells."""
    flat = np.empty(cells)
    for c in range(cells):
        total = blocked[c]
        for k in range(rows[c], rows[c + 1]):
            total += entries[k] * beta[columns[k]]
        flat[c] = total
    return flat


@njit(nogil=True, **INNER)
def _sweep(beta, code, maps, bounds, sizes, support, blocked, rows, columns, entries, work, scales):
    """Collect messages, and return A and the mode (linear or logarithmic) in which it was computed."""
    flat = _forward(beta, blocked, rows, columns, entries, sizes[_CELLS])
    tops, _ = _prepare(flat, bounds, work, sizes[_STEPS] >= 0)
    mode = sizes[_MODES]
    rest, is_trusted = _collect(code, sizes[_STEPS], maps, work, scales, support, sizes[_CELLS], mode)
    if not is_trusted:  # linear sums overflowed or underflowed: repeat with logarithms
        mode = sizes[_MODES + 1]
        tops, _ = _prepare(flat, bounds, work, sizes[_STEPS] < 0)
        everything = np.zeros(0, dtype=np.uint8)
        rest, _ = _collect(code, sizes[_STEPS], maps, work, scales, everything, sizes[_CELLS], mode)
    return tops + rest + blocked[-1], mode


@njit(nogil=True, **INNER)
def _log_partition(
    beta, code, maps, bounds, constants, sizes, scratch_sizes, support, blocked, rows, columns, entries
):
    """Return A(β), nats."""
    work, scales = np.empty(sizes[_WORKSPACE]), np.empty(sizes[_STEPS])
    value, _ = _sweep(beta, code, maps, bounds, sizes, support, blocked, rows, columns, entries, work, scales)
    return value


@njit(nogil=True, **INNER)
def _marginals(
    beta, code, maps, bounds, constants, sizes, scratch_sizes, support, blocked, rows, columns, entries
):
    """Return μ and A at β, and the state that `_pull_back` and `_covariance_product` need."""
    cells, steps, workspace = sizes[_CELLS], sizes[_STEPS], sizes[_WORKSPACE]
    both = cells + sizes[_MESSAGES]
    state = np.empty(workspace + steps + both + 1)
    work, scales = state[:workspace], state[workspace : workspace + steps]
    mu = state[workspace + steps : workspace + steps + both]
    value, mode = _sweep(
        beta, code, maps, bounds, sizes, support, blocked, rows, columns, entries, work, scales
    )
    state[-1] = mode
    # send messages back, and normalize the cells
    for c in constants:
        mu[c] = 1.0
    _distribute(code, steps, maps, work, scales, sizes[_SCRATCH], mode, mu)
    return mu[:cells].copy(), value, state


@njit(nogil=True, **INNER)
def _means(flat, rows, columns, entries, size):
    """Return Dᵀ times a vector over the cells; for μ this is E t."""
    result = np.zeros(size)
    for c in range(rows.size - 1):
        for k in range(rows[c], rows[c + 1]):
            result[columns[k]] += entries[k] * flat[c]
    return result


@njit(nogil=True, **INNER)
def _evaluate(
    beta, code, maps, bounds, constants, sizes, scratch_sizes, support, blocked, rows, columns, entries
):
    """Return μ, A, E t, E t² at β, and the state of `_marginals`."""
    mu, value, state = _marginals(
        beta, code, maps, bounds, constants, sizes, scratch_sizes, support, blocked, rows, columns, entries
    )
    mean = _means(mu, rows, columns, entries, beta.size)
    square = _means(mu, rows, columns, entries * entries, beta.size)
    return mu, value, mean, square, state


@njit(nogil=True, **INNER)
def _covariance_product(state, vector, code, maps, bounds, constants, sizes, scratch_sizes):
    """Return Σ v over the cells."""
    cells, steps, workspace = sizes[_CELLS], sizes[_STEPS], sizes[_WORKSPACE]
    both = cells + sizes[_MESSAGES]
    work, scales = state[:workspace], state[workspace : workspace + steps]
    mu = state[workspace + steps : workspace + steps + both]
    gain, change = np.empty(both + sizes[_TABLES]), np.empty(both)
    for c in constants:
        change[c] = 0.0
    scratch = np.empty(2 * scratch_sizes[0] + 3 * scratch_sizes[1])
    _tangent(
        code,
        steps,
        maps,
        work,
        scales,
        scratch,
        scratch_sizes,
        int(state[-1]),
        mu,
        bounds,
        vector,
        gain,
        change,
    )
    return change


@njit(nogil=True, **INNER)
def _pull_back(
    state,
    by_mu,
    code,
    maps,
    bounds,
    constants,
    sizes,
    scratch_sizes,
    support,
    blocked,
    rows,
    columns,
    entries,
):
    """Return the derivative with respect to β of a function of μ, given its derivative with respect to μ.

    `state` is the state that `_marginals` returned at β.
    """
    change = _covariance_product(state, by_mu, code, maps, bounds, constants, sizes, scratch_sizes)
    return _means(change, rows, columns, entries, sizes[_SIZE])


@njit(nogil=True, **INNER)
def _fisher_information(
    beta, code, maps, bounds, constants, sizes, scratch_sizes, support, blocked, rows, columns, entries
):
    """Return the covariance of t at β, shape (d, d), which is the Fisher information of one record."""
    _, _, state = _marginals(
        beta, code, maps, bounds, constants, sizes, scratch_sizes, support, blocked, rows, columns, entries
    )
    size, cells = beta.size, sizes[_CELLS]
    result, vector = np.zeros((size, size)), np.empty(cells)
    # column i of D, then Σ times it, then Dᵀ times that
    for i in range(size):
        for c in range(cells):
            total = 0.0
            for k in range(rows[c], rows[c + 1]):
                if columns[k] == i:
                    total += entries[k]
            vector[c] = total
        change = _covariance_product(state, vector, code, maps, bounds, constants, sizes, scratch_sizes)
        for c in range(cells):
            for k in range(rows[c], rows[c + 1]):
                result[i, columns[k]] += entries[k] * change[c]
    return result


evaluate, fisher_information = (kept()(function.py_func) for function in (_evaluate, _fisher_information))
