r"""Marginals and their derivatives in zero-sum coordinates, as functions that other compiled code can call.

With D the matrix of `Effects.potentials` and t(x) the sufficient statistics, one for each coordinate β_i: the
value of its contrast at x, the model is :math:`p(x) = \exp(β·t(x) - A(β))`. `evaluate` gives

.. math:: μ, \qquad A, \qquad E\,t_i = (D^T μ)_i, \qquad E\,t_i^2 = \bigl((D ∘ D)^T μ\bigr)_i ;

the last two make the variances of t, the diagonal of Fisher's information of one record. `_pull_back` is the
vector-Jacobian product of μ, by one product with Σ, the covariance of the cells' indicators, which is symmetric.

`evaluate` hands its sweeps' workspace to `_pull_back`, so that no inference is done twice and nothing is kept
between calls: threads share a `Plan` freely, and neither function holds Python's lock.
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
# places in `Tape.sizes`; the modes are two
_STEPS, _CELLS, _MESSAGES, _TABLES, _WORKSPACE, _SCRATCH, _MODES, _, _SIZE = range(9)
# numbers of the dense matrix of coordinates that are in memory at once, 32 MiB
_CHUNK = 1 << 22


class Tape(NamedTuple):
    """Arrays of a plan, in the order of the compiled functions' arguments."""

    code: NDArray[np.int64]
    maps: NDArray[np.int32]
    bounds: NDArray[np.int64]
    constants: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rooms: NDArray[np.int64]
    support: NDArray[np.uint8]
    blocked: FloatArray  # 0, or minus infinity at impossible cells; the constant part of A last
    rows: NDArray[np.int64]  # D by rows: where each cell's entries begin
    columns: NDArray[np.int64]
    entries: FloatArray


@dataclass(frozen=True, eq=False)
class Plan:
    """One model, prepared for `evaluate`; make it with `Plan.of`.

    Parameters
    ----------
    effects
        The coordinates.
    possible
        Cells of the cliques that may occur; None where all may.
    """

    effects: Effects | TiedEffects
    possible: NDArray[np.bool_] | None

    @classmethod
    def of(cls, effects: Effects | TiedEffects, possible: NDArray[np.bool_] | None = None) -> Plan:
        """Return the plan of a model, kept for the process.

        Raises
        ------
        ModelError
            The mask's shape is not (cells,), or no joint state is possible.
        ModelTooLargeError
            Exact marginals would need too much memory.
        """
        if possible is None or possible.all():
            return _plan(effects, None)
        if possible.shape != (effects.cells,):
            raise ModelError(f"`possible` must have shape ({effects.cells},), got {possible.shape}.")
        return _plan(effects, possible.astype(bool).tobytes())

    @cached_property
    def tape(self) -> Tape:
        """The plan's arrays."""
        # before any compiled function that calls the sweeps is loaded, and each of these takes a tape
        compiled.build("prepare", "collect", "distribute", "tangent")
        engine = marginal_engine(self.effects.cardinalities, self.effects.scopes)
        if not isinstance(engine, CompiledEngine):
            raise ModelError(
                "the log-linear posterior needs numba's compiled marginals; see `numba`'s set-up."
            )
        blocked = np.zeros(self.effects.cells)
        support = np.zeros(0, dtype=np.uint8)
        if self.possible is not None:
            blocked[~self.possible] = -np.inf
            support = engine.support(blocked)
        program, bounds, constants, rooms, free_log_count = engine.arrays
        rows, columns, entries = _sparse(self.effects)
        sizes = (
            program.steps, program.cells, program.messages, program.tables, program.workspace, program.scratch,
            kernels.LINEAR, kernels.LOGARITHMIC,  # values, as literals would be compiled apart
            self.effects.size,
        )  # fmt: skip
        return Tape(
            code=program.code,
            maps=program.maps,
            bounds=bounds,
            constants=constants,
            sizes=np.array(sizes, dtype=np.int64),
            rooms=rooms,
            support=support,
            blocked=np.append(blocked, free_log_count),
            rows=rows,
            columns=columns,
            entries=entries,
        )

    def moments(self, beta: FloatArray) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Return A, μ, E t and E t² at one point."""
        mu, log_partition_, mean, square, _ = evaluate(np.ascontiguousarray(beta, dtype=float), *self.tape)
        return log_partition_, mu, mean, square


@lru_cache(maxsize=32)
def _plan(effects: Effects | TiedEffects, possible: bytes | None) -> Plan:
    mask = None if possible is None else np.frombuffer(possible, dtype=bool)
    return Plan(effects, mask)


def _sparse(effects: Effects | TiedEffects) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
    """Return D by rows, from some of its dense columns at a time."""
    from scipy.sparse import csr_array, hstack

    step = max(_CHUNK // max(effects.cells, 1), 1)
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
    """Collect messages; return A, and the domain in which it was computed."""
    flat = _forward(beta, blocked, rows, columns, entries, sizes[_CELLS])
    tops, _ = _prepare(flat, bounds, work, sizes[_STEPS] >= 0)
    mode = sizes[_MODES]
    rest, is_trusted = _collect(code, sizes[_STEPS], maps, work, scales, support, sizes[_CELLS], mode)
    if not is_trusted:  # potentials too far apart for sums of plain numbers: once more with their logarithms
        mode = sizes[_MODES + 1]
        tops, _ = _prepare(flat, bounds, work, sizes[_STEPS] < 0)
        everything = np.zeros(0, dtype=np.uint8)
        rest, _ = _collect(code, sizes[_STEPS], maps, work, scales, everything, sizes[_CELLS], mode)
    return tops + rest + blocked[-1], mode


@njit(nogil=True, **INNER)
def _log_partition(
    beta, code, maps, bounds, constants, sizes, rooms, support, blocked, rows, columns, entries
):
    """Return A(β), nats."""
    work, scales = np.empty(sizes[_WORKSPACE]), np.empty(sizes[_STEPS])
    value, _ = _sweep(beta, code, maps, bounds, sizes, support, blocked, rows, columns, entries, work, scales)
    return value


@njit(nogil=True, **INNER)
def _marginals(beta, code, maps, bounds, constants, sizes, rooms, support, blocked, rows, columns, entries):
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
    for c in constants:
        mu[c] = 1.0
    _distribute(code, steps, maps, work, scales, sizes[_SCRATCH], mode, mu)
    return mu[:cells].copy(), value, state


@njit(nogil=True, **INNER)
def _means(flat, rows, columns, entries, size):
    """Return Dᵀ times numbers of the cells: E t where these are μ."""
    result = np.zeros(size)
    for c in range(rows.size - 1):
        for k in range(rows[c], rows[c + 1]):
            result[columns[k]] += entries[k] * flat[c]
    return result


@njit(nogil=True, **INNER)
def _evaluate(beta, code, maps, bounds, constants, sizes, rooms, support, blocked, rows, columns, entries):
    """Return μ, A, E t, E t² at β, and the state of `_marginals`."""
    mu, value, state = _marginals(
        beta, code, maps, bounds, constants, sizes, rooms, support, blocked, rows, columns, entries
    )
    mean = _means(mu, rows, columns, entries, beta.size)
    square = _means(mu, rows, columns, entries * entries, beta.size)
    return mu, value, mean, square, state


@njit(nogil=True, **INNER)
def _covariance_product(state, vector, code, maps, bounds, constants, sizes, rooms):
    """Return Σ v over the cells."""
    cells, steps, workspace = sizes[_CELLS], sizes[_STEPS], sizes[_WORKSPACE]
    both = cells + sizes[_MESSAGES]
    work, scales = state[:workspace], state[workspace : workspace + steps]
    mu = state[workspace + steps : workspace + steps + both]
    gain, change = np.empty(both + sizes[_TABLES]), np.empty(both)
    for c in constants:
        change[c] = 0.0
    scratch = np.empty(2 * rooms[0] + 3 * rooms[1])
    _tangent(
        code, steps, maps, work, scales, scratch, rooms, int(state[-1]), mu, bounds, vector, gain, change
    )
    return change


@njit(nogil=True, **INNER)
def _pull_back(
    state, by_mu, code, maps, bounds, constants, sizes, rooms, support, blocked, rows, columns, entries
):
    """Return the derivative by β of a function of μ, from its derivative by μ and the state of `_marginals`."""
    change = _covariance_product(state, by_mu, code, maps, bounds, constants, sizes, rooms)
    return _means(change, rows, columns, entries, sizes[_SIZE])


@njit(nogil=True, **INNER)
def _fisher_information(
    beta, code, maps, bounds, constants, sizes, rooms, support, blocked, rows, columns, entries
):
    """Return the covariance of t at β, shape (d, d): Fisher's information of one record."""
    _, _, state = _marginals(
        beta, code, maps, bounds, constants, sizes, rooms, support, blocked, rows, columns, entries
    )
    size, cells = beta.size, sizes[_CELLS]
    result, vector = np.zeros((size, size)), np.empty(cells)
    for i in range(size):
        for c in range(cells):
            total = 0.0
            for k in range(rows[c], rows[c + 1]):
                if columns[k] == i:
                    total += entries[k]
            vector[c] = total
        change = _covariance_product(state, vector, code, maps, bounds, constants, sizes, rooms)
        for c in range(cells):
            for k in range(rows[c], rows[c + 1]):
                result[i, columns[k]] += entries[k] * change[c]
    return result


evaluate, fisher_information = (kept()(function.py_func) for function in (_evaluate, _fisher_information))
