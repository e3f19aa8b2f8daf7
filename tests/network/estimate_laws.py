"""Laws written down instead of simulated, and releases to go with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from bayesprivmrf.network import EstimateLaw


def written_law(quantile, betas, bounds=(-math.inf, math.inf), count=4000) -> EstimateLaw:
    """The law whose quantile function at each beta is quantile(beta, u), held to bounds."""
    u = (np.arange(count) + 0.5) / count
    rows = np.array([quantile(beta, u) for beta in betas])
    return EstimateLaw(
        betas=np.asarray(betas, dtype=float),
        estimates=np.clip(rows, *bounds)[:, :, None],
        rhat=np.ones(len(betas)),
        ends=bounds,
        spacing=1e-6,
        fingerprint="",
    )


def normal_law(sd=0.3, **settings: Any) -> EstimateLaw:
    return written_law(lambda beta, u: beta + sd * ndtri(u), np.linspace(-2, 4, 25), **settings)


def effective_size(law: EstimateLaw) -> np.ndarray:
    """Independent estimates at each beta: C R / (1 + (R - 1) rho), rho the intraclass correlation of ranks."""
    count, configurations, noises = law.estimates.shape
    # ranks, because many estimates may be equal to an end of the range
    ranks = rankdata(law.estimates.reshape(count, -1), axis=1).reshape(law.estimates.shape)
    within = ranks.var(axis=2, ddof=1).mean(axis=1)
    between = noises * ranks.mean(axis=2).var(axis=1, ddof=1)
    rho = (between - within) / (between + (noises - 1) * within)
    return configurations * noises / (1 + (noises - 1) * np.clip(rho, 0, 1))
