from .dependence_graph import THRESHOLDS, PairScores, excess_range, graphs_to_choose, stable_graph
from .packed_records import UNIT, PackedRecords
from .released import ReleasedGraph
from .spanning_tree import (
    LARGEST,
    gap_range,
    release_threshold,
    scaled_scores,
    stable_tree,
    tree_and_distance,
)

__all__ = [
    "LARGEST",
    "THRESHOLDS",
    "UNIT",
    "PackedRecords",
    "PairScores",
    "ReleasedGraph",
    "excess_range",
    "gap_range",
    "graphs_to_choose",
    "release_threshold",
    "scaled_scores",
    "stable_graph",
    "stable_tree",
    "tree_and_distance",
]
