"""The models that a learning mechanism releases."""

from bayesprivmrf.learning.models.advice import Told

__all__ = ["Told"]
