"""Public knowledge, before any data: variables, states, cliques and the tables they index."""

from bayesprivmrf.model.domain import Domain
from bayesprivmrf.model.pgmpy_networks import declare
from bayesprivmrf.model.specification import ModelSpecification
from bayesprivmrf.model.tables import CliqueTables

__all__ = ["CliqueTables", "Domain", "ModelSpecification", "declare"]
