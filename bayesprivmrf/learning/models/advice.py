r"""What to do with a learned model whose fit did not end well.

Whether released numbers tell of records, or of noise alone: by these numbers and the law of their noise.

A fit to noise ends as well as one to records do, so that its search says nothing of this. A model is of noise alone,
and `not trusted`, unless the released numbers say both of

- **the number of records**: the estimate :math:`\hat N` is at least two, and at least ten standard errors. All
  probabilities are counts divided by it, so that it is known to a tenth then. The error is that of the estimate, or
  that which tables of single variables would leave it,
  :math:`s = (\sum_v 1 / (K_v \sigma_v^2))^{-1/2}` with the deviation :math:`\sigma_v` of a count, if that is larger:
  so a number that is public decides nothing by itself.
- **most variables**: a variable is *hidden* if the states whose noisy count is at least three deviations hold less
  than half of :math:`\hat N`. Of even states that is so up to about :math:`N / K = 3 \sigma_v`. Fewer than half of
  the variables of several states are hidden.

**How often that errs.** With the noise of s on :math:`\hat N` the first rule takes noise for records with a
probability of :math:`\Phi(-10 + N / s)`: :math:`10^{-23}` where there are none, :math:`3 \cdot 10^{-7}` up to
N = 5 s; and records for noise with :math:`\Phi(10 - N / s)`, :math:`3 \cdot 10^{-7}` from N = 15 s on. In between
the answer may be either. Of the second rule a state of n records is missed with :math:`\Phi(3 - n / \sigma)`,
:math:`10^{-4}` from 6.7 deviations on; an empty state is taken for one with records in .0013 of cases. Variables have
independent noise, so that more than half of p of them err alike with :math:`\binom{p}{m} q^m` at most, for m the
number that must err and q the probability of one.
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

#: The detail of a release whose fit failed, with the model that stands in for it.
FALLEN_BACK = "fallen_back"

#: Line on the support of a model where no released number tells which states have records.
NO_COUNTS = (
    "not known: no released number counts states, and effects of a state without records are arbitrary"
)

_SHOWN = 5  # variables whose merged states are named in print

# the remedy for each status that is not a good one
_ADVICE = {
    Status.NOT_TRUSTED: "do not use its numbers; spend more, or take more records or fewer variables",
    Status.DIVERGED: "do not use its numbers; spend more, or take a smaller model",
    Status.ITERATION_LIMIT: "the fit had not settled; take a smaller model, or more time",
}


def told_status(status: Status, details: Mapping[str, Any]) -> str:
    """Return a status in words, with what to do where it is not a good one.

    Parameters
    ----------
    status
        How the fit ended.
    details
        The details of the release. Where they count refits, as those of rounds do, a fit that stopped early failed,
        and where they name a model that stands in for it; elsewhere such a path ends on purpose.
    """
    if (name := details.get(INTERRUPTED_BY)) is not None and status is Status.STOPPED_EARLY:
        return f"{status.value}: a {name} interrupted it, and it holds what was computed until then"
    if (stands_in := details.get(FALLEN_BACK)) is not None:
        return f"{status.value}: the fit of all pairs failed, and the model is a smaller one ({stands_in})"
    has_failed = status is Status.STOPPED_EARLY and "refits_that_failed" in details
    advice = _ADVICE.get(status)
    if has_failed:
        advice = "the last fit failed, and what was measured last is not in it; spend more, or take a smaller model"
    return status.value if advice is None else f"{status.value}: {advice}"


def told_merging(merged: Mapping[Any, Sequence[Sequence[Any]]]) -> str:
    """Describe in words which states are merged in a fit, for the first few variables.

    Parameters
    ----------
    merged
        Groups of several states, by variable.
    """
    named = [
        f"{variable}: {'; '.join(' = '.join(map(str, part)) for part in parts)}"
        for variable, parts in list(merged.items())[:_SHOWN]
    ]
    more = f", and states of {len(merged) - _SHOWN} more variables" if len(merged) > _SHOWN else ""
    return f"{', '.join(named)}{more} (rare states, merged in the fit)"


#: The detail of a release that tells of noise alone, with what the noise hides.
NOISE_HIDES = "noise_hides"

# Records, and standard errors of their number, that the estimate of it has at least
LEAST_RECORDS, KNOWN = 2.0, 10.0

#: Deviations of its noise from which on a count tells of records.
CLEAR = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What released numbers tell of records.

    Parameters
    ----------
    knows_total
        Whether they tell how many there are.
    free
        Positions of the variables of several states.
    hidden
        Those of them of which the noise hides how many records have which state.
    unsupported
        For each variable the positions of its states whose noisy count is below three standard deviations, so that
        they may have no record. ``None`` where no released number counts states.
    """

    knows_total: bool
    free: tuple[int, ...]
    hidden: tuple[int, ...]
    unsupported: tuple[tuple[int, ...], ...] | None

    @classmethod
    def by(
        cls, total: float, error: float, counts: Sequence[FloatArray], deviations: Sequence[float]
    ) -> Told:
        """Return what noisy counts of single variables tell.

        Parameters
        ----------
        total, error
            Estimated number of records and its standard error; 0 where it is public.
        counts
            Noisy counts of each variable's states, records.
        deviations
            Standard deviation of the noise on each of them, by variable.
        """
        free = tuple(v for v, y in enumerate(counts) if len(y) > 1)
        hidden = tuple(v for v in free if counts[v][counts[v] >= CLEAR * deviations[v]].sum() < total / 2)
        variances = np.array([len(counts[v]) * deviations[v] ** 2 for v in free])
        alone = 1 / math.sqrt((1 / variances).sum()) if free and (variances > 0).all() else 0.0
        knows_total = total >= max(LEAST_RECORDS, KNOWN * error, KNOWN * alone)
        absent = tuple(
            tuple(np.flatnonzero(y < CLEAR * sd).tolist() if len(y) > 1 else ())
            for y, sd in zip(counts, deviations, strict=True)
        )
        return cls(knows_total=knows_total, free=free, hidden=hidden, unsupported=absent or None)

    @property
    def is_noise_alone(self) -> bool:
        """Whether the numbers tell of noise alone; see the module."""
        return not self.knows_total or 2 * len(self.hidden) >= max(len(self.free), 1)

    @property
    def details(self) -> dict[str, Any]:
        """What a release says of it: the status, and in words what the noise hides; nothing where it hides little."""
        if not self.is_noise_alone:
            return {}
        several = f"which states {len(self.hidden)} of {len(self.free)} variables have"
        hides = several if self.knows_total else "how many records there are"
        return {"status": str(Status.NOT_TRUSTED), NOISE_HIDES: hides}
