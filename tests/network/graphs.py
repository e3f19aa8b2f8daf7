"""Small networks whose laws can be written down in full."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
from scipy.stats import chi2

from bayesprivmrf.network import IsingNetwork


def small_networks() -> dict[str, IsingNetwork]:
    signed = nx.Graph(
        [("x", "b", {"weight": -1.2}), ("b", "a", {"weight": 0.7}), ("a", "x", {"weight": 0.4})]
    )
    apart = nx.Graph([(0, 3), (7, 5)])
    apart.add_node(2)
    return {
        "two nodes": IsingNetwork.from_graph([(0, 1)]),
        "tree": IsingNetwork.from_graph(nx.star_graph(4), "degree-normalised"),
        "cycle": IsingNetwork.from_graph(nx.cycle_graph(5), "mean-degree"),
        "disconnected, with an isolated node": IsingNetwork.from_graph(apart),
        "signed": IsingNetwork.from_graph(signed),
        "antiferromagnetic": IsingNetwork.from_graph([(0, 1, -1.0), (1, 2, -1.0), (2, 3, 1.0)]),
    }


def configurations(n: int) -> np.ndarray:
    """All 2^n, in the order of the binary numbers."""
    return np.array(list(itertools.product([-1, 1], repeat=n)), dtype=np.int8)


def law(network: IsingNetwork, beta: float) -> np.ndarray:
    """Probabilities of all configurations, from the dense matrix."""
    J, field = network.coupling.toarray(), network.field
    h, c = (0.0, 0.0) if field is None else (field.strength, field.center)
    s = configurations(len(network)).astype(float)
    weights = np.exp(beta / 2 * np.einsum("ki,ij,kj->k", s - c, J, s - c) + h * s.sum(axis=1))
    return weights / weights.sum()


def chi_square(network: IsingNetwork, beta: float, draws: np.ndarray) -> float:
    """Level at which the draws' frequencies of configurations differ from the law."""
    codes = (draws > 0) @ (2 ** np.arange(len(network))[::-1])
    expected = len(draws) * law(network, beta)
    seen = np.bincount(codes, minlength=expected.size)
    common = expected >= 5
    seen, expected = (np.append(x[common], x[~common].sum()) for x in (seen, expected))
    keep = expected > 0
    return float(chi2.sf(np.sum((seen - expected)[keep] ** 2 / expected[keep]), keep.sum() - 1))
