r"""The law of a released estimate at each beta of a grid, simulated once through the mechanism itself.

At each beta of a public grid outcomes are simulated, and noise is drawn from its public law; what the mechanism makes
of both is one released estimate. Nothing here depends on anybody's outcomes: the table serves every estimate made
with the same network, constants and bounds, and costs no budget.

Several noises are drawn for one configuration, for a configuration costs more than a noise. Estimates of one
configuration are correlated: with C configurations, R noises each and an intraclass correlation :math:`\rho`, a mean
over the C R estimates is as accurate as one over :math:`C R / (1 + (R - 1) \rho)` independent ones. That number is
`EstimateLaw.effective_size`, with :math:`\rho` that of ranks.
"""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self, cast
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf import checks
from bayesprivmrf.chains.heat_bath import Moves
from bayesprivmrf.chains.mixing import LARGEST_RHAT, remedy
from bayesprivmrf.checks import instance_of
from bayesprivmrf.errors import ArgumentError, SamplingWarning
from bayesprivmrf.files import replaced_when_whole
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.network.ising import IsingNetwork
from bayesprivmrf.network.law_simulation import LawSimulation, estimator_of, fingerprint_of, public_grid
from bayesprivmrf.privacy.score_lattice import PerturbationConstants


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EstimateLaw:
    """Simulated released estimates at each beta of a grid.

    Parameters
    ----------
    betas
        Increasing, shape (B,).
    estimates
        Shape (B, C, R): C configurations with R noises each.
    rhat
        Larger one of the simulation's two R-hats at each beta, shape (B,).
    ends
        First and last value that can be released; the last is infinite where there is no upper bound. A released
        value at an end has a positive probability.
    spacing
        Spacing of the values that can be released.
    fingerprint
        Fingerprint of network, constants and bounds: it says which estimates the law belongs to.
    moves
        Moves of the chains that drew the outcomes.

    Raises
    ------
    ArgumentError
        Fewer than two betas, or they do not increase, or shapes differ.
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
        if self.estimates.ndim != 3 or len(self.estimates) != count or self.rhat.shape != (count,):
            raise ArgumentError(
                f"`estimates` and `rhat` must have one row for each of {count} betas, got shapes "
                f"{self.estimates.shape} and {self.rhat.shape}; simulate the law anew."
            )

    @classmethod
    def of(cls, estimate: Any, **settings: Any) -> Self:
        """Return the law that a `NetworkEstimate` has at each beta; settings are those of `simulate`."""
        return cls.simulate(*_public_part(estimate), **settings)

    @classmethod
    def simulate(
        cls,
        network: IsingNetwork,
        constants: PerturbationConstants,
        bounds: tuple[float, float] | None = (-5.0, 5.0),
        *,
        betas: ArrayLike | None = None,
        span: tuple[float, float] | None = None,
        points: int = 80,
        rng: int | np.random.Generator | None = None,
        cache: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> Self:
        """Simulate the law.

        Parameters
        ----------
        network, constants, bounds
            The network, constants and bounds of the release: all public.
        betas
            The grid; by default half of `points` betas are even over `span`, half near where order sets in.
        span
            First and last beta; by default the bounds.
        points
            Number of betas where `betas` is not given.
        rng
            A seed or a generator; one seed gives one table, whatever ``workers`` is.
        cache
            A file: read if it holds this law with the same betas, numbers of draws and moves, else written. A law
            from a cache keeps the seed, ``burn_in`` and ``sweeps`` that it was made with.
        settings
            Those of `LawSimulation`. ``configurations`` (1000) outcomes are drawn at each beta, and ``noises`` (4)
            for each of these; four outcomes come from one chain, ``sweeps`` (30) apart, after ``burn_in`` (300).
            ``moves`` are ``"heat-bath"`` or ``"swendsen-wang"``, as in `IsingNetwork.simulate`: the latter where
            the heat bath has not mixed. ``workers`` (1) is the number of threads, -1 for one a core;
            ``progress`` (True) shows a bar, on a terminal or in a notebook.

        Warns
        -----
        SamplingWarning
            The chains have not mixed at some betas.

        Raises
        ------
        ArgumentError
            `bounds` is None and neither `betas` nor `span` is given; a number is out of range; `moves` is not known.
        """
        simulation, generator = LawSimulation(**settings), checks.generator(rng)
        estimator = estimator_of(network, constants, bounds)
        if betas is None:
            betas = public_grid(network.coupling, bounds if span is None else span, points)
        grid = _checked_betas(betas)
        fingerprint = fingerprint_of(network, constants, bounds)
        file = None if cache is None else checks.file_path("cache", cache)
        if file is not None and file.exists():
            known = cls.load(file)
            shape = (grid.size, simulation.configurations, simulation.noises)
            same = known.fingerprint == fingerprint and known.moves == simulation.moves
            if same and known.estimates.shape == shape and np.array_equal(known.betas, grid):
                known._warn()
                return known
        rows = list(simulation.rows(network, estimator, grid, generator))
        last = math.inf if estimator.high is None else estimator.high * constants.grid
        law = cls(
            betas=grid,
            estimates=np.array([row for row, _ in rows]),
            rhat=np.array([rhat for _, rhat in rows]),
            ends=(estimator.low * constants.grid, last),
            spacing=constants.grid,
            fingerprint=fingerprint,
            moves=simulation.moves,
        )
        law._warn()
        if file is not None:
            law.save(file)
        return law

    @cached_property
    def sorted_rows(self) -> FloatArray:
        """The estimates of each beta in increasing order, shape (B, C R)."""
        return np.sort(self.estimates.reshape(self.betas.size, -1), axis=1)

    @cached_property
    def effective_size(self) -> FloatArray:
        """Number of independent estimates that those of each beta are worth, shape (B,)."""
        from scipy.stats import rankdata

        count, configurations, noises = self.estimates.shape
        if noises == 1 or configurations == 1:
            return np.full(count, float(configurations))
        # ranks, for estimates pile up at the ends
        ranks = rankdata(self.estimates.reshape(count, -1), axis=1).reshape(self.estimates.shape)
        # intraclass correlation of estimates that share a configuration
        within = ranks.var(axis=2, ddof=1).mean(axis=1)
        between = noises * ranks.mean(axis=2).var(axis=1, ddof=1)
        spread = between + (noises - 1) * within
        correlation = np.divide(between - within, spread, out=np.ones(count), where=spread > 0)
        return configurations * noises / (1 + (noises - 1) * np.clip(correlation, 0, 1))

    def at_end(self, value: float) -> tuple[bool, bool]:
        """Return whether a released value is the first, and whether it is the last that can be released."""
        value, half = checks.finite("value", value), self.spacing / 2
        return bool(value < self.ends[0] + half), bool(value > self.ends[1] - half)

    def value_of(self, estimate: Any) -> float:
        """Return the number of a `NetworkEstimate`, after a check that the law is that of its release.

        Raises
        ------
        ArgumentError
            Network, constants or bounds differ from those that were simulated.
        """
        if fingerprint_of(*_public_part(estimate)) != self.fingerprint:
            raise ArgumentError(
                "`law` must be that of the estimate's network, constants and bounds, but another one was simulated; "
                "make it by EstimateLaw.of(estimate)."
            )
        return estimate.inverse_temperature

    def estimates_at(self, beta: float) -> FloatArray:
        """Return the sorted estimates at any beta of the span, quantile by quantile between its neighbours'.

        Raises
        ------
        ArgumentError
            `beta` lies outside the span.
        """
        if not self.betas[0] <= checks.finite("beta", beta) <= self.betas[-1]:
            raise ArgumentError(
                f"`beta` must lie within {self.betas[0]:g} to {self.betas[-1]:g}, the law's span, got {beta!r}; "
                "simulate a wider one."
            )
        after = int(np.clip(np.searchsorted(self.betas, beta), 1, self.betas.size - 1))
        share = (beta - self.betas[after - 1]) / (self.betas[after] - self.betas[after - 1])
        return (1 - share) * self.sorted_rows[after - 1] + share * self.sorted_rows[after]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a NumPy file; no code is in it."""
        path = checks.file_path("path", path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replaced_when_whole(path) as part, part.open("wb") as file:
                np.savez_compressed(file, **{field.name: getattr(self, field.name) for field in fields(self)})
        except (OSError, ValueError) as error:  # a ValueError is a name that no file can have
            reason = getattr(error, "strerror", error)
            raise ArgumentError(f"`path` must be writable, got {str(path)!r} ({reason}).") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a table that `save` wrote.

        Raises
        ------
        ArgumentError
            The file is no such table.
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
                f"`cache` must be a file that a law was saved to, or a new name, got {str(path)!r}, which holds "
                "something else; choose another name."
            ) from error
        except OSError as error:
            raise ArgumentError(f"`path` must be readable, got {str(path)!r} ({error.strerror}).") from error

    def _warn(self) -> None:
        stuck = self.betas[~(self.rhat <= LARGEST_RHAT)]
        if stuck.size:
            warnings.warn(
                f"the simulation has not mixed at {stuck.size} of {self.betas.size} betas, from {stuck[0]:.3g} to "
                f"{stuck[-1]:.3g} (R-hat above {LARGEST_RHAT}); {remedy(self.moves)}, and distrust what lies "
                "there if that does not help.",
                SamplingWarning,
                stacklevel=3,
            )

    def __repr__(self) -> str:
        count, configurations, noises = self.estimates.shape
        return (
            f"EstimateLaw({count} betas from {self.betas[0]:g} to {self.betas[-1]:g}, {configurations} "
            f"configurations with {noises} noises each)"
        )


def checked_law(law: Any) -> EstimateLaw:
    """Return what is an `EstimateLaw`.

    Raises
    ------
    ArgumentError
        It is something else.
    """
    instance_of("law", law, EstimateLaw, "be an EstimateLaw", "make it by EstimateLaw.of(estimate)")
    return law


def _checked_betas(betas: ArrayLike) -> FloatArray:
    try:
        grid = np.asarray(betas, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        grid = np.empty(0)
    if grid.ndim != 1 or grid.size < 2 or not (np.isfinite(grid).all() and (np.diff(grid) > 0).all()):
        raise ArgumentError(
            f"`betas` must be at least two finite numbers in increasing order, got shape {grid.shape}; "
            "np.linspace makes such."
        )
    return grid


def _public_part(
    estimate: Any,
) -> tuple[IsingNetwork, PerturbationConstants, tuple[float, float] | None]:
    try:
        return estimate.network, estimate.constants, estimate.bounds
    except AttributeError:
        raise ArgumentError(f"`estimate` must be a NetworkEstimate, got {type(estimate).__name__}.") from None
