r"""The answer that most blocks of records give, and how far it is ahead (sample and aggregate).

Every record goes to one of K blocks by a coin of its own, and every block has an answer, by any rule at all; "none"
is one. Let the most frequent answer have :math:`c_1` blocks and the next :math:`c_2`. The distance is :math:`k =
\lceil (c_1 - c_2) / 2 \rceil`.

**One record.** Give the records that neighbours share the same coins. Then one block changes, whether a record is
added, removed or replaced, so that for any two answers the difference of their blocks moves by at most 2. Where the
neighbours have the same most frequent answer, :math:`c_1 - c_2` moves by at most 2 and k by at most 1. Where they
have not, the difference of the two is at least 0 on one side and at most 0 on the other, hence at most 2 on both, so
that k is at most 1 on both. So k is a distance in the sense of `bayesprivmrf.learning.structure.stability`, for every
value of the coins, and a release is private for the coins together, which depend on no record. Blocks by position
would not do: a record that leaves would shift all others.

**How many.** Blocks that all agree have :math:`k = \lceil K / 2 \rceil`. The answer is let out if :math:`k - 1 + Z
\ge \tau`, and for :math:`K = 2 (\tau + 1 + x)` with probability :math:`1 - a^{x+1} / (1 + a)`, where :math:`a =
e^{-\epsilon}`. `enough_blocks` takes :math:`x = \lceil \log(10) / \epsilon \rceil`, hence more than 0.95. Lemma 6.1
of the paper asks each block to be right with probability 2/3 alone. Then the right answer may be ahead by K / 3 on
average, so that three times as many blocks are needed, and more for their chance.

References: Nissim, Raskhodnikova, Smith 2007. Vadhan 2017, Proposition 3.4. Zhang, Kamath, Kulkarni, Wu 2020, Lemma
6.1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise import DiscreteLaplace

type Pairs = tuple[tuple[int, int], ...] | None


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
