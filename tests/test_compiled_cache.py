"""Compiled code is kept in a folder that the user can write and that nobody else can."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, stat, warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import bayesprivmrf
print(*(str(one.message) for one in said if one.category is RuntimeWarning))
folder = os.environ.get("NUMBA_CACHE_DIR")
print(folder, folder and oct(stat.S_IMODE(os.stat(folder).st_mode)))
"""


def outcome(**environment):
    given = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"} | environment
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=given, capture_output=True, text=True, check=True
    )
    return found.stdout.splitlines()


def test_nothing_is_said_or_set_where_the_installation_can_be_written():
    assert outcome() == ["", "None None"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX permissions")
def test_a_folder_that_others_can_write_is_named_as_unsafe(tmp_path):
    tmp_path.chmod(0o777)
    said, _ = outcome(NUMBA_CACHE_DIR=str(tmp_path))
    assert "NUMBA_CACHE_DIR names can be written by other users" in said
    tmp_path.chmod(0o700)
    assert outcome(NUMBA_CACHE_DIR=str(tmp_path))[0] == ""


def test_without_a_folder_to_write_compiled_code_goes_to_a_private_temporary_one(tmp_path, monkeypatch):
    from bayesprivmrf import compiled_cache

    (tmp_path / "file").write_text("no folder can be made here")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(compiled_cache.os, "access", lambda *_: False)
    import numba

    monkeypatch.setattr(numba.config, "CACHE_DIR", numba.config.CACHE_DIR)
    with pytest.warns(RuntimeWarning, match="set NUMBA_CACHE_DIR to a private folder"):
        compiled_cache.ensure_cache_folder()
    folder = os.environ["NUMBA_CACHE_DIR"]
    assert folder == numba.config.CACHE_DIR
    assert os.stat(folder).st_mode & 0o077 == 0
    os.rmdir(folder)
