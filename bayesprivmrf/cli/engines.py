"""Builds of the compiled engines, once per installation, in parallel on all cores.

numba compiles under a lock, so threads would wait for each other. Each part is therefore built by its own process.
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

# engines of posteriors
ENGINES: tuple[EngineName, ...] = ("log-linear", "hyper-dirichlet")

# program of each part of an engine; the slowest parts come first, and posteriors use the marginals
PROGRAMS = {
    "marginals": tuple(
        f"from bayesprivmrf.marginals.exact import build; build({name!r})"
        for name in ("tangent", "collect", "distribute")
    ),
    "log-linear": tuple(
        f"from bayesprivmrf.cli.engines import compile_log_linear; compile_log_linear({part!r})"
        for part in ("density", "population")
    ),
    "hyper-dirichlet": ("from bayesprivmrf.cli.engines import fit_small; fit_small('hyper-dirichlet')",),
}


def engine_of(model: ModelSpecification) -> EngineName:
    """Return the name of the engine that a posterior of the model uses, unless whole records are cheaper."""
    from bayesprivmrf.inference.posterior.forest import junction_forest

    forest = junction_forest(model.cardinalities, model.scopes, model.possible)
    return "log-linear" if forest is None else "hyper-dirichlet"


def build_engines(engines: Sequence[EngineName] = ENGINES) -> None:
    """Build exact marginals and the given engines of posteriors, unless numba keeps them on disk.

    A remark announces the build. If a build fails, the first call of the engine reports the error.
    """
    from concurrent.futures import ThreadPoolExecutor

    wanted = ["marginals", *engines]
    marks = {name: mark for name in wanted if (mark := mark_file(name)) is not None and not mark.exists()}
    if not marks:
        return
    remark(building(15 * len(marks)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for stage in (["marginals"], [*engines]):
            parts = {
                name: [pool.submit(_is_built, program) for program in PROGRAMS[name]]
                for name in stage
                if name in marks
            }
            for name, builds in parts.items():
                if all(build.result() for build in builds):
                    _keep(marks[name])


def _keep(mark: Path) -> None:
    """Create a mark file; without one, the next command only builds again."""
    with contextlib.suppress(OSError):
        mark.touch()


def fit_small(formulation: Literal["log-linear", "hyper-dirichlet", "exact"]) -> None:
    """Fit a posterior to one small table, which compiles the engine of this formulation."""
    from bayesprivmrf.inference import LatentCounts

    with warnings.catch_warnings(action="ignore"):  # the chain is short
        LatentCounts(formulation=formulation).fit(
            _small(), rng=0, draws=8, tune=8, chains=1, progress_bar=False
        )


def compile_log_linear(part: Literal["density", "population"]) -> None:
    """Compile one part of the log-linear engine: the density of the sampler, or the draws of the population."""
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
    """Return a release of one small table."""
    from bayesprivmrf.model import declare
    from bayesprivmrf.noise import Laplace
    from bayesprivmrf.release import NoisyStatistics

    network = declare(states={"a": [0, 1]}, cliques=[("a",)])
    return NoisyStatistics.from_tables(network, {("a",): [20.0, 20.0]}, noise=Laplace(1.0))


def _is_built(source: str) -> bool:
    """Run a program in a new process, and return True if it succeeds."""
    command = [sys.executable, "-c", source]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 (ours)


def mark_file(what: str) -> Path | None:
    """Return the file whose existence means that an engine is kept on disk, or None if numba has no cache folder.

    Its name depends on the sources of this package, on the version of numba and on the processor.
    """
    import llvmlite.binding
    import numba

    from bayesprivmrf.marginals import exact as compiled

    folder = compiled.collect.stats.cache_path
    if folder is None:
        return None
    sources = b"".join(path.read_bytes() for path in sorted(Path(bayesprivmrf.__file__).parent.rglob("*.py")))
    made_for = f"{numba.__version__}-{llvmlite.binding.get_host_cpu_name()}"
    return Path(folder) / f"{what}-{zlib.crc32(sources):08x}-{made_for}.built"
