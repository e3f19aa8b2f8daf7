"""Engines that the default environment lacks: tests run with ``uv run --group engines pytest tests/engines``."""

from __future__ import annotations

import os
import shutil

import pytest

# a script; its package, which pins other versions, is not in these environments
collect_ignore = ["ons_cell_keys.py"]


@pytest.fixture(scope="session")
def spark():
    """A local Spark of one core."""
    sql = pytest.importorskip(
        "pyspark.sql", reason="PySpark is not installed; use `--group engines`"
    )
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("PySpark needs Java, and there is none")
    builder = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(params=["spark", "ibis", "duckdb"])
def engine(request):
    """Return a function that passes a pandas frame to the engine."""
    if request.param == "spark":
        return request.getfixturevalue("spark").createDataFrame
    if request.param == "ibis":
        return pytest.importorskip(
            "ibis", reason="Ibis is not installed; use `--group engines`"
        ).memtable
    import duckdb

    return duckdb.from_df
