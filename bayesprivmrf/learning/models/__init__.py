"""The models that a learning mechanism releases."""

from bayesprivmrf.learning.models.advice import Signal

__all__ = ["Signal"]
