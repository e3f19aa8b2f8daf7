"""One network, one draw of its outcomes: the Ising model on a public graph.

Nothing here protects anybody: what is computed from outcomes carries no guarantee.
"""

from bayesprivmrf.network.datasets import NetworkData, icpsr_22140, political_blogs
from bayesprivmrf.network.ising import IsingNetwork
from bayesprivmrf.network.pseudo_likelihood import PseudoLikelihood

__all__ = ["IsingNetwork", "NetworkData", "PseudoLikelihood", "icpsr_22140", "political_blogs"]
