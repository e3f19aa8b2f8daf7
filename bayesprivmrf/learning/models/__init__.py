"""The models that a learning mechanism releases."""

from bayesprivmrf.learning.models.noise_alone import Told

__all__ = ["Told"]
