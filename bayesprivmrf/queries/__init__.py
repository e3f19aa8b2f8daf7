"""Linear queries of a model's tables, and their sensitivities. This package reads no data."""

from bayesprivmrf.queries.contrasts import parities
from bayesprivmrf.queries.kinds import coarsened, pooled, table, weighted
from bayesprivmrf.queries.query import QUERY_KINDS, BoundQuery, Query
from bayesprivmrf.queries.sensitivity import Sensitivity, sensitivity

__all__ = [
    "QUERY_KINDS",
    "BoundQuery",
    "Query",
    "Sensitivity",
    "coarsened",
    "parities",
    "pooled",
    "sensitivity",
    "table",
    "weighted",
]
