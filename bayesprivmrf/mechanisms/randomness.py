"""The old path of `bayesprivmrf.noise`."""

from bayesprivmrf.deprecation import moved

__getattr__ = moved(__name__, "bayesprivmrf.noise")
