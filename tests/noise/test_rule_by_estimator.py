"""Every estimator on numbers of every rule: it fits, or refuses, as docs/explanation/given-tables.md says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import noise
from bayesprivmrf.errors import ArgumentError

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "given-tables.md"
SECTION = (
    PAGE.read_text(encoding="utf-8")
    .partition("## Which estimator reads which rule")[2]
    .partition("\n## ")[0]
)
HEAD, _, *ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in SECTION.splitlines()
    if line.startswith("|")
]
NOTES = dict(re.findall(r"^(\d)\. (.*)", SECTION, re.MULTILINE))
MARKS = {"¹": "1", "²": "2"}

COUNTS = np.array([[2, 14, 60], [31, 3, 9]])
TOTAL = int(COUNTS.sum())
PUBLIC = {name: getattr(noise, name) for name in noise.__all__}
NETWORK = bpm.declare({"a": [0, 1], "b": [0, 1, 2]}, [("a", "b")])
# changes of one record up or down, with probability 1/2 each
PTABLE = pd.DataFrame(
    [(count, key, change) for count in (1, 2, 3) for key, change in ((0, -1), (1, 1))],
    columns=["pcv", "ckey", "pvalue"],
)
# the cell that is suppressed to protect the one of 2 records
SECOND = (0, 1)


def rule_of(row: str) -> noise.Likelihood:
    """Return the rule that the first cell of a row writes."""
    (code,) = re.findall("`(.*)`", row)
    return eval(code, PUBLIC | {"ptable": PTABLE, "total": TOTAL})


def published(row: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the table, and the rule of each."""
    rule = rule_of(row)
    rules = np.full(COUNTS.shape, rule, dtype=object)
    if "protect" in row:
        hidden = noise.Suppressed(1, 5)
        is_small = (COUNTS >= 1) & (COUNTS < 5)
        rules[...] = noise.NoNoise()
        rules[is_small] = hidden
        rules[SECOND] = rule
        is_small[SECOND] = True
        return np.where(is_small, -1, COUNTS), rules
    if isinstance(rule, noise.Within):
        return COUNTS + 1, rules
    return rule.draw_given(COUNTS, np.random.default_rng(0)), rules


def limits(number: float, rule: noise.Likelihood) -> tuple[float, float]:
    """Return the smallest and the largest count that a published number allows."""
    if rule.is_exact:
        return number, number
    if isinstance(rule, noise.Within):
        return number - rule.half_width, number + rule.half_width
    if rule.is_additive:
        return 0, np.inf
    first, last = rule.allowed(np.array([number]))
    return first[0], last[0]


def fitted(column: str, release: bpm.NoisyStatistics):
    """Return the fit of the estimator that the head of a column names."""
    if column == "`LatentCounts()`":
        # twenty draws do not mix, and show that the counts are allowed ones
        estimator = bpm.LatentCounts(formulation="exact")
        return estimator.fit(release, rng=1, draws=20, tune=20, chains=1)
    return getattr(bpm, column.strip("`()"))().fit(release)


def test_the_table_has_every_rule_and_a_note_for_each_refusal():
    rules = {type(rule_of(row)) for row, *_ in ROWS}
    published_rules = {
        each
        for each in PUBLIC.values()
        if isinstance(each, type)
        and issubclass(each, noise.Likelihood)
        and not issubclass(each, noise.NoiseDistribution)
    } - {noise.Likelihood}
    assert published_rules <= rules
    cells = [cell for _, *cells in ROWS for cell in cells]
    words = {"number", "middle", "density", "probability", "noise", "constraint", "refuses"}
    assert {cell.partition(" ")[0] for cell in cells} <= words
    assert {MARKS[cell[-1]] for cell in cells if cell.startswith("refuses")} == set(NOTES)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_an_estimator_fits_within_what_a_number_allows_or_refuses(row):
    numbers, rules = published(row[0])
    release = bpm.NoisyStatistics.from_tables(
        NETWORK, {("a", "b"): numbers}, noise={("a", "b"): rules}, total=TOTAL
    )
    ends = [limits(*each) for each in zip(numbers.ravel(), rules.ravel(), strict=True)]
    for column, cell in zip(HEAD[1:], row[1:], strict=True):
        word, _, mark = cell.partition(" ")
        if word == "refuses":
            (quoted,) = re.findall('"([^"]+)"', NOTES[MARKS[mark]])
            with pytest.raises(ArgumentError, match=re.escape(quoted)):
                fitted(column, release)
            continue
        if word in ("number", "middle"):
            rule = rules[SECOND]
            number = numbers[SECOND]
            wanted = number if word == "number" else np.mean(limits(number, rule))
            if not (isinstance(rule, noise.Suppressed) and number >= 0):
                assert rule.estimate(np.array([number]))[0] == pytest.approx(wanted)
        fit = fitted(column, release)
        shares = np.ravel(fit.marginal(["a", "b"]))
        assert shares.sum() == pytest.approx(1)
        assert shares.argmax() == COUNTS.argmax()
        if column in ("`NaiveMLE()`", "`CGM()`"):
            continue
        frame = fit.interval(["a", "b"], of="records")
        for lower, upper, (first, last) in zip(frame.lower, frame.upper, ends, strict=True):
            assert lower <= upper
            # what is certain is never excluded, and nothing that is impossible is said by draws of counts
            assert lower <= last
            assert upper >= first
            if column == "`LatentCounts()`" or first == last:
                assert first <= lower <= upper <= last


def test_counts_are_no_larger_than_a_public_number_of_records_leaves_room_for():
    """The smallest counts of all other cells and the total bound each cell; the last range alone ends at 200."""
    ranges = noise.Coarsened([(0, 0), (1, 9), (10, 200)])
    counts = np.array([[40, 25], [12, 1], [14, 27]])
    total = int(counts.sum())
    network = bpm.declare(states={"a": list("xyz"), "b": list("uv")}, cliques=[("a", "b")])
    release = bpm.NoisyStatistics.from_tables(
        network, {("a", "b"): ranges.publish(counts)}, noise=ranges, total=total
    )
    found = bpm.NoiseAwareMAP().fit(release).interval(["a", "b"], of="records")
    least = np.where(counts < 10, 1, 10).ravel()
    most = np.minimum(np.where(counts < 10, 9, 200).ravel(), total - least.sum() + least)
    assert (least <= found["lower"]).all()
    assert (found["lower"] < found["upper"]).all()
    assert (found["upper"] <= most + 1e-9).all()
    assert (found["estimate"] <= most + 1e-9).all()
