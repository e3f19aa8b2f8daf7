"""The old path of `bayesprivmrf.checks`."""

from bayesprivmrf.deprecation import moved

__getattr__ = moved(__name__, "bayesprivmrf.checks")
