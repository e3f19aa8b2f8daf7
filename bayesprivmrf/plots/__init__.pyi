from .accuracy import edge_marginals, holdout_against_epsilon
from .declared import declared_graph
from .forest import marginal_forest
from .intervals import interval_forest
from .learned import couplings, learned_graph
from .posterior import calibration_ranks, noisy_against_posterior
from .style import svg_text

__all__ = [
    "calibration_ranks",
    "couplings",
    "declared_graph",
    "edge_marginals",
    "holdout_against_epsilon",
    "interval_forest",
    "learned_graph",
    "marginal_forest",
    "noisy_against_posterior",
    "svg_text",
]
