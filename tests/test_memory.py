"""A process that fits many models keeps the memory of the last ones only."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.marginals import forecast, marginal_engine
from bayesprivmrf.mechanisms import LaplaceStatistics

pytestmark = pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")


@pytest.mark.slow
def test_engines_that_wait_for_their_next_use_share_a_bound_on_their_memory():
    models = [([2] * 18 + [2 + extra], [tuple(range(18)), (0, 18)]) for extra in range(20)]
    made = [weakref.ref(marginal_engine(*model)) for model in models]
    gc.collect()
    is_kept = [ref() is not None for ref in made]
    assert is_kept[-1]
    sizes = [forecast(*model).memory_bytes for model in models]
    assert sum(size for size, kept in zip(sizes, is_kept, strict=True) if kept) <= 2**28
    assert sum(sizes) > 2**28
    # one engine that is larger than the bound is kept while it is used, and small ones while they are few
    large = ([2] * 22, [tuple(range(22))])
    assert forecast(*large).memory_bytes > 2**28
    assert marginal_engine(*large) is marginal_engine(*large)
    small = [([2, 2 + extra], [(0, 1)]) for extra in range(8)]
    engines = [marginal_engine(*model) for model in small]
    assert all(
        marginal_engine(*model) is engine for model, engine in zip(small, engines, strict=True)
    )


def fitted(states):
    model = bpm.declare({"a": list(range(states)), "b": ["x", "y"]}, [("a", "b")])
    data = pd.DataFrame({"a": np.arange(60) % states, "b": ["x", "y", "x"] * 20})
    release = LaplaceStatistics(epsilon=1.0).release(model, data, rng=1)
    settings = {"draws": 20, "tune": 20, "chains": 2, "progress_bar": False}
    return bpm.LatentCounts(formulation="hyper-dirichlet").fit(release, rng=1, **settings)


def parts_after_use(states, *names):
    """Return weak references to a posterior that was used, and to some of its attributes."""
    posterior = fitted(states)
    posterior.interval(["a", "b"])
    return [weakref.ref(posterior), *(weakref.ref(getattr(posterior, name)) for name in names)]


def test_nothing_keeps_a_posterior_or_its_draws():
    kept = parts_after_use(2, "tree", "solution", "marginals") + parts_after_use(3, "tree")
    gc.collect()
    assert [ref() for ref in kept] == [None] * len(kept)


@pytest.mark.slow  # imports PyMC
def test_nothing_keeps_a_pymc_model_that_was_read():
    kept = parts_after_use(2, "pymc_model")
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


MANY_FITS = """
import gc, sys, warnings
import numpy as np, pandas as pd, bayesprivmrf as bpm
from bayesprivmrf.mechanisms import LaplaceStatistics

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))

for fit in range(8):
    states = {f"v{j}": list(range(count)) for j, count in enumerate(rng.integers(2, 6, 6))}
    names = list(states)
    data = pd.DataFrame({name: rng.choice(labels, 500) for name, labels in states.items()})
    model = bpm.declare(states, [*zip(names, names[1:])])
    release = LaplaceStatistics(epsilon=3.0).release(model, data, rng=fit)
    bpm.LatentCounts().fit(release, rng=fit, draws=500, tune=200, progress_bar=False).interval(names[:2])
    gc.collect()
    print(resident())
"""


@pytest.mark.slow  # a dozen posteriors
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_dozen_posteriors_take_the_memory_of_a_few():
    found = subprocess.run(
        [sys.executable, "-c", MANY_FITS], capture_output=True, text=True, check=True
    )
    resident = [float(line) for line in found.stdout.split()]
    # MiB; without returning freed memory each of these fits adds about ten
    assert resident[-1] - resident[3] < 30
