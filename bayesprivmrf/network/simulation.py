"""Simulation of released estimates at each beta of a public grid.

Outcomes are drawn by Markov chains, and noise from its distribution.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from scipy import sparse

from bayesprivmrf.chains.heat_bath import Moves
from bayesprivmrf.checks import finite_pair, one_of, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.network.ising import IsingNetwork
from bayesprivmrf.network.perturbed_score import PerturbedEstimator
from bayesprivmrf.privacy.objective_perturbation import CouplingNorms
from bayesprivmrf.privacy.score_lattice import PerturbationConstants


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateSimulation:
    """Settings of a simulation: numbers of draws at each beta, and the Markov chains that draw outcomes.

    Parameters
    ----------
    configurations
        Number C of configurations of outcomes at each beta, at least 1. Four of them come from each chain.
    noises
        Number R of noise draws for each configuration, at least 1.
    burn_in
        Number of sweeps before a chain's first configuration.
    sweeps
        Number of sweeps between a chain's configurations, at least 1.
    moves
        ``"heat-bath"`` or ``"swendsen-wang"``, as in `IsingNetwork.simulate`; the latter if the heat bath does not
        mix.
    workers
        Number of threads, -1 for one per core.
    progress
        True to show a progress bar on a terminal or in a notebook.

    Raises
    ------
    ArgumentError
        A number is out of range, or `moves` is not known.
    """

    configurations: int = 1000
    noises: int = 4
    burn_in: int = 300
    sweeps: int = 30
    moves: Moves = "heat-bath"
    workers: int = 1
    progress: bool = True

    def __post_init__(self) -> None:
        for name, least in (("configurations", 1), ("noises", 1), ("burn_in", 0), ("sweeps", 1)):
            whole_number(name, getattr(self, name), least=least)
        one_of("moves", self.moves, get_args(Moves.__value__))
        whole_number("workers", self.workers, least=-1)
        if self.workers == 0 or not isinstance(self.progress, bool):
            raise ArgumentError(
                "`workers` must be at least 1, or -1 for one per core, and `progress` True or False, got "
                f"{self.workers} and {self.progress!r}."
            )

    def row(
        self, network: IsingNetwork, estimator: PerturbedEstimator, beta: float, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """Return the estimates at one beta, shape (C, R), and the larger of the two R-hats."""
        size = self.configurations
        chains = max(4, -(-size // 4))  # four draws of each chain share its burn-in
        run = network.run_chains(
            beta,
            size,
            rng,
            chains=chains,
            sweeps=self.sweeps,
            burn_in=self.burn_in,
            moves=self.moves,
        )
        noise = estimator.constants.noise.draw((size, self.noises), rng)
        return estimator.estimates(run.spins, noise, beta), max(run.mixing.energy_rhat, run.mixing.order_rhat)

    def rows(
        self,
        network: IsingNetwork,
        estimator: PerturbedEstimator,
        betas: FloatArray,
        rng: np.random.Generator,
    ) -> Iterator[tuple[FloatArray, float]]:
        """Yield the row of each beta.

        Each row has its own random generator, so the table does not depend on the number of threads.
        """
        from joblib import Parallel, delayed
        from rich.console import Console
        from rich.progress import track

        console = Console(stderr=True)
        jobs = (
            delayed(self.row)(network, estimator, float(beta), stream)
            for beta, stream in zip(betas, rng.spawn(betas.size), strict=True)
        )
        found: Any = Parallel(n_jobs=self.workers, return_as="generator", prefer="threads")(jobs)
        shown = self.progress and (console.is_terminal or console.is_jupyter)
        yield from track(
            found,
            "Simulating estimates",
            total=betas.size,
            console=console,
            transient=True,
            disable=not shown,
        )


def public_grid(coupling: sparse.csr_array, span: tuple[float, float] | None, points: int = 80) -> FloatArray:
    r"""Return a grid of betas over a span, made from the public network alone.

    Half of the betas are evenly spaced. The other half are near :math:`\pm 1/\lambda`, if these lie in the span,
    where :math:`\lambda` is the spectral norm of :math:`|J|`. In mean-field theory outcomes become ordered at that
    beta, and the distribution of an estimate changes fastest there.

    Parameters
    ----------
    coupling
        Coupling matrix J.
    span
        First and last beta.
    points
        Number of betas, at least 4.

    Raises
    ------
    ArgumentError
        The span is not two finite increasing numbers, or there are fewer than four points.
    """
    if span is None:
        raise ArgumentError(
            "`span` must be given for an estimate without bounds, got None; pass `span=(0, 5)`, for instance."
        )
    low, high = finite_pair("span", span)
    points = whole_number("points", points, least=4)
    # half of the points between 0.6 and 1.6 times the critical beta, of either sign
    critical = 1 / CouplingNorms.of(coupling).spectral
    near = [(0.6 * critical, 1.6 * critical), (-1.6 * critical, -0.6 * critical)]
    pieces = [(max(a, low), min(b, high)) for a, b in near]
    pieces = [(a, b) for a, b in pieces if a < b]
    if not pieces:
        return np.linspace(low, high, points)
    dense = points // 2 // len(pieces)
    parts = [np.linspace(low, high, points - dense * len(pieces))]
    parts += [np.linspace(a, b, dense + 2)[1:-1] for a, b in pieces]
    return np.unique(np.concatenate(parts))


def estimator_of(
    network: IsingNetwork, constants: PerturbationConstants, bounds: tuple[float, float] | None
) -> PerturbedEstimator:
    """Return the estimator whose distribution is simulated.

    Raises
    ------
    ArgumentError
        An argument has the wrong class, or the bounds are not a pair of numbers wider apart than the grid.
    """
    for name, value, kind in (
        ("network", network, IsingNetwork),
        ("constants", constants, PerturbationConstants),
    ):
        if not isinstance(value, kind):
            raise ArgumentError(
                f"`{name}` must be of class {kind.__name__}, got {type(value).__name__}; `mechanism.law(network)` "
                "takes all three from a mechanism."
            )
    bounds = None if bounds is None else finite_pair("bounds", bounds)
    return PerturbedEstimator.of(network.coupling, constants, bounds, network.field)


def fingerprint_of(
    network: IsingNetwork, constants: PerturbationConstants, bounds: tuple[float, float] | None
) -> str:
    """Return a digest of the network, constants and bounds, which decide the distribution of an estimate."""
    coupling = network.coupling
    parts: list[Any] = [constants.as_dict(), None if bounds is None else [float(b) for b in bounds]]
    if network.field is not None:
        parts.append([network.field.strength, network.field.center])
    settings = json.dumps(parts)
    digest = hashlib.blake2b(settings.encode(), digest_size=16)
    for part, kind in ((coupling.indptr, "<i8"), (coupling.indices, "<i8"), (coupling.data, "<f8")):
        digest.update(np.ascontiguousarray(part, dtype=kind).tobytes())
    return digest.hexdigest()
