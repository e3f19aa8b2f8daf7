"""What every test needs: figures without a screen, one BLAS thread, engines compiled where they are first called."""

import os

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
# before NumPy loads: the workers of a run share the cores, and BLAS threads beyond them wait by spinning
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config):
    """Build the engines before the workers of a whole run start, since each of them would compile all of them.

    A run that only lists the tests calls no engine, and builds none.
    """
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if is_whole and not config.option.collectonly and "PYTEST_XDIST_WORKER" not in os.environ:
        from built_engines import build

        from bayesprivmrf.cli.engines import build_engines

        build_engines()
        build()


@pytest.fixture(scope="session", autouse=True)
def no_engine_is_built_in_a_process_of_its_own():
    """All are built when a run begins, or compiled where they are first called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bayesprivmrf.cli.compare.build_engines", lambda *_: None)
        yield
