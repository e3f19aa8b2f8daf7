"""Compiles what several tests call first: run before the workers of a whole run, which would each compile it.

    python tests/built_engines.py NAME ...

A process compiles the functions that engines share once, so those that share most are built by the same one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

COMPILED = (b"njit", b"kept(", b"numba")
"""Words of which each file with compiled functions has one."""
TOGETHER = (("records", "held", "transitions"), ("effects", "table"), ("log-linear", "hyper-dirichlet"))


def released(names: str, cliques: list[tuple[str, ...]], exact: tuple[str, ...] = (), **declared):
    """Tables of variables of two states, with noise; the number of a variable's states without."""
    import bayesprivmrf as bpm
    from bayesprivmrf import queries as q
    from bayesprivmrf.noise import DiscreteLaplace, NoNoise
    from bayesprivmrf.release import Measurement

    network = bpm.declare(states={name: [0, 1] for name in names}, cliques=cliques, **declared)
    given = [
        Measurement(q.table(*one), np.full(2 ** len(one), 40.0 / 2 ** len(one)), DiscreteLaplace(1.0))
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


def mark_file() -> Path | None:
    """The file whose existence means that all is kept on disk, for these compiled sources, numba and processor."""
    import llvmlite.binding
    import numba

    import bayesprivmrf
    from bayesprivmrf.marginals import exact

    folder = exact.collect.stats.cache_path
    if folder is None:
        return None
    texts = [path.read_bytes() for path in sorted(Path(bayesprivmrf.__file__).parent.rglob("*.py"))]
    sources = b"".join(text for text in texts if any(word in text for word in COMPILED))
    made_for = f"{numba.__version__}-{llvmlite.binding.get_host_cpu_name()}"
    return Path(folder) / f"tests-{zlib.crc32(sources):08x}-{made_for}.built"


def build() -> None:
    """All of them, unless they are kept; a failure is left to the first call, where the error has its place."""
    mark = mark_file()
    if mark is None or mark.exists():
        return
    commands = [[sys.executable, __file__, *names] for names in TOGETHER]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        codes = list(
            pool.map(lambda command: subprocess.run(command, capture_output=True).returncode, commands)
        )
    if not any(codes):
        mark.touch()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        fit(name)
