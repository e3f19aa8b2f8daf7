"""Results survive `pickle` and joblib, in use as well as fresh: copies answer as the originals do."""

import io
import pickle
import subprocess
import sys
from contextlib import suppress

import joblib
import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import mechanisms
from bayesprivmrf.errors import NoIntervalError

pytestmark = pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.BayesPrivMRFWarning")
STATES = {"a": [0, 1], "b": [True, False], "c": ["x", "y"]}
CLIQUES = [("a", "b"), ("b", "c")]
SHORT = {"draws": 20, "tune": 20, "chains": 2, "progress_bar": False}


def records():
    rng = np.random.default_rng(0)
    return pd.DataFrame({name: rng.choice(states, 200) for name, states in STATES.items()})


def released(mechanism, cliques=None):
    return mechanism.release(bpm.declare(STATES, cliques), records(), rng=1)


def noisy():
    return released(mechanisms.LaplaceStatistics(epsilon=1.0), CLIQUES)


RESULTS = {
    "release": noisy,
    "naive mle": lambda: bpm.NaiveMLE().fit(noisy()),
    "noise-aware": lambda: bpm.NoiseAwareMAP().fit(noisy()),
    "cgm": lambda: bpm.CGM().fit(noisy()),
    "posterior": lambda: bpm.LatentCounts().fit(noisy(), rng=1, **SHORT),
    "rounds": lambda: released(mechanisms.SelectMeasure(rho=0.5)),
    "one choice": lambda: released(mechanisms.SelectMeasure(rho=0.5, degree=2)),
    "frank-wolfe": lambda: released(mechanisms.PrivateFrankWolfe(rho=0.5, width=3.0)),
    "regression": lambda: released(
        mechanisms.PrivateLogisticRegression(rho=0.5, radius=3.0, target="a")
    ),
    "structure": lambda: released(mechanisms.StableStructure(epsilon=1.0, delta=1e-6)),
    "parities": lambda: released(mechanisms.ParityQueries(rho=0.5, order=2)),
    "monomials": lambda: released(mechanisms.ParityQueries(rho=0.5, order=2)).fit(),
    "dpsgd": lambda: released(mechanisms.DPSGD(epsilon=1.0, delta=1e-6), CLIQUES),
}


def copies(value):
    """Yield a copy by pickle, and one by joblib."""
    yield pickle.loads(pickle.dumps(value))
    file = io.BytesIO()
    joblib.dump(value, file)
    file.seek(0)
    yield joblib.load(file)


def answers(result):
    """Return what a result answers without drawing random numbers of its own."""
    found = {
        "text": repr(result),
        "summary": repr(result.summary()) if hasattr(result, "summary") else None,
    }
    for pair in (["a", "b"], ["a", "c"]):
        if hasattr(result, "marginal"):
            found[f"marginal {pair}"] = result.marginal(pair)
        with suppress(AttributeError, NoIntervalError):  # a result without intervals
            found[f"interval {pair}"] = result.interval(pair)
    return found


@pytest.mark.parametrize("name", RESULTS)
def test_a_copy_answers_as_the_original_does_before_and_after_use(name):
    result = RESULTS[name]()
    fresh = list(copies(result))
    asked = answers(result)
    for copy in (*fresh, *copies(result)):
        again = answers(copy)
        assert again.keys() == asked.keys()
        for key, value in asked.items():
            assert value.equals(again[key]) if hasattr(value, "equals") else value == again[key], (
                key
            )
    for frame in asked.values():
        if isinstance(frame, pd.DataFrame):
            for copy in copies(frame):
                assert (repr(copy), copy.attrs, type(copy)) == (
                    repr(frame),
                    frame.attrs,
                    type(frame),
                )


def test_a_posterior_is_pickled_after_its_pymc_model_was_read():
    posterior = RESULTS["posterior"]()
    model = posterior.pymc_model
    assert posterior.pymc_model is model
    for copy in copies(posterior):
        assert copy.interval(["a", "c"]).equals(posterior.interval(["a", "c"]))
        assert set(copy.pymc_model.named_vars) == set(model.named_vars)


# a script whose function uses modules that were imported at its head; each function of a module of the same name
SCRIPT = """
from joblib.externals import loky

import bayesprivmrf as bpm
from bayesprivmrf import inference


def answer(states):
    domain = bpm.Domain.from_states({"a": states})
    status = inference.Status.CONVERGED
    return len(domain.states_of("a")), str(status)


if __name__ == "__main__":
    # joblib's own pool, of one worker, which alone takes seconds to start
    pool = loky.get_reusable_executor(max_workers=1)
    print([*pool.map(answer, [["x"], ["x", "y"]])])
"""


def test_functions_of_a_script_that_use_the_library_reach_the_workers(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    shown = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=False, timeout=300
    )
    assert shown.stderr == ""
    assert shown.stdout == "[(1, 'converged'), (2, 'converged')]\n"
