"""The status that a solution gets once its estimator has ended."""

from __future__ import annotations

from typing import Any

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray

__all__ = ["final_status", "require_population", "totals"]

_ENDED_WELL = (Status.CONVERGED, Status.STOPPED_EARLY)


def final_status(
    status: Status,
    evidence: Evidence,
    model: ModelSpecification,
    potentials: FloatArray,
    inference: Inference,
) -> Status:
    """Status after the checks that no optimiser makes.

    An estimate is not trusted where the number of records is not known to be more than its own standard error,
    or where loopy belief propagation does not settle at the estimate; on loopy marginals it is approximate at
    best.
    """
    if not evidence.has_total:
        return Status.NOT_TRUSTED
    if inference == "loopy" and status in _ENDED_WELL:
        engine = marginal_engine(model.cardinalities, model.scopes, kind="loopy")
        has_settled = engine.marginals_with_status(potentials)[2]  # pyright: ignore[reportAttributeAccessIssue]
        return Status.APPROXIMATE if has_settled else Status.NOT_TRUSTED
    return status


def require_population(of: str) -> None:
    """Raise unless intervals are asked for of what an estimate without draws has."""
    if of != "population":
        raise ArgumentError(
            f"`of` must be 'population' here, got {of!r}; intervals of='records', for the tables of the people "
            "themselves, are those of LatentCounts().fit(release)."
        )


def totals(evidence: Evidence) -> dict[str, Any]:
    """The number of records used and its source, and what guarantees and ties say, for `Solution.stats`."""
    found: dict[str, Any] = {
        "total": evidence.total,
        "estimated_total": evidence.estimated_total,
        "total_standard_error": evidence.total_standard_error,
    }
    model = evidence.specification
    told = ["shared transitions" if model.shares_transitions else "tied potentials"] if model.ties else []
    told += [f"scores of {one.variable}{', smooth' * one.is_smooth}" for one in model.ordinal]
    told += [f"level {one.name} of {one.variable}" for one in model.levels]
    told += [f"one model of all {model.waves}s"] if model.waves is not None else []
    if told:
        found["model"] = "; ".join(told)
    if evidence.wave_totals:
        found["wave_totals"] = list(evidence.wave_totals)
    if evidence.rows_of_one > 1:
        found["rows_of_one_person"] = evidence.rows_of_one
    if evidence.is_weighed:
        found["rests_on"] = (
            "one row drawn from each person, whose K rows weigh 1/K: each person counts as one record"
        )
    return found | ({"guarantees": evidence.guarantees} if evidence.guarantees else {})
