"""Exact posteriors by summing over every integer table, for a root clique whose children are leaves.

The model is the hyper-Dirichlet one: the root's table is Dirichlet(alpha a cell), and each child's conditional
rows too. Given the tables the parameters are conjugate, so means and variances of the marginals follow without
drawing anything.
"""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from inference.posterior.engines import junction_forest
from scipy.special import gammaln, logsumexp

from bayesprivmrf.inference import Evidence
from bayesprivmrf.inference.posterior.forest import JunctionForest


@dataclass(frozen=True, kw_only=True)
class ExactPosterior:
    """Posterior means and standard deviations of the cliques' cells, flat, and of the number of records."""

    mean: np.ndarray
    sd: np.ndarray
    count_mean: np.ndarray
    count_sd: np.ndarray
    total_mean: float
    total_sd: float


def compositions(total: int, parts: int) -> np.ndarray:
    """All tables of `parts` cells that sum to `total`, shape (C(total + parts - 1, parts - 1), parts)."""
    if parts == 1:
        return np.array([[total]])
    if parts == 2:
        first = np.arange(total + 1)
        return np.stack([first, total - first], axis=1)
    bars = np.array(list(combinations(range(total + parts - 1), parts - 1)), dtype=np.int64)
    edges = np.hstack(
        [np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), total + parts - 1)]
    )
    return np.diff(edges, axis=1) - 1


def log_dirichlet_multinomial(tables: np.ndarray, alpha: float) -> np.ndarray:
    total, parts = tables.sum(axis=1), tables.shape[1]
    rows = (gammaln(tables + alpha) - gammaln(tables + 1.0) - gammaln(alpha)).sum(axis=1)
    return rows + gammaln(total + 1.0) + gammaln(parts * alpha) - gammaln(total + parts * alpha)


def exact_posterior(
    evidence: Evidence, *, alpha: float = 1.0, totals: range | None = None
) -> ExactPosterior:
    """Sum over all integer tables; `totals` where N is private, its prior in proportion to 1/N.

    The noisy tables must be the model's cliques, one each.
    """
    model = evidence.specification
    assert evidence.scopes == model.scopes
    forest = junction_forest(model.cardinalities, model.scopes, evidence.supported)
    assert forest is not None
    assert len(forest.roots) == 1
    root = forest.roots[0]
    assert all(p in (-1, root) for p in forest.parents)
    sizes = (
        totals if totals is not None else range(round(evidence.total), round(evidence.total) + 1)
    )
    children = _Children(evidence, forest, alpha, max(sizes))
    parts = [_given_total(evidence, forest, children, alpha, n) for n in sizes]
    prior = -np.log(np.array(sizes, dtype=float)) if totals is not None else np.zeros(1)
    evidences = np.array([part[0] for part in parts]) + prior
    weights = np.exp(evidences - logsumexp(evidences))
    first, second, count, count2 = (
        np.tensordot(weights, np.array([part[k] for part in parts]), 1) for k in range(1, 5)
    )
    n = np.array(sizes, dtype=float)
    total = weights @ n
    return ExactPosterior(
        mean=first,
        sd=np.sqrt(np.maximum(second - first**2, 0.0)),
        count_mean=count,
        count_sd=np.sqrt(np.maximum(count2 - count**2, 0.0)),
        total_mean=float(total),
        total_sd=float(np.sqrt(max(weights @ n**2 - total**2, 0.0))),
    )


def _log_likelihood(evidence: Evidence, cells: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """Log density of the noisy counts at flat positions `cells`, for each table, shape (tables,)."""
    laws = np.repeat(np.arange(len(evidence.noise)), np.diff(evidence.offsets))
    return sum(
        evidence.noise[laws[cell]].log_probability(evidence.published[cell], tables[:, k])
        for k, cell in enumerate(cells)
    )


class _Children:
    """Of each child row, as functions of its total 0..largest: evidence and moments."""

    def __init__(
        self, evidence: Evidence, forest: JunctionForest, alpha: float, largest: int
    ) -> None:
        self.rows = []
        starts, sources = forest.row_starts, forest.source_starts
        for row in range(1, len(starts) - 1):
            cells = forest.cells[starts[row] : starts[row + 1]]
            source = forest.cells[forest.sources[sources[row] : sources[row + 1]]]
            values = [self._of(evidence, cells, alpha, total) for total in range(largest + 1)]
            self.rows.append((cells, source, [np.array(v) for v in zip(*values, strict=True)]))

    @staticmethod
    def _of(evidence: Evidence, cells: np.ndarray, alpha: float, total: int):
        tables = compositions(total, len(cells))
        log_weights = log_dirichlet_multinomial(tables, alpha) + _log_likelihood(
            evidence, cells, tables
        )
        log_sum = logsumexp(log_weights)
        weights = np.exp(log_weights - log_sum)
        shape, whole = tables + alpha, total + alpha * len(cells)
        return (
            log_sum,
            weights @ (shape / whole),
            weights @ (shape * (shape + 1) / (whole * (whole + 1))),
            weights @ tables,
            weights @ tables**2,
        )


def _given_total(
    evidence: Evidence, forest: JunctionForest, children: _Children, alpha: float, total: int
):
    cells = forest.cells[: forest.row_starts[1]]
    tables = compositions(total, len(cells))
    log_weights = log_dirichlet_multinomial(tables, alpha) + _log_likelihood(
        evidence, cells, tables
    )
    place = np.full(evidence.offsets[-1], -1)
    place[cells] = np.arange(len(cells))
    margins = [tables[:, place[source]].sum(axis=1) for _, source, _ in children.rows]
    for margin, (_, _, values) in zip(margins, children.rows, strict=True):
        log_weights = log_weights + values[0][margin]
    log_sum = logsumexp(log_weights)
    weights = np.exp(log_weights - log_sum)
    first, second, count, count2 = np.zeros((4, evidence.offsets[-1]))
    shape, whole = tables + alpha, total + alpha * len(cells)
    first[cells] = weights @ (shape / whole)
    second[cells] = weights @ (shape * (shape + 1) / (whole * (whole + 1)))
    count[cells], count2[cells] = weights @ tables, weights @ tables**2
    for margin, (own, source, values) in zip(margins, children.rows, strict=True):
        part = margin + alpha * len(source)
        first[own] = weights @ ((part / whole)[:, None] * values[1][margin])
        second[own] = weights @ (
            (part * (part + 1) / (whole * (whole + 1)))[:, None] * values[2][margin]
        )
        count[own] = weights @ values[3][margin]
        count2[own] = weights @ values[4][margin]
    return log_sum, first, second, count, count2


def number_of_tables(total: int, parts: int) -> int:
    return math.comb(total + parts - 1, parts - 1)
