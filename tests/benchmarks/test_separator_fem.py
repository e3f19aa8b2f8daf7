"""SepFEM, the rival of benchmarks/parities.py: its oracles find the best record, and it comes near."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from learning.test_parities_private import source, triple_sums

from bayesprivmrf.model import FloatArray, Monomials

_PATH = Path(__file__).parents[2] / "benchmarks" / "separator_fem.py"
_SPEC = importlib.util.spec_from_file_location("separator_fem", _PATH)
separator_fem = importlib.util.module_from_spec(_SPEC)
sys.modules["separator_fem"] = separator_fem  # a dataclass looks its module up
_SPEC.loader.exec_module(separator_fem)
SeparatorFEM = separator_fem.SeparatorFEM
best_by_enumeration, best_by_program = (
    separator_fem.best_by_enumeration,
    separator_fem.best_by_program,
)


def records(p: int) -> np.ndarray:
    return np.array(list(itertools.product((-1, 1), repeat=p)), dtype=np.int8)


def value(weights: FloatArray, family: Monomials, eta: FloatArray, record: np.ndarray) -> float:
    parities = [float(np.prod(record[list(members)].astype(float))) for members in family]
    return float(weights @ parities + eta @ record)


@pytest.mark.parametrize(("p", "order", "chosen"), [(1, 1, 2), (4, 4, 6), (6, 3, 9)])
def test_both_oracles_find_the_best_record(p, order, chosen):
    family, rng = Monomials.complete(p, order), np.random.default_rng(4)
    for _ in range(3):
        weights = np.zeros(len(family))
        for place in rng.integers(1, len(family), chosen):
            weights[place] += rng.choice([-1.0, 1.0])
        eta = 2 * rng.normal(size=(2, p))
        best = [max(value(weights, family, each, row) for row in records(p)) for each in eta]
        enumerated = best_by_enumeration(weights, family, eta)
        for row, each, largest in zip(enumerated, eta, best, strict=True):
            assert value(weights, family, each, row) == pytest.approx(largest, abs=1e-9)
            by_program = best_by_program(weights, family, each)
            assert value(weights, family, each, by_program) == pytest.approx(largest, abs=1e-6)


def test_synthetic_records_come_near_the_expectations_whichever_exact_oracle_makes_them():
    family, sums, means = triple_sums(5_000)
    settings = SeparatorFEM(rounds=24, choice_scale=20.0, samples=200)
    found = settings.expectations(sums, family, 5_000.0, source(5))
    assert found[0] == 1.0
    assert np.abs(found - means).max() < 0.25
    assert np.abs(means).max() > 0.5
    few = [
        SeparatorFEM(rounds=5, choice_scale=20.0, samples=4, oracle=oracle).expectations(
            sums, family, 5_000.0, source(6)
        )
        for oracle in ("enumeration", "program")
    ]
    assert few[0].tolist() == few[1].tolist()
