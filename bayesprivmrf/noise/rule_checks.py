"""Checks of a likelihood that somebody else wrote, made once when a measurement states it.

A rule whose methods contradict each other gives chains that never mix, or wrong intervals. The checks try its methods
at the published numbers, and at counts near those that the numbers estimate, so that the error names the method.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.kinds import is_own
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.likelihood import Likelihood

# Most distinct published numbers at which a rule is tried, to bound the time. The table of each number is checked
# again by the engine that reads it.
_MOST_TRIED = 200
# Largest count at which a rule is tried; sums of such counts are exact in floats
_LARGEST_COUNT = 2.0**52
# Largest log probability of a whole number that counts as rounding, nats
_ROUNDING = 1e-6


def check_identity(law: Likelihood) -> None:
    """Raise an `ArgumentError` if a likelihood has no name, or is a rule that cannot be compared with another.

    Messages name a likelihood, and releases group numbers by the rule. Added noise need not be comparable, because a
    mechanism may have spent budget on it.
    """
    made = type(law).__name__
    name = getattr(law, "name", None)
    if name is None:
        seen = "none"
    else:
        seen = repr(name)
    remedy = 'write `name: ClassVar[str] = "..."`'
    must = "have a `name` that is text"
    require(isinstance(name, str) and name, f"the likelihood {made}", must, seen, remedy)
    if law.is_additive:
        return
    try:
        hash(law)
    except TypeError as error:
        remedy = "write `@dataclass(frozen=True)`, with numbers and text as fields"
        must = "be a frozen dataclass whose fields can be compared"
        raise ArgumentError(
            f"the likelihood {law.name!r} must {must}, got another ({error}); {remedy}."
        ) from None


def check_rule(law: Likelihood, name: str, published: FloatArray) -> None:
    """Raise a `ModelError` if a likelihood does not allow some published numbers, or has methods that are wrong.

    Parameters
    ----------
    law
        A likelihood that is no added noise.
    name
        Description of the published numbers, for the message.
    published
        The published numbers, shape (numbers,).
    """
    lowest, highest = _allowed(law, published)
    must = f"be numbers that {law.name} can publish"
    seen = "some that no count allows"
    remedy = "correct them, or state the rule by which they were published"
    is_possible = np.ceil(np.maximum(lowest, 0)) <= np.floor(highest)
    require(is_possible.all(), name, must, seen, remedy, error=ModelError)
    estimates, widths = _estimates(law, published)
    if is_own(type(law)):  # its methods have tests of their own
        return
    tried = _tried(published)
    ends = (lowest[tried], highest[tried])
    # a rule may take the logarithm of zero, or divide by it
    with np.errstate(all="ignore"):
        counts = _counts_near(estimates[tried], widths[tried], ends)
        _check_log_probabilities(law, published[tried], counts)
        _check_moments(law, counts)
        _check_draws(law, np.unique(counts))


def _tried(published: FloatArray) -> np.ndarray:
    """Return positions of distinct published numbers, at most 200 from the smallest to the largest."""
    _, places = np.unique(published, return_index=True)
    if places.size <= _MOST_TRIED:
        return places
    return places[np.linspace(0, places.size - 1, _MOST_TRIED).astype(int)]


def _allowed(law: Likelihood, published: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest count that allow each published number."""
    pair: Any = law.allowed(published)
    is_pair = isinstance(pair, tuple) and len(pair) == 2
    must = "return the smallest and the largest count for each published number"
    remedy = "return two arrays"
    what = f"`allowed` of the likelihood {law.name!r}"
    require(is_pair, what, must, type(pair).__name__, remedy, error=ModelError)
    lowest = _numbers(law, "allowed", pair[0], published.shape)
    highest = _numbers(law, "allowed", pair[1], published.shape)
    return lowest, highest


def _numbers(law: Likelihood, method: str, found: Any, shape: tuple[int, ...]) -> FloatArray:
    """Return the result of a method, after a check that it has a number for each argument."""
    array = np.asarray(found)
    what = f"`{method}` of the likelihood {law.name!r}"
    must = f"return numbers of the shape of its arguments, {shape}"
    is_right = array.dtype.kind in "iuf" and array.shape == shape
    seen = f"shape {array.shape} of {array.dtype}"
    remedy = "calculate with whole arrays, which broadcast"
    require(is_right, what, must, seen, remedy, error=ModelError)
    must = "return numbers"
    require(not np.isnan(array).any(), what, must, "NaN", f"correct `{method}`", error=ModelError)
    return array


def _estimates(law: Likelihood, published: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the count that each published number estimates, and the standard deviation of the estimate."""
    estimates = _numbers(law, "estimate", law.estimate(published), published.shape)
    variances = np.asarray(law.error_variance(np.maximum(estimates, 0.0) + 1))
    must = "have a mean that increases with the count, and a finite variance"
    remedy = "correct `mean_given` and `variance_given`, or define `estimate` and `error_variance`"
    is_finite = np.isfinite(estimates).all() and np.isfinite(variances).all()
    what = f"the likelihood {law.name!r}"
    require(is_finite, what, must, "others", remedy, error=ModelError)
    _numbers(law, "error_variance", variances, published.shape)
    what = f"`error_variance` of the likelihood {law.name!r}"
    must = "be at least 0"
    remedy = "correct `error_variance`"
    require((variances >= 0).all(), what, must, "negative ones", remedy, error=ModelError)
    return estimates, np.sqrt(variances)


def _counts_near(
    estimates: FloatArray, widths: FloatArray, ends: tuple[FloatArray, FloatArray]
) -> np.ndarray:
    """Return whole counts between some ends and near some estimates, ascending, shape (estimates, 5)."""
    lowest, highest = ends
    least = np.ceil(np.maximum(lowest, 0.0))
    most = np.minimum(np.floor(highest), _LARGEST_COUNT)
    # in standard deviations; the first is the least count
    steps = np.array([-math.inf, -1.0, 0.0, 1.0, 3.0])
    # a step is at least one record
    near = np.rint(estimates[:, np.newaxis] + steps * np.maximum(widths, 1.0)[:, np.newaxis])
    return np.clip(near, least[:, np.newaxis], most[:, np.newaxis]).astype(np.int64)


def _check_log_probabilities(law: Likelihood, numbers: FloatArray, counts: np.ndarray) -> None:
    """Raise an error if log probabilities are NaN, infinite, or above those of certainty."""
    found = law.log_probability(numbers[:, np.newaxis], counts)
    logs = _numbers(law, "log_probability", found, counts.shape)
    what = f"`log_probability` of the likelihood {law.name!r}"
    if law.is_discrete:
        most = _ROUNDING
        must = "be at most 0, the logarithm of certainty"
    else:  # a density has any finite value
        most = np.finfo(float).max
        must = "be finite or minus infinity"
    remedy = "return logarithms of probabilities"
    require((logs <= most).all(), what, must, "larger ones", remedy, error=ModelError)


def _check_moments(law: Likelihood, counts: np.ndarray) -> None:
    """Raise an error if moments are not finite, a variance is negative, or an inverted mean falls."""
    reals = counts.astype(float)
    means = _numbers(law, "mean_given", law.mean_given(reals), reals.shape)
    variances = _numbers(law, "variance_given", law.variance_given(reals), reals.shape)
    for method, own in {"mean_given": means, "variance_given": variances}.items():
        what = f"`{method}` of the likelihood {law.name!r}"
        remedy = f"correct `{method}`"
        require(np.isfinite(own).all(), what, "be finite", "infinity", remedy, error=ModelError)
    what = f"`variance_given` of the likelihood {law.name!r}"
    must = "be at least 0"
    remedy = "correct `variance_given`"
    require((variances >= 0).all(), what, must, "negative variances", remedy, error=ModelError)
    if type(law).estimate is Likelihood.estimate:
        what = f"`mean_given` of the likelihood {law.name!r}"
        must = "increase with the count, because `estimate` inverts it"
        remedy = "correct it, or define `estimate`"
        is_rising = (np.diff(means, axis=1) >= -_ROUNDING).all()
        require(is_rising, what, must, "means that fall", remedy, error=ModelError)


def _check_draws(law: Likelihood, counts: np.ndarray) -> None:
    """Raise an error if the number that is drawn for a count is not one that the count allows."""
    try:
        # a generator of its own, so that no other draw changes
        found = law.draw_given(counts, np.random.default_rng(0))
    except NotImplementedError:  # a rule whose numbers cannot be simulated can still be fitted
        return
    drawn = _numbers(law, "draw_given", found, counts.shape)
    what = f"`draw_given` of the likelihood {law.name!r}"
    remedy = "correct `draw_given` or `allowed`"
    if law.is_discrete:
        is_whole = np.array_equal(drawn, np.rint(drawn))
        must = "draw whole numbers"
        remedy_of_kind = f"{remedy}, or set `is_discrete` to False"
        require(is_whole, what, must, "others", remedy_of_kind, error=ModelError)
    lowest, highest = _allowed(law, np.asarray(drawn, dtype=float))
    is_allowed = (lowest <= counts) & (counts <= highest)
    must = "draw numbers that the count allows"
    seen = "some for which `allowed` excludes it"
    require(is_allowed.all(), what, must, seen, remedy, error=ModelError)
