"""Independence of posteriors from the clock: equal seeds give equal draws, and a limit in seconds only stops."""

import ast
from pathlib import Path

import numpy as np
import pytest
from inference.conftest import noisy_release, specification
from repeats import again

import bayesprivmrf
from bayesprivmrf.errors import SamplingWarning
from bayesprivmrf.inference import LatentCounts, Status
from bayesprivmrf.privacy import DiscreteLaplace

MODEL = specification({"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]}, [("a", "b"), ("b", "c")])
SLOW = {"draws": 100, "tune": 30, "chains": 2, "progress_bar": False}
CLOCKS = ("perf_counter", "monotonic", "process_time", "thread_time", "time", "time_ns")


def release():
    rng = np.random.default_rng(0)
    joint = rng.multinomial(150, rng.dirichlet(np.full(12, 0.5))).reshape(2, 3, 2)
    counts = np.concatenate([joint.sum(2).ravel(), joint.sum(0).ravel()])
    return noisy_release(MODEL, counts, DiscreteLaplace(3.0), rng)


def fitted(formulation, **limit):
    posterior = LatentCounts(formulation=formulation).fit(release(), rng=5, **SLOW, **limit)
    return posterior.status, posterior.stats["steps_between_draws"], posterior.tree["posterior"]


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
@pytest.mark.parametrize("formulation", ["exact", *again("hyper-dirichlet")])
def test_a_seed_gives_one_posterior_whatever_the_limit_that_does_not_stop_it(formulation):
    """Chains of so few draws go on, by themselves to as many steps as under any limit."""
    status, steps, draws = fitted(formulation)
    other_status, other_steps, other = fitted(formulation, time_limit=1e6)
    assert steps > 1
    assert (other_status, other_steps) == (status, steps)
    assert other.equals(draws)


@pytest.mark.parametrize("formulation", ["exact", "hyper-dirichlet"])
def test_a_limit_in_seconds_stops_at_a_length_that_is_complete_and_says_so(formulation):
    with pytest.warns(SamplingWarning, match="raise `"):
        status, steps, draws = fitted(formulation, time_limit=1e-9)
    with pytest.warns(SamplingWarning):
        _, _, again = fitted(formulation, time_limit=1e-6)
    assert status is Status.ITERATION_LIMIT
    assert steps == 1
    assert again.equals(draws)


def test_the_samplers_read_one_clock():
    """Only the module `sampled` reads the time: it stops the samplers and reports their seconds."""
    folder = Path(bayesprivmrf.__file__).parent / "inference" / "posterior"
    readers = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            reads = isinstance(node, ast.Attribute) and node.attr in CLOCKS
            if "time" in names or (
                reads and isinstance(node.value, ast.Name) and node.value.id == "time"
            ):
                readers.add(path.name)
    assert readers == {"formulation.py"}
