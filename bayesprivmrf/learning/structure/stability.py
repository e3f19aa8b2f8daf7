r"""Release of an answer where it is stable: propose, test, release.

Let every data set have an answer and a **distance** k, a whole number, so that for neighbors

1. the distances differ by at most 1;
2. where the answers differ, both distances are at most 1.

The noisy distance :math:`k - 1 + Z` is let out, with discrete Laplace noise Z of scale :math:`b \ge 1/\epsilon`, and
the answer with it if it reaches :math:`\tau \ge 1`. For :math:`a = e^{-1/b}`,

.. math:: P(Z \ge \tau) = \frac{a^\tau}{1 + a},

and the smallest :math:`\tau` at which this is at most :math:`\delta` gives :math:`(\epsilon, \delta)`: by the first
condition the noisy distance is :math:`\epsilon`-private. The answer adds nothing to it where neighbors have the
same. Where they have not, k - 1 is at most 0 on both by the second condition, so that either answer is let out with
probability at most :math:`\delta`, and any event that lets none out is one of the noisy distance.

**Whole numbers.** Scores of many records may not fit in 64 bits. So a distance is at most `LARGEST` - n, and from
`LARGEST` records on it is 0 and there is no answer. Both conditions stay, and no error tells of n.

References: Dwork, Lei 2009; Vadhan 2017, section 3.
"""

from __future__ import annotations

import math

from bayesprivmrf.noise import DiscreteLaplace

#: Records from which on no answer is let out: twice the square of the number, a scaled score, fits in 64 bits.
LARGEST = 2**31 - 1

type StableAnswer = tuple[tuple[tuple[int, int], ...], int]
"""Edges of a graph, ascending, and its distance."""


def release_threshold(law: DiscreteLaplace, delta: float) -> int:
    """Return the least threshold of at least 1 that the noise reaches with probability at most delta."""
    tail = math.log(delta) + math.log1p(math.exp(-1 / law.scale))
    least = max(1, math.ceil(-tail * law.scale))
    # a relative slack far above the error of the logarithms; at most one more unit of distance
    return least if -least / law.scale <= tail - 1e-12 * (1 + abs(tail)) else least + 1


def largest_distance(law: DiscreteLaplace, threshold: int) -> int:
    """Return a distance beyond which an answer stays in with probability below 1/2000, so that none need be told."""
    return threshold + 1 + math.ceil(law.scale * math.log(1000))
