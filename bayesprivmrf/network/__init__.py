"""One network, one draw of its outcomes: the Ising model on a public graph.

Nothing here protects anybody: what is computed from outcomes carries no guarantee. A `NetworkEstimate` is the
exception: `bayesprivmrf.mechanisms.ObjectivePerturbation` makes it, and what follows from it keeps its guarantee.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
