"""Compiled engines, built once an installation: as many at a time as there are cores.

numba compiles under a lock, so that threads would wait for each other; each engine has a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Literal

import bayesprivmrf
from bayesprivmrf.cli.output import remark
from bayesprivmrf.source_checksum import checksum

__all__ = ["build_engines", "fit_small"]

_STAGES = (
    tuple(
        f"from bayesprivmrf.marginals.compiled import build; build({name!r})"
        for name in ("tangent", "collect", "distribute")  # the slowest first
    ),
    tuple(
        f"from bayesprivmrf.cli.engines import fit_small; fit_small({name!r})"
        for name in ("log-linear", "hyper-dirichlet")
    ),
)
"""What builds the engines; those of a stage may call those of the stages before it."""


def build_engines(*, has_posterior: bool = True) -> None:
    """Build what exact marginals need, and posteriors, and say so, unless numba keeps it already.

    A build that fails is left to the first call of what it builds, where the error has its place.
    """
    from concurrent.futures import ThreadPoolExecutor

    mark = _mark("posteriors" if has_posterior else "marginals")
    if mark is None or mark.exists():
        return
    remark(f"building the engines once (about {60 if has_posterior else 15} s) ...")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        is_built = [all(pool.map(_is_built, stage)) for stage in _STAGES[: 1 + has_posterior]]
    if all(is_built):
        try:
            mark.touch()
        except OSError:
            return


def fit_small(formulation: Literal["log-linear", "hyper-dirichlet", "exact"]) -> None:
    """Fit a posterior of one small table, by which all is compiled that posteriors of this formulation need."""
    from bayesprivmrf.inference import LatentCounts
    from bayesprivmrf.model import declare
    from bayesprivmrf.noise import Laplace
    from bayesprivmrf.release import NoisyStatistics

    network = declare(states={"a": [0, 1]}, cliques=[("a",)])
    release = NoisyStatistics.from_tables(network, {("a",): [20.0, 20.0]}, noise=Laplace(1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a short chain
        LatentCounts(formulation=formulation).fit(
            release, rng=0, draws=8, tune=8, chains=1, progress_bar=False
        )


def _is_built(source: str) -> bool:
    command = [sys.executable, "-c", source]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 (ours)


def _mark(what: str) -> Path | None:
    """File that says that these engines are kept: of these sources, by this numba, for this processor."""
    import llvmlite.binding
    import numba

    from bayesprivmrf.marginals import compiled

    folder = compiled.collect.stats.cache_path
    if folder is None:
        return None
    sources = sorted(str(path) for path in Path(bayesprivmrf.__file__).parent.rglob("*.py"))
    made_for = f"{numba.__version__}-{llvmlite.binding.get_host_cpu_name()}"
    return Path(folder) / f"{what}-{checksum(*sources):08x}-{made_for}.built"
