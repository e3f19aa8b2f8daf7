"""A bad call ends in an error of the library, or is accepted: never in a raw failure, and nothing is spent."""

from __future__ import annotations

import warnings

import matplotlib.pyplot as plt
import pytest

from bayesprivmrf.errors import BayesPrivMRFError
from bayesprivmrf.mechanisms import base
from bayesprivmrf.noise.secure import noise_source

from .calls import bad_calls


class Watched:
    """A source of noise that counts how often it is asked."""

    drawn = 0

    def __init__(self, rng):
        self._source = noise_source(rng)

    def __getattr__(self, name):
        Watched.drawn += name != "is_simulated"
        return getattr(self._source, name)


def failures(count, seed):
    """Return what is wrong with each of the calls that fail, and how many were refused and accepted."""
    wrong, refused, accepted = [], 0, 0
    for call in bad_calls(count, seed):
        Watched.drawn = 0
        try:
            call.run()
            accepted += 1
        except BayesPrivMRFError:
            refused += 1
            if Watched.drawn or (call.ledger is not None and call.ledger.spent):
                wrong.append(f"{call.text}: refused after noise was drawn or the ledger charged")
        except Exception as error:
            wrong.append(f"{call.text}: {type(error).__name__}: {error}"[:300])
    return wrong, refused, accepted


@pytest.mark.parametrize(
    ("count", "seed"), [(300, 1), pytest.param(5000, 2, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_no_bad_call_fails_raw_or_spends(count, seed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "noise_source", Watched)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong, refused, accepted = failures(count, seed)
    plt.close("all")
    assert wrong == [], "\n".join([f"{len(wrong)} of {count}:", *wrong[:20]])
    assert refused > accepted > 0
