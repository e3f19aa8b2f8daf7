"""What fixed seeds give, of every mechanism, estimator and sampler, before and after a change.

Where a change is meant, ``uv run python tests/golden/make_draws.py`` writes the numbers anew, and their difference
goes into the same commit.
"""

import json
import math
import warnings

import pytest
from golden.make_draws import EXPECTED, GROUPS, SLOW
from golden.noted import as_written, differences, machine

KEPT = json.loads(EXPECTED.read_text(encoding="utf-8"))


def made(group):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few records are drowned in the noise
        return as_written(group())


@pytest.mark.parametrize(
    "name",
    [
        *GROUPS,
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("graphs with loops", "graphs of threes", "searches")
        ),
    ],
)
def test_a_seed_gives_what_it_gave(name):
    found = list(differences(KEPT["found"][name], made((GROUPS | SLOW)[name])))
    if found:
        more = f"\n... and {len(found) - 20} more" if len(found) > 20 else ""
        pytest.fail("\n".join(found[:20]) + more, pytrace=False)


@pytest.mark.slow
def test_a_seed_of_the_posterior_gives_what_it_gave():
    (now,) = made(SLOW["posterior"]).values()
    (kept,) = KEPT["found"]["posterior"].values()
    # 120 draws: the posterior sd of a marginal is about 0.02, so that the means of two runs differ by a standard
    # error of 0.006 where only 20 draws count; the level is far below 1e-4 at eight of them
    assert now["marginals"] == pytest.approx(kept["marginals"], abs=0.05)
    # a chain magnifies the last digit of a number: draws are the same where nothing that it depends on differs
    if machine() == KEPT["made on"]:
        assert list(differences(kept, now)) == []


def test_a_difference_is_seen_in_every_sort_of_result():
    kept = {"a": 1, "b": [0.5, math.nan], "c": "text", "d": None}
    assert not list(differences(kept, {**kept, "b": [0.5 + 1e-9, math.nan]}))
    changed = {"a": 2, "b": [0.5 + 1e-4, 0.0], "c": "other", "e": None}
    assert [each.partition(":")[0] for each in differences(kept, changed)] == [
        "a",
        "b[0]",
        "b[1]",
        "c",
        "d",
        "e",
    ]
