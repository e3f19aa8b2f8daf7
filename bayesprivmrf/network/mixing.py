"""The old path of `bayesprivmrf.network.Mixing`."""

from bayesprivmrf.deprecation import moved

__getattr__ = moved(__name__, "bayesprivmrf.network")
