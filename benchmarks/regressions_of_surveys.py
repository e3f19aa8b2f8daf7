"""Regressions from private releases of three surveys beside those of the exact records, and the time of many draws.

One table of an outcome and its predictors is released with Laplace noise at epsilon 1, many times. The coefficients
of `analysis.regression` from the noise-aware mode are compared with those of the exact table. An interval is for the
population, so it should hold the coefficient of these records more often than it holds that of the population. It is
also compared with the usual interval of a regression on the records: a row for each survey has the share of
intervals that hold the exact coefficient, the largest share of misses of one coefficient, and the median ratio of the
widths. The time is that of a regression on 4,000 drawn tables of six variables with two states, without a posterior.

Data: Fair's survey of the package, and ../shared/data beside the repository, or the folder given by --data.

    OMP_NUM_THREADS=1 uv run python benchmarks/regressions_of_surveys.py --releases 20 --seed 1
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import softmax
from scipy.stats import norm

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.analysis.regressions import weighted_multinomial
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.survey import load_fair_survey

PROB = 0.9
DRAWS = 4_000
PREDICTORS = 5


def surveys(folder):
    """Records and formula of each survey; the first variable of a formula is the outcome."""
    _, fair = load_fair_survey()
    coronary = pd.read_csv(folder / "coronary" / "coronary.csv")
    coronary = coronary.rename(columns={"M. Work": "mental", "P. Work": "physical"})
    disability = pd.read_csv(folder / "nltcs" / "nltcs.csv").add_prefix("item")
    return {
        "Fair's survey": (fair, ["affairs", "religious", "rate_marriage"]),
        "coronary": (coronary, ["Pressure", "Smoking", "mental", "physical"]),
        "disability": (disability, ["item0", "item3", "item9", "item14"]),
    }


def exact_regression(table):
    """Coefficients of a logistic regression on exact counts, outcome last, and their standard errors."""
    *groups, _ = table.shape
    parts = np.meshgrid(*[np.arange(size) for size in groups], indexing="ij")
    columns = [np.ones(int(np.prod(groups)))]
    for part, size in zip(parts, groups, strict=True):
        columns += [(part.ravel() == state).astype(float) for state in range(1, size)]
    design = np.column_stack(columns)
    flat = table.reshape(1, len(design), -1) / table.sum()
    beta = weighted_multinomial(design, flat)[0][:, 1]
    chance = softmax(np.column_stack([np.zeros(len(design)), design @ beta]), axis=1)[:, 1]
    weight = table.reshape(len(design), -1).sum(axis=1) * chance * (1 - chance)
    return beta, np.sqrt(np.diag(np.linalg.inv((design.T * weight) @ design)))


def compared(records, names, releases, seed):
    """Row of one survey."""
    outcome, *predictors = names
    states = {name: sorted(records[name].unique().tolist()) for name in names}
    network = bpm.declare(states=states, cliques=[(*predictors, outcome)])
    codes = [pd.Categorical(records[name], states[name]).codes for name in (*predictors, outcome)]
    table = np.zeros([len(states[name]) for name in (*predictors, outcome)])
    np.add.at(table, tuple(codes), 1)
    beta, errors = exact_regression(table)
    formula = f"{outcome} ~ {' + '.join(predictors)}"
    holds = []
    widths = []
    for number in range(releases):
        mechanism = LaplaceStatistics(epsilon=1.0)
        release = mechanism.release(network, records[names], rng=1_000 * seed + number)
        solution = bpm.NoiseAwareMAP().fit(release)
        found = analysis.regression(solution, formula, prob=PROB).coefficients
        holds.append((found["lower"] <= beta) & (beta <= found["upper"]))
        widths.append((found["upper"] - found["lower"]) / (2 * norm.ppf(0.5 + PROB / 2) * errors))
    return {
        "records": len(records),
        "cells": table.size,
        "coefficients": len(beta),
        "held": np.mean(holds),
        "least held": np.min(np.mean(holds, axis=0)),
        "width": np.median(widths),
    }


def seconds_of_draws(seed):
    """Processor seconds of a logistic regression on many drawn tables of six variables with two states."""
    rng = np.random.default_rng(seed)
    cells = np.meshgrid(*[[0.0, 1.0]] * PREDICTORS, indexing="ij")
    design = np.column_stack([np.ones(2**PREDICTORS), *[cell.ravel() for cell in cells]])
    tables = rng.dirichlet(np.full(2 ** (PREDICTORS + 1), 50.0), DRAWS)
    begin = time.process_time()
    weighted_multinomial(design, tables.reshape(DRAWS, len(design), 2))
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"# seconds of {DRAWS} draws: {seconds_of_draws(arguments.seed):.2f}")
    rows = []
    for name, (records, names) in surveys(arguments.data).items():
        own = compared(records, names, arguments.releases, arguments.seed)
        rows.append({"survey": name, **own})
        print(pd.DataFrame(rows[-1:]).round(3).to_csv(index=False), end="", flush=True)


if __name__ == "__main__":
    main()
