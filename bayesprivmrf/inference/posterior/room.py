"""Refuse a posterior that is too large for memory, before any of it is allocated."""

from __future__ import annotations

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.records.engine import RecordEngine
from bayesprivmrf.marginals import forecast
from bayesprivmrf.model.effects import Effects

MEMORY = 4 * 2**30
"""Bytes that the draws may take."""
_TABLES_A_DRAW = 10
"""Marginals, counts, effects, potentials, replicates and the sampler's own, about a number a cell each, some more."""
LARGEST_DIMENSION = 5000
"""Effects of a log-linear model, whose preconditioner is dense."""


def require_room(evidence: Evidence, draws: int, *, needs_marginals: bool) -> None:
    """Refuse a model whose draws, effects or inference would not fit, and name what would."""
    model = evidence.specification
    cells = max(model.size, evidence.offsets[-1])
    needed = 8 * _TABLES_A_DRAW * cells * draws
    if not needed <= MEMORY:
        raise ModelTooLargeError(
            f"{draws:,} draws of {cells:,} cells would need about {needed / 2**30:.1f} GiB, more than "
            f"{MEMORY / 2**30:.0f}; take fewer `draws` or `chains`, or NoiseAwareMAP, "
            "which keeps none."
        )
    states = max(model.cardinalities, default=1)
    if not 8 * states**2 <= MEMORY:
        raise ModelTooLargeError(
            f"the effects of a variable of {states:,} states need a basis of {8 * states**2 / 2**30:,.1f} GiB, more "
            f"than {MEMORY / 2**30:.0f}; declare fewer states, or merge the rare ones."
        )
    if needs_marginals and cells:
        cost = forecast(model.cardinalities, model.scopes)
        if not cost.memory_bytes <= MEMORY:
            raise ModelTooLargeError(
                f"the log-linear formulation needs exact inference in every step, here with a table of "
                f"{cost.largest_table:,} cells; use NoiseAwareMAP(inference='loopy'), CGM(inference='loopy') or "
                "NaiveMLE(inference='loopy'), or fewer or smaller cliques."
            )
        size = Effects.of(model.cardinalities, model.scopes).size
        if not size <= LARGEST_DIMENSION:
            raise ModelTooLargeError(
                f"the log-linear formulation has {size:,} effects here, more than {LARGEST_DIMENSION:,}; use "
                "NoiseAwareMAP, or fewer or smaller cliques."
            )


def require_records(sampler: RecordEngine, chains: int) -> None:
    """Refuse whole records that would not fit in memory, and name a formulation that would."""
    needed = chains * sampler.first_total * sampler.bytes_a_record
    if not needed <= MEMORY:
        other = f"formulation={sampler.other!r}" if sampler.other else "NoiseAwareMAP"
        raise ModelTooLargeError(
            f"{chains} chains of {sampler.first_total:,} whole records would need about {needed / 2**30:,.1f} GiB, "
            f"more than {MEMORY / 2**30:.0f}; take {other}, whose memory does not depend on the number of records."
        )
