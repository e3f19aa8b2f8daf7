"""Public knowledge, before any data: variables, states, cliques and the tables they index."""

from bayesprivmrf.model.consistency import consistent_projection, minimum_norm_potentials
from bayesprivmrf.model.domain import Domain
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.pgmpy_networks import declare
from bayesprivmrf.model.specification import ModelSpecification
from bayesprivmrf.model.tables import CliqueTables, FloatArray, cells_within, expand, parent, project

__all__ = [
    "CliqueTables",
    "Domain",
    "Effects",
    "FloatArray",
    "ModelSpecification",
    "Monomials",
    "cells_within",
    "consistent_projection",
    "contrasts",
    "declare",
    "expand",
    "minimum_norm_potentials",
    "parent",
    "project",
]
