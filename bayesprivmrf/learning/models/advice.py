r"""Advice for learned models: what a status means for the user, and whether a release is pure noise.

A fit to pure noise converges as well as a fit to records, so convergence cannot detect it. A learned model counts as
pure noise, and gets the status `not trusted`, unless the released numbers determine both

- **the number of records**: the estimate :math:`\hat N` is at least two, and at least ten standard errors. Every
  probability is a count divided by :math:`\hat N`, which is then known to a tenth. The standard error is the larger
  of two: that of the estimate, and :math:`s = (\sum_v 1 / (K_v \sigma_v^2))^{-1/2}`, the error of an estimate from
  the tables of single variables, where :math:`\sigma_v` is the standard deviation of the noise on a count. A public
  number of records therefore does not pass the test by itself.
- **most variables**: call a variable *hidden* if its states with a noisy count of at least three standard deviations
  hold less than half of :math:`\hat N`. For equally frequent states this happens up to about
  :math:`N / K = 3 \sigma_v`. Fewer than half of the variables with several states may be hidden.

**Error rates.** Let s be the standard deviation of the noise on :math:`\hat N`. The first rule takes noise for
records with probability :math:`\Phi(-10 + N / s)`, which is :math:`10^{-23}` for N = 0 and
:math:`3 \cdot 10^{-7}` at N = 5 s. It takes records for noise with probability :math:`\Phi(10 - N / s)`, which is
:math:`3 \cdot 10^{-7}` at N = 15 s. The second rule misses a state of n records with probability
:math:`\Phi(3 - n / \sigma)`, which is :math:`10^{-4}` from 6.7 standard deviations on, and takes an empty state for
a frequent one with probability 0.0013. Variables have independent noise, so the probability that m of p variables err
together is at most :math:`\binom{p}{m} q^m`, where q is the probability for one variable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import INTERRUPTED_BY
from bayesprivmrf.model.tables import FloatArray

# Key in the details of a release whose fit failed: the smaller model that replaces it
FALLBACK = "fallen_back"

# Line of a printed model about states without records, where no released number counts states
NO_COUNTS = (
    "not known: no released number counts states, and effects of a state without records are arbitrary"
)

# Remedy for each status other than success
_ADVICE = {
    Status.NOT_TRUSTED: "do not use its numbers; spend more, or take more records or fewer variables",
    Status.DIVERGED: "do not use its numbers; spend more, or take a smaller model",
    Status.ITERATION_LIMIT: "the fit had not settled; take a smaller model, or more time",
}


def status_with_advice(status: Status, details: Mapping[str, Any]) -> str:
    """Return a status in words, followed by a remedy unless the fit succeeded.

    Parameters
    ----------
    status
        Status of the fit.
    details
        Details of the release. They distinguish a fit that failed (refits are counted, or a smaller model replaces
        it) from a path that stopped early on purpose.
    """
    if (name := details.get(INTERRUPTED_BY)) is not None and status is Status.STOPPED_EARLY:
        return f"{status.value}: a {name} interrupted it, and it holds what was computed until then"
    if (stands_in := details.get(FALLBACK)) is not None:
        return f"{status.value}: the fit of all pairs failed, and the model is a smaller one ({stands_in})"
    has_failed = status is Status.STOPPED_EARLY and "refits_that_failed" in details
    advice = _ADVICE.get(status)
    if has_failed:
        advice = "the last fit failed, and what was measured last is not in it; spend more, or take a smaller model"
    return status.value if advice is None else f"{status.value}: {advice}"


def merging_text(merged: Mapping[Any, Sequence[Sequence[Any]]]) -> str:
    """Return a line about the states that a fit merges, with the groups of the first few variables.

    Parameters
    ----------
    merged
        Groups of several states, by variable.
    """
    shown = 5  # more variables would make the line too long
    named = [
        f"{variable}: {'; '.join(' = '.join(map(str, part)) for part in parts)}"
        for variable, parts in list(merged.items())[:shown]
    ]
    more = f", and states of {len(merged) - shown} more variables" if len(merged) > shown else ""
    return f"{', '.join(named)}{more} (rare states, merged in the fit)"


# Key in the details of a release that is pure noise: the quantity that the noise hides
HIDDEN_BY_NOISE = "noise_hides"

# Smallest estimated number of records of a model that is not pure noise, and its smallest ratio to the standard error
LEAST_RECORDS, LEAST_RATIO = 2.0, 10.0

# Standard deviations of noise from which a count shows that a state has records
CLEAR = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Facts about the records that the released numbers determine in spite of the noise.

    Parameters
    ----------
    knows_total
        Whether the numbers determine the number of records.
    free
        Positions of the variables with several states.
    hidden
        Positions of the variables among `free` whose distribution the noise hides.
    unsupported
        For each variable, the positions of states whose noisy count is below three standard deviations, so that they
        may have no record. ``None`` if no released number counts states.
    """

    knows_total: bool
    free: tuple[int, ...]
    hidden: tuple[int, ...]
    unsupported: tuple[tuple[int, ...], ...] | None

    @classmethod
    def of(
        cls, total: float, error: float, counts: Sequence[FloatArray], deviations: Sequence[float]
    ) -> Signal:
        """Return the signal in noisy counts of single variables.

        Parameters
        ----------
        total, error
            Estimated number of records and its standard error; an error of 0 for a public number.
        counts
            Noisy counts of each variable's states, records.
        deviations
            Standard deviation of the noise on a count, one for each variable.
        """
        free = tuple(v for v, y in enumerate(counts) if len(y) > 1)
        hidden = tuple(v for v in free if counts[v][counts[v] >= CLEAR * deviations[v]].sum() < total / 2)
        variances = np.array([len(counts[v]) * deviations[v] ** 2 for v in free])
        alone = 1 / math.sqrt((1 / variances).sum()) if free and (variances > 0).all() else 0.0
        knows_total = total >= max(LEAST_RECORDS, LEAST_RATIO * error, LEAST_RATIO * alone)
        absent = tuple(
            tuple(np.flatnonzero(y < CLEAR * sd).tolist() if len(y) > 1 else ())
            for y, sd in zip(counts, deviations, strict=True)
        )
        return cls(knows_total=knows_total, free=free, hidden=hidden, unsupported=absent or None)

    @property
    def is_noise_alone(self) -> bool:
        """Return True if the numbers count as pure noise; the module states the rule."""
        return not self.knows_total or 2 * len(self.hidden) >= max(len(self.free), 1)

    @property
    def details(self) -> dict[str, Any]:
        """Entries of a release's details: the status and the quantity that the noise hides; empty otherwise."""
        if not self.is_noise_alone:
            return {}
        several = f"which states {len(self.hidden)} of {len(self.free)} variables have"
        hides = several if self.knows_total else "how many records there are"
        return {"status": str(Status.NOT_TRUSTED), HIDDEN_BY_NOISE: hides}
