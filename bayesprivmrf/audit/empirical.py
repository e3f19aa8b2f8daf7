"""Audit of a mechanism by a statistical test on many runs, which tries to tell neighboring data sets apart.

`audit` takes any two functions that run a mechanism. `audit_noise` audits tables with additive noise at their worst
case, which is the sharpest test.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bayesprivmrf.audit.curves import Atoms, checked_shift, convolved, log_ratio, losses_of
from bayesprivmrf.checks import bare_array, probability, require, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.domain import listed
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.base import checked_noise
from bayesprivmrf.privacy import Adjacency, NoiseDistribution, PrivacyGuarantee

# Deltas that are tested by default; arbitrary: 0 for a pure guarantee, and some for events of moderate probability.
DELTAS = (0.0, 0.01, 0.03, 0.1, 0.2)
# Largest number of thresholds that are tried; arbitrary: more thresholds cost time, but no confidence.
_THRESHOLDS = 400


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AuditResult:
    """Result of an audit: lower confidence bounds on epsilon beside the promised values.

    Parameters
    ----------
    deltas
        The deltas at which the guarantee was tested.
    epsilon_lower
        Lower confidence bound on epsilon at each delta, nats; the bounds hold jointly.
    epsilon_claimed
        The promised epsilon at each delta, nats.
    confidence
        Joint confidence of the bounds.
    runs
        Runs of the mechanism on each of the two data sets.
    """

    deltas: tuple[float, ...]
    epsilon_lower: tuple[float, ...]
    epsilon_claimed: tuple[float, ...]
    confidence: float
    runs: int

    @property
    def is_violated(self) -> bool:
        """True if the guarantee is refuted at the stated confidence; False proves nothing."""
        return any(map(operator.gt, self.epsilon_lower, self.epsilon_claimed))

    def __str__(self) -> str:
        if self.is_violated:
            verdict = "refuted"
        else:
            verdict = "not refuted"
        rows = [f"The promise is {verdict} ({self.confidence:.4%} confidence, {self.runs:,} runs)."]
        for delta, lower, claimed in zip(
            self.deltas, self.epsilon_lower, self.epsilon_claimed, strict=True
        ):
            rows.append(f"  delta {delta:<6g} epsilon at least {lower:.3f}, promised {claimed:.3f}")
        return "\n".join(rows)


def audit(
    randomizer_a: Callable[[int], ArrayLike],
    randomizer_b: Callable[[int], ArrayLike],
    guarantee_curve: Callable[[float], float] | PrivacyGuarantee,
    *,
    runs: int = 100_000,
    confidence: float = 0.9999,
    deltas: Sequence[float] = DELTAS,
) -> AuditResult:
    r"""Return lower confidence bounds on epsilon from runs on two neighboring data sets.

    For any event S, (epsilon, delta)-privacy gives :math:`P_A(S) \le e^{\epsilon} P_B(S) + \delta`, so

    .. math:: \epsilon \ge \log \frac{P_A(S) - \delta}{P_B(S)}.

    The events are half-lines of a statistic. One half of the runs chooses the threshold, the side and the order of A
    and B that give the largest bound. The other half gives Clopper-Pearson limits for the two probabilities of this
    event, so that the choice costs no confidence. The error is shared evenly between the deltas and the two limits
    (Bonferroni).

    Parameters
    ----------
    randomizer_a, randomizer_b
        Functions of a number of runs. Each returns one attack statistic for each run, shape (runs,): any function of
        the mechanism's output, ideally the log-likelihood ratio. Their data sets are neighbors.
    guarantee_curve
        Function from delta to the promised epsilon, or a guarantee. The exact curve of the mechanism makes an audit
        much sharper than the bound that a zero-concentrated guarantee implies.
    runs
        Number of runs on each data set, at least 100; half of them choose the event.
    confidence
        Joint confidence, in (0, 1): a true guarantee is refuted with a probability of at most one minus this number.
    deltas
        The deltas at which to test, each in [0, 1). Delta 0 needs a pure guarantee, and is left out for a
        zero-concentrated one.

    Returns
    -------
    AuditResult
        ``is_violated`` is True if some lower bound exceeds the promised epsilon.

    Raises
    ------
    ArgumentError
        ``runs`` is below 100, the confidence or a delta is not a probability, a randomizer or the curve is not
        callable, a statistic is not finite, or the guarantee says nothing at any of the deltas.

    Notes
    -----
    At the default confidence, 100,000 runs detect noise that is 10 % too small, 20,000 runs 20 %, and 5,000 runs
    about 30 %, for worst-case inputs against the exact curve. An audit of a whole fit, or of data sets that are not
    the worst case, has almost no power.

    References
    ----------
    Jagielski, Ullman, Oprea 2020, Algorithm 1. Clopper, Pearson 1934.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> one, other = (lambda runs, mean=mean: mean + rng.laplace(size=runs) for mean in (0, 1))
    >>> audit(one, other, PrivacyGuarantee(epsilon=1.0, adjacency="replace-one"), runs=1000).is_violated
    False
    >>> audit(one, other, PrivacyGuarantee(epsilon=0.1, adjacency="replace-one"), runs=1000).is_violated
    True
    """
    whole_number("runs", runs, 100)
    error = 1 - probability("confidence", confidence, zero=False)
    given = listed("`deltas`", deltas, error=ArgumentError)
    deltas = [probability("deltas", delta, zero=True) for delta in given]
    for name, function in (("randomizer_a", randomizer_a), ("randomizer_b", randomizer_b)):
        checked_function(name, function, "a function from a number of runs to one statistic a run")
    if isinstance(guarantee_curve, PrivacyGuarantee):
        guarantee = guarantee_curve
        # at its own delta a zero-concentrated guarantee says nothing
        if guarantee.rho is not None:
            own = ()
        else:
            own = (guarantee.delta,)
        deltas = [d for d in deltas if d > guarantee.delta or d in own]

        def curve(delta: float) -> Any:
            return (
                guarantee if delta == guarantee.delta else guarantee.to_approximate(delta)
            ).epsilon

    else:
        kind = "a PrivacyGuarantee, or a function from delta to epsilon"
        curve = checked_function("guarantee_curve", guarantee_curve, kind)
    must = "hold a delta at which the guarantee says something"
    remedy = "choose one above 0 for a zero-concentrated guarantee, and at least its own for an approximate one"
    require(deltas, "deltas", must, "none", remedy)
    level = error / (2 * len(deltas))
    samples = [
        _checked(randomizer(int(runs)), int(runs)) for randomizer in (randomizer_a, randomizer_b)
    ]
    # one half chooses the event, the other tests it
    half = int(runs) // 2
    chosen = [s[:half] for s in samples]
    tested = [s[half:] for s in samples]
    thresholds = np.unique(np.concatenate(chosen))
    if thresholds.size > _THRESHOLDS:
        thresholds = np.unique(np.quantile(np.concatenate(chosen), np.linspace(0, 1, _THRESHOLDS)))
    first = tail_counts(chosen, thresholds)
    second = tail_counts(tested, thresholds)
    lower = []
    for delta in deltas:
        best = np.unravel_index(np.argmax(_bounds(first, half, delta, level)), first.shape[:2])
        lower.append(float(_bounds(second, int(runs) - half, delta, level)[best]))
    return AuditResult(
        deltas=tuple(map(float, deltas)),
        epsilon_lower=tuple(max(bound, 0.0) for bound in lower),
        epsilon_claimed=tuple(float(curve(delta)) for delta in deltas),
        confidence=float(confidence),
        runs=int(runs),
    )


def checked_function(name: str, function: Any, kind: str) -> Any:
    """Return a function, after a check that it is callable."""
    require(callable(function), name, f"be {kind}", f"a {type(function).__name__}")
    return function


def _checked(statistics: ArrayLike, runs: int) -> FloatArray:
    values = bare_array("statistics", statistics).astype(float)
    others = int((~np.isfinite(values)).sum())
    given = f"an array of shape {values.shape} with {others} that are not finite"
    must = f"return {runs} finite statistics"
    remedy = "noise must be what its stated distribution can give"
    require(values.shape == (runs,) and not others, "a randomizer", must, given, remedy)
    return values


def tail_counts(samples: Sequence[FloatArray], thresholds: FloatArray) -> np.ndarray:
    """Count the runs in each event: shape (4 kinds, thresholds, 2), the first data set of the event first."""
    a, b = (np.sort(sample) for sample in samples)
    above = [
        s.size - np.searchsorted(s, thresholds, side="left") for s in (a, b)
    ]  # statistic >= threshold
    below = [np.searchsorted(s, thresholds, side="right") for s in (a, b)]  # statistic <= threshold
    kinds = [above, above[::-1], below, below[::-1]]
    return np.stack([np.stack(kind, axis=-1) for kind in kinds])


def _bounds(counts: np.ndarray, runs: int, delta: float, level: float) -> FloatArray:
    """Return a lower bound on epsilon for every event: Clopper-Pearson limits, each at the given level."""
    from scipy.stats import beta

    hits = counts[..., 0]
    false_hits = counts[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        low: Any = np.where(hits == 0, 0.0, beta.ppf(level, hits, runs - hits + 1))
        high: Any = np.where(
            false_hits == runs, 1.0, beta.ppf(1 - level, false_hits + 1, runs - false_hits)
        )
        return np.where(low > delta, np.log(np.maximum(low - delta, 0.0) / high), -np.inf)


def audit_noise(
    add: Callable[[IntArray, int], IntArray],
    laws: Sequence[NoiseDistribution],
    adjacency: Adjacency,
    moves: Sequence[Sequence[int]] | None = None,
    **settings: Any,
) -> AuditResult:
    """Audit noisy tables on neighbors that differ as much as possible, against the exact curve of their noise.

    The neighbors differ in every table: by one record in one cell under add-or-remove-one, and in two cells under
    replace-one. Answers to queries differ by the given moves. The attack statistic is the log-likelihood ratio, which
    is the most powerful (Neyman and Pearson). Cells that agree carry no information and are left out.

    Parameters
    ----------
    add
        The audited function: from true counts of shape (runs,) and the position of a table, it returns the counts
        with the noise of that table.
    laws
        The noise distribution that each table is said to have.
    adjacency
        The neighboring relation.
    moves
        Difference of each number of each table, or of each query, between the worst neighbors, as
        `bayesprivmrf.queries.sensitivity.moves` gives it. By default one record moves in each table.
    settings
        ``runs``, ``confidence`` and ``deltas`` of `audit`.

    Returns
    -------
    AuditResult
        Result of the audit against the exact curve of the stated distributions.

    Raises
    ------
    ArgumentError
        An argument has the wrong type, or the numbers of moves and distributions differ.

    Examples
    --------
    >>> from bayesprivmrf.noise import DiscreteLaplace, noise_source
    >>> source, stated = noise_source(1), DiscreteLaplace(2.0)
    >>> audit_noise(lambda n, table: source.add(n, stated), [stated], "add-or-remove-one", runs=500).is_violated
    False
    """
    checked_function(
        "add", add, "a function from counts and the position of a table to noisy counts"
    )
    laws = [checked_noise("laws", law) for law in listed("`laws`", laws, error=ArgumentError)]
    adjacency = Adjacency.checked(adjacency)
    if moves is None:
        moves = [(1,) if adjacency is Adjacency.ADD_OR_REMOVE_ONE else (1, -1)] * len(laws)
    moves = listed("`moves`", moves, error=ArgumentError)
    require(
        len(moves) == len(laws), "moves", f"hold the moves for each of {len(laws)} laws", len(moves)
    )
    cells = []
    for position, given in enumerate(moves):
        shifts = listed("each item of `moves`", given, error=ArgumentError)
        cells += [(position, shift) for shift in shifts if checked_shift("moves", shift)]

    def ratios(present: bool, runs: int) -> FloatArray:
        ratio = np.zeros(runs)
        for position, shift in cells:
            noisy = add(np.full(runs, present * shift, dtype=np.int64), position)
            ratio += log_ratio(laws[position], noisy - shift, noisy)
        return ratio

    return audit_ratios(
        ratios, [losses_of(laws[position], shift) for position, shift in cells], **settings
    )


def audit_ratios(
    ratios: Callable[[bool, int], FloatArray], losses: Sequence[Atoms], **settings: Any
) -> AuditResult:
    """Audit log-likelihood ratios of runs, with a record or without it, against the curve of independent losses."""

    def randomizer(present: bool) -> Callable[[int], FloatArray]:
        # equal ratios, summed in different orders, are one value
        return lambda runs: np.round(ratios(present, runs), 9)

    return audit(randomizer(True), randomizer(False), convolved(losses).epsilon, **settings)
