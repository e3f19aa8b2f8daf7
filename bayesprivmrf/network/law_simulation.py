"""Released estimates simulated at each beta of a public grid: outcomes by Markov chains, noise from its law."""

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

_DRAWS = 4  # of each chain: the first burn-in is shared, and chains still are many
_NEAR = (0.6, 1.6)  # around 1 / norm of J, where in mean field order sets in and the law changes fastest


@dataclass(frozen=True, slots=True, kw_only=True)
class LawSimulation:
    """How many outcomes and noises are drawn at each beta, and by which chains.

    Parameters
    ----------
    configurations, noises
        C and R: outcomes drawn at each beta, and noises for each of these. Four outcomes come from one chain,
        `sweeps` apart, after `burn_in`.
    burn_in, sweeps, moves
        Settings of the chains, as in `IsingNetwork.simulate`: ``"swendsen-wang"`` where the heat bath has not mixed.
    workers
        Threads, -1 for one a core.
    progress
        Show a bar, on a terminal or in a notebook.

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
                "`workers` must be at least 1, or -1 for one a core, and `progress` True or False, got "
                f"{self.workers} and {self.progress!r}."
            )

    def row(
        self, network: IsingNetwork, estimator: PerturbedEstimator, beta: float, rng: np.random.Generator
    ) -> tuple[FloatArray, float]:
        """Return estimates at one beta, shape (C, R), and the larger R-hat."""
        size = self.configurations
        chains = max(4, -(-size // _DRAWS))
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
        """Yield each row by a generator of its own, so that the table does not depend on the number of threads."""
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
    r"""Return betas over a span, half of them even, half around :math:`\pm 1/\lambda` where these lie in it.

    :math:`\lambda` is the norm of \|J\|: in mean field order sets in at its inverse, and there the law of an estimate
    changes fastest. Made from the network alone.

    Raises
    ------
    ArgumentError
        The span is not two finite increasing numbers, or there are fewer than four points.
    """
    if span is None:
        raise ArgumentError(
            "`span` must be given where the estimate has no bounds, got None; pass `span=(0, 5)`, say."
        )
    low, high = finite_pair("span", span)
    points = whole_number("points", points, least=4)
    # half of the points where the law changes fastest
    critical = 1 / CouplingNorms.of(coupling).spectral
    near = [(s * a * critical, s * b * critical) for s, (a, b) in ((1, _NEAR), (-1, _NEAR[::-1]))]
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
    """Return the estimator whose law is simulated.

    Raises
    ------
    ArgumentError
        An argument is of another class; the bounds are no pair, or not wider than the grid.
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
    """Return a digest of what a law depends on beside numbers of draws."""
    coupling = network.coupling
    parts: list[Any] = [constants.as_dict(), None if bounds is None else [float(b) for b in bounds]]
    if network.field is not None:
        parts.append([network.field.strength, network.field.center])
    settings = json.dumps(parts)
    digest = hashlib.blake2b(settings.encode(), digest_size=16)
    for part, kind in ((coupling.indptr, "<i8"), (coupling.indices, "<i8"), (coupling.data, "<f8")):
        digest.update(np.ascontiguousarray(part, dtype=kind).tobytes())
    return digest.hexdigest()
