r"""How noisy tables depend on latent counts, as PyMC variables.

Discrete Laplace and Laplace noise have one kernel in the count, :math:`e^{-|y - n| / b}`, and discrete Gaussian and
Gaussian noise have one, :math:`e^{-(y - n)^2 / (2 s^2)}`; the constants do not depend on n. So relaxed counts have
the same posterior under an integer law and under its continuous relative.

Under Laplace noise the derivative that PyTensor takes is a smoothed one, while the value is exact; and latent
counts that stand for whole numbers have their kernel completed where the noise is below a count: see
`laplace_kernel`.

A smoothed likelihood is another likelihood: with ``smoothing`` δ > 0, :math:`|r|` becomes
:math:`\sqrt{r^2 + (δb)^2}`, which has no kink at r = 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesprivmrf.inference.evidence import Evidence

__all__ = ["absolute_cells", "noise_data", "observe_noisy_counts", "target_acceptance"]


def absolute_cells(evidence: Evidence) -> np.ndarray:
    """Whether each possible measured cell's kernel is in the absolute residual; shape (possible cells,)."""
    return evidence.is_absolute[evidence.possible]


def target_acceptance(evidence: Evidence, smoothing: float) -> float:
    """Mean acceptance probability for which a sampler's step is tuned: less where Laplace noise costs some of it."""
    if smoothing > 0 or not absolute_cells(evidence).any():
        return 0.8
    from bayesprivmrf.inference.posterior.laplace_kernel import ACCEPTANCE

    return ACCEPTANCE


def noise_data(evidence: Evidence, *, whole_numbers: bool = False) -> dict[str, np.ndarray]:
    """Values of the ``pm.Data`` that `observe_noisy_counts` declares: noisy counts and noise scales, records."""
    noisy = evidence.noisy_counts[evidence.possible]
    scales = evidence.spread([law.scale for law in evidence.noise])[evidence.possible]
    data = {"noisy_counts_data": noisy, "noise_scale": scales}
    if whole_numbers and absolute_cells(evidence).any():
        from bayesprivmrf.inference.posterior.laplace_kernel import lattice_mass

        data["lattice_mass"] = lattice_mass(noisy, scales)
    return data


def observe_noisy_counts(
    evidence: Evidence, counts: Any, *, smoothing: float = 0.0, whole_numbers: bool = False
) -> Any:
    """Declare the observed variable ``noisy_counts`` inside a model, dims ``noisy_cell``.

    Parameters
    ----------
    evidence
        The release; its impossible cells are left out.
    counts
        Latent counts of the possible measured cells, records, shape (possible cells,).
    smoothing
        δ, in noise scales; 0 for the exact likelihood.
    whole_numbers
        Whether each latent count stands for the integer nearest to it, rather than for a mean.
    """
    import pymc as pm
    import pytensor.tensor as pt

    data = noise_data(evidence, whole_numbers=whole_numbers and smoothing == 0)
    noisy: Any = pm.Data("noisy_counts_data", data["noisy_counts_data"], dims="noisy_cell")
    scale: Any = pm.Data("noise_scale", data["noise_scale"], dims="noisy_cell")
    absolute = absolute_cells(evidence)
    named = {"observed": noisy, "dims": "noisy_cell"}
    if not absolute.any():
        return pm.Normal("noisy_counts", counts, scale, **named)
    if "lattice_mass" in data:
        masses: Any = pm.Data("lattice_mass", data["lattice_mass"], dims="noisy_cell")
    else:
        masses = pt.zeros(absolute.size)
    return _with_laplace(absolute, smoothing, [counts, scale, masses], named)


def _with_laplace(absolute: np.ndarray, smoothing: float, given: list[Any], named: dict[str, Any]) -> Any:
    """Cells of which some, or all, have Laplace noise."""
    import pymc as pm
    import pytensor.tensor as pt

    from bayesprivmrf.inference.posterior.laplace_kernel import force_width, log_laplace_kernel

    width = force_width(int(absolute.sum()))

    def logp(value: Any, counts: Any, scale: Any, masses: Any) -> Any:
        distance: Any = pt.sqrt(((value - counts) / scale) ** 2 + smoothing**2)
        kernel = -distance if smoothing > 0 else log_laplace_kernel(counts, value, scale, masses, width)
        first = kernel - pt.log(2 * scale)
        if absolute.all():
            return first
        second: Any = -0.5 * ((value - counts) / scale) ** 2
        second = second - pt.log(scale * np.sqrt(2 * np.pi))
        return pt.where(absolute, first, second)

    def dist(counts: Any, scale: Any, masses: Any, size: Any) -> Any:
        drawn = pm.Laplace.dist(counts, scale, size=size)
        if absolute.all():
            return drawn
        return pt.where(absolute, drawn, pm.Normal.dist(counts, scale, size=size))

    return pm.CustomDist("noisy_counts", *given, logp=logp, dist=dist, **named)
