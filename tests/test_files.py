"""Files are replaced whole: a full disk, a limit, a device or a kill leaves the file that was there."""

import os
import shutil
import stat
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.cli import main
from bayesprivmrf.errors import ArgumentError, ReleaseFileError
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.network import EstimateLaw

pytestmark = pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits and devices")


def release(seed):
    model = bpm.declare({"a": [0, 1], "b": ["x", "y"]}, [("a", "b")])
    data = pd.DataFrame({"a": [0, 1, 1, 0] * 20, "b": ["x", "y", "x", "x"] * 20})
    return LaplaceStatistics(epsilon=1.0).release(model, data, rng=seed)


def posterior(seed):
    return bpm.LatentCounts().fit(
        release(seed), rng=seed, draws=60, tune=20, chains=2, progress_bar=False
    )


def law(seed):
    estimates = np.random.default_rng(seed).normal(
        size=(2, 20_000, 1)
    )  # no compression makes these small
    return EstimateLaw(
        betas=np.array([0.0, 1.0]),
        estimates=estimates,
        rhat=np.ones(2),
        ends=(-np.inf, np.inf),
        spacing=1.0,
        fingerprint="0" * 64,
    )


MAKERS = {"posterior": posterior, "release": release, "law": law}
LOADERS = {"posterior": bpm.load_posterior, "release": bpm.load_release, "law": EstimateLaw.load}


@pytest.fixture(scope="module")
def results():
    """One result of each kind."""
    return {kind: make(1) for kind, make in MAKERS.items()}


def save(result, path):
    result.save(path, **{"overwrite": True} if isinstance(result, bpm.NoisyStatistics) else {})


def refused_everywhere(results, folder, reason, remedy):
    """Assert that no result replaces its file, that the message has a remedy, and that no file is left behind."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for kind, one in results.items():
        for name in (kind, "new"):
            with pytest.raises((ArgumentError, ReleaseFileError)) as caught:
                save(one, folder / name)
            assert reason in str(caught.value)
            assert remedy in str(caught.value)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@contextmanager
def largest_file(size):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@posix
def test_under_a_limit_of_file_sizes_every_old_file_is_kept(results, tmp_path):
    for kind, one in results.items():
        save(one, tmp_path / kind)
    with largest_file(300):
        refused_everywhere(results, tmp_path, "File too large", "ulimit -f")
    for kind, load in LOADERS.items():
        load(tmp_path / kind)


@posix
def test_every_place_at_which_a_posteriors_file_may_end_is_survived(results, tmp_path):
    posterior, path = results["posterior"], tmp_path / "kept.nc"
    posterior.save(path)
    whole = path.read_bytes()
    for size in (len(whole) // 2, len(whole) - 1):
        with largest_file(int(size)), pytest.raises(ArgumentError, match="File too large"):
            posterior.save(path)
    assert path.read_bytes() == whole
    assert os.listdir(tmp_path) == ["kept.nc"]


@contextmanager
def small_disk(folder, size):
    """Mount a file system of some bytes on a folder."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this user cannot mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
@pytest.mark.slow
def test_on_a_full_and_on_a_read_only_disk_every_old_file_is_kept(results, tmp_path):
    with small_disk(tmp_path, 2**20):
        for kind, one in results.items():
            save(one, tmp_path / kind)
        with suppress(OSError), (tmp_path / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(2**12)):
                pass
        refused_everywhere(results, tmp_path, "No space left on device", "free some disk space")
        subprocess.run(["mount", "-o", "remount,ro", tmp_path], check=True)
        refused_everywhere(results, tmp_path, "Read-only file system", "folder that you can write")
        for kind, load in LOADERS.items():
            load(tmp_path / kind)


@posix
@pytest.mark.parametrize("kind", ["posterior", "law"])
def test_a_device_a_pipe_or_a_folder_is_refused_and_kept(results, tmp_path, kind):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with suppress(
        PermissionError
    ):  # only a superuser makes devices, and a test must not risk those of the system
        os.mknod(tmp_path / "full", stat.S_IFCHR | 0o666, os.makedev(1, 7))
    before = {path.name: path.stat().st_mode for path in tmp_path.iterdir()}
    for name in before:
        with pytest.raises(ArgumentError, match="`path` must be a regular file or a new one"):
            results[kind].save(tmp_path / name)
    assert {path.name: path.stat().st_mode for path in tmp_path.iterdir()} == before


@posix
def test_a_posteriors_link_is_followed_and_an_old_file_keeps_its_permissions(results, tmp_path):
    home, link = tmp_path / "home", tmp_path / "link"
    home.write_text("old")
    home.chmod(0o640)
    link.symlink_to(home)
    results["posterior"].save(link)
    assert link.is_symlink()
    assert home.stat().st_mode & 0o777 == 0o640
    bpm.load_posterior(home)


@posix
def test_the_command_line_keeps_the_folder_of_an_earlier_run(tmp_path, capsys):
    release(1).save(tmp_path / "one.release")
    out = tmp_path / "out"
    call = [
        "fit",
        str(tmp_path / "one.release"),
        "--method",
        "naive-mle",
        "--out",
        str(out),
        "--force",
    ]
    assert main(call) == 0
    old = {
        path: f"kept {path.name}"
        for path in [*out.glob("*.json"), *out.glob("marginals/*"), out / "x"]
    }
    old[out / "marginals" / "07_earlier.csv"] = "of another model"
    for path, text in old.items():
        path.write_text(text)
    capsys.readouterr()
    with largest_file(50):
        assert main(call) == 1
    assert "`--out` must be writable" in capsys.readouterr().err
    assert {path: path.read_text() for path in out.rglob("*") if path.is_file()} == old
    assert main(call) == 0
    assert sorted(path.name for path in (out / "marginals").iterdir()) == ["01_a_b.csv"]


SAVER = """
import sys
from itertools import cycle
import bayesprivmrf as bpm
both = [bpm.load_posterior(path) for path in ("first", "second")]
print("ready", flush=True)
for one in cycle(both):
    one.save("kept")
"""


@pytest.mark.slow  # five processes
@posix
def test_a_killed_save_leaves_a_whole_file(results, tmp_path):
    both = {"first": results["posterior"], "second": posterior(2)}
    for name, one in both.items():
        one.save(tmp_path / name)
    shutil.copy(tmp_path / "first", tmp_path / "kept")
    moments = np.random.default_rng(0).uniform(0, 0.5, 5)
    for moment in moments:
        saver = subprocess.Popen(
            [sys.executable, "-c", SAVER], cwd=tmp_path, stdout=subprocess.PIPE
        )
        assert saver.stdout is not None
        assert saver.stdout.readline() == b"ready\n"
        time.sleep(moment)
        saver.kill()
        saver.communicate()
        found = bpm.load_posterior(tmp_path / "kept").marginal("a")
        assert any(found.equals(one.marginal("a")) for one in both.values())
