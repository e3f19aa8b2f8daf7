"""Build the source distribution and the wheel, install the wheel into a bare environment, and try it there.

    python packaging/try_wheel.py [--keep DIRECTORY]

`uv build` makes the wheel from the source distribution, so the trial is of both. In the new environment, which has
nothing but the wheel and what it requires, the Python block of the README runs, and then the quick form of
`bayesprivmrf compare`, which also compiles what it needs. Everything happens in a temporary folder. `uv` must be on
the path; it uses its own cache, so the trial needs no download beyond those of the test environment.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# what a user must find in both files
SHIPPED = ("data/LICENSES.md", "data/fair_survey.csv.gz", "data/references.bib", "py.typed")


def run(name: str, *command: str | Path, cwd: Path) -> str:
    """Run a command away from the repository, print how long it took, and return its output."""
    begin = time.monotonic()
    # no path of the calling environment, or the trial would be of the checkout
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment | {"MPLBACKEND": "Agg", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{name} failed with exit status {done.returncode}:\n{done.stdout}\n{done.stderr}")
    print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    return done.stdout


def readme_block() -> str:
    """Return the first Python block of the README."""
    found = re.search(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    if found is None:
        sys.exit("README.md has no Python block.")
    return found[1]


def built(folder: Path) -> Path:
    """Build both files into `folder`, check what they contain, and return the path of the wheel."""
    run("build", "uv", "build", "--quiet", "--out-dir", folder, ROOT, cwd=folder)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive, tarfile.open(source) as sources:
        for files in (archive.namelist(), sources.getnames()):
            for name in SHIPPED:
                if not any(file.endswith(f"bayesprivmrf/{name}") for file in files):
                    sys.exit(f"bayesprivmrf/{name} is missing from a built file.")
    return wheel


def main() -> None:
    """Build, install and try."""
    parser = argparse.ArgumentParser(
        description="Build the wheel and try it in a bare environment."
    )
    parser.add_argument("--keep", type=Path, help="folder that receives the two built files")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "dist").mkdir()
        wheel = built(folder / "dist")
        python = folder / "bare" / "bin" / "python"
        run(
            "bare environment",
            "uv",
            "venv",
            "--quiet",
            "--python",
            sys.executable,
            folder / "bare",
            cwd=folder,
        )
        run("install", "uv", "pip", "install", "--quiet", "--python", python, wheel, cwd=folder)
        shown = run("README", python, "-c", readme_block(), cwd=folder)
        if "converged" not in shown.splitlines():
            sys.exit(f"The README's block did not print `converged`:\n{shown}")
        shown = run(
            "compare --quick", python.with_name("bayesprivmrf"), "compare", "--quick", cwd=folder
        )
        if "noise-aware" not in shown.lower():
            sys.exit(f"`bayesprivmrf compare --quick` printed no score:\n{shown}")
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            for file in (folder / "dist").glob("bayesprivmrf-*"):
                shutil.copy(file, keep)


if __name__ == "__main__":
    main()
