r"""Whether released numbers tell of records, or of noise alone: by these numbers and the law of their noise.

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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.inference.solution import Status
from bayesprivmrf.model.tables import FloatArray

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
