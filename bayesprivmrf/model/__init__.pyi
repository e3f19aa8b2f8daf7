from .chain import markov_chain
from .cliques import consistent_projection, minimum_norm_potentials
from .domain import Domain
from .effects import Effects, contrasts
from .monomials import Monomials
from .pgmpy_networks import declare
from .specification import ModelSpecification
from .tables import CliqueTables, FloatArray, cells_within, expand, parent, project

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
    "markov_chain",
    "minimum_norm_potentials",
    "parent",
    "project",
]
