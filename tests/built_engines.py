"""Compiles what several tests call first: run before the workers of a whole run, which would each compile it.

    python tests/built_engines.py NAME ...

A process compiles the functions that engines share once, so those that share most are built by the same one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

# files of the package without numba, whose functions another file compiles
COMPILED_ELSEWHERE = ("noise/kernels.py",)
TOGETHER = (
    ("records", "held", "transitions"),
    ("effects", "table"),
    ("log-linear", "hyper-dirichlet"),
)


def released(names: str, cliques: list[tuple[str, ...]], exact: tuple[str, ...] = (), **declared):
    """Tables of variables of two states, with noise; the number of a variable's states without."""
    import bayesprivmrf as bpm
    from bayesprivmrf import queries as q
    from bayesprivmrf.noise import DiscreteLaplace, NoNoise
    from bayesprivmrf.release import Measurement

    network = bpm.declare(states={name: [0, 1] for name in names}, cliques=cliques, **declared)
    given = [
        Measurement(
            q.table(*one), np.full(2 ** len(one), 40.0 / 2 ** len(one)), DiscreteLaplace(1.0)
        )
        for one in cliques
    ]
    given += [Measurement(q.table(name), np.full(2, 20.0), NoNoise()) for name in exact]
    return bpm.NoisyStatistics.from_measurements(network, given, total=40 if exact else None)


def chained():
    """A pooled table of a chain of shared transitions."""
    import bayesprivmrf as bpm
    from bayesprivmrf import queries as q
    from bayesprivmrf.noise import DiscreteLaplace
    from bayesprivmrf.release import Measurement

    network = bpm.markov_chain(range(2), 3, share="transitions")
    query = q.pooled([("x1", "x2"), ("x2", "x3")])
    measurement = Measurement(query, np.full(4, 20.0), DiscreteLaplace(1.0))
    return bpm.NoisyStatistics.from_measurements(network, [measurement])


RELEASES: dict[str, Callable] = {
    "records": lambda: released("abc", [("a", "b"), ("b", "c")]),
    "held": lambda: released("abc", [("a", "b"), ("b", "c")], exact=("b",)),
    "transitions": chained,
    "effects": lambda: released("abc", [("a", "b"), ("b", "c"), ("a", "c")]),
    "table": lambda: released("ab", [("a", "b")]),
    "log-linear": lambda: released("a", [("a",)]),
    "hyper-dirichlet": lambda: released("a", [("a",)]),
}


def fit(name: str) -> None:
    """A short fit of whole records, or of the engine of this name, by which all is compiled that such fits need."""
    from bayesprivmrf.inference import LatentCounts

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a short chain
        formulation: Any = name if "-" in name else "exact"
        LatentCounts(formulation=formulation).fit(
            RELEASES[name](), rng=0, draws=8, tune=8, chains=1, progress_bar=False
        )


def compiled_sources() -> list[Path]:
    """The files whose functions are compiled: those that import numba, and plain ones that another file compiles."""
    import bayesprivmrf

    package = Path(bayesprivmrf.__file__).parent
    imports_numba = re.compile(rb"^ *(?:from|import) .*\b(?:numba|compiled)\b", re.MULTILINE)
    using = [path for path in package.rglob("*.py") if imports_numba.search(path.read_bytes())]
    return sorted({*using, *(package / name for name in COMPILED_ELSEWHERE)})


def mark_file() -> Path | None:
    """The file whose existence means that all is kept on disk; its name changes with what decides the compiled code.

    That is the compiled files, the fits below, numba, llvmlite, Python and the processor. The mark only says whether
    to compile before the workers start: what is loaded from disk is decided by the keys of `bayesprivmrf.compiled`.
    """
    import llvmlite
    import llvmlite.binding
    import numba

    from bayesprivmrf.marginals import exact

    folder = exact.collect.stats.cache_path
    if folder is None:
        return None
    sources = b"".join(path.read_bytes() for path in [*compiled_sources(), Path(__file__)])
    versions = f"{numba.__version__}-{llvmlite.__version__}-{sys.implementation.cache_tag}"
    made_for = f"{versions}-{llvmlite.binding.get_host_cpu_name()}"
    return Path(folder) / f"tests-{zlib.crc32(sources):08x}-{made_for}.built"


def build() -> None:
    """All of them, unless they are kept; a failure is left to the first call, where the error has its place."""
    mark = mark_file()
    if mark is None or mark.exists():
        return
    commands = [[sys.executable, __file__, *names] for names in TOGETHER]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        codes = list(
            pool.map(
                lambda command: subprocess.run(command, capture_output=True).returncode, commands
            )
        )
    if not any(codes):
        mark.touch()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        fit(name)
