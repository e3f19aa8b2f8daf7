"""Graphs that most blocks of records agree on: the distance over all changes of a block, and what comes out."""

from __future__ import annotations

import math
from itertools import chain, product

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.mechanisms import StableStructure
from bayesprivmrf.mechanisms.structure import release_threshold
from bayesprivmrf.noise import DiscreteLaplace
from benchmarks.papers.block_structure import (
    BlockStructure,
    answers_of_blocks,
    enough_blocks,
    most_frequent,
)

SIZE = 36 * 600
ANSWERS = (None, (), ((0, 2),))


def changed(answers):
    """All lists that differ in one block's answer."""
    for place, other in product(range(len(answers)), ANSWERS):
        if answers[place] != other:
            yield (*answers[:place], other, *answers[place + 1 :])


@pytest.mark.parametrize("blocks", [1, 2, 5, 6])
def test_one_block_moves_the_distance_by_one_and_changes_the_answer_only_at_one(blocks):
    turned = 0
    for answers in product(ANSWERS, repeat=blocks):
        best, distance = most_frequent(answers)
        for others in changed(answers):
            best_, distance_ = most_frequent(others)
            assert abs(distance - distance_) <= 1
            if best != best_:
                turned += 1
                assert max(distance, distance_) <= 1
    assert turned


def excess(law, needed, epsilon, ahead):
    """Largest P(S) - exp(epsilon) P'(S) over events S and lists of six answers that differ in one."""
    reach = np.arange(-60, 61)
    weights = np.exp(law.log_density(reach))

    def law_of(answers):
        pairs, _ = most_frequent(answers)
        counts = sorted((answers.count(one) for one in ANSWERS), reverse=True)
        noisy = ahead(counts[0] - counts[1]) - 1 + reach
        return {
            (z, pairs if z >= needed else None): w
            for z, w in zip(noisy.tolist(), weights, strict=True)
        }

    worst = -1.0
    for answers in product(ANSWERS, repeat=5):
        own = law_of(answers)
        for others in changed(answers):
            theirs = law_of(others)
            worst = max(
                worst,
                sum(max(p - math.exp(epsilon) * theirs.get(out, 0.0), 0) for out, p in own.items()),
            )
    return worst


def test_what_comes_out_keeps_the_promise_and_a_distance_that_is_not_halved_breaks_it():
    law, epsilon, delta = DiscreteLaplace(2.0), 0.5, 0.1
    needed = release_threshold(law, delta)
    assert excess(law, needed, epsilon, lambda gap: -(-gap // 2)) <= delta
    assert excess(law, needed, epsilon, lambda gap: gap) > delta
    assert excess(law, needed, epsilon, lambda gap: gap // 2 + 1) > delta


def test_a_record_changes_one_block_by_coins_of_its_own_and_many_by_position():
    rng = np.random.default_rng(1)
    codes, counts = np.arange(12).reshape(6, 2), np.array([3, 1, 4, 1, 5, 2])
    coins = rng.integers(0, 2**63, 16, dtype=np.uint64)

    def blocks(codes, counts, coins):
        found: list[list[int]] = []
        answers_of_blocks(
            codes, counts, coins, 4, lambda part: found.append(sorted(part[:, 0].tolist())) or ()
        )
        return found

    whole = blocks(codes, counts, coins)
    assert sorted(chain.from_iterable(whole)) == np.repeat(codes[:, 0], counts).tolist()
    fewer = counts - np.array([1, 0, 0, 0, 0, 0])
    assert sum(a != b for a, b in zip(whole, blocks(codes, fewer, coins[1:]), strict=True)) == 1
    position = np.arange(16)
    shifted = zip(blocks(codes, counts, position), blocks(codes, fewer, position[:15]), strict=True)
    assert sum(a != b for a, b in shifted) > 1


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_blocks_that_all_agree_are_enough(epsilon):
    law = DiscreteLaplace(1 / epsilon)
    needed = release_threshold(law, 1e-6)
    blocks = enough_blocks(law, needed)
    tail = np.arange(needed + 1 - blocks // 2, needed + 1000)
    assert np.exp(law.log_density(tail)).sum() > 0.95
    assert epsilon != 1.0 or blocks == 36


@pytest.mark.parametrize("structure", ["tree", "graph"])
def test_a_chain_is_recovered_from_blocks(structure):
    rng = np.random.default_rng(2)
    columns = [rng.integers(0, 2, SIZE)]
    for _ in range(3):
        columns.append(np.where(rng.random(SIZE) < 0.8, columns[-1], 1 - columns[-1]))
    data = pd.DataFrame(np.column_stack(columns), columns=list("abcd"))
    model = bpm.declare(states={name: [0, 1] for name in data})
    mechanism = BlockStructure(epsilon=1.0, delta=1e-6, structure=structure)
    graph = mechanism.release(model, data, rng=1)
    assert graph.edges == (("a", "b"), ("b", "c"), ("c", "d"))
    assert graph.details["blocks"] == 36
    refused = BlockStructure(epsilon=1.0, delta=1e-6).release(model, data[:0], rng=1)
    assert refused.is_refusal


def test_blocks_are_refused_where_there_are_none():
    for setting in ({"blocks": 34}, {"certificate": "blocks"}):
        with pytest.raises(ArgumentError, match=r"anymore: .*BlockStructure"):
            StableStructure(epsilon=1.0, delta=1e-6, **setting)
    with pytest.raises(ArgumentError, match="`blocks` must be a whole number"):
        BlockStructure(epsilon=1.0, delta=1e-6, blocks=0)
    with pytest.raises(ArgumentError, match="`epsilon` must leave at most 10,000 blocks"):
        BlockStructure(epsilon=1e-6, delta=1e-6).promise(bpm.declare({"a": [0, 1], "b": [0, 1]}))
