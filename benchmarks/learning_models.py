"""Populations whose couplings the benchmarks of learning are to find, and what does so without privacy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import networkx as nx
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import bayesprivmrf as bpm
from bayesprivmrf.chains import gibbs_draws
from bayesprivmrf.inference import NaiveMLE
from bayesprivmrf.inference.loglinear_fit import is_narrow
from bayesprivmrf.mechanisms import ExactStatistics

RESULTS = Path(__file__).parent / "results"
CACHE = RESULTS / "cache"
COUPLING = 0.3

type Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class IsingPopulation:
    """An Ising model, couplings of one size and random signs; fields uniform up to a size, or none.

    `width` is the largest sum of the couplings and the field of a node, in size.
    """

    couplings: Array
    edges: list[tuple[int, int]]
    fields: Array

    @classmethod
    def of(
        cls, graph: str, variables: int, seed: int, largest_field: float = 0.0
    ) -> IsingPopulation:
        rng = np.random.default_rng([seed, variables])
        edges = sorted((min(edge), max(edge)) for edge in edges_of(graph, variables, seed))
        couplings = np.zeros((variables, variables))
        for i, j in edges:
            couplings[i, j] = couplings[j, i] = rng.choice([-COUPLING, COUPLING])
        return cls(couplings, edges, fields=largest_field * rng.uniform(-1, 1, variables))

    @property
    def width(self) -> float:
        return float((np.abs(self.couplings).sum(axis=1) + np.abs(self.fields)).max())

    @property
    def network(self) -> bpm.ModelSpecification:
        return bpm.declare(states={f"v{i}": [0, 1] for i in range(len(self.couplings))})

    def codes(self, records: int, seed: int) -> Array:
        """Records as codes 0 and 1, from chains that a sweep of this weak coupling all but decorrelates."""
        # a field is spread over the edges of its node
        share = self.fields / (self.couplings != 0).sum(axis=1)
        first, second = np.array([[-1, -1, 1, 1], [-1, 1, -1, 1]])
        flat = np.concatenate(
            [
                self.couplings[i, j] * first * second + share[i] * first + share[j] * second
                for i, j in self.edges
            ]
        )
        rng = np.random.default_rng([seed, len(self.couplings), 7])
        return gibbs_draws((2,) * len(self.couplings), self.edges, flat, records, rng).codes

    def frame(self, codes: Array) -> pd.DataFrame:
        return pd.DataFrame(codes, columns=[f"v{i}" for i in range(len(self.couplings))])

    def error(self, couplings: Array) -> float:
        """Largest error of a coupling, over all pairs."""
        return float(np.abs(couplings - self.couplings).max())

    def likelihood_error(self, codes: Array) -> tuple[float, str]:
        """Error of maximum likelihood on the true graph; of pseudo-likelihood where inference is not exact."""
        p = len(self.couplings)
        found = np.zeros_like(self.couplings)
        if is_narrow((2,) * p, self.edges):
            names = [f"v{i}" for i in range(p)]
            model = bpm.declare(
                states={name: [0, 1] for name in names},
                cliques=[(names[i], names[j]) for i, j in self.edges],
            )
            fit = NaiveMLE(ridge=1e-7).fit(ExactStatistics().release(model, self.frame(codes)))
            for (a, b), table in fit.potentials.items():
                i = int(a[1:])
                j = int(b[1:])
                found[i, j] = found[j, i] = (
                    table[0, 0] + table[1, 1] - table[0, 1] - table[1, 0]
                ) / 4
            return self.error(found), "likelihood"
        for i in range(p):
            beside = np.flatnonzero(self.couplings[i])
            fit = LogisticRegression(C=np.inf, solver="newton-cholesky").fit(
                2.0 * codes[:, beside] - 1, codes[:, i]
            )
            found[i, beside] = fit.coef_[0] / 2
        return self.error((found + found.T) / 2), "pseudo-likelihood"

    def lasso_errors(self, codes: Array, sizes: list[int]) -> list[float]:
        r"""Errors of scikit-learn's l1-logistic regression a node, on the first records.

        The penalty is set without the truth, from the deviation of a gradient: :math:`\tfrac12 \sqrt{\log p / n}` a
        record. Each size begins at the solution of the one before.
        """
        p = len(self.couplings)
        spins = (2.0 * codes - 1).astype(np.float32)
        found = np.zeros((len(sizes), p, p))
        for i in range(p):
            others = np.delete(np.arange(p), i)
            features = spins[:, others]
            fit = LogisticRegression(
                l1_ratio=1, solver="saga", tol=1e-3, warm_start=True, random_state=0
            )
            for place, n in enumerate(sizes):
                fit.set_params(C=1 / (0.5 * np.sqrt(n * np.log(p))))
                fit.fit(features[:n], codes[:n, i])
                found[place, i, others] = fit.coef_[0] / 2
        return [self.error((one + one.T) / 2) for one in found]


def edges_of(graph: str, variables: int, seed: int) -> list[tuple[int, int]]:
    """Edges of a random 3-regular graph, or of the grid nearest to a square."""
    if graph == "3-regular":
        return list(nx.random_regular_graph(3, variables, seed=seed).edges)
    rows = max(r for r in range(1, int(variables**0.5) + 1) if variables % r == 0)
    return list(nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, variables // rows)).edges)


@lru_cache(maxsize=1)
def drawn(
    graph: str, variables: int, records: int, seed: int, largest_field: float = 0.0
) -> tuple[IsingPopulation, Array]:
    """A population and records of it."""
    population = IsingPopulation.of(graph, variables, seed, largest_field)
    return population, population.codes(records, seed)


def kept(path: Path, make: Callable[[], Any]) -> Any:
    """What `make` gives, read from the file if it is there."""
    if path.exists():
        return json.loads(path.read_text())
    found = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(found))
    temporary.replace(path)
    return found
