from .dependence_graph import (
    LARGEST,
    THRESHOLDS,
    PairScores,
    excess_range,
    gap_range,
    graphs_to_choose,
    release_threshold,
    scaled_scores,
    stable_graph,
    stable_tree,
    tree_and_distance,
)
from .released import ReleasedGraph
from .strata import UNIT, Strata

__all__ = [
    "LARGEST",
    "THRESHOLDS",
    "UNIT",
    "PairScores",
    "ReleasedGraph",
    "Strata",
    "excess_range",
    "gap_range",
    "graphs_to_choose",
    "release_threshold",
    "scaled_scores",
    "stable_graph",
    "stable_tree",
    "tree_and_distance",
]
