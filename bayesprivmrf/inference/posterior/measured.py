"""The measured tables of an evidence: their latent counts, names, and replicates under the same noise."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.names import dimension_names, table_name
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import NoiseLaw


def table_labels(evidence: Evidence, kind: str = "noisy_counts") -> list[str]:
    """Name of each measured table or query; one that was measured several times gets a number from the second on."""
    names = dimension_names(evidence.specification.domain)
    labels: list[str] = []
    seen: dict[object, int] = {}
    for position, scope in enumerate(evidence.measured_scopes):
        query = repr(evidence.queries[position].query) if evidence.queries is not None else ""
        key = query if scope is None else frozenset(scope)
        name = f"{kind}[{query.replace('/', '|')}]" if scope is None else table_name(kind, names, scope)
        count = seen[key] = seen.get(key, 0) + 1
        labels.append(name + (f" {count}" if count > 1 else ""))
    return labels


def replicated_tables(evidence: Evidence, counts: FloatArray, rng: np.random.Generator) -> list[FloatArray]:
    """Noisy tables that the same mechanisms might have released instead; cells that cannot occur are 0.

    Under an integer law the counts are rounded first, and the noise is of whole numbers.
    """
    replicated = []
    for position, table in enumerate(evidence.answers(counts)):
        law = evidence.noise[position]
        noisy = whole_counts(evidence, position, table) + drawn_noise(law, table.shape, rng)
        replicated.append(np.where(possible_cells(evidence, position), noisy, 0.0))
    return replicated


def log_likelihoods(evidence: Evidence, counts: FloatArray) -> dict[str, FloatArray]:
    """Log density of each noisy table given its latent counts, nats, shape (chain, draw).

    Under an integer law the counts are rounded first.
    """
    densities = []
    for position, table in enumerate(evidence.answers(counts)):
        law, mask = evidence.noise[position], possible_cells(evidence, position)
        residuals = (noisy_table(evidence, position) - whole_counts(evidence, position, table))[..., mask]
        densities.append(law.log_density(residuals).sum(axis=-1))
    return dict(zip(table_labels(evidence), densities, strict=True))


def whole_counts(evidence: Evidence, position: int, counts: FloatArray) -> FloatArray:
    """Answers as an integer law's noise was added to them; a continuous law's as they are."""
    if not evidence.noise[position].is_discrete:
        return counts
    least = -np.inf if evidence.measured_scopes[position] is None else 0.0
    return np.maximum(np.rint(counts), least)


def drawn_noise(law: NoiseLaw, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Noise of that shape, one part of the first axis after the other: a law may use several arrays to draw one."""
    drawn = np.empty(shape)
    for first in range(shape[0]):
        drawn[first] = law.draw(shape[1:], rng)
    return drawn


def possible_cells(evidence: Evidence, position: int) -> np.ndarray:
    """Mask of a measured table's cells that may occur, in its own shape."""
    start, stop = evidence.offsets[position : position + 2]
    return evidence.possible[start:stop].reshape(evidence.shapes[position])


def is_noisy(evidence: Evidence, position: int) -> bool:
    """Whether a measurement is of counts with noise of mean zero: not exact, nor known within bounds."""
    law = evidence.noise[position]
    return law.variance > 0 and law.kernel != "within"


def noisy_table(evidence: Evidence, position: int) -> FloatArray:
    """One measured table as it was released."""
    start, stop = evidence.offsets[position : position + 2]
    return evidence.noisy_counts[start:stop].reshape(evidence.shapes[position])


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
