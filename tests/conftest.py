"""What every test needs: figures without a screen, one BLAS thread, engines compiled where they are first called."""

import os

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
# before NumPy loads: the workers of a run share the cores, and BLAS threads beyond them wait by spinning
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def no_engine_is_built_in_a_process_of_its_own():
    """The workers of a run compile all engines anyway; built beside them, they would be compiled twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bayesprivmrf.cli.compare.build_engines", lambda: None)
        yield
