"""One or several releases of one population, as the estimators see them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.marginals import MarginalEngine, marginal_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import NoiseLaw
from bayesprivmrf.release import NoisyStatistics

__all__ = ["Evidence", "Inference", "gather", "require_inference"]

type Inference = Literal["exact", "loopy"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """Noisy tables of one population.

    Parameters
    ----------
    specification
        The model over the union of all releases' cliques.
    scopes
        Scope of each noisy table, variable positions in axis order; a scope that several releases measured
        appears once for each.
    noisy_counts
        y, all tables, flat, shape (size,), records.
    noise
        The law of each table's noise.
    possible
        Cells that may occur, shape (size,).
    is_simulated
        Whether any release's noise was seeded.
    total, total_standard_error
        The number of records N, public or pooled by precision over the releases, and its standard error.
        At least 1, since every estimator divides by it.
    """

    specification: ModelSpecification
    scopes: tuple[tuple[int, ...], ...]
    noisy_counts: FloatArray
    noise: tuple[NoiseLaw, ...]
    possible: np.ndarray
    total: float
    total_standard_error: float
    is_simulated: bool = False

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Position of each table's first cell, and the total size last."""
        offsets = [0]
        for scope in self.scopes:
            offsets.append(offsets[-1] + math.prod(self.specification.cardinalities[v] for v in scope))
        return tuple(offsets)

    def spread(self, per_table: Sequence[float]) -> FloatArray:
        """Repeat one number a table over the table's cells, shape (size,)."""
        return np.repeat(np.asarray(per_table, dtype=float), np.diff(self.offsets))

    def engine(self, inference: Inference) -> MarginalEngine:
        """Marginal engine with one factor for each noisy table."""
        return marginal_engine(self.specification.cardinalities, self.scopes, kind=inference)

    def fold(self, potentials: FloatArray) -> FloatArray:
        """Potentials of the model's cliques from those of the noisy tables: nested tables are added in."""
        model = self.specification
        if self.scopes == model.scopes:
            return potentials
        folded = np.zeros(model.size)
        sets = [set(scope) for scope in model.scopes]
        for position, scope in enumerate(self.scopes):
            home = next(c for c, holder in enumerate(sets) if holder >= set(scope))
            shape = [model.cardinalities[v] for v in scope]
            table = potentials[self.offsets[position] : self.offsets[position + 1]].reshape(shape)
            target = folded[model.offsets[home] : model.offsets[home + 1]].reshape(model.shapes[home])
            inside = [v for v in model.scopes[home] if v in scope]
            index = tuple(slice(None) if v in scope else np.newaxis for v in model.scopes[home])
            target += table.transpose([scope.index(v) for v in inside])[index]
        if model.possible is not None:
            folded[~model.possible] = -np.inf
        return folded


def gather(releases: NoisyStatistics | Sequence[NoisyStatistics]) -> Evidence:
    """Evidence of one release, or of several of one population.

    Raises
    ------
    ArgumentError
        Something else than noisy statistics was given, or nothing.
    ModelError
        The releases differ in their variables or states, or in a public total.
    """
    given = [releases] if isinstance(releases, NoisyStatistics) else list(_iterable(releases))
    if not given:
        raise ArgumentError("`fit` needs at least one release, got none.")
    for release in given:
        if not isinstance(release, NoisyStatistics):
            raise ArgumentError(
                f"`fit` takes releases of noisy statistics, got {type(release).__name__}; "
                "make one with a mechanism's release(network, data)."
            )
    model = _joint_specification(given)
    scopes: list[tuple[int, ...]] = []
    for release in given:
        own = release.specification
        scopes += [tuple(model.domain.index(v) for v in clique) for clique in own.cliques]
    total, error = _pooled_total(given)
    possible = np.concatenate([np.zeros(0, bool)] + [_possible(model, scope) for scope in scopes])
    return Evidence(
        specification=model,
        scopes=tuple(scopes),
        noisy_counts=np.concatenate([np.zeros(0)] + [r.tables.flat.astype(float) for r in given]),
        noise=tuple(law for release in given for law in release.noise),
        possible=possible,
        total=max(total, 1.0) if total == total else 1.0,
        total_standard_error=error,
        is_simulated=any(release.provenance.simulated for release in given),
    )


def require_inference(inference: str) -> None:
    """Raise unless `inference` is one of the kinds of marginals."""
    if inference not in ("exact", "loopy"):
        raise ArgumentError(f"`inference` must be 'exact' or 'loopy', got {inference!r}.")


def _iterable(releases: object) -> Sequence[NoisyStatistics]:
    if isinstance(releases, list | tuple):
        return releases
    raise ArgumentError(
        f"`fit` takes a release or a list of releases, got {type(releases).__name__}; "
        "load_release(path) reads one from a file."
    )


def _joint_specification(releases: Sequence[NoisyStatistics]) -> ModelSpecification:
    first = releases[0].specification
    if len(releases) == 1:
        return first
    for release in releases[1:]:
        if release.specification.domain != first.domain:
            raise ModelError(
                "releases that are fitted jointly must declare the same variables and states in the same order."
            )
    return ModelSpecification(
        domain=first.domain,
        cliques=tuple(clique for release in releases for clique in release.specification.cliques),
        impossible=tuple(zero for release in releases for zero in release.specification.impossible),
    )


def _possible(model: ModelSpecification, scope: tuple[int, ...]) -> np.ndarray:
    """Mask of a measured table's cells that some possible cell of its clique agrees with."""
    if model.possible is None:
        return np.ones(math.prod(model.cardinalities[v] for v in scope), bool)
    home = next(c for c, holder in enumerate(model.scopes) if set(holder) >= set(scope))
    mask = model.possible[model.offsets[home] : model.offsets[home + 1]].reshape(model.shapes[home])
    outside = tuple(axis for axis, v in enumerate(model.scopes[home]) if v not in scope)
    inside = [v for v in model.scopes[home] if v in scope]
    return mask.any(axis=outside).transpose([inside.index(v) for v in scope]).ravel()


def _pooled_total(releases: Sequence[NoisyStatistics]) -> tuple[float, float]:
    """Public total, or the precision-weighted mean of the releases' own estimates."""
    public = {release.total for release in releases if release.total is not None}
    if len(public) > 1:
        raise ModelError(f"releases of one population must have one public total, got {sorted(public)}.")
    if public:
        return float(public.pop()), 0.0
    estimates = np.array([release.estimated_total for release in releases])
    errors = np.array([release.total_standard_error for release in releases])
    if (errors == 0).any():
        return float(estimates[errors == 0][0]), 0.0
    if not np.isfinite(errors).any():  # models without variables
        return math.nan, math.inf
    precisions = 1 / errors**2
    return float(estimates @ precisions / precisions.sum()), float(precisions.sum() ** -0.5)
