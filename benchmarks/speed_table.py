"""Speed of this checkout beside that of another one: the commands, the survey's posterior, the gradient, the tests.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/speed_table.py --other ../other
    ... --only "compare --quick" gradient --runs 1 --out ../speed   # two rows, stored elsewhere

Each checkout runs with its own interpreter, `.venv/bin/python`, and its own package. The checkouts take turns, run
after run and with equal seeds, so that a change in the machine's speed meets both. A row gives the median of the runs
in each checkout, and the ratio of this one to the other. The usual rows take about 35 minutes on two cores. `--parts`
adds single fits, marginals and learning, and `--suites N` adds the tests in N fresh clones.

Every measurement is added to speed-runs.csv at once. A later call takes those of the same commits from that file and
goes on; `--afresh` empties it. speed-table.csv is written from all rows of the call.

- Commands and tests are timed by the clock, and have a second line with their processor seconds. A first run has an
  empty NUMBA_CACHE_DIR. Before a warm row each checkout runs the command once without being timed. The slow tests run
  in the clone in which the default ones ran.
- Other rows have processor seconds of all threads; `benchmarks/speed_tasks.py` describes them.
- The rivals on the grid are the two forms of NAPSU-MQ in `benchmarks/samplers.py`: with derivatives by automatic
  differentiation, as its authors have them, and in closed form. They are left out where NumPyro is not installed.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from speed_tasks import TASKS

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
TASK_SCRIPT = Path(__file__).parent / "speed_tasks.py"
# in place of the commit of a checkout, with their goals
RIVALS = {"NAPSU-MQ": "10 times", "NAPSU-MQ in closed form": "-"}
GRID = "grid 4x4"
FIELDS = ("row", "commit", "seed", "value", "CPU", "load")


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A checkout of the repository, with an environment in `.venv`."""

    root: Path
    commit: str

    @classmethod
    def of(cls, root: Path) -> Checkout:
        """Return the checkout in a folder; its commit ends in "+" if the package has uncommitted changes."""
        git = ["git", "-C", str(root)]
        commit = subprocess.check_output(
            [*git, "rev-parse", "--short=8", "HEAD"], text=True
        ).strip()
        changes = subprocess.check_output(
            [*git, "status", "--porcelain", "bayesprivmrf"], text=True
        )
        return cls(root=root, commit=commit + ("+" if changes else ""))

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return self.root / ".venv" / "bin" / "python"


type Measure = Callable[[Checkout, int], float]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Parameters
    ----------
    name, unit, command
        Texts of the table.
    measure
        Function of a checkout and a seed that takes one measurement.
    goal
        Largest ratio, or a largest value with its unit; "-" if there is none.
    is_warm
        Whether each checkout takes one measurement more, which is not counted, before the others.
    """

    name: str
    unit: str
    command: str
    measure: Measure
    goal: str = "-"
    is_warm: bool = False


def called(
    command: Sequence[object], root: Path, *, accepted: Sequence[int] = (0,), **flags: str
) -> str:
    """Run a command in a checkout or a clone, with its package, and return what the command printed."""
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    given = ours | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | flags
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, cwd=root, env=given)
    if done.returncode not in accepted:
        raise RuntimeError(
            f"{' '.join(words)} failed in {root}:\n{(done.stderr or done.stdout)[-2000:]}"
        )
    return done.stdout


def timed_command(words: Sequence[str], *, is_first: bool) -> Measure:
    """Return a measurement of a command of `bayesprivmrf`, in seconds by the clock."""
    program = "import sys; from bayesprivmrf.cli import main; sys.exit(main())"

    def measure(checkout: Checkout, seed: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            if is_first:
                flags = {"NUMBA_CACHE_DIR": folder}
            else:
                flags = {}
            begin = time.perf_counter()
            called([checkout.python, "-c", program, *words, "--seed", seed], checkout.root, **flags)
            return time.perf_counter() - begin

    return measure


def timed_task(name: str) -> Measure:
    """Return a measurement of `benchmarks/speed_tasks.py`."""

    def measure(checkout: Checkout, seed: int) -> float:
        is_rival = checkout.commit in RIVALS
        if is_rival:
            python = sys.executable
        else:
            python = checkout.python
        if is_rival:
            own = f"{checkout.commit} on {name}"
        else:
            own = name
        printed = called([python, TASK_SCRIPT, own, "--seed", seed], checkout.root)
        return json.loads(printed.splitlines()[-1])["value"]

    return measure


@cache
def clone_of(checkout: Checkout, seed: int) -> tempfile.TemporaryDirectory[str]:
    """Return a fresh clone of a checkout, which is deleted at the end of this process."""
    folder = tempfile.TemporaryDirectory(prefix=f"clone-{checkout.commit}-")
    called(["git", "clone", "--quiet", checkout.root, folder.name], checkout.root)
    return folder


def timed_suite(*options: str) -> Measure:
    """Return a measurement of tests in the clone of a checkout, in seconds by the clock."""

    def measure(checkout: Checkout, seed: int) -> float:
        clone = Path(clone_of(checkout, seed).name)
        path = os.pathsep.join([str(checkout.python.parent), os.environ["PATH"]])
        begin = time.perf_counter()
        # 1 is the status of pytest where a test failed
        printed = called(
            [checkout.python, "-m", "pytest", *options], clone, accepted=(0, 1), PATH=path
        )
        print(printed.splitlines()[-1], flush=True)
        return time.perf_counter() - begin

    return measure


def of_task(name: str, unit: str, goal: str = "-") -> Row:
    """Return the row of a task."""
    command = f'python benchmarks/speed_tasks.py "{name}"'
    return Row(name=name, unit=unit, goal=goal, measure=timed_task(name), command=command)


def of_command(name: str, *words: str, goal: str, is_first: bool = False) -> Row:
    """Return the row of a command of `bayesprivmrf`."""
    measure = timed_command(words, is_first=is_first)
    command = " ".join(("bayesprivmrf", *words))
    return Row(
        name=name, unit="s", goal=goal, measure=measure, command=command, is_warm=not is_first
    )


# rows of every call
USUAL = (
    of_command("compare --quick, warm", "compare", "--quick", goal="0.6"),
    of_task("gradient of the survey", "µs", goal="45 µs"),
    of_task(GRID, "draws/CPU s"),
    *(
        of_task(f"survey's posterior, epsilon {epsilon}", "CPU s for 400 draws", goal="0.33")
        for epsilon in ("0.1", "1", "10")
    ),
    of_command("compare, warm", "compare", goal="0.45"),
    of_command("compare, first run", "compare", goal="0.45", is_first=True),
)
# rows of `--parts`
PARTS = tuple(
    of_task(name, "draws/CPU s" if name.startswith("draws") else "CPU s")
    for name in TASKS
    if name not in {row.name for row in USUAL} and "NAPSU" not in name
)
# rows of `--suites`
SUITES = (
    Row(
        name="default suite",
        unit="s",
        goal="0.4",
        command="pytest, fresh clone",
        measure=timed_suite(),
    ),
    Row(
        name="slow suite",
        unit="s",
        goal="0.75",
        command="pytest -m slow",
        measure=timed_suite("-m", "slow"),
    ),
)


class Runs:
    """Measurements in a file, to which each one is added when it is taken."""

    def __init__(self, path: Path, *, is_afresh: bool) -> None:
        self.path = path
        if is_afresh or not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(",".join(FIELDS) + "\n", encoding="utf-8")
        with path.open(newline="", encoding="utf-8") as file:
            # uncommitted changes may have been others
            self.lines = [line for line in csv.DictReader(file) if not line["commit"].endswith("+")]

    def has(self, row: Row, checkout: Checkout, seed: int) -> bool:
        """Return True if a measurement was taken."""
        wanted = [row.name, checkout.commit, str(seed)]
        return any([line["row"], line["commit"], line["seed"]] == wanted for line in self.lines)

    def take(self, row: Row, checkout: Checkout, seed: int) -> None:
        """Take a measurement, unless it was taken."""
        if self.has(row, checkout, seed):
            return
        load = os.getloadavg()[0]
        before = children_seconds()
        value = row.measure(checkout, seed)
        spent = children_seconds() - before
        texts = (
            row.name,
            checkout.commit,
            str(seed),
            f"{value:.6g}",
            f"{spent:.2f}",
            f"{load:.1f}",
        )
        self.lines.append(dict(zip(FIELDS, texts, strict=True)))
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow(texts)
        print(*texts, sep=", ", flush=True)

    def middle(self, row: Row, checkout: Checkout, column: str = "value") -> float:
        """Return the median of the values of a row in a checkout, or of the processor seconds of its processes."""
        wanted = [row.name, checkout.commit]
        return median(
            float(line[column]) for line in self.lines if [line["row"], line["commit"]] == wanted
        )


def children_seconds() -> float:
    """Return the processor seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(row: Row, checkouts: Sequence[Checkout], seeds: Sequence[int], runs: Runs) -> None:
    """Take the measurements of a row that `runs` lacks, the checkouts in turn."""
    for checkout in checkouts:
        if row.is_warm and not all(runs.has(row, checkout, seed) for seed in seeds):
            row.measure(checkout, seeds[0])
    for seed in seeds:
        for checkout in checkouts:
            runs.take(row, checkout, seed)


def lines_of(row: Row, checkouts: Sequence[Checkout], runs: Runs) -> Iterator[dict[str, str]]:
    """Yield the line of a row, and a second one with its processor seconds or beside its rival."""
    numbers = [runs.middle(row, checkout) for checkout in checkouts]
    yield line(row.name, row.unit, numbers, row.goal)
    if row.unit == "s":
        seconds = [runs.middle(row, checkout, "CPU") for checkout in checkouts]
        yield line(row.name, "CPU s", seconds, "-")
    for rival, own in zip(checkouts[2:], numbers[2:], strict=True):
        times = [number / own for number in numbers]
        yield line(f"{row.name}, beside {rival.commit}", "times", times, RIVALS[rival.commit])


def line(name: str, unit: str, numbers: Sequence[float], goal: str) -> dict[str, str]:
    """Return the first columns of a line of the table."""
    other, this = numbers[:2]
    shown = {"other": f"{other:.3g}", "this": f"{this:.3g}", "ratio": f"{this / other:.2f}"}
    return {"row": name, "unit": unit} | shown | {"goal": goal}


def machine() -> str:
    """Return the processor, the number of cores, and the version of Python."""
    told = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    if told:
        processor = told[1]
    else:
        processor = platform.processor()
    return f"{os.cpu_count()} cores of {processor}; Python {platform.python_version()}; one thread a library"


def markdown(table: Sequence[dict[str, str]]) -> str:
    """Return the table in Markdown."""
    texts = [list(table[0]), ["---"] * len(table[0]), *(list(each.values()) for each in table)]
    return "\n".join("| " + " | ".join(each) + " |" for each in texts)


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--other", type=Path, required=True, help="root of the other checkout")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="rows whose names contain a text"
    )
    parser.add_argument("--runs", type=int, default=5, help="measurements of each row and checkout")
    parser.add_argument(
        "--parts", action="store_true", help="add rows of single fits, marginals and learning"
    )
    parser.add_argument(
        "--suites", type=int, default=0, metavar="N", help="run the tests in N fresh clones"
    )
    parser.add_argument("--afresh", action="store_true", help="measure again what was measured")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the two files")
    return parser.parse_args()


def main() -> None:
    """Measure, print the table, and write it."""
    options = parsed()
    this = Checkout.of(ROOT)
    other = Checkout.of(options.other.resolve())
    if this.commit == other.commit:
        raise SystemExit(f"both checkouts are at {this.commit}")
    rows = [*USUAL, *(PARTS if options.parts else ()), *(SUITES if options.suites else ())]
    rows = [row for row in rows if any(text in row.name for text in options.only)]
    has_rival = importlib.util.find_spec("numpyro") is not None
    if not has_rival:
        print("NAPSU-MQ is left out: NumPyro is not installed (uv sync --group benchmarks).")
    runs = Runs(options.out / "speed-runs.csv", is_afresh=options.afresh)
    table = []
    for row in rows:
        checkouts = [other, this]
        if row.name == GRID and has_rival:
            checkouts += [Checkout(root=ROOT, commit=rival) for rival in RIVALS]
        seeds = range(1, 1 + (options.suites if row in SUITES else options.runs))
        measured(row, checkouts, seeds, runs)
        how = {"seeds": f"1 to {seeds[-1]}", "command": row.command}
        table += [line | how for line in lines_of(row, checkouts, runs)]
    where = {"machine": machine(), "other commit": other.commit, "this commit": this.commit}
    with (options.out / "speed-table.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*table[0], *where], lineterminator="\n")
        writer.writeheader()
        writer.writerows(each | where for each in table)
    print(f"\nother: {other.commit}, this: {this.commit}; {where['machine']}\n")
    print(markdown(table))


if __name__ == "__main__":
    main()
