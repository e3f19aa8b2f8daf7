r"""Sampling distribution of a released estimate at each beta of a grid, simulated through the mechanism itself.

At each beta of a public grid, outcomes are simulated and noise is drawn from its public distribution. The mechanism's
estimator turns both into one released estimate. Nothing here depends on anybody's real outcomes, so the simulation
spends no privacy budget. One table serves all estimates with the same network, constants and bounds.

A configuration of outcomes takes longer to draw than noise, so several noises are drawn for each configuration.
Estimates of one configuration are correlated. With C configurations, R noises for each, and an intraclass correlation
:math:`\rho`, a mean over the C R estimates is as accurate as one over :math:`C R / (1 + (R - 1) \rho)` independent
estimates.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self, cast, get_args
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf import checks
from bayesprivmrf.chains.heat_bath import BURN_IN, LARGEST_RHAT, SWEEPS, Moves, remedy
from bayesprivmrf.checks import instance_of
from bayesprivmrf.errors import ArgumentError, SamplingWarning, warn_caller
from bayesprivmrf.files import replaced_when_whole
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.network.ising import IsingNetwork
from bayesprivmrf.network.perturbed_score import (
    GRID_POINTS,
    PerturbedEstimator,
    public_grid,
)
from bayesprivmrf.privacy.score_lattice import PerturbationConstants

# Defaults of a simulation; benchmarks/network_intervals.py measures what they give
BOUNDS = (-5.0, 5.0)  # of beta: far beyond where outcomes of any usual network are ordered
CONFIGURATIONS = 1000  # outcomes at each beta: quantiles of 5 % have standard errors of 0.7 %
NOISES = 4  # draws of noise for each: the outcomes are what takes time
# configurations that share the burn-in of a chain, and the fewest chains: two of each start
_PER_CHAIN = 4
_FEWEST_CHAINS = 4
# bytes of the digest that identifies a distribution: two never meet by accident
_DIGEST_BYTES = 16


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EstimateLaw:
    """Simulated sampling distribution of a released estimate, at each beta of a grid.

    Make one with `EstimateLaw.of` or `NetworkEstimate.law`.

    Parameters
    ----------
    betas
        Grid of betas, increasing, shape (B,).
    estimates
        Simulated estimates, shape (B, C, R): C configurations of outcomes with R noise draws each.
    rhat
        Larger of the simulation's two R-hats at each beta, shape (B,).
    ends
        Smallest and largest value that can be released. The largest is infinite if there is no upper bound. Each
        finite end is released with positive probability.
    spacing
        Spacing of the values that can be released.
    fingerprint
        Digest of network, constants and bounds, which identifies the estimates with this distribution.
    moves
        Moves of the Markov chains that drew the outcomes.

    Raises
    ------
    ArgumentError
        There are fewer than two betas, the betas do not increase, or shapes do not match.

    Examples
    --------
    >>> import numpy as np
    >>> law = EstimateLaw(
    ...     betas=np.array([0.0, 1.0]), estimates=np.array([[[0.1], [-0.1]], [[1.2], [0.9]]]), rhat=np.ones(2),
    ...     ends=(-5.0, 5.0), spacing=0.1, fingerprint="",
    ... )
    >>> law
    EstimateLaw(2 betas from 0 to 1, 2 configurations with 1 noises each)
    """

    betas: FloatArray
    estimates: FloatArray
    rhat: FloatArray
    ends: tuple[float, float]
    spacing: float
    fingerprint: str
    moves: Moves = "heat-bath"

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", _checked_betas(self.betas))
        count = self.betas.size
        rows = (
            self.estimates.ndim == 3
            and len(self.estimates) == count
            and self.rhat.shape == (count,)
        )
        shapes = f"shapes {self.estimates.shape} and {self.rhat.shape}"
        must = f"have one row for each of {count} betas"
        checks.require(
            rows, "`estimates` and `rhat`", must, shapes, "simulate the distribution again"
        )

    @staticmethod
    def checked(law: Any) -> EstimateLaw:
        """Return `law` if it is an `EstimateLaw`, and otherwise raise an error."""
        return instance_of(
            "law", law, EstimateLaw, "be an EstimateLaw", "make it with EstimateLaw.of(estimate)"
        )

    @classmethod
    def of(cls, estimate: Any, **settings: Any) -> Self:
        """Simulate the sampling distribution of a `NetworkEstimate`; settings are those of `simulate`."""
        return cls.simulate(*_public_part(estimate), **settings)

    @classmethod
    def simulate(
        cls,
        network: IsingNetwork,
        constants: PerturbationConstants,
        bounds: tuple[float, float] | None = BOUNDS,
        *,
        betas: ArrayLike | None = None,
        span: tuple[float, float] | None = None,
        points: int = GRID_POINTS,
        configurations: int = CONFIGURATIONS,
        noises: int = NOISES,
        burn_in: int = BURN_IN,
        sweeps: int = SWEEPS,
        moves: Moves = "heat-bath",
        rng: int | np.random.Generator | None = None,
        cache: str | os.PathLike[str] | None = None,
        workers: int = 1,
        progress: bool = True,
    ) -> Self:
        """Simulate the sampling distribution of a released estimate.

        Parameters
        ----------
        network, constants, bounds
            The public network, constants and bounds of the release.
        betas
            Grid of betas. By default half of `points` betas are evenly spaced over `span`, and half are near the
            betas at which outcomes become ordered.
        span
            First and last beta; by default the bounds.
        points
            Number of betas, at least 4, if `betas` is not given.
        configurations
            Number C of configurations of outcomes at each beta, at least 1. Four of them come from each chain.
        noises
            Number R of noise draws for each configuration, at least 1.
        burn_in
            Number of sweeps before a chain's first configuration.
        sweeps
            Number of sweeps between a chain's configurations, at least 1.
        moves
            ``"heat-bath"`` or ``"swendsen-wang"``, as in `IsingNetwork.simulate`; the latter if the heat bath does
            not mix.
        rng
            A seed or a generator. One seed gives one table, whatever `workers` is.
        cache
            A file. It is read if it has this distribution with the same betas, numbers of draws and moves;
            otherwise it is written. A distribution read from a cache may have another seed, `burn_in` and
            `sweeps`.
        workers
            Number of threads, -1 for one per core.
        progress
            True to show a progress bar on a terminal or in a notebook.

        Warns
        -----
        SamplingWarning
            The chains have not mixed at some betas.

        Raises
        ------
        ArgumentError
            `bounds` is None and neither `betas` nor `span` is given, a number is out of range, or `moves` is not
            known.
        """
        configurations = checks.whole_number("configurations", configurations, least=1)
        noises = checks.whole_number("noises", noises, least=1)
        checks.one_of("moves", moves, get_args(Moves.__value__))
        checks.truth("progress", progress)
        workers = checks.whole_number("workers", workers, least=-1)
        checks.require(workers != 0, "workers", "be at least 1, or -1 for one per core", workers)
        run = {
            "size": configurations,
            "chains": max(_FEWEST_CHAINS, -(-configurations // _PER_CHAIN)),
            "moves": moves,
            "sweeps": checks.whole_number("sweeps", sweeps, least=1),
            "burn_in": checks.whole_number("burn_in", burn_in),
        }
        generator = checks.generator(rng)
        remedy = "`mechanism.law(network)` takes all three from a mechanism"
        instance_of("network", network, IsingNetwork, "be an IsingNetwork", remedy)
        instance_of(
            "constants", constants, PerturbationConstants, "be PerturbationConstants", remedy
        )
        if bounds is None:
            bounds = None
        else:
            bounds = checks.finite_pair("bounds", bounds)
        estimator = PerturbedEstimator.of(network.coupling, constants, bounds, network.field)
        if betas is None:
            betas = public_grid(network.coupling, bounds if span is None else span, points)
        grid = _checked_betas(betas)
        fingerprint = _fingerprint(network, constants, bounds)
        if cache is None:
            file = None
        else:
            file = checks.file_path("cache", cache)
        if file is not None and file.exists():
            known = cls.load(file)
            shape = (grid.size, configurations, noises)
            same = known.fingerprint == fingerprint and known.moves == moves
            if same and known.estimates.shape == shape and np.array_equal(known.betas, grid):
                known._warn()
                return known

        def row(beta: float, stream: np.random.Generator) -> tuple[FloatArray, float]:
            """Return the estimates at one beta, shape (C, R), and the larger of the two R-hats."""
            drawn = network.run_chains(beta, rng=stream, **run)
            noise = constants.noise.draw((configurations, noises), stream)
            rhat = max(drawn.mixing.energy_rhat, drawn.mixing.order_rhat)
            return estimator.estimates(drawn.spins, noise, beta), rhat

        # each beta has its own random generator, so the table does not depend on the number of threads
        jobs = zip(grid.tolist(), generator.spawn(grid.size), strict=True)
        rows, rhats = zip(*_in_threads(row, jobs, grid.size, workers, progress), strict=True)
        if estimator.high is None:
            last = math.inf
        else:
            last = estimator.high * constants.grid
        law = cls(
            betas=grid,
            estimates=np.array(rows),
            rhat=np.array(rhats),
            ends=(estimator.low * constants.grid, last),
            spacing=constants.grid,
            fingerprint=fingerprint,
            moves=moves,
        )
        law._warn()
        if file is not None:
            law.save(file)
        return law

    def has_mixed(self, lower: float, upper: float) -> bool:
        """Return True if the chains mixed at all betas that the estimates between two betas are interpolated from."""
        first = np.searchsorted(self.betas, lower, side="right") - 1
        last = np.searchsorted(self.betas, upper)
        return bool((self.rhat[max(first, 0) : last + 1] <= LARGEST_RHAT).all())

    @cached_property
    def sorted_rows(self) -> FloatArray:
        """Estimates of each beta in increasing order, shape (B, C R)."""
        return np.sort(self.estimates.reshape(self.betas.size, -1), axis=1)

    def value_of(self, estimate: Any) -> float:
        """Return the number that a `NetworkEstimate` released, after a check that this is its distribution.

        Raises
        ------
        ArgumentError
            The estimate's network, constants or bounds differ from those that were simulated.
        """
        same = _fingerprint(*_public_part(estimate)) == self.fingerprint
        must = "be simulated for the network, constants and bounds of the estimate"
        checks.require(same, "law", must, "one for others", "make it with EstimateLaw.of(estimate)")
        return estimate.inverse_temperature

    def estimates_at(self, beta: float) -> FloatArray:
        """Return sorted estimates at any beta of the span, by linear interpolation of the quantiles.

        Raises
        ------
        ArgumentError
            `beta` lies outside the span of the grid.
        """
        inside = self.betas[0] <= checks.finite("beta", beta) <= self.betas[-1]
        must = f"lie within {self.betas[0]:g} to {self.betas[-1]:g}, the simulated span"
        checks.require(inside, "beta", must, beta, "simulate a wider span")
        after = int(np.clip(np.searchsorted(self.betas, beta), 1, self.betas.size - 1))
        share = (beta - self.betas[after - 1]) / (self.betas[after] - self.betas[after - 1])
        return (1 - share) * self.sorted_rows[after - 1] + share * self.sorted_rows[after]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a NumPy file, which contains no code.

        Raises
        ------
        ArgumentError
            The file cannot be written.
        """
        path = checks.file_path("path", path)
        with suppress(OSError):  # the writer raises a clear error
            path.parent.mkdir(parents=True, exist_ok=True)
        with replaced_when_whole(path) as file:
            np.savez_compressed(
                file, **{field.name: getattr(self, field.name) for field in fields(self)}
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a table that `save` wrote.

        Raises
        ------
        ArgumentError
            The file cannot be read, or holds something else.
        """
        path = checks.file_path("path", path)
        try:
            with np.load(path, allow_pickle=False) as file:
                low, high = file["ends"]
                return cls(
                    betas=file["betas"],
                    estimates=file["estimates"],
                    rhat=file["rhat"],
                    ends=(float(low), float(high)),
                    spacing=float(file["spacing"]),
                    fingerprint=str(file["fingerprint"]),
                    moves=cast("Moves", str(file["moves"]) if "moves" in file else "heat-bath"),
                )
        except (KeyError, ValueError, TypeError, IndexError, EOFError, BadZipFile) as error:
            raise ArgumentError(
                f"`cache` must be a new name or a file that `EstimateLaw.save` wrote, got {str(path)!r}, which holds "
                "something else; choose another name."
            ) from error
        except OSError as error:
            raise ArgumentError(
                f"`path` must be readable, got {str(path)!r} ({error.strerror})."
            ) from error

    def _warn(self) -> None:
        """Give a SamplingWarning if the chains have not mixed at some betas."""
        stuck = self.betas[~(self.rhat <= LARGEST_RHAT)]
        if stuck.size:
            warn_caller(
                f"the simulation has not mixed at {stuck.size} of {self.betas.size} betas, from {stuck[0]:.3g} to "
                f"{stuck[-1]:.3g} (R-hat above {LARGEST_RHAT}); {remedy(self.moves)}, and do not trust results there "
                "if that does not help.",
                SamplingWarning,
            )

    def __repr__(self) -> str:
        count, configurations, noises = self.estimates.shape
        return (
            f"EstimateLaw({count} betas from {self.betas[0]:g} to {self.betas[-1]:g}, {configurations} "
            f"configurations with {noises} noises each)"
        )


def _in_threads(
    function: Callable[..., Any],
    jobs: Iterable[tuple[Any, ...]],
    count: int,
    workers: int,
    progress: bool,
) -> list[Any]:
    """Return the results of a function for each tuple of arguments, behind a progress bar if one can be seen."""
    from joblib import Parallel, delayed
    from rich.console import Console
    from rich.progress import track

    found: Any = Parallel(n_jobs=workers, return_as="generator", prefer="threads")(
        delayed(function)(*job) for job in jobs
    )
    console = Console(stderr=True)
    hidden = not (progress and (console.is_terminal or console.is_jupyter))
    title = "Simulating estimates"
    return list(track(found, title, total=count, console=console, transient=True, disable=hidden))


def end_shares(law: EstimateLaw) -> tuple[FloatArray, FloatArray]:
    """Return the fractions of estimates at the first and at the last end of the range, shape (B,) each."""
    half = law.spacing / 2
    first = (law.sorted_rows < law.ends[0] + half).mean(axis=1)
    last = (law.sorted_rows > law.ends[1] - half).mean(axis=1)
    return first, last


def _checked_betas(betas: ArrayLike) -> FloatArray:
    """Return betas as an increasing array, after a check."""
    try:
        grid = np.asarray(betas, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        grid = np.empty(0)
    rising = (
        grid.ndim == 1 and grid.size > 1 and np.isfinite(grid).all() and (np.diff(grid) > 0).all()
    )
    must = "be at least two finite numbers in increasing order"
    checks.require(rising, "betas", must, f"shape {grid.shape}", "np.linspace makes such an array")
    return grid


def _public_part(
    estimate: Any,
) -> tuple[IsingNetwork, PerturbationConstants, tuple[float, float] | None]:
    """Return the public network, constants and bounds of an estimate."""
    try:
        return estimate.network, estimate.constants, estimate.bounds
    except AttributeError:
        raise ArgumentError(
            f"`estimate` must be a NetworkEstimate, got {type(estimate).__name__}."
        ) from None


def _fingerprint(
    network: IsingNetwork, constants: PerturbationConstants, bounds: tuple[float, float] | None
) -> str:
    """Return a digest of the network, constants and bounds, which decide the distribution of an estimate."""
    coupling = network.coupling
    parts: list[Any] = [constants.as_dict(), None if bounds is None else [float(b) for b in bounds]]
    if network.field is not None:
        parts.append([network.field.strength, network.field.center])
    settings = json.dumps(parts)
    digest = hashlib.blake2b(settings.encode(), digest_size=_DIGEST_BYTES)
    for part, kind in ((coupling.indptr, "<i8"), (coupling.indices, "<i8"), (coupling.data, "<f8")):
        digest.update(np.ascontiguousarray(part, dtype=kind).tobytes())
    return digest.hexdigest()
