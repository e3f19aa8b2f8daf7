"""What every fitter, posterior and interval gives on small releases of every kind, before and after a change.

Where a change is meant, ``uv run python tests/golden/make_results.py`` writes the numbers anew, and their difference
goes into the same commit.
"""

import json
import warnings

import pytest
from golden.make_results import EXPECTED, GROUPS, SLOW
from golden.noted import as_written, differences, machine

KEPT = json.loads(EXPECTED.read_text(encoding="utf-8"))


def kept_of(name):
    """The stored results of a group, or of the cases of another group that it repeats."""
    whole, _, part = name.partition(", ")
    return KEPT["found"][whole if part else name]


def without_draws(results):
    """Results in which a posterior over relaxed counts is its density alone."""
    return {
        case: {part: each[part] for part in ("parameters", "log density", "gradient")}
        if isinstance(each, dict) and "log density" in each
        else each
        for case, each in results.items()
    }


def compare(name, group):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains
        now = as_written(group())
    kept = kept_of(name)
    if name.endswith(", a few"):
        kept = {case: kept[case] for case in now}
    if machine() != KEPT["made on"]:
        # a chain of NUTS magnifies the last digit of a number: elsewhere its density alone is compared
        kept, now = without_draws(kept), without_draws(now)
    found = list(differences(kept, now))
    if found:
        more = f"\n... and {len(found) - 20} more" if len(found) > 20 else ""
        pytest.fail("\n".join(found[:20]) + more, pytrace=False)


@pytest.mark.parametrize("name", GROUPS)
def test_a_small_release_gives_what_it_gave(name):
    compare(name, GROUPS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_every_small_release_gives_what_it_gave_with_relaxed_counts(name):
    compare(name, SLOW[name])
