"""What every test needs: figures without a screen, one BLAS thread, engines compiled where they are first called."""

import gc
import os

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
# before NumPy loads: the workers of a run share the cores, and BLAS threads beyond them wait by spinning
os.environ.setdefault("OMP_NUM_THREADS", "1")
# before PyTensor loads: what tests evaluate a few times is not worth a compiler of C
os.environ.setdefault("PYTENSOR_FLAGS", "cxx=")


def pytest_configure(config):
    """Build the engines before the workers of a whole run start, since each of them would compile all of them.

    A run that only lists the tests calls no engine, and builds none.
    """
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if is_whole and not config.option.collectonly and "PYTEST_XDIST_WORKER" not in os.environ:
        from built_engines import build

        build()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the garbage collector from modules and items, which all stay: it takes a sixth of this time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def install(tmp_path_factory, monkeypatch):
    """Install classes as another package would: call it with an entry-point group, and the classes by name.

    The classes replace those that an earlier call installed in this group.
    """
    from bayesprivmrf import kinds

    folder = tmp_path_factory.mktemp("site")
    info = folder / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(folder)
    groups: dict[str, dict[str, type]] = {}

    def installed(group, classes):
        groups[group] = classes
        lines = []
        for each, own in groups.items():
            lines.append(f"[{each}]")
            lines += [
                f"{name} = {kind.__module__}:{kind.__qualname__}" for name, kind in own.items()
            ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        kinds.installed.cache_clear()

    yield installed
    (info / "entry_points.txt").unlink(missing_ok=True)
    kinds.installed.cache_clear()
