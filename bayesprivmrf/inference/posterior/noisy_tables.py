r"""How noisy tables depend on latent counts, as PyMC variables.

Discrete Laplace and Laplace noise have one kernel in the count, :math:`e^{-|y - n| / b}`, and discrete Gaussian and
Gaussian noise have one, :math:`e^{-(y - n)^2 / (2 s^2)}`; the constants do not depend on n. So relaxed counts have
the same posterior under an integer law and under its continuous relative.

Under Laplace noise the derivative that PyTensor takes is a smoothed one, while the value is exact: see `kink`.

A smoothed likelihood is another likelihood: with ``smoothing`` δ > 0, :math:`|r|` becomes
:math:`\sqrt{r^2 + (δb)^2}`, which has no kink at r = 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.privacy import DiscreteLaplace, Laplace

if TYPE_CHECKING:
    import pymc as pm

__all__ = ["absolute_cells", "noise_data", "observe_noisy_counts"]


def absolute_cells(evidence: Evidence) -> np.ndarray:
    """Whether each possible measured cell's kernel is in the absolute residual; shape (possible cells,)."""
    laws = [isinstance(law, DiscreteLaplace | Laplace) for law in evidence.noise]
    return np.repeat(np.array(laws, dtype=bool), np.diff(evidence.offsets))[evidence.possible]


def noise_data(evidence: Evidence) -> dict[str, np.ndarray]:
    """Values of the ``pm.Data`` that `observe_noisy_counts` declares: noisy counts and noise scales, records."""
    scales = evidence.spread([law.scale for law in evidence.noise])
    return {
        "noisy_counts_data": evidence.noisy_counts[evidence.possible],
        "noise_scale": scales[evidence.possible],
    }


def observe_noisy_counts(evidence: Evidence, counts: Any, *, smoothing: float = 0.0) -> pm.Distribution:
    """Declare the observed variable ``noisy_counts`` inside a model, dims ``noisy_cell``.

    Parameters
    ----------
    evidence
        The release; its impossible cells are left out.
    counts
        Latent counts of the possible measured cells, records, shape (possible cells,).
    smoothing
        δ, in noise scales; 0 for the exact likelihood.
    """
    import pymc as pm

    data = noise_data(evidence)
    noisy = pm.Data("noisy_counts_data", data["noisy_counts_data"], dims="noisy_cell")
    scale = pm.Data("noise_scale", data["noise_scale"], dims="noisy_cell")
    absolute = absolute_cells(evidence)
    named = {"observed": noisy, "dims": "noisy_cell"}
    if not absolute.any():
        return pm.Normal("noisy_counts", counts, scale, **named)
    return _with_laplace(absolute, smoothing, counts, scale, named)


def _with_laplace(
    absolute: np.ndarray, smoothing: float, counts: Any, scale: Any, named: dict[str, Any]
) -> Any:
    """Cells of which some, or all, have Laplace noise."""
    import pymc as pm
    import pytensor.tensor as pt

    from bayesprivmrf.inference.posterior.kink import absolute as exact_distance
    from bayesprivmrf.inference.posterior.kink import force_width

    width = force_width(int(absolute.sum()))

    def logp(value: Any, counts: Any, scale: Any) -> Any:
        ratio = (value - counts) / scale
        distance = pt.sqrt(ratio**2 + smoothing**2) if smoothing > 0 else exact_distance(ratio, width)
        first = -distance - pt.log(2 * scale)
        if absolute.all():
            return first
        second = -0.5 * ratio**2 - pt.log(scale) - 0.5 * np.log(2 * np.pi)
        return pt.where(absolute, first, second)

    def random(counts: Any, scale: Any, rng: Any = None, size: Any = None) -> np.ndarray:
        shape = np.broadcast_shapes(np.shape(counts), np.shape(scale)) if size is None else size
        drawn = np.where(absolute, rng.laplace(size=shape), rng.normal(size=shape))
        return counts + scale * drawn

    return pm.CustomDist("noisy_counts", counts, scale, logp=logp, random=random, **named)
