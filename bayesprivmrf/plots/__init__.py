"""Pictures that a statistician wants: estimates against a reference, intervals by method, and checks of a posterior.

Every function returns its own matplotlib Figure and touches no global state; save it with
``figure.savefig("name.png")``. Colours are those of Okabe and Ito, told apart by colour-blind readers, and every
method has a mark of its own besides. What has draws or intervals is drawn through arviz-plots.
"""

from __future__ import annotations

from bayesprivmrf.plots.accuracy import edge_marginals, holdout_against_epsilon
from bayesprivmrf.plots.couplings import couplings
from bayesprivmrf.plots.forest import marginal_forest
from bayesprivmrf.plots.graph import learned_graph
from bayesprivmrf.plots.noisy_tables import noisy_against_posterior
from bayesprivmrf.plots.ranks import calibration_ranks

__all__ = [
    "calibration_ranks",
    "couplings",
    "edge_marginals",
    "holdout_against_epsilon",
    "learned_graph",
    "marginal_forest",
    "noisy_against_posterior",
]
