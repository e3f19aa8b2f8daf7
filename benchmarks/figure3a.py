"""The CGM paper's Figure 3(a): true against inferred values of all edge marginals, 10 nodes of 20 states.

    OMP_NUM_THREADS=1 uv run python benchmarks/figure3a.py

Connected Erdős-Rényi graph, log-Dirichlet(1) potentials, N = 10,000 records, epsilon 1. Writes
docs/images/figure3a.png and prints each method's divergence from the truth.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import numpy as np
from models import erdos_renyi

from bayesprivmrf.evaluation import kl_divergence
from bayesprivmrf.inference import CGM, NaiveMLE, Solution, Status
from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.plots import edge_marginals

SEED, RECORDS, EPSILON = 3_141, 10_000, 1.0
TARGET = Path(__file__).parent.parent / "docs" / "images" / "figure3a.png"


def main() -> None:
    """Simulate, release, infer, draw."""
    rng = np.random.default_rng(SEED)
    cardinalities, scopes = erdos_renyi(10, 20, 0.3, SEED)
    names = [f"v{i}" for i in range(10)]
    model = ModelSpecification(
        domain=Domain.from_states(
            {name: list(range(k)) for name, k in zip(names, cardinalities, strict=True)}
        ),
        cliques=tuple(tuple(names[v] for v in scope) for scope in scopes),
    )
    potentials = np.concatenate([np.log(rng.dirichlet(np.ones(400))) for _ in model.cliques])
    truth = Solution(
        specification=model, potentials=model.tables(potentials), method="truth", status=Status.CONVERGED
    )
    records = truth.sample(RECORDS, rng=rng)
    release = LaplaceStatistics(epsilon=EPSILON).release(model, records, rng=rng)
    solutions = {
        "non-private MLE": NaiveMLE().fit(ExactStatistics().release(model, records)),
        "naive MLE": NaiveMLE().fit(release),
        "CGM": CGM().fit(release),
    }
    for name, solution in solutions.items():
        print(f"{name}: KL {kl_divergence(truth, solution):.4g} nats, {solution.stats['seconds']:.2f} s")
    figure = edge_marginals(truth, solutions)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(TARGET, dpi=110)


if __name__ == "__main__":
    main()
