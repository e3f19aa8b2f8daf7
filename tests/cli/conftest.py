"""Fixtures of the tests of the command line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from cli.toy import MODEL, RECORDS

from bayesprivmrf.mechanisms import (
    SelectMeasure,
)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Folder with a model and its records; the current one."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(5)
    a = generator.choice(["x", "y"], RECORDS)
    b = np.where(a == "x", generator.integers(0, 8, RECORDS), generator.integers(3, 11, RECORDS))
    c = generator.choice(["01", "02", "NA"], RECORDS)
    pd.DataFrame({"a": a, "b": b, "c": c}).to_csv("data.csv", index=False)
    (tmp_path / "model.toml").write_text(MODEL)
    return tmp_path


@pytest.fixture
def seeded(monkeypatch):
    """One seed for the noise of models learned on the command line, which seeds none: what is printed hangs on it."""
    release = SelectMeasure.release
    monkeypatch.setattr(
        SelectMeasure, "release", lambda *given, **named: release(*given, **named, rng=1)
    )
