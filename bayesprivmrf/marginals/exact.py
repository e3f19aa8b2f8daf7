"""Exact engine: compiled sweeps in the linear domain, or in the log domain if the linear one is not safe."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesprivmrf.compiled import announce_compiling
from bayesprivmrf.marginals import kernels
from bayesprivmrf.marginals import sweeps as compiled
from bayesprivmrf.marginals.arrays import impossible
from bayesprivmrf.marginals.layout import MarginalEngine
from bayesprivmrf.marginals.lowering import Program, lower
from bayesprivmrf.marginals.ordering import BucketTree
from bayesprivmrf.marginals.planning import Step
from bayesprivmrf.model.tables import FloatArray

announce_compiling()  # the modules imported above compile at their first call


class SweepArrays(NamedTuple):
    """Arrays of an engine that the compiled sweeps use; see `kernels`."""

    program: Program
    bounds: NDArray[np.int64]  # first cell of each factor, and the end of the last
    constants: NDArray[np.int64]  # cells of factors without a free variable
    largest: NDArray[
        np.int64
    ]  # cells of the largest message and of the largest group, for the tangent's scratch
    free_log_count: float  # contribution to A of variables in no factor, nats


@dataclass(frozen=True, slots=True)
class _State:
    """State of the workspace after the first sweep, which the second sweep and the tangent read."""

    log_partition: float
    mode: int
    work: FloatArray
    scales: FloatArray


class CompiledEngine(MarginalEngine):
    """Exact inference by compiled sweeps that interpret a plan.

    Parameters
    ----------
    tree : BucketTree
        Buckets in the order of elimination.
    steps : list of Step, optional
        How each bucket is summed; by default the cheapest way by the cost model of `planning`.
    domain : {"auto", "linear", "logarithmic"}
        Domain of the computation. "auto" takes the linear domain, and the log domain if the check of the linear one
        fails. "linear" raises an error instead, for tests.
    """

    def __init__(
        self,
        tree: BucketTree,
        steps: list[Step] | None = None,
        *,
        domain: Literal["auto", "linear", "logarithmic"] = "auto",
    ) -> None:
        self.layout = tree.layout
        self._domain = domain
        self._program: Program = lower(tree, steps)
        self._largest = np.array([self._program.largest_message, self._program.largest_group], dtype=np.int64)
        self._bounds = np.array(tree.layout.offsets, dtype=np.int64)
        self._constants = np.array([tree.layout.offsets[f] for f in tree.constants], dtype=np.int64)
        self._free = tree.free_log_count
        self._pool: list[FloatArray] = []  # workspaces that no call uses; append and pop are atomic
        self._known_support: tuple[NDArray[np.bool_], NDArray[np.uint8]] | None = None

    @property
    def arrays(self) -> SweepArrays:
        """Arrays for compiled code that calls the sweeps itself; do not write to them."""
        return SweepArrays(self._program, self._bounds, self._constants, self._largest, self._free)

    def log_partition(self, potentials: FloatArray) -> float:
        """Return A(θ), in nats.

        Raises
        ------
        ModelError
            If no configuration is possible.
        """
        state = self._collect(potentials)
        self._keep(state.work)
        return state.log_partition

    def marginals(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """Return A(θ) and the probability of every cell."""
        state = self._collect(potentials)
        mu = self._distribute(state)
        self._keep(state.work)
        return state.log_partition, mu[: self.size]

    def linearize(
        self, potentials: FloatArray
    ) -> tuple[float, FloatArray, Callable[[FloatArray], FloatArray]]:
        """Return A(θ), μ and v → Σv."""
        compiled.build("tangent")
        state = self._collect(potentials)
        mu = self._distribute(state)
        program = self._program

        def product(vector: FloatArray) -> FloatArray:
            gain = np.empty(program.cells + program.messages + program.tables)
            change = np.empty(program.cells + program.messages)
            change[self._constants] = 0.0
            scratch = np.empty(2 * program.largest_message + 3 * program.largest_group)
            direction = self.layout.flat(vector, "vector")
            compiled.tangent(
                *program.plan, state.work, state.scales, scratch, self._largest, state.mode,
                mu, self._bounds, direction, gain, change,
            )  # fmt: skip
            return change[: self.size]

        return state.log_partition, mu[: self.size].copy(), product

    def _keep(self, work: FloatArray) -> None:
        """Keep a workspace for the next call.

        An engine keeps at most four, enough for the usual number of threads, so that an idle engine needs little
        memory.
        """
        if len(self._pool) < 4:
            self._pool.append(work)

    def _collect(self, potentials: FloatArray) -> _State:
        """Run the first sweep, in the linear domain if that is safe.

        Raises
        ------
        ModelError
            If no configuration is possible.
        """
        compiled.build("prepare", "collect", "distribute")
        theta = self.layout.flat(potentials)
        program = self._program
        try:
            work = self._pool.pop()
        except IndexError:
            work = np.empty(program.workspace)
        if self._domain != "logarithmic":
            # from 2,048 cells NumPy's vectorized exponential is faster than a call per cell (benchmarks/marginals.py)
            large = program.cells >= 2048
            tops, has_zeros = compiled.prepare(theta, self._bounds, work, not large)
            if tops == -math.inf:
                raise impossible()
            if large:
                cells = work[: program.cells]
                np.exp(cells, out=cells)
            support = self.support(theta) if has_zeros else _EVERYTHING
            state = self._run(work, support, tops, kernels.LINEAR)
            if state is not None:
                return state
            if self._domain == "linear":
                raise FloatingPointError("The linear domain's check failed.")
        tops, _ = compiled.prepare(theta, self._bounds, work, False)
        state = self._run(work, _EVERYTHING, tops, kernels.LOGARITHMIC)
        if state is None or state.log_partition == -math.inf:
            raise impossible()
        return state

    def _run(self, work: FloatArray, support: NDArray[np.uint8], tops: float, mode: int) -> _State | None:
        """Run the first sweep in one domain; return None if the answer cannot be trusted."""
        program = self._program
        scales = np.empty(program.steps)
        rest, is_trusted = compiled.collect(*program.plan, work, scales, support, program.cells, mode)
        return _State(tops + rest + self._free, mode, work, scales) if is_trusted else None

    def support(self, theta: FloatArray) -> NDArray[np.uint8]:
        """Return a mask of the entries of the messages that are possible.

        Cells with a potential of minus infinity are impossible. The last answer is kept for the next call, because
        impossible cells rarely change.

        Raises
        ------
        ModelError
            If no configuration is possible.
        """
        possible = theta > -np.inf
        known = self._known_support
        if known is not None and np.array_equal(known[0], possible):
            return known[1]
        compiled.build("prepare", "collect", "distribute")
        program = self._program
        work = np.empty(program.workspace)
        work[: program.cells] = possible
        scales = np.empty(program.steps)
        compiled.collect(*program.plan, work, scales, _EVERYTHING, program.cells, kernels.SUPPORT)
        support = (work[program.cells : program.cells + program.messages] > 0).astype(np.uint8)
        if not all(support[message - program.cells] for message in program.roots()):
            raise impossible()
        self._known_support = possible, support
        return support

    def _distribute(self, state: _State) -> FloatArray:
        """Run the second sweep; return the marginals of the cells, then those of the separators."""
        program = self._program
        mu = np.empty(program.cells + program.messages)
        mu[self._constants] = 1.0
        compiled.distribute(*program.plan, state.work, state.scales, program.scratch, state.mode, mu)
        return mu


# the support of a model without impossible cells
_EVERYTHING = np.zeros(0, dtype=np.uint8)
