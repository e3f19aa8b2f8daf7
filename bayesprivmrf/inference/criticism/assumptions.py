r"""Assumptions that answers rest on, for a whole model and for each interval, in a fixed order.

An answer is *measured* where the released numbers determine it up to their noise, under any model. With A
the rows of all measurements and J the map from effects of the cliques (and N) to their cells
(`bayesprivmrf.model.effects`), a coordinate of an effect is determined if and only if its unit vector lies in the row
space of A J: if the orthogonal projection onto that space has the diagonal entry 1. A table is measured if the
effects of all its subsets are. Any other answer rests on what the model declares, and its rows are marked `model`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, combinations
from typing import Literal

import numpy as np

from bayesprivmrf.escapes import printable
from bayesprivmrf.inference.criticism.order import untested_order
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import POINT, Mark, RowStatus
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.cliques import consistent_projection, declared_independences
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.queries import BoundQuery

type Whose = Literal["population", "records"]
"""Whose of an interval: probabilities of the population, or counts of this sample."""

# Share of the largest singular value, and distance from 1, that are rounding errors
_ROUNDING = 1e-8
# Largest number of effects and of answers for which the rank of the measurements is computed, in a few seconds
_LARGEST_RANK = 1500
# Standard deviation of the effects of a point of general position, nats; arbitrary
_GENERAL = 0.5
# Share of a derivative along unseen directions that is no rounding error
_UNSEEN = 1e-5

# Largest number of independent pairs that are listed; of more, only the number is stated
_LISTED = 10


def model_assumptions(
    model: ModelSpecification, of_records: Sequence[str] = (), origin: str = "Declared"
) -> tuple[str, ...]:
    """Return the assumptions of a model's answers, whatever was measured, one sentence each.

    Parameters
    ----------
    model
        The declared model.
    of_records
        Assumptions of the fit on the records, besides that of a simple random sample.
    origin
        Origin of the cliques: "Declared" or "Learned".
    """
    everything = range(len(model.cardinalities))
    together = {pair for scope in model.scopes for pair in combinations(sorted(scope), 2)}
    apart = len(everything) * (len(everything) - 1) // 2 - len(together)
    if apart <= _LISTED:
        independences = [f"{origin}: {one}." for one in declared_independences(model, everything)]
    else:
        independences = [
            f"{origin}: {apart:,} pairs of variables that share no clique are independent given those between them."
        ]
    smooth = [f"Scores of {one.variable} are smooth." for one in model.ordinal if one.is_smooth]
    levels = [
        f"Differences between areas of level {one.name} of {one.variable} have a common scale."
        for one in model.levels
    ]
    sentences = (
        *of_records,
        *(
            f"{one[0].upper()}{one[1:]}."
            for one in _restrictions(model, [*everything, *everything])
        ),
        *smooth,
        *levels,
        *independences,
        "The records are a simple random sample of the population.",
    )
    return tuple(map(printable, sentences))


def variable_marks(
    evidence: Evidence, variables: Sequence[int], *, of: Whose = "population"
) -> list[Mark]:
    """Return marks for the rows of an interval.

    Parameters
    ----------
    evidence
        The evidence of the fit.
    variables
        Positions of the variables, including those conditioned on.
    of
        Whose of the interval.
    """
    return [*_scope_marks(evidence, [variables]), *person_marks(evidence.rows_of_one, of)]


def person_marks(rows_of_one: int, of: Whose = "population") -> list[Mark]:
    """Return the mark of rows about records of which one person may have several.

    An interval of the population takes such records for independent draws, which no measurement checks. An interval
    of the records is about counts of rows, whoever has them, so that its note only says what is counted.

    Parameters
    ----------
    rows_of_one
        Largest number of records that one person contributes.
    of
        Whose of the interval.
    """
    if rows_of_one <= 1:
        return []
    if of == "records":
        return [Mark(RowStatus.OK, f"counts rows, up to {rows_of_one} of one person")]
    note = f"up to {rows_of_one} rows of one person count as independent"
    return [Mark(RowStatus.MODEL, note)]


def _scope_marks(evidence: Evidence, scopes: Sequence[Sequence[int]]) -> list[Mark]:
    """Return the marks of rows that depend on the joint distributions of some scopes."""
    model = evidence.specification.believed
    beyond = [scope for scope in scopes if not _is_measured(evidence, scope)]
    prior = [scope for scope in beyond if _is_left_to_prior(evidence, scope)]
    marks = []
    if prior:
        marks.append(Mark(RowStatus.PRIOR, "nothing measured bears on it, so the prior decides"))
    omitted = [own for scope in scopes if scope not in beyond for own in _omitted(model, scope)]
    if omitted:
        marks.append(Mark(RowStatus.MODEL, _omission(list(dict.fromkeys(omitted)))))
    marks += [Mark(RowStatus.MODEL, text) for text in untested_order(evidence, beyond)]
    if beyond:
        marks += _marks(model, beyond)
    return marks


def _omitted(model: ModelSpecification, variables: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the smallest interactions of some variables that lie in no clique of a model, by names."""
    scopes = list(map(set, model.scopes))
    names = model.domain.variables
    found: list[set[int]] = []
    # all pairs, then triples: a set is named unless a part of it is
    for size in range(2, len(variables) + 1):
        for subset in map(set, combinations(sorted(set(variables)), size)):
            is_inside = any(subset <= scope for scope in scopes)
            if not is_inside and not any(own <= subset for own in found):
                found.append(subset)
    return [tuple(printable(str(names[v])) for v in sorted(own)) for own in found]


def _omission(interactions: Sequence[tuple[str, ...]]) -> str:
    """Name omitted interactions in a note; several in few words, so that none is cut off."""
    if len(interactions) == 1:
        *others, last = interactions[0]
        return f"the model omits the interaction of {', '.join(others)} with {last}"
    return f"the model omits {', '.join(' × '.join(own) for own in interactions)}"


def point_marks(
    evidence: Evidence | None, variables: Sequence[int], probabilities: FloatArray
) -> list[Mark]:
    """Return marks for the rows of a point estimate, which has no interval.

    A probability is doubtful where its expected number of records is below two standard deviations of the noise of
    the most accurate measured table that contains the variables.
    """
    if evidence is None:
        return [POINT]
    marks = [POINT, *variable_marks(evidence, variables)]
    variance = evidence.table_noise(variables, np.size(probabilities))
    records = evidence.total * np.ravel(probabilities)
    # the variance is infinite where no table holds the variables, and then no row is hidden by its noise
    noise = math.sqrt(variance) if math.isfinite(variance) else 0.0
    is_hidden = (records > 0) & (records < 2 * noise)
    return [*marks, Mark(RowStatus.DOUBTFUL, "the noise is as large as the count", is_hidden)]


def query_marks(evidence: Evidence, bound: BoundQuery, *, of: Whose = "population") -> list[Mark]:
    """Return marks for the rows of an interval of a query's answers."""
    if evidence.queries is None:
        asked = []
    else:
        asked = [each.query for each in evidence.queries]
    persons = person_marks(evidence.rows_of_one, of)
    if bound.query in asked and evidence.specification.interactions is None:
        return persons
    return [*_scope_marks(evidence, bound.positions), *persons]


def function_marks(evidence: Evidence) -> list[Mark]:
    """Return marks for the rows of any function of the model; which variables it depends on is not known."""
    everything = range(len(evidence.specification.cardinalities))
    is_whole = not _omitted(evidence.specification.believed, everything)
    persons = person_marks(evidence.rows_of_one)
    if _is_measured(evidence, everything) and is_whole:
        return persons
    return [Mark(RowStatus.MODEL, "may rest on assumptions of the model"), *persons]


def _marks(model: ModelSpecification, scopes: Sequence[Sequence[int]]) -> list[Mark]:
    """Return one mark for each assumption that the joint distributions of some scopes rest on."""
    found = dict.fromkeys(
        text
        for scope in scopes
        for text in (
            *_restrictions(model, scope),
            *(f"declared: {one}" for one in declared_independences(model, scope)),
        )
    )
    return [Mark(RowStatus.MODEL, text) for text in found or ["not measured by itself"]]


def _restrictions(model: ModelSpecification, variables: Sequence[int]) -> list[str]:
    """Return the restrictions of a model's parameters: one model of all waves, transitions, ties, linear scores."""
    if model.waves is not None:
        waves = [f"one model of all {model.waves}s"]
    else:
        waves = []
    names = {model.domain.variables[v] for v in variables}
    if model.shares_transitions:
        shared = ["one transition matrix for all steps"]
    else:
        if names & {v for tie in model.ties for own in tie for v in own}:
            shared = ["tied potentials"]
        else:
            shared = []
    scored = names if len(variables) > 1 else set()
    scores = [one.variable for one in model.ordinal if not one.is_smooth and one.variable in scored]
    return [*waves, *shared, *(f"scores of {name} are linear" for name in scores)]


def _is_measured(evidence: Evidence, variables: Sequence[int]) -> bool:
    """Return True if the released numbers determine the table of some variables; False for waves of one model."""
    if evidence.specification.waves is not None:
        return False
    if any(
        scope is not None and set(variables) <= set(scope) for scope in evidence.measured_scopes
    ):
        return True
    told = told_effects(evidence)
    subsets = chain.from_iterable(
        combinations(sorted(variables), k + 1) for k in range(len(variables))
    )
    return bool(told) and all(frozenset(subset) in told for subset in subsets)


def _is_left_to_prior(evidence: Evidence, variables: Sequence[int]) -> bool:
    """Return True if some change of the model's effects moves the table of some variables and no measured number.

    Such a change is one of an interaction that the model has and no measurement informs, so that the prior alone
    decides it, whatever estimator holds that prior. The question is asked at a point of general position: there the
    derivative of the measured numbers by the effects has its largest rank.
    """
    if evidence.specification.shares_transitions:
        return False  # its parameters are rows of probabilities, and its tables are pooled over the steps
    found = _unseen_directions(evidence)
    if found is None:
        return False
    directions, potentials = found
    model = evidence.specification
    scopes = (*model.scopes, tuple(variables))
    engine = marginal_engine(model.cardinalities, scopes)
    table = engine.size - model.size
    # a random weight of each cell: unseen changes of any cell show in the sum but for a set of weights of measure 0
    weights = np.zeros(engine.size)
    weights[model.size :] = np.random.default_rng(1).standard_normal(table)
    _, _, product = engine.linearize(np.append(potentials, np.zeros(table)))
    slope = evidence.family.effects.pull_back(product(weights)[: model.size])
    moved = directions @ slope
    return bool(np.abs(moved).max(initial=0.0) > _UNSEEN * np.abs(slope).max(initial=0.0))


@lru_cache(maxsize=4)
def _unseen_directions(evidence: Evidence) -> tuple[FloatArray, FloatArray] | None:
    """Return changes of the effects that move no measured number, and the point; None if there are none.

    Larger models are not asked: none of their rows is said to be left to the prior.
    """
    effects = evidence.family.effects
    size = effects.size
    if size > _LARGEST_RANK or _holds_all_effects(evidence):
        return None
    beta = np.random.default_rng(0).normal(0.0, _GENERAL, size)
    potentials = evidence.family.potentials(beta)
    _, _, product = evidence.engine("exact").linearize(potentials)
    changes = [product(row) for row in effects.potentials(np.eye(size))]
    moved = np.array([evidence.gathered(change)[evidence.possible] for change in changes])
    gram = moved @ moved.T
    values, vectors = np.linalg.eigh(gram)
    unseen = vectors[:, values <= _ROUNDING**1.5 * values.max(initial=0.0)]
    if not unseen.size:
        return None
    return unseen.T, potentials


def _holds_all_effects(evidence: Evidence) -> bool:
    """Return True if each clique of the model lies inside a table that was measured whole."""
    tables = [set(scope) for scope in evidence.measured_scopes if scope is not None]
    scopes = evidence.specification.believed.scopes
    return all(any(set(own) <= table for table in tables) for own in scopes)


@lru_cache(maxsize=4)
def told_effects(evidence: Evidence) -> frozenset[frozenset[int]]:
    """Return the sets of variables whose effects are determined by queries other than whole tables."""
    model = evidence.specification
    effects = Effects.of(model.cardinalities, model.scopes)
    size = max(effects.size, len(evidence.noisy_counts))
    if evidence.queries is None or size > _LARGEST_RANK:
        return frozenset()
    uniform = consistent_projection(
        model.cardinalities, model.scopes, np.zeros(model.size), total=1.0
    )
    rows = evidence.gathered(effects.margins(np.eye(effects.size)).T)
    design = np.column_stack([rows, evidence.gathered(uniform)])
    if evidence.total_standard_error == 0:  # N is known
        design = np.vstack([design, np.eye(1, effects.size + 1, effects.size)])
    _, sizes, directions = np.linalg.svd(design, full_matrices=False)
    space = directions[sizes > _ROUNDING * sizes.max(initial=0.0)]
    is_told = (space[:, :-1] ** 2).sum(axis=0) > 1 - _ROUNDING
    return frozenset(
        frozenset(subset)
        for subset, start, stop in zip(
            effects.subsets, effects.offsets, effects.offsets[1:], strict=False
        )
        if is_told[start:stop].all()
    )
