"""Compiled engines, built once an installation: as many at a time as there are cores.

numba compiles under a lock, so that threads would wait for each other; each part has a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import bayesprivmrf
from bayesprivmrf.cli.output import remark
from bayesprivmrf.compiled_cache import building

if TYPE_CHECKING:
    from bayesprivmrf.model import ModelSpecification
    from bayesprivmrf.release import NoisyStatistics

type EngineName = Literal["log-linear", "hyper-dirichlet"]

# Engines of posteriors
ENGINES: tuple[EngineName, ...] = ("log-linear", "hyper-dirichlet")

MARGINALS = tuple(
    f"from bayesprivmrf.marginals.sweeps import build; build({name!r})"
    for name in ("tangent", "collect", "distribute")  # the slowest first
)
POSTERIORS = {
    "log-linear": tuple(
        f"from bayesprivmrf.cli.engines import compile_log_linear; compile_log_linear({part!r})"
        for part in ("density", "population")
    ),
    "hyper-dirichlet": ("from bayesprivmrf.cli.engines import fit_small; fit_small('hyper-dirichlet')",),
}
"""Builders of the engines; those of posteriors call the marginals."""


def engine_of(model: ModelSpecification) -> EngineName:
    """Name the engine that a posterior of this model takes, unless whole records serve it better."""
    from bayesprivmrf.inference.posterior.forest import junction_forest

    forest = junction_forest(model.cardinalities, model.scopes, model.possible)
    return "log-linear" if forest is None else "hyper-dirichlet"


def build_engines(engines: Sequence[EngineName] = ENGINES) -> None:
    """Build what exact marginals need, and some engines of posteriors, and say so, unless numba keeps it already.

    A build that fails is left to the first call of what it builds, where the error has its place.
    """
    from concurrent.futures import ThreadPoolExecutor

    lines = {"marginals": MARGINALS} | {name: POSTERIORS[name] for name in engines}
    marks = {name: mark for name in lines if (mark := mark_file(name)) is not None and not mark.exists()}
    if not marks:
        return
    remark(building(15 + 15 * len(engines)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for stage in (["marginals"], [*engines]):
            parts = {
                name: [pool.submit(_is_built, line) for line in lines[name]]
                for name in stage
                if name in marks
            }
            for name, builds in parts.items():
                if all(build.result() for build in builds):
                    _keep(marks[name])


def _keep(mark: Path) -> None:
    with contextlib.suppress(OSError):  # without it they are looked for once more
        mark.touch()


def fit_small(formulation: Literal["log-linear", "hyper-dirichlet", "exact"]) -> None:
    """Fit a posterior of one small table, by which all is compiled that posteriors of this formulation need."""
    from bayesprivmrf.inference import LatentCounts

    with warnings.catch_warnings(action="ignore"):  # of a short chain
        LatentCounts(formulation=formulation).fit(
            _small(), rng=0, draws=8, tune=8, chains=1, progress_bar=False
        )


def compile_log_linear(part: Literal["density", "population"]) -> None:
    """Compile one half of the log-linear engine: what the sampler calls, or what draws the population after it."""
    import numpy as np

    from bayesprivmrf.inference.evidence import gather
    from bayesprivmrf.inference.posterior.relaxed.log_linear import LogLinear

    formulation = LogLinear(evidence=gather(_small()))
    density = formulation.density
    if part == "density":
        density.expand(np.zeros((1, 1, density.size)), formulation.judged)
        return
    draws = {name: np.ones((1, 1, *shape)) for name, shape in density.shapes.items()}
    formulation.finish(draws, np.random.default_rng(0))


def _small() -> NoisyStatistics:
    from bayesprivmrf.model import declare
    from bayesprivmrf.noise import Laplace
    from bayesprivmrf.release import NoisyStatistics

    network = declare(states={"a": [0, 1]}, cliques=[("a",)])
    return NoisyStatistics.from_tables(network, {("a",): [20.0, 20.0]}, noise=Laplace(1.0))


def _is_built(source: str) -> bool:
    command = [sys.executable, "-c", source]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 (ours)


def mark_file(what: str) -> Path | None:
    """File that says that these engines are kept: of these sources, by this numba, for this processor."""
    import llvmlite.binding
    import numba

    from bayesprivmrf.marginals import sweeps as compiled

    folder = compiled.collect.stats.cache_path
    if folder is None:
        return None
    sources = b"".join(path.read_bytes() for path in sorted(Path(bayesprivmrf.__file__).parent.rglob("*.py")))
    made_for = f"{numba.__version__}-{llvmlite.binding.get_host_cpu_name()}"
    return Path(folder) / f"{what}-{zlib.crc32(sources):08x}-{made_for}.built"
