r"""Most frequent answer of blocks of records, and its lead over the next (sample and aggregate).

Every record is assigned to one of K blocks independently at random. Every block has an answer, by any rule; "none"
is allowed. Let the most frequent answer have :math:`c_1` blocks and the next :math:`c_2`. The distance is :math:`k =
\lceil (c_1 - c_2) / 2 \rceil`.

**One record.** Give the records that neighbours share the same coins. Then one block changes, whether a record is
added, removed or replaced, so that for any two answers the difference of their blocks moves by at most 2. Where the
neighbours have the same most frequent answer, :math:`c_1 - c_2` moves by at most 2 and k by at most 1. Where they
do not, the difference of the two is at least 0 on one side and at most 0 on the other, hence at most 2 on both, so
that k is at most 1 on both. So k is a distance in the sense of `mechanisms.structure.dependence_graph`, for every
value of the coins, and a release is private for the coins together, which depend on no record. Blocks by position
would not be private, because a removed record would shift all others.

**How many.** Blocks that all agree have :math:`k = \lceil K / 2 \rceil`. The answer is released if :math:`k - 1 + Z
\ge \tau`, and for :math:`K = 2 (\tau + 1 + x)` with probability :math:`1 - a^{x+1} / (1 + a)`, where :math:`a =
e^{-\epsilon}`. `enough_blocks` takes :math:`x = \lceil \log(10) / \epsilon \rceil`, hence more than 0.95. Lemma 6.1
of the paper only assumes that each block is right with probability 2/3. Then the right answer may be ahead by K / 3
on average, so that three times as many blocks are needed, and more for their chance.

References: Nissim, Raskhodnikova, Smith 2007. Vadhan 2017, Proposition 3.4. Zhang, Kamath, Kulkarni, Wu 2020, Lemma
6.1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from bayesprivmrf.checks import whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning.structure import ReleasedGraph
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.reading.coded import CodedRecords, read_records
from bayesprivmrf.mechanisms.structure.mechanism import (
    ExactGraphs,
    Pairs,
    StableStructure,
    StructurePlan,
)
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise import DiscreteLaplace, NoiseSource

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

__all__ = ["BlockStructure", "answers_of_blocks", "enough_blocks", "most_frequent"]

_MOST_BLOCKS = 10_000
"""Largest number of blocks, against budgets so small that a release would never end; arbitrary."""


def enough_blocks(law: DiscreteLaplace, needed: int) -> int:
    """Return the number of blocks that release a unanimous answer with probability above 0.95; see the module."""
    return 2 * (needed + 1 + math.ceil(math.log(10) * law.scale))


def answers_of_blocks(
    codes: np.ndarray,
    counts: IntArray,
    coins: np.ndarray,
    blocks: int,
    rule: Callable[[np.ndarray], Pairs],
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
    """Return the most frequent answer, the smallest one in a tie, and its distance from another."""
    ranked = sorted(
        Counter(answers).items(), key=lambda item: (-item[1], item[0] is None, item[0] or ())
    )
    second = ranked[1][1] if len(ranked) > 1 else 0
    return ranked[0][0], -(-(ranked[0][1] - second) // 2)


@final
@dataclass(frozen=True, kw_only=True)
class BlockStructure(StableStructure):
    r"""Release the most frequent graph of blocks of records, or refuse, under :math:`(\epsilon, \delta)`.

    This is Section 6 of Zhang et al. 2020, for comparison: every block has the graph that `StableStructure` would
    test. A threshold ``"gap"`` is each block's own, at no cost.

    Parameters
    ----------
    blocks
        Number of blocks; by default so many that graphs that all agree are released with probability above 0.95.

    Examples
    --------
    >>> BlockStructure(epsilon=1.0, delta=1e-6, blocks=40).structure
    'tree'
    """

    blocks: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.blocks is not None:
            object.__setattr__(self, "blocks", whole_number("blocks", self.blocks, 1, _MOST_BLOCKS))

    @property
    def _chooses(self) -> bool:
        return False

    def _prepare(self, network: DiscreteMarkovNetwork | ModelSpecification) -> StructurePlan:
        plan = super()._prepare(network)
        if (blocks := self._number(plan)) > _MOST_BLOCKS:
            raise ArgumentError(
                f"`epsilon` must leave at most {_MOST_BLOCKS:,} blocks, got {self.epsilon!r}, which asks for "
                f"{blocks:,}; choose a larger budget or StableStructure."
            )
        return plan

    def _number(self, plan: StructurePlan) -> int:
        return self.blocks or enough_blocks(plan.law, plan.needed)

    def _read(self, plan: StructurePlan, data: Any, count: Hashable | None = None) -> Any:
        redirects = {"missing": plan.missing, "other": plan.other}
        return read_records(plan.specification.domain, data, count=count, **redirects)

    def _randomise(
        self, plan: StructurePlan, exact: Any, source: NoiseSource, stamp: Stamp
    ) -> ReleasedGraph:
        found = super()._randomise(plan, self._in_blocks(plan, exact, source), source, stamp)
        details = {**found.details, "blocks": self._number(plan)}
        return replace(found, details=details, is_threshold_chosen=self.threshold == "gap")

    def _in_blocks(
        self, plan: StructurePlan, exact: CodedRecords, source: NoiseSource
    ) -> ExactGraphs:
        def rule(codes: np.ndarray) -> Pairs:
            found = self._answers(plan, codes, np.ones(len(codes), dtype=np.int64), 1)
            if found.clearness is None:
                place = 0
            else:
                place = int(found.clearness.argmax())
            pairs, distance = found.graphs[place]
            # a tie, and no records, are no graph
            if distance and len(codes):
                return pairs
            return None

        coins = source.words(exact.sensitive_number)
        answers = answers_of_blocks(
            exact.sensitive_codes, exact.sensitive_counts, coins, self._number(plan), rule
        )
        return ExactGraphs(graphs=(most_frequent(answers),))
