"""The measured tables of an evidence: their latent counts, names, and replicates under the same noise."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.names import dimension_names, table_name
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import NoiseLaw

__all__ = [
    "drawn_noise",
    "has_zeros",
    "latent_tables",
    "log_likelihoods",
    "noisy_table",
    "possible_cells",
    "replicated_tables",
    "table_labels",
    "whole_counts",
]


def table_labels(evidence: Evidence, kind: str = "noisy_counts") -> list[str]:
    """Name of each measured table; a scope that several releases measured gets a number from the second on."""
    names = dimension_names(evidence.specification.domain)
    labels: list[str] = []
    seen: dict[frozenset[int], int] = {}
    for scope in evidence.scopes:
        count = seen[frozenset(scope)] = seen.get(frozenset(scope), 0) + 1
        labels.append(table_name(kind, names, scope) + (f" {count}" if count > 1 else ""))
    return labels


def latent_tables(evidence: Evidence, counts: FloatArray) -> list[FloatArray]:
    """Latent counts of each measured table, summed from the first clique that holds it.

    Parameters
    ----------
    evidence
        The releases.
    counts
        Flat over the model's cliques, shape (..., cells), records.

    Returns
    -------
    list of ndarray
        Shape (..., K_v for v in the table's scope) each.
    """
    return [evidence.specification.project(counts, scope) for scope in evidence.scopes]


def replicated_tables(evidence: Evidence, counts: FloatArray, rng: np.random.Generator) -> list[FloatArray]:
    """Noisy tables that the same mechanisms might have released instead; cells that cannot occur are 0.

    Under an integer law the counts are rounded first, and the noise is of whole numbers.
    """
    replicated = []
    for position, table in enumerate(latent_tables(evidence, counts)):
        law = evidence.noise[position]
        noisy = whole_counts(law, table) + drawn_noise(law, table.shape, rng)
        replicated.append(np.where(possible_cells(evidence, position), noisy, 0.0))
    return replicated


def log_likelihoods(evidence: Evidence, counts: FloatArray) -> dict[str, FloatArray]:
    """Log density of each noisy table given its latent counts, nats, shape (chain, draw).

    Under an integer law the counts are rounded first.
    """
    densities = []
    for position, table in enumerate(latent_tables(evidence, counts)):
        law, mask = evidence.noise[position], possible_cells(evidence, position)
        residuals = (noisy_table(evidence, position) - whole_counts(law, table))[..., mask]
        densities.append(law.log_density(residuals).sum(axis=-1))
    return dict(zip(table_labels(evidence), densities, strict=True))


def whole_counts(law: NoiseLaw, counts: FloatArray) -> FloatArray:
    """Counts as an integer law's noise was added to them; a continuous law's as they are."""
    return np.maximum(np.rint(counts), 0.0) if law.is_discrete else counts


def drawn_noise(law: NoiseLaw, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Noise of that shape, one part of the first axis after the other: a law may use several arrays to draw one."""
    drawn = np.empty(shape)
    for first in range(shape[0]):
        drawn[first] = law.draw(shape[1:], rng)
    return drawn


def possible_cells(evidence: Evidence, position: int) -> np.ndarray:
    """Mask of a measured table's cells that may occur, in its own shape."""
    start, stop = evidence.offsets[position : position + 2]
    shape = [evidence.specification.cardinalities[v] for v in evidence.scopes[position]]
    return evidence.possible[start:stop].reshape(shape)


def noisy_table(evidence: Evidence, position: int) -> FloatArray:
    """One measured table as it was released."""
    start, stop = evidence.offsets[position : position + 2]
    shape = [evidence.specification.cardinalities[v] for v in evidence.scopes[position]]
    return evidence.noisy_counts[start:stop].reshape(shape)


def has_zeros(evidence: Evidence, variables: Collection[int]) -> bool:
    """Whether some clique that holds these variables has cells that cannot occur.

    The zero-sum effects are then not determined by the distribution: only the possible cells are.
    """
    model, supported = evidence.specification, evidence.supported
    if supported is None:
        return False
    return any(
        set(variables) <= set(scope) and not supported[start:stop].all()
        for scope, start, stop in zip(model.scopes, model.offsets, model.offsets[1:], strict=False)
    )
