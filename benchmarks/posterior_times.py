"""Time of a posterior of a real survey, in new processes, and of `NoiseAwareMAP`.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/posterior_times.py

Survey: Fair's, released at epsilon 1 with add-or-remove-one neighbours and fitted with the defaults, chains on all
cores; both seeds 2026. In each of two processes that share a numba cache of their own, empty before the first: the
seconds to the first gradient of its log density, the microseconds of each later one, called from Python, and a first
and a second fit. Noise-aware estimate: third-order chain of ten
five-state variables, five laws of the potentials, two sizes, epsilon 1, after one fit that loads the compiled engine.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import subprocess
import sys
import tempfile
import time
import warnings
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayesprivmrf.release import NoisyStatistics

SURVEY_SEED = 2026
POPULATION_SEED, RELEASE_SEED = 777, 5
SIZES = (1_000, 100_000)
DIAGNOSTICS = ("r_hat", "ess_bulk", "ess_tail")
AGAIN = "--in-this-process"


def survey() -> dict[str, object]:
    """Seconds of a first and a second fit in this process, and what the sampler says of them."""
    from bayesprivmrf.inference import LatentCounts
    from bayesprivmrf.mechanisms import LaplaceStatistics
    from bayesprivmrf.survey import fair_survey_declaration, fair_survey_records

    specification = fair_survey_declaration().specification
    release = LaplaceStatistics(epsilon=1.0).release(specification, fair_survey_records(), rng=SURVEY_SEED)
    found: dict[str, object] = {"gradient": gradient(release)}
    for name in ("first", "second"):
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a status that is printed
            posterior = LatentCounts().fit(release, rng=SURVEY_SEED)
        found[name] = round(time.perf_counter() - begin, 1)
        found["ess a second"] = round(posterior.stats["ess_bulk"] / posterior.stats["sampling_seconds"], 1)
        found |= {key: round(posterior.stats[key], 5) for key in DIAGNOSTICS}
        found["status"] = posterior.status.value
    return found


def gradient(release: NoisyStatistics) -> dict[str, float]:
    """Seconds to the first gradient of a release, and microseconds of each of 1,000 more."""
    import numpy as np

    from bayesprivmrf.inference.given_releases import gather
    from bayesprivmrf.inference.posterior.relaxed.log_linear import LogLinear

    begin = time.perf_counter()
    density = LogLinear(evidence=gather(release)).density
    position = np.zeros(density.size)
    density.posterior(position)
    first, begin = time.perf_counter() - begin, time.perf_counter()
    for _ in range(1000):
        density.posterior(position)
    return {"first, s": round(first, 2), "later, us": round(1e3 * (time.perf_counter() - begin), 1)}


def in_new_process(cache: str) -> dict[str, object]:
    """`survey` in a process whose numba keeps compiled functions in a folder of its own."""
    flags = {"NUMBA_CACHE_DIR": cache}
    command = [sys.executable, __file__, AGAIN]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | flags)
    return json.loads(done.stdout.splitlines()[-1])


def noise_aware() -> list[float]:
    """Seconds of each fit of `NoiseAwareMAP`."""
    import numpy as np
    from noise_aware import LAWS, Population

    from bayesprivmrf.inference import NoiseAwareMAP
    from bayesprivmrf.privacy import DiscreteLaplace
    from bayesprivmrf.release import NoisyStatistics

    seconds = []
    for law in LAWS:
        truth = Population("third-order chain", law, 0, POPULATION_SEED)
        scale = float(len(truth.model.cliques))
        stop = 1 - np.exp(-1 / scale)
        for records in SIZES:
            rng = np.random.default_rng(RELEASE_SEED)
            counts = truth.counts(records, rng)
            noisy = counts + rng.geometric(stop, counts.size) - rng.geometric(stop, counts.size)
            tables = dict(truth.model.tables(noisy))
            release = NoisyStatistics.from_tables(truth.model, tables, noise=DiscreteLaplace(scale))
            if not seconds:
                NoiseAwareMAP().fit(release)
            begin = time.perf_counter()
            NoiseAwareMAP().fit(release)
            seconds.append(time.perf_counter() - begin)
    return seconds


def main() -> None:
    """Run and print."""
    if AGAIN in sys.argv:
        print(json.dumps(survey()))
        return
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cache empty", "a later process"):
            print(f"survey, {name}: {in_new_process(cache)}", flush=True)
    seconds = noise_aware()
    print(f"noise-aware estimate: median {median(seconds):.2f} s, longest {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
