"""Whatever a release needs after its charge is tried before it."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import DataError
from bayesprivmrf.marginals import exact
from bayesprivmrf.mechanisms import (
    DPSGD,
    PrivateFrankWolfe,
    PrivateLogisticRegression,
    SelectMeasure,
)

# releases in one process, with the modules that were imported after the charge of each
PROGRAM = """
import os, sys, warnings
from itertools import pairwise
from pathlib import Path

warnings.simplefilter("ignore")
import bayesprivmrf as bpm
import numpy as np, pandas as pd
from bayesprivmrf.mechanisms import *
from bayesprivmrf.network import IsingNetwork

def made():
    # modules, and files of compiled code if the cache is new
    folder = os.environ.get("NUMBA_CACHE_DIR", "")
    files = Path(folder).rglob("*.nb?") if folder else ()
    return set(sys.modules) | {path.name for path in files}

class Account:
    def spend(self, guarantee, provenance):
        self.loaded = made()

names = [f"v{i}" for i in range(4)]
data = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (300, 4)), columns=names)
states = dict.fromkeys(names, [0, 1])
free, chain = bpm.declare(states), bpm.declare(states, [*pairwise(names)])
ring = IsingNetwork.from_graph([(i, (i + 1) % 60) for i in range(60)])
outcomes = np.random.default_rng(0).choice([-1, 1], 60)
for mechanism, model, given in [
    (LaplaceStatistics(epsilon=1.0), chain, data),
    (GaussianStatistics(rho=1.0), chain, data),
    (ObjectivePerturbation(epsilon=2.0), ring, outcomes),
    (StableStructure(epsilon=2.0, delta=1e-5), free, data),
    (ParityQueries(rho=1.0, order=2), free, data),
    (ParityQueries(rho=1.0, order=2, method="pmw"), free, data),
    (PrivateLogisticRegression(rho=1.0, radius=2.0, target="v0"), free, data),
    (PrivateFrankWolfe(rho=1.0, width=2.0), free, data),
    (PrivateFrankWolfe(rho=1.0, width=2.0, order=3), free, data),
    (DPSGD(epsilon=1.0, delta=1e-5, steps=5), chain, data),
    (SelectMeasure(rho=1.0, degree=2), free, data),
    (SelectMeasure(rho=1.0), free, data),
]:
    account = Account()
    mechanism.release(model, given, ledger=account)
    print(type(mechanism).__name__, *sorted(made() - account.loaded))
"""
MECHANISMS = """LaplaceStatistics GaussianStatistics ObjectivePerturbation StableStructure ParityQueries ParityQueries
PrivateLogisticRegression PrivateFrankWolfe PrivateFrankWolfe DPSGD SelectMeasure SelectMeasure"""


def test_releases_import_nothing_after_the_charge_and_ignore_a_disabled_compiler():
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == MECHANISMS.split()


@pytest.mark.slow
def test_releases_compile_nothing_after_the_charge(tmp_path):
    new_cache = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=new_cache, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == MECHANISMS.split()
    assert [*tmp_path.rglob("*.nbi")]


def test_a_disabled_compiler_is_named_once():
    run = [sys.executable, "-c", "import bayesprivmrf, numba; print(numba.config.DISABLE_JIT)"]
    for disabled, said in (("1", True), ("0", False)):
        given = os.environ | {"NUMBA_DISABLE_JIT": disabled}
        found = subprocess.run(run, env=given, capture_output=True, text=True, check=True)
        assert found.stdout == "0\n"
        assert ("NUMBA_DISABLE_JIT is ignored" in found.stderr) is said


@pytest.mark.parametrize(
    ("mechanism", "cliques"),
    [
        (SelectMeasure(rho=1.0), None),
        (SelectMeasure(rho=1.0, degree=1), None),
        (PrivateFrankWolfe(rho=1.0, width=2.0), None),
        (PrivateLogisticRegression(rho=1.0, radius=2.0, target="a"), None),
        (DPSGD(epsilon=1.0, delta=1e-5), [("a", "b")]),
    ],
    ids=["rounds", "one choice", "frank-wolfe", "regression", "dpsgd"],
)
def test_an_engine_that_fails_is_found_before_anything_is_read_or_charged(
    monkeypatch, mechanism, cliques
):
    class Account:
        charges = 0

        def spend(self, *_):
            self.charges += 1

    def broken(*_):
        raise OSError("the compiled code cannot be loaded")

    monkeypatch.setattr(exact, "build", broken)
    account, data = Account(), pd.DataFrame({"a": np.arange(40) % 2, "b": np.arange(40) % 3 % 2})
    with pytest.raises((OSError, DataError)):
        mechanism.release(bpm.declare({"a": [0, 1], "b": [0, 1]}, cliques), data, ledger=account)
    assert account.charges == 0
