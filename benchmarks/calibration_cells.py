"""The settings of the calibration study: graphs, sizes, budgets, noise laws, and what is known of N."""

from __future__ import annotations

from dataclasses import dataclass

from models import chain, grid

from bayesprivmrf.inference.posterior.latent_counts import LatentCounts
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, NoiseDistribution

UNEQUAL = ((2, 3, 4, 3, 5), ((0, 1, 2), (2, 3), (3, 4)))
GRAPHS = {"chain": chain(4, 3), "grid": grid(3, 3), "unequal": UNEQUAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One setting of the study."""

    graph: str
    records: int
    epsilon: float
    law: str
    total: str
    formulation: str = "auto"

    @property
    def slug(self) -> str:
        parts = (
            self.graph,
            self.records,
            f"{self.epsilon:g}",
            self.law,
            self.total,
            self.formulation,
        )
        return "-".join(map(str, parts))

    @property
    def model(self) -> ModelSpecification:
        cardinalities, scopes = GRAPHS[self.graph]
        names = [f"x{v}" for v in range(len(cardinalities))]
        domain = Domain.from_states(
            {name: list(range(k)) for name, k in zip(names, cardinalities, strict=True)}
        )
        return ModelSpecification(
            domain=domain, cliques=tuple(tuple(names[v] for v in s) for s in scopes)
        )

    @property
    def noise(self) -> NoiseDistribution:
        tables = len(GRAPHS[self.graph][1])
        if self.law == "laplace":
            return DiscreteLaplace(tables / self.epsilon)
        return DiscreteGaussian(tables**0.5 / self.epsilon)

    @property
    def estimator(self) -> LatentCounts:
        if self.total == "known":
            return LatentCounts(formulation=self.formulation)
        return LatentCounts(
            formulation=self.formulation, total_range=(self.records / 2, 2 * self.records)
        )


def _cells(graph: str, rows: str, formulation: str = "auto") -> list[Cell]:
    words = {"L": "laplace", "G": "gaussian", "k": "known", "p": "private"}
    cells = []
    for row in rows.split():
        records, epsilon, law, total = row.split("/")
        cells.append(
            Cell(
                graph=graph,
                records=int(float(records)),
                epsilon=float(epsilon),
                law=words[law],
                total=words[total],
                formulation=formulation,
            )
        )
    return cells


CELLS = [
    *_cells(
        "chain",
        "50/1/L/k 50/.3/G/p 100/1/L/p 100/10/G/k 1e3/.1/L/k 1e3/10/L/p 1e4/1/G/p 1e5/1/L/p 1e5/.1/G/k",
    ),
    *_cells(
        "grid",
        "50/1/G/k 100/1/L/k 100/.3/L/p 1e3/1/L/k 1e3/1/G/p 1e3/10/L/p 1e4/.3/L/p 1e4/1/G/k 1e5/.1/L/k 1e5/1/G/p",
    ),
    *_cells("unequal", "50/10/L/k 100/1/G/p 1e3/1/L/p 1e3/10/G/k 1e4/.3/G/p 1e4/1/L/k 1e5/.3/L/p"),
    *_cells("chain", "100/1/L/k", "log-linear"),
]
