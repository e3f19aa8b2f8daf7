"""The status that a solution gets once its estimator has ended."""

from __future__ import annotations

import warnings
from typing import Any

from bayesprivmrf.errors import ArgumentError, ConsistencyWarning
from bayesprivmrf.inference.disagreement import Disagreement, disagreement
from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray

__all__ = ["final_status", "require_population", "told_disagreement", "totals"]

_ENDED_WELL = (Status.CONVERGED, Status.STOPPED_EARLY)


def final_status(
    status: Status,
    evidence: Evidence,
    model: ModelSpecification,
    potentials: FloatArray,
    inference: Inference,
    found: Disagreement | None = None,
) -> Status:
    """Status after the checks that no optimiser makes.

    An estimate is not trusted where the number of records is not known to be more than its own standard error,
    where released numbers contradict each other (`bayesprivmrf.inference.disagreement`), or where loopy belief
    propagation does not settle at the estimate; on loopy marginals it is approximate at best.
    """
    if not evidence.has_total or (found is not None and found.is_real):
        return Status.NOT_TRUSTED
    if inference == "loopy" and status in _ENDED_WELL:
        engine = marginal_engine(model.cardinalities, model.scopes, kind="loopy")
        has_settled = engine.marginals_with_status(potentials)[2]  # pyright: ignore[reportAttributeAccessIssue]
        return Status.APPROXIMATE if has_settled else Status.NOT_TRUSTED
    return status


def told_disagreement(evidence: Evidence, stacklevel: int) -> tuple[Disagreement | None, dict[str, Any]]:
    """What agrees least of what was released, with a warning where noise does not explain it, and for the stats."""
    found = disagreement(evidence)
    if found is None:
        return None, {}
    if found.is_real:
        warnings.warn(f"{found}. The fit is not trusted.", ConsistencyWarning, stacklevel=stacklevel + 1)
    return found, {"margin_tail": found.tail}


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
