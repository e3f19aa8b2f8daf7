"""Estimators that the figures compare, and their estimates from simulated outcomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.network.perturbed_score import PerturbedEstimator
from bayesprivmrf.noise.source import noise_source
from bayesprivmrf.privacy.objective_perturbation import Calibration
from bayesprivmrf.privacy.score_lattice import PerturbationConstants, perturbation_constants

if TYPE_CHECKING:
    from bayesprivmrf.network import IsingNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateEstimator:
    """One way to calibrate objective perturbation.

    Parameters
    ----------
    name
        The estimator's name in tables.
    label
        The estimator's label in figures.
    calibration
        ``"tight"`` or ``"paper"``.
    is_pure
        delta = 0 and Laplace noise; else delta = 1/n and Gaussian noise.
    """

    name: str
    label: str
    calibration: Calibration
    is_pure: bool

    def delta(self, nodes: int) -> float:
        """Return delta on a network of n nodes."""
        return 0.0 if self.is_pure else 1 / nodes

    def constants(self, network: IsingNetwork, epsilon: float) -> PerturbationConstants:
        """Return split, noise and Delta at a budget."""
        return perturbation_constants(
            network.coupling, epsilon, self.delta(len(network)), self.calibration
        )

    def described(
        self, nodes: int, epsilon: float, constants: PerturbationConstants
    ) -> dict[str, Any]:
        """Return the columns of a table that describe the estimator and its noise, on n nodes."""
        return {
            "estimator": self.name,
            "epsilon": epsilon,
            "delta": self.delta(nodes),
            "curvature": constants.curvature,
            "noise_sd": constants.noise_deviation,
        }


PRIVATE = (
    PrivateEstimator(name="paper", label="paper, δ = 1/n", calibration="paper", is_pure=False),
    PrivateEstimator(name="paper-laplace", label="paper, δ = 0", calibration="paper", is_pure=True),
    PrivateEstimator(name="tight", label="tight, δ = 0", calibration="tight", is_pure=True),
)
"""The first is what the paper draws. The last promises more than it: with delta = 0 nothing is given away."""


def private_estimates(
    network: IsingNetwork,
    constants: PerturbationConstants,
    bounds: tuple[float, float] | None,
    spins: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return one estimate, with independent noise, for each configuration: shape (k,) for spins (k, n)."""
    estimator = PerturbedEstimator.of(network.coupling, constants, bounds)
    noise = noise_source(rng).add(np.zeros(len(spins), dtype=np.int64), constants.noise)
    return np.array(
        [
            estimator.score(row).estimates(part)[0]
            for row, part in zip(spins, noise.reshape(-1, 1), strict=True)
        ]
    )


def summary(estimates: Sequence[float] | np.ndarray, target: float) -> dict[str, Any]:
    """Return mean, standard deviation, mean squared error from a target and its Monte Carlo error."""
    values = np.asarray(estimates, dtype=float)
    errors = (values - target) ** 2
    root = math.sqrt(values.size)
    spread = values.size > 1
    return {
        "repetitions": values.size,
        "mean": float(values.mean()),
        "sd": float(values.std(ddof=1)) if spread else None,
        "mse": float(errors.mean()),
        "mse_error": float(errors.std(ddof=1)) / root if spread else None,
    }
