"""Measurements of `benchmarks/speed_table.py`: each takes one number of the checkout whose package is imported.

    OMP_NUM_THREADS=1 ../other/.venv/bin/python benchmarks/speed_tasks.py "gradient of the survey" --seed 1

The process does the task once to load what is compiled, or with few draws where that is enough. Then it measures, and
prints a line of JSON: the value and the peak memory. Tasks use public names, so that they run in older checkouts;
only the compiled gradient needs private ones.

Effective draws are those of the number that mixes worst, in the bulk or in the tails, among all numbers that
`LatentCounts` judges. Tuning counts in the processor seconds of every task with draws.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import time
import timeit
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

SEED = 2026  # of the data that are the same in every run
STATES = 3  # of each variable of the chain of ten
RECORDS = 20_000
EFFECTIVE = 400  # draws that a posterior is sampled for
CALLS, REPETITIONS = 20, 500  # of the gradient: in one compiled loop, and of that loop


def processor_seconds(task: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor seconds of a call, of all threads, and its result."""
    begin = time.process_time()
    result = task()
    return time.process_time() - begin, result


def second_call(task: Callable[[], Any]) -> float:
    """Return the processor seconds of a second call; the first one loads what is compiled."""
    task()
    return processor_seconds(task)[0]


# the posterior


def worst(stats: dict[str, Any]) -> float:
    """Return the effective draws of the number that mixes worst, in the bulk or in the tails."""
    return min(stats["ess_bulk"], stats["ess_tail"])


def survey_seconds(epsilon: float, seed: int) -> float:
    """Return the processor seconds for 400 effective draws of the survey's posterior, those of tuning included.

    Four chains run one after the other, so that their seconds do not depend on the other cores. The seconds of the
    draws are in proportion to the draws, and those of tuning are measured by a fit with a single draw.
    """
    import bayesprivmrf as bpm

    given = survey_release(epsilon, seed)

    def fit(draws: int, tune: int = 500) -> Any:
        how = {"draws": draws, "tune": tune, "chains": 4, "cores": 1, "progress_bar": False}
        return bpm.LatentCounts().fit(given, rng=seed, **how)

    fit(10, 10)
    tuning, _ = processor_seconds(lambda: fit(1))
    whole, posterior = processor_seconds(lambda: fit(500))
    return tuning + (whole - tuning) * EFFECTIVE / worst(posterior.stats)


def gradient_microseconds(seed: int) -> float:
    """Return the least microseconds of the gradient of the survey's log density, among many compiled loops."""
    import bayesprivmrf as bpm

    given = survey_release(1.0, seed)
    posterior = bpm.LatentCounts().fit(
        given, rng=seed, draws=1, tune=20, chains=1, progress_bar=False
    )
    density = posterior._formulation.density
    # near the middle of the prior, where every count is positive
    position = 0.5 * np.random.default_rng(seed).normal(size=density.size)
    loop = compiled_loop(density, position)
    loop()
    return 1e6 * min(timeit.repeat(loop, number=1, repeat=REPETITIONS)) / CALLS


def compiled_loop(density: Any, position: np.ndarray) -> Callable[[], Any]:
    """Return a function that evaluates a density and its gradient `CALLS` times, in compiled code."""
    from numba import njit

    # the folder of densities has another name in older checkouts
    folder, _, _ = type(density).__module__.rpartition(".")
    compiled_visit = importlib.import_module(f"{folder}.density").compiled_visit
    visit = compiled_visit(density.visit).ctypes
    data = density.given
    gradient = np.empty(density.size)
    value = np.zeros(1)

    @njit
    def loop(position, gradient, value, data):
        for _ in range(CALLS):
            visit(position.size, position.ctypes, gradient.ctypes, value.ctypes, data.ctypes)
        return value[0]

    return lambda: loop(position, gradient, value, data)


def grid_rate(seed: int) -> float:
    """Return effective draws a processor second on the 4x4 grid of `benchmarks/samplers.py`, tuning included."""
    from samplers import PRIOR_SCALE, problems

    import bayesprivmrf as bpm

    given = problems()["grid"].release

    def fit(draws: int, tune: int = 500) -> Any:
        estimator = bpm.LatentCounts(formulation="log-linear", scale=PRIOR_SCALE)
        how = {"draws": draws, "tune": tune, "chains": 2, "cores": 1, "progress_bar": False}
        return estimator.fit(given, rng=seed, **how)

    fit(10, 10)
    seconds, posterior = processor_seconds(lambda: fit(1000))
    return worst(posterior.stats) / seconds


def rival_grid_rate(derivatives: str, seed: int) -> float:
    """Return the same of a form of NAPSU-MQ, its Laplace approximation and compilation left out."""
    from napsu_mq import napsu_run
    from samplers import effective, problems

    found: dict[str, Any] = napsu_run(problems()["grid"], derivatives, 2, 500, 1000, seed=seed)
    draws = min(effective(found["judged"], kind).min() for kind in ("bulk", "tail"))
    return draws / (found["seconds"] + found["warm_seconds"])


def draws_of(formulation: str, seed: int) -> float:
    """Return effective draws a processor second of the survey's posterior in one formulation."""
    import bayesprivmrf as bpm

    given = survey_release(1.0, SEED)

    def fit() -> Any:
        estimator = bpm.LatentCounts(formulation=formulation)
        return estimator.fit(given, draws=500, tune=500, chains=2, rng=seed, progress_bar=False)

    fit()
    seconds, posterior = processor_seconds(fit)
    return worst(posterior.stats) / seconds


# releases, fits and marginals


def marginals_of(name: str) -> float:
    """Return the processor seconds of marginals of a model of `benchmarks/models.py`."""
    from models import models

    from bayesprivmrf.marginals import marginal_engine

    cardinalities, scopes = models(0)[name]
    engine = marginal_engine(cardinalities, scopes)
    size = sum(int(np.prod([cardinalities[v] for v in scope])) for scope in scopes)
    potentials = np.random.default_rng(SEED).normal(size=size)

    def task() -> None:
        for _ in range(max(1, 5_000_000 // size)):
            engine.marginals(potentials)

    return second_call(task)


def survey_release(epsilon: float = 1.0, seed: int = SEED) -> Any:
    """Release Fair's survey."""
    from bayesprivmrf.mechanisms import LaplaceStatistics
    from bayesprivmrf.survey import load_fair_survey

    return LaplaceStatistics(epsilon=epsilon).release(*load_fair_survey(), rng=seed)


def chain_release() -> Any:
    """Release tables of three neighboring variables of a chain of ten."""
    import pandas as pd

    import bayesprivmrf as bpm
    from bayesprivmrf.mechanisms import GaussianStatistics

    names = [f"v{i}" for i in range(10)]
    network = bpm.declare(
        states={name: list(range(STATES)) for name in names},
        cliques=[tuple(names[i : i + 3]) for i in range(8)],
    )
    rng = np.random.default_rng(SEED)
    columns = [rng.integers(STATES, size=RECORDS)]
    for _ in names[1:]:
        stays = rng.random(RECORDS) < 0.6
        columns.append(np.where(stays, columns[-1], rng.integers(STATES, size=RECORDS)))
    return GaussianStatistics(rho=0.5).release(
        network, pd.DataFrame(dict(zip(names, columns, strict=True))), rng=SEED
    )


def fit_of(method: str, release: Callable[[], Any]) -> float:
    """Return the processor seconds of a fit, and of an interval where the estimator has one."""
    import bayesprivmrf as bpm

    given = release()
    variable = given.specification.domain.variables[0]

    def task() -> None:
        solution = getattr(bpm, method)().fit(given)
        if method == "NoiseAwareMAP":
            solution.interval([variable])

    return second_call(task)


def learning_of(mechanism: str, **settings: object) -> float:
    """Return the processor seconds of learning a model of 20 binary variables, or of the survey's nine."""
    import pandas as pd

    import bayesprivmrf as bpm
    from bayesprivmrf import mechanisms
    from bayesprivmrf.model import ModelSpecification
    from bayesprivmrf.survey import load_fair_survey

    if mechanism == "SelectMeasure":
        network, data = load_fair_survey()
        domain = ModelSpecification.from_pgmpy(network).domain
        states = dict(zip(domain.variables, map(list, domain.states), strict=True))
        declared = bpm.declare(states=states)
    else:
        rng = np.random.default_rng(SEED)
        shared = rng.random(RECORDS)
        data = pd.DataFrame(
            {f"v{i}": (shared + rng.random(RECORDS) > 1).astype(int) for i in range(20)}
        )
        declared = bpm.declare(states={name: [0, 1] for name in data})
    made = getattr(mechanisms, mechanism)(**settings)

    return second_call(lambda: made.release(declared, data, rng=SEED))


# each measurement by its name in the table, as a function of a seed
TASKS: dict[str, Callable[[int], float]] = {
    "survey's posterior, epsilon 0.1": lambda seed: survey_seconds(0.1, seed),
    "survey's posterior, epsilon 1": lambda seed: survey_seconds(1.0, seed),
    "survey's posterior, epsilon 10": lambda seed: survey_seconds(10.0, seed),
    "gradient of the survey": gradient_microseconds,
    "grid 4x4": grid_rate,
    "NAPSU-MQ on grid 4x4": lambda seed: rival_grid_rate("automatic", seed),
    "NAPSU-MQ in closed form on grid 4x4": lambda seed: rival_grid_rate("closed", seed),
    "marginals, chain T10 K10": lambda _: marginals_of("chain T10 K10"),
    "marginals, third-order chain T10 K10": lambda _: marginals_of("third-order chain T10 K10"),
    "marginals, grid 10x10 K2": lambda _: marginals_of("grid 10x10 K2"),
    "marginals, families, 37 variables": lambda _: marginals_of("families, 37 variables"),
    "marginals, chain T1000 K50": lambda _: marginals_of("chain T1000 K50"),
    "fit NaiveMLE, survey": lambda _: fit_of("NaiveMLE", survey_release),
    "fit CGM, survey": lambda _: fit_of("CGM", survey_release),
    "fit NoiseAwareMAP, survey": lambda _: fit_of("NoiseAwareMAP", survey_release),
    "fit NoiseAwareMAP, chain of triples": lambda _: fit_of("NoiseAwareMAP", chain_release),
    "draws exact": lambda seed: draws_of("exact", seed),
    "draws hyper-dirichlet": lambda seed: draws_of("hyper-dirichlet", seed),
    "draws log-linear": lambda seed: draws_of("log-linear", seed),
    "learn SelectMeasure, survey": lambda _: learning_of("SelectMeasure", rho=0.1),
    "learn PrivateFrankWolfe, 20 variables": lambda _: learning_of(
        "PrivateFrankWolfe", epsilon=2.0, width=1.0
    ),
}


def main() -> None:
    """Take one measurement and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    value = TASKS[options.task](options.seed)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"value": value, "MiB": round(memory)}))


if __name__ == "__main__":
    main()
