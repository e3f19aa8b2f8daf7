"""Laws written down instead of simulated, and releases to go with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtri

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
