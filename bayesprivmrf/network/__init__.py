"""One network, one draw of its outcomes: the Ising model on a public graph.

Nothing here protects anybody: what is computed from outcomes carries no guarantee.
"""

from bayesprivmrf.network.ising import IsingNetwork

__all__ = ["IsingNetwork"]
