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

**Blocks of records** (sample and aggregate) give a distance for any answer. Every record goes to one of K blocks by a
coin of its own, and every block has an answer, by any rule at all; "none" is one. Let the most frequent answer have
:math:`c_1` blocks and the next :math:`c_2`. The distance is :math:`k = \lceil (c_1 - c_2) / 2 \rceil`.

Give the records that neighbors share the same coins. Then one block changes, whether a record is added, removed or
replaced, so that for any two answers the difference of their blocks moves by at most 2. Where the neighbors have the
same most frequent answer, :math:`c_1 - c_2` moves by at most 2 and k by at most 1. Where they have not, the
difference of the two is at least 0 on one side and at most 0 on the other, hence at most 2 on both, so that k is at
most 1 on both. So k is a distance in the sense above for every value of the coins, and a release is private for the
coins together, which depend on no record. Blocks by position would not do: a record that leaves would shift all
others.

**How many.** Blocks that all agree have :math:`k = \lceil K / 2 \rceil`. The answer is let out if :math:`k - 1 + Z
\ge \tau`, and for :math:`K = 2 (\tau + 1 + x)` with probability :math:`1 - a^{x+1} / (1 + a)`, where :math:`a =
e^{-\epsilon}`. `enough_blocks` takes :math:`x = \lceil \log(10) / \epsilon \rceil`, hence more than 0.95. Lemma 6.1
of the paper asks each block to be right with probability 2/3 alone. Then the right answer may be ahead by K / 3 on
average, so that three times as many blocks are needed, and more for their chance.

References: Dwork, Lei 2009. Nissim, Raskhodnikova, Smith 2007. Vadhan 2017, section 3 and Proposition 3.4. Zhang,
Kamath, Kulkarni, Wu 2020, Lemma 6.1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise import DiscreteLaplace

#: Records from which on no answer is let out: twice the square of the number, a scaled score, fits in 64 bits.
LARGEST = 2**31 - 1

type Pairs = tuple[tuple[int, int], ...] | None
"""Edges of a graph, ascending; None for no graph."""

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


def enough_blocks(law: DiscreteLaplace, needed: int) -> int:
    """Return how many blocks let out an answer on which all agree with probability above 0.95; see the module."""
    return 2 * (needed + 1 + math.ceil(math.log(10) * law.scale))


def answers_of_blocks(
    codes: np.ndarray, counts: IntArray, coins: np.ndarray, blocks: int, rule: Callable[[np.ndarray], Pairs]
) -> list[Pairs]:
    """Return each block's answer.

    Parameters
    ----------
    codes, counts
        Distinct records and how often they occur.
    coins
        A whole number for each single record, shape (n,).
    blocks
        K.
    rule
        Gives the answer of records, one a row; ``None`` for no graph.
    """
    row = np.repeat(np.arange(len(codes)), counts)
    block = coins % blocks
    return [rule(codes[row[block == place]]) for place in range(blocks)]


def most_frequent(answers: Sequence[Pairs]) -> tuple[Pairs, int]:
    """Return the most frequent answer, the least of several, and its distance from another."""
    ranked = sorted(Counter(answers).items(), key=lambda item: (-item[1], item[0] is None, item[0] or ()))
    second = ranked[1][1] if len(ranked) > 1 else 0
    return ranked[0][0], -(-(ranked[0][1] - second) // 2)
