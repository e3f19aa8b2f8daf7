"""Figures of estimates, intervals, posteriors and learned models.

Every function returns a matplotlib Figure and changes no global state: a notebook displays it, and
``figure.savefig("name.png")`` writes it. A figure is at most 8 inches wide, so that its labels are legible in a
picture of 800 pixels. Methods differ by marker as well as by color, and the colors are those of Okabe and Ito, which
color-blind readers tell apart.
"""

from __future__ import annotations

from bayesprivmrf.plots.accuracy import edge_marginals, holdout_against_epsilon
from bayesprivmrf.plots.forest import marginal_forest
from bayesprivmrf.plots.learned import couplings, learned_graph
from bayesprivmrf.plots.posterior import calibration_ranks, noisy_against_posterior

__all__ = [
    "calibration_ranks",
    "couplings",
    "edge_marginals",
    "holdout_against_epsilon",
    "learned_graph",
    "marginal_forest",
    "noisy_against_posterior",
]
