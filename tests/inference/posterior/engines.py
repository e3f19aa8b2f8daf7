"""The engines' inner names that several tests of the posterior use, in one place: a move changes this file alone."""

from bayesprivmrf.inference.posterior.forest import junction_forest
from bayesprivmrf.inference.posterior.records.effects import NormalEffects
from bayesprivmrf.inference.posterior.records.engine import Rows
from bayesprivmrf.inference.posterior.relaxed.hyper_dirichlet import HyperDirichlet

__all__ = ["HyperDirichlet", "NormalEffects", "Rows", "junction_forest"]
