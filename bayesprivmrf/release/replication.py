"""Replicates of a release: new records from a fitted distribution, measured and perturbed as the release was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from bayesprivmrf.checks import generator, object_with, require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Domain
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.release.base import Provenance
from bayesprivmrf.release.measurement import Measurement


class Sampler(Protocol):
    """A distribution that records can be drawn from, such as a fitted `Solution`."""

    specification: Any

    def sample(self, size: int, *, rng: np.random.Generator) -> Any:
        """Draw records, one column for each variable."""
        ...


def replicated_numbers(
    release: Any, solution: Any, rng: Any
) -> tuple[list[Measurement], Provenance]:
    """Return the measurements and the provenance of a replicate of a release.

    Parameters
    ----------
    release
        A `NoisyStatistics`.
    solution
        The distribution of the new records.
    rng
        Seed or generator.

    Raises
    ------
    ArgumentError
        `solution` cannot be sampled, or the release is of people with several rows, whose records are dependent.
    ModelError
        The solution is over other variables or states, or the number of records is not known.
    """
    sampler: Sampler = object_with(
        "sample", "solution", solution, "be a fitted model", "fit the release first"
    )
    must = "be of one row a person"
    remedy = "the rows of one person depend on each other, and a fit does not know how"
    rows = release.person_rows
    is_single = rows is None or rows.at_most == 1
    require(is_single, "release", must, "several rows a person", remedy)
    model: ModelSpecification = release.specification
    same = sampler.specification.domain == model.domain
    must = "have the variables and states of the release"
    require(same, "solution", must, "others", "fit this release", error=ModelError)
    random = generator(rng)
    size = records_of(release)
    counts = clique_counts(model, sampler.sample(size, rng=random))
    measurements = [
        replace(one, values=one.noise.draw_given(bound.answers(counts), random))
        for one, bound in zip(release.measurements, release.bound, strict=True)
    ]
    provenance = replace(release.provenance, simulated=True)
    return measurements, provenance


def records_of(release: Any) -> int:
    """Return the public number of records, or the estimate of the release, in whole records."""
    if release.total is not None:
        return int(release.total)
    estimated = float(release.estimated_total)
    must = "determine the number of records"
    is_known = np.isfinite(estimated) and estimated > 0
    require(is_known, "release", must, "no estimate above 0", error=ModelError)
    return round(estimated)


def clique_counts(model: ModelSpecification, drawn: Any) -> FloatArray:
    """Return the counts of all cliques' cells, shape (cells,), of a frame of drawn records."""
    codes = coded(model.domain, drawn)
    parts = [np.zeros(0)]
    for scope, shape in zip(model.scopes, model.shapes, strict=True):
        cells = np.ravel_multi_index(tuple(codes[v] for v in scope), shape)
        parts.append(np.bincount(np.ravel(cells), minlength=int(np.prod(shape))).astype(float))
    return np.concatenate(parts)


def coded(domain: Domain, drawn: Any) -> list[np.ndarray]:
    """Return the codes of the states of each variable in a frame of drawn records, shape (records,) each."""
    found = []
    for variable, states in zip(domain.variables, domain.states, strict=True):
        code: Mapping[Any, int] = {state: position for position, state in enumerate(states)}
        column = drawn[variable].tolist()
        found.append(np.fromiter((code[label] for label in column), int, len(column)))
    return found
