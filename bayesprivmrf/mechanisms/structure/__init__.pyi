from .dependence_graph import (
    LARGEST,
    THRESHOLDS,
    GraphSearch,
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
from .mechanism import StableStructure
from .packed_records import UNIT, PackedRecords

__all__ = [
    "LARGEST",
    "THRESHOLDS",
    "UNIT",
    "GraphSearch",
    "PackedRecords",
    "PairScores",
    "StableStructure",
    "excess_range",
    "gap_range",
    "graphs_to_choose",
    "release_threshold",
    "scaled_scores",
    "stable_graph",
    "stable_tree",
    "tree_and_distance",
]
