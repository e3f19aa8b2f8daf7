"""Audits of noisy tables and answers: the cost of their stated noise, and whole releases of simulated neighbors."""

from __future__ import annotations

import warnings
from collections import Counter
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.audit.curves import log_ratio, losses_of
from bayesprivmrf.audit.empirical import AuditResult, audit_ratios
from bayesprivmrf.audit.worst_case import Sums
from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError, NoiseWarning
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.cells import cells_of
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.kernels import LAPLACE
from bayesprivmrf.privacy import Adjacency
from bayesprivmrf.queries import sensitivity
from bayesprivmrf.release import NoisyStatistics

if TYPE_CHECKING:
    import pandas as pd

# Number of records that are tried until a possible one is found; arbitrary, a second of work
_LOOKED_AT = 100_000


def neighbors(model: ModelSpecification, adjacency: Adjacency) -> tuple[IntArray, IntArray]:
    """Return two simulated neighboring data sets that differ in as many tables as a short search could find.

    Returns
    -------
    tuple of ndarray
        Codes of their records, shape (records, variables): no record and one record under add-or-remove-one, two
        different records under replace-one.

    Raises
    ------
    ModelError
        The search found no possible record.
    """
    states = model.cardinalities
    first = _possible(model, product(*map(range, states)))
    must = f"allow one of the first {_LOOKED_AT:,} joint states"
    require(
        first is not None,
        "network",
        must,
        "none",
        "declare fewer impossible cells",
        error=ModelError,
    )
    assert first is not None
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        return np.empty((0, len(states)), dtype=np.int64), first[None]
    # every variable in another state than in the first record, where another state exists and is possible
    others = (
        sorted(range(k), key=lambda state, at=at: state == at)
        for k, at in zip(states, first, strict=True)
    )
    second = _possible(model, product(*others))
    assert second is not None  # the first record is among them
    return first[None], second[None]


def _possible(model: ModelSpecification, records: Any) -> IntArray | None:
    for record in islice(records, _LOOKED_AT):
        codes = np.array(record, dtype=np.int64)
        if model.possible is None or model.possible[cells_of(model, codes[None])].all():
            return codes
    return None


def table_draws(release: NoisyStatistics, adjacency: Adjacency) -> list[Sums]:
    """Return how far the worst neighbors move the measured numbers, with the noise that the release states."""
    pair = _pair(release, Adjacency.checked(adjacency), is_possible=False)
    before, after = (_answers(release, records) for records in pair)
    by = (_at_most(release) or 1) * np.abs(after - before)
    moved = Counter(zip(_noise_of(release)[by > 0], by[by > 0].tolist(), strict=True))
    return [Sums(law=law, copies=count, shift=shift) for (law, shift), count in moved.items()]


def _at_most(release: NoisyStatistics) -> int | None:
    """Return the number of records that one person can change; None if the unit is a record.

    With a grid, a person with one row has the weight of the whole grid.
    """
    if release.person_rows is None:
        return None
    return release.person_rows.dependent


def _pair(
    release: NoisyStatistics, adjacency: Adjacency, *, is_possible: bool = True
) -> tuple[IntArray, IntArray]:
    """Return simulated neighboring data sets: for queries the worst, unless those must be possible and are not."""
    must = "have noise that is added to its numbers"
    rules = sorted({law.name for law in release.noise if not law.is_additive})
    seen = f"a rule that depends on the count: {', '.join(rules)}"
    require(not rules, "an audited release", must, seen, "audit the rule by itself")
    model = release.specification
    if release.has_tables:
        return neighbors(model, adjacency)
    # the joint sensitivity of the answers, each divided by the scale of its noise
    if all(law.smooth is LAPLACE for law in release.noise):
        norm = 1
    else:
        norm = 2
    scales = [
        max(law.scale if norm == 1 else law.standard_deviation, 1e-9)  # type: ignore[attr-defined]
        for law in release.noise
    ]
    queries = [each.query for each in release.measurements]
    given = {"norm": norm, "adjacency": adjacency, "at_most": _at_most(release)}
    found = sensitivity(queries, model, scales=scales, **given).neighbours
    records = [
        np.array([[model.domain.code(v, one[v]) for v in model.domain.variables]]) for one in found
    ]
    if is_possible:
        possible = model.possible
    else:
        possible = None
    if possible is not None and not all(possible[cells_of(model, one)].all() for one in records):
        return neighbors(model, adjacency)
    if len(records) > 1:
        return (records[0], records[1])
    return (records[0][:0], records[0])


def _answers(release: NoisyStatistics, records: IntArray) -> IntArray:
    """Return the exact numbers that the release would measure from these records."""
    model = release.specification
    counts = np.bincount(cells_of(model, records).ravel(), minlength=model.size)
    if release.matrix is None:
        return counts
    return np.rint(release.matrix @ counts).astype(np.int64)


def rehearsed(mechanism: Any, model: ModelSpecification) -> NoisyStatistics:
    """Return a release of simulated data.

    Raises
    ------
    ArgumentError
        The mechanism does not release noisy tables, which state their noise.
    """
    kinds = getattr(mechanism, "releases", ())
    kind = ""
    release: Any = None
    if kinds and not any(issubclass(each, NoisyStatistics) for each in kinds):
        kind = kinds[0].__name__
    else:
        frame = _frame(model, neighbors(model, mechanism.promise(model).adjacency)[1], mechanism)
        # the noise may hide the records of an audit, which are simulated, and few
        with warnings.catch_warnings(action="ignore", category=NoiseWarning):
            release = mechanism.release(model, frame)
        if getattr(release, "statistics", None) is not release:
            kind = type(release).__name__
    what = "an audit of whole releases"
    given = f"{kind} from {type(mechanism).__name__}"
    remedy = getattr(mechanism, "_accountant", "") or "its proof is in its documentation"
    require(not kind, what, "be given noisy tables, which state their noise", given, remedy)
    return release


def audit_releases(mechanism: Any, model: ModelSpecification, **settings: Any) -> AuditResult:
    """Audit whole releases of simulated neighbors against the exact curve of the noise that they state.

    Parameters
    ----------
    mechanism
        A mechanism whose release is a `NoisyStatistics`, such as `LaplaceStatistics`.
    model
        The declared model.
    settings
        ``runs``, ``confidence`` and ``deltas`` of `audit`. A run is a release and takes about 20 milliseconds.

    Raises
    ------
    ArgumentError
        An argument has the wrong type, or the mechanism does not release noisy tables.
    ModelError
        The model is not a declared model, or allows no record.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> from bayesprivmrf.mechanisms import LaplaceStatistics
    >>> model = bpm.declare({"ill": ["no", "yes"]}, [("ill",)])
    >>> audit_releases(LaplaceStatistics(epsilon=1.0), model, runs=100).is_violated
    False
    """
    model = ModelSpecification.from_pgmpy(model)
    is_class = isinstance(mechanism, type)
    if is_class:
        what = mechanism.__name__
    else:
        what = f"a {type(mechanism).__name__}"
    is_made = not is_class and all(hasattr(mechanism, name) for name in ("promise", "release"))
    remedy = "write LaplaceStatistics(epsilon=1.0)"
    require(is_made, "mechanism", "be an object with its settings", what, remedy)
    stated = rehearsed(mechanism, model)
    pair = _pair(stated, mechanism.promise(model).adjacency)
    pair = tuple(np.repeat(records, _at_most(stated) or 1, axis=0) for records in pair)
    before, after = (_answers(stated, records) for records in pair)
    frames = [_frame(model, records, mechanism) for records in pair]
    # numbers that are equal for both neighbors carry no information
    moved = before != after
    laws = _noise_of(stated)[moved]
    shifts = (after - before)[moved].tolist()

    def ratio(present: bool) -> float:
        noisy = mechanism.release(model, frames[present]).flat[moved]
        pairs = zip(laws, noisy - after[moved], noisy - before[moved], strict=True)
        return float(sum(log_ratio(law, new, old) for law, new, old in pairs))

    def ratios(present: bool, runs: int) -> FloatArray:
        return np.array([ratio(present) for _ in range(runs)])

    losses = [losses_of(law, shift) for law, shift in zip(laws, shifts, strict=True)]
    with warnings.catch_warnings(action="ignore", category=NoiseWarning):
        return audit_ratios(ratios, losses, **settings)


def _frame(model: ModelSpecification, records: IntArray, mechanism: Any) -> pd.DataFrame:
    """Return the records as a data frame, all of one person if the mechanism protects persons."""
    import pandas as pd

    states = zip(model.domain.variables, model.domain.states, records.T, strict=True)
    frame = pd.DataFrame(
        {v: pd.Series([labels[k] for k in codes], dtype=object) for v, labels, codes in states}
    )
    person = getattr(mechanism, "person", None)
    if person is None:
        return frame
    return frame.assign(**{str(person): "somebody"})


def _noise_of(release: NoisyStatistics) -> np.ndarray:
    """Return the noise distribution of each released number."""
    sizes = [len(each.values) for each in release.measurements]
    return np.repeat(np.fromiter(release.noise, dtype=object, count=len(release.noise)), sizes)
