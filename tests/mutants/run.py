"""Plants each fault of `planted.toml` in a copy of the package, and runs the tests that must catch it.

    uv run python tests/mutants/run.py            # all of them, a few minutes
    uv run python tests/mutants/run.py NAME ...   # some of them

Prints a line for each fault. The exit status is 1 if a fault survives its tests, or if they cannot be run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "bayesprivmrf"

# exit statuses of pytest: tests passed, and tests failed; others mean that no test was run
PASSED, FAILED = 0, 1


@dataclass(frozen=True)
class Mutant:
    """A fault, by the fields that `planted.toml` describes."""

    name: str
    old: str
    new: str
    tests: list[str]
    harm: str

    def plant(self, package: Path) -> None:
        """Write the fault into a copy of the package."""
        path, text = self.planted_in(sources(package))
        path.write_text(text, encoding="utf-8")

    def planted_in(self, texts: Mapping[Path, str]) -> tuple[Path, str]:
        """Return the file that holds the old text, and its text with the fault.

        The old text is found wherever it stands, with other spaces, line breaks and last commas as well, so that
        a fault outlives a file that is moved and code that is formatted again.

        Raises
        ------
        ValueError
            If the old text does not stand once in the package.
        """
        # the words and signs of the text, with a comma before a closing bracket or none
        plain = re.findall(r"\w+|\S", self.old)
        words = [re.escape(word) for word in plain]
        breaks = [r"\s*,?\s*" if word in (r"\)", r"\]", r"\}") else r"\s*" for word in words[1:]]
        text = words[0] + "".join(map("".join, zip(breaks, words[1:], strict=True)))
        pattern = re.compile(rf"(?<!\w){text}(?!\w)")
        # a search for plain words is much faster than one by the pattern, and leaves few files to it
        holders = [path for path, text in texts.items() if all(word in text for word in plain)]
        found = [(path, match) for path in holders for match in pattern.finditer(texts[path])]
        if len(found) != 1:
            places = ", ".join(path.name for path, _ in found)
            raise ValueError(f"{self.name}: the old text must stand once, found in: {places}.")
        path, match = found[0]
        before, after = texts[path][: match.start()], texts[path][match.end() :]
        return path, before + self.new.strip() + after


def sources(package: Path) -> dict[Path, str]:
    """Return the text of each file of a package."""
    return {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}


def all_mutants() -> list[Mutant]:
    """Return the faults in the order of the file."""
    written = tomllib.loads((HERE / "planted.toml").read_text(encoding="utf-8"))
    return [Mutant(**fields) for fields in written["mutant"]]


def outcome(mutant: Mutant) -> tuple[str, float]:
    """Return "caught" if the tests of a fault fail in a copy of the package, "SURVIVED" if they pass; and seconds."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / PACKAGE.name
        # Compiled code comes along, with the times of its sources: numba compiles again what reaches the changed
        # file, by its time and by the checksums of `bayesprivmrf.compiled`, and loads the rest.
        shutil.copytree(PACKAGE, package)
        mutant.plant(package)
        environment = {**os.environ, "PYTHONPATH": folder}
        environment.pop("NUMBA_CACHE_DIR", None)  # code is kept in the copy alone
        options = ["-n", "0", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
        paths = f"pythonpath={folder} tests ."  # the copy comes before the package itself
        command = [sys.executable, "-m", "pytest", *options, "-o", paths, *mutant.tests]
        run = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    found = {FAILED: "caught", PASSED: "SURVIVED"}.get(
        run.returncode, f"NOT RUN\n{run.stdout}{run.stderr}"
    )
    return found, time.perf_counter() - begin


def main(names: list[str]) -> int:
    """Run the faults of the given names, or all; return the exit status."""
    mutants = [mutant for mutant in all_mutants() if not names or mutant.name in names]
    unknown = set(names) - {mutant.name for mutant in mutants}
    if unknown or not mutants:
        print(f"no such fault: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 1
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, (found, seconds) in zip(mutants, pool.map(outcome, mutants), strict=True):
            print(f"{mutant.name:50s} {found} ({seconds:.0f} s)", flush=True)
            missed += found != "caught"
    print(f"{len(mutants) - missed} of {len(mutants)} caught")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
