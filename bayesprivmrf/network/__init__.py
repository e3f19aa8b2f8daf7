"""Peer effects on a network: the Ising model on a public graph, with one outcome per node.

Nothing in this package adds noise, so results computed from outcomes have no privacy guarantee. The exception is a
`NetworkEstimate`. `bayesprivmrf.mechanisms.ObjectivePerturbation` makes it, and everything computed from it keeps its
guarantee.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
