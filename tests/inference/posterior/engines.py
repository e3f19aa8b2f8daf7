"""The engines' inner names that several tests of the posterior use, in one place: a move changes this file alone."""

from bayesprivmrf.inference.posterior.forest import junction_forest
from bayesprivmrf.inference.posterior.formulation import Finished, Run
from bayesprivmrf.inference.posterior.relaxed_counts.hyper_dirichlet import HyperDirichlet
from bayesprivmrf.inference.posterior.sampling import draw_posterior
from bayesprivmrf.inference.posterior.whole_records.effects import NormalEffects
from bayesprivmrf.inference.posterior.whole_records.engine import Rows
from bayesprivmrf.inference.posterior.whole_records.table import TableEngine

__all__ = [
    "Finished",
    "HyperDirichlet",
    "NormalEffects",
    "Rows",
    "Run",
    "TableEngine",
    "draw_posterior",
    "junction_forest",
]
