"""A release that was paid for is saved whole, or stays in hand: no other release and no device is lost for it."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from bayesprivmrf import load_release
from bayesprivmrf.errors import ArgumentError, ReleaseFileError, UnfinishedSaveWarning
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import Adjacency, DiscreteLaplace, PrivacyGuarantee
from bayesprivmrf.release import NoisyStatistics, Provenance, file

MODEL = ModelSpecification(domain=Domain.from_states({"a": ["no", "yes"]}), cliques=(("a",),))


def release(count=1):
    return NoisyStatistics(
        specification=MODEL,
        tables=MODEL.tables([count, 2]),
        noise=(DiscreteLaplace(1.0),),
        guarantee=PrivacyGuarantee(epsilon=1.0, adjacency=Adjacency.ADD_OR_REMOVE_ONE),
        provenance=Provenance(mechanism="LaplaceStatistics"),
    )


def first(path):
    return load_release(path).tables.flat[0]


SAVER = """
import glob, os, sys, time
sys.path.insert(0, {folder!r})
from release.test_saving import release
from bayesprivmrf.errors import ReleaseFileError
number = int(sys.argv[1])
mine = release(number)
open(f"ready-{{number}}", "x").close()
while len(glob.glob("ready-*")) < {savers}:
    time.sleep(0.005)
# the same for all of them: the last one was ready then
start = max(os.path.getmtime(path) for path in glob.glob("ready-*")) + 0.1
for turn in range({turns}):
    begin = start + 0.02 * turn
    time.sleep(max(0.0, begin - 0.003 - time.time()))
    while time.time() < begin:  # all of them at the same moment, which a sleep would miss
        pass
    try:
        mine.save(f"turn-{{turn}}")
        print(turn, number)
    except ReleaseFileError as error:
        assert "another release" in str(error), error
"""


def test_of_several_processes_that_save_to_a_new_path_one_succeeds(tmp_path):
    turns, savers = 25, 2
    script = SAVER.format(folder=str(Path(__file__).parents[1]), turns=turns, savers=savers)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(n)], cwd=tmp_path, stdout=subprocess.PIPE
        )
        for n in range(savers)
    ]
    said = [
        line.split() for each in running for line in each.communicate()[0].decode().splitlines()
    ]
    assert [each.returncode for each in running] == [0] * savers
    assert sorted(int(turn) for turn, _ in said) == list(range(turns))
    for turn, number in said:
        assert first(tmp_path / f"turn-{turn}") == int(number)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("has_links", [True, False])
def test_a_release_saved_in_between_is_not_replaced(tmp_path, monkeypatch, has_links):
    path, linked, saved = tmp_path / "r", os.link, []

    def link(source, target):
        if not saved:
            saved.append(target)
            release(7).save(path)  # the other saver, after this one has found the path free
        if not has_links:
            raise PermissionError(1, "no links here")
        linked(source, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(ReleaseFileError, match="holds another release"):
        release(8).save(path)
    assert first(path) == 7
    release(7).save(path)  # the same again
    release(8).save(path, overwrite=True)
    assert first(path) == 8
    assert os.listdir(tmp_path) == ["r"]


def test_while_a_name_is_taken_no_other_release_takes_it(tmp_path):
    """On a file system without links: what stands there for a moment is no remains of a release."""
    path = tmp_path / "r"
    path.write_text("A release of bayesprivmrf is being saved here.\n")
    with pytest.raises(ReleaseFileError, match="choose another name"):
        release(8).save(path)


def fifo(path):
    os.mkfifo(path)


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def link_to_nothing(path):
    path.symlink_to(path.parent / "nothing")


def link_to_itself(path):
    path.symlink_to(path)


def link_to_a_fifo(path):
    os.mkfifo(path.parent / "pipe")
    path.symlink_to(path.parent / "pipe")


def link_to_a_folder(path):
    (path.parent / "folder").mkdir()
    path.symlink_to(path.parent / "folder")


def device(path):
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
    except OSError:
        pytest.skip("only root makes devices")


@pytest.mark.skipif(sys.platform == "win32", reason="of POSIX file systems")
@pytest.mark.parametrize(
    "make",
    [fifo, unix_socket, device, link_to_nothing, link_to_itself, link_to_a_fifo, link_to_a_folder],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_regular_file_is_neither_written_nor_replaced(
    tmp_path, monkeypatch, make, overwrite
):
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    path = Path("r")
    make(path) if make is unix_socket else make(tmp_path / "r")
    before = sorted(
        (name, os.lstat(name).st_ino, os.lstat(name).st_mode) for name in os.listdir(".")
    )
    with pytest.raises(ReleaseFileError, match="`path` must"):
        release().save(path, overwrite=overwrite)
    assert (
        sorted((name, os.lstat(name).st_ino, os.lstat(name).st_mode) for name in os.listdir("."))
        == before
    )


def test_a_link_to_a_file_is_written_through(tmp_path):
    (tmp_path / "there").mkdir()
    path, home = tmp_path / "latest", tmp_path / "there" / "r"
    release(1).save(home)
    path.symlink_to(home)
    with pytest.raises(ReleaseFileError, match="holds another release"):
        release(2).save(path)
    assert first(home) == 1
    release(2).save(path, overwrite=True)
    assert path.is_symlink()
    assert first(home) == 2


@pytest.mark.parametrize("path", [5, None, "\0", "a\0b", ["a"], "\ud800"])
def test_what_is_no_path_is_refused_as_an_argument(path):
    with pytest.raises(ArgumentError, match="`path` must be the path of a file"):
        release().save(path)


def test_a_name_is_as_long_as_names_may_be(tmp_path):
    with pytest.raises(ReleaseFileError, match="File name too long"):
        release().save(tmp_path / ("a" * 300))
    release().save(tmp_path / ("ä" * 127))
    assert first(os.fsencode(tmp_path / ("ä" * 127))) == 1


FULL = """
import resource, sys
sys.path.insert(0, {folder!r})
from release.test_saving import first, release
from bayesprivmrf.errors import ReleaseFileError
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
release(1).save("r")
resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
mine = release(2)
for path in ("r", "new"):
    try:
        mine.save(path, overwrite=True)
    except ReleaseFileError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert first("r") == 1
mine.save("new")
assert first("new") == 2
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits")
def test_on_a_full_disk_the_old_file_and_the_release_itself_are_kept(tmp_path):
    script = FULL.format(folder=str(Path(__file__).parents[1]))
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    for name, line in zip(("r", "new"), found.stdout.splitlines(), strict=True):
        assert f"'{name}' cannot be written" in line
        assert "save it elsewhere" in line
    assert sorted(os.listdir(tmp_path)) == ["new", "r"]


def leave_a_save(path, *, age):
    """Leave the hidden file that a save leaves which is killed once all is written, and return it."""
    release().save(path.with_name("whole"))
    whole = path.with_name("whole").read_bytes()
    path.with_name("whole").unlink()
    handle, left = tempfile.mkstemp(dir=path.parent, prefix=file._prefix(path))
    os.write(handle, whole)
    os.close(handle)
    os.utime(left, (time.time() - age,) * 2)
    return Path(left)


def test_a_file_that_a_killed_save_left_is_named_by_the_next_save_and_never_removed(tmp_path):
    path = tmp_path / "r"
    left = leave_a_save(path, age=10**6)
    release().save(tmp_path / "other")  # of another name: nothing is said
    with pytest.raises(ReleaseFileError, match=re.escape(repr(str(left)))):
        file.require_no_unfinished_save(path)
    with pytest.warns(UnfinishedSaveWarning, match=re.escape(repr(str(left)))):
        release().save(path)
    assert path.exists()
    left.rename(tmp_path / "recovered")
    assert load_release(tmp_path / "recovered").privacy_statement() == release().privacy_statement()
    release().save(path, overwrite=True)


@pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes")
def test_a_pipe_or_a_link_under_a_hidden_name_neither_blocks_a_save_nor_is_read(tmp_path):
    path = tmp_path / "r"
    left = leave_a_save(path, age=0)
    left.rename(tmp_path / "elsewhere")
    os.mkfifo(left)
    Path(f"{left}-link").symlink_to(tmp_path / "elsewhere")
    script = f"from bayesprivmrf import load_release; load_release('elsewhere').save({str(path)!r})"
    subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=tmp_path, check=True, timeout=60
    )
    assert path.exists()


def test_a_file_that_unpacks_to_too_much_is_not_unpacked_and_not_lost(tmp_path):
    path = tmp_path / "r"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("release.json", b" " * 2**24)
        archive.writestr("tables.npy", b"")
    tracemalloc.start()
    with pytest.raises(ReleaseFileError, match="holds another release"):
        release().save(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22


@pytest.mark.parametrize("age", [1, -3600])  # below 0 where the clock of a file server is fast
@pytest.mark.filterwarnings("error::UserWarning")
def test_a_save_under_way_is_not_named_by_another_save_but_refused_before_a_budget_is_spent(
    tmp_path, age
):
    path = tmp_path / "r"
    left = leave_a_save(path, age=age)
    with pytest.raises(ReleaseFileError, match="Rename that file"):
        file.require_no_unfinished_save(path)
    release().save(path)
    assert left.exists()


def test_a_release_that_could_not_be_written_whole_is_not_written(tmp_path):
    settings = {"weight": float("nan"), "kind": object}  # said as text
    odd = Provenance(mechanism="M", settings=settings, versions={"opendp": {1, 2}})  # type: ignore[dict-item]
    given = NoisyStatistics(
        specification=MODEL,
        tables=MODEL.tables([1, 2]),
        noise=(DiscreteLaplace(1.0),),
        guarantee=None,
        provenance=odd,
    )
    with pytest.raises(
        ReleaseFileError, match=r"has no written form: TypeError\. Nothing was written"
    ):
        given.save(tmp_path / "r")
    assert os.listdir(tmp_path) == []


def test_a_total_is_a_whole_number_of_records():
    assert release().total is None
    whole = NoisyStatistics.from_tables(
        MODEL, {("a",): [1, 2]}, noise=DiscreteLaplace(1.0), total=3.0
    )
    assert (whole.total, type(whole.total)) == (3, int)
    for total in (True, -1, 2.5, "3", float("nan"), float("inf"), 2**70):
        with pytest.raises(ArgumentError, match="`total` must be a whole number"):
            NoisyStatistics.from_tables(
                MODEL, {("a",): [1, 2]}, noise=DiscreteLaplace(1.0), total=total
            )
