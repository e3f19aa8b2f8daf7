"""Public knowledge, before any data: variables, states, cliques and the tables they index."""

from bayesprivmrf.model.domain import Domain
from bayesprivmrf.model.specification import ModelSpecification, declare
from bayesprivmrf.model.tables import CliqueTables

__all__ = ["CliqueTables", "Domain", "ModelSpecification", "declare"]
