"""Scores of ordered states and levels of areas, against the free model on the same noisy tables.

Simulated populations, one table each, Laplace noise; fitted by `NoiseAwareMAP`:

- ordered: two variables of six states. The truth is linear by linear, or linear with a curved part a third as large,
  or has no order at all (independent normal interactions of the same size);
- areas: 24 block groups in six tracts by five states; differences between tracts, between the block groups of a
  tract, both, or none.

A row a truth and a model: Kullback-Leibler divergence of the fit from the truth, nats, with the standard error over
populations; what share of 90 % intervals of the table's probabilities hold the truth; and of which share of fits of
restricted scores the software says that what was measured contradicts them.

    OMP_NUM_THREADS=1 uv run python benchmarks/scores.py --replications 100 --seed 1
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf.inference import Status
from bayesprivmrf.privacy import Laplace
from bayesprivmrf.release import NoisyStatistics

STATES, TRACTS, BLOCKS, GROUPS = 6, 6, 4, 5
TRUTHS = {"linear": (1.0, 0.0), "linear and curved": (1.0, 0.33), "no order": (0.0, 1.0)}
AREAS = {"tracts": (0.8, 0.1), "blocks": (0.1, 0.6), "both": (0.6, 0.6), "none": (0.0, 0.0)}


def ordered(rng, sizes):
    """A table whose interaction has a part that is linear in scores and one that is not."""
    score = np.arange(STATES) - (STATES - 1) / 2
    line = np.outer(score, score) / np.square(score).mean()
    logs = rng.normal(0, 0.5, (STATES, 1)) + rng.normal(0, 0.5, STATES)
    logs = (
        logs
        + sizes[0] * 0.5 * rng.choice([-1, 1]) * line
        + sizes[1] * rng.normal(0, 0.5, logs.shape)
    )
    return np.exp(logs) / np.exp(logs).sum()


def nested(rng, sizes):
    """A table of areas by groups, whose logarithms differ between tracts and within them."""
    logs = rng.normal(0, 1, GROUPS) + rng.normal(0, 0.4, (TRACTS * BLOCKS, 1))
    logs = logs + np.repeat(rng.normal(0, sizes[0], (TRACTS, GROUPS)), BLOCKS, axis=0)
    logs = logs + rng.normal(0, sizes[1], logs.shape)
    return np.exp(logs) / np.exp(logs).sum()


def networks():
    """Models by study and name."""
    states = {"a": range(STATES), "b": range(STATES)}
    area = {"area": range(TRACTS * BLOCKS), "group": range(GROUPS)}
    tracts = {t: range(t * BLOCKS, (t + 1) * BLOCKS) for t in range(TRACTS)}
    return {
        "ordered": {
            "free": bpm.declare(states, [("a", "b")]),
            "linear": bpm.declare(states, [("a", "b")], ordinal=["a", "b"]),
            "smooth": bpm.declare(states, [("a", "b")], ordinal={"a": "smooth", "b": "smooth"}),
        },
        "areas": {
            "flat": bpm.declare(area, [("area", "group")]),
            "levels": bpm.declare(area, [("area", "group")], levels={"area": {"tract": tracts}}),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replications", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", type=int, default=3000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for study, models in networks().items():
        for truth, sizes in (TRUTHS if study == "ordered" else AREAS).items():
            for index in range(arguments.replications):
                rng = np.random.default_rng([arguments.seed, index, len(rows)])
                law = (ordered if study == "ordered" else nested)(rng, sizes)
                counts = rng.multinomial(arguments.records, law.ravel())
                for epsilon in (0.1, 1.0):
                    noise = Laplace(1 / epsilon)
                    noisy = np.rint(
                        counts + rng.laplace(scale=noise.scale, size=counts.size)
                    ).reshape(law.shape)
                    for name, network in models.items():
                        if study == "ordered":
                            clique = ("a", "b")
                        else:
                            clique = ("area", "group")
                        release = NoisyStatistics.from_tables(network, {clique: noisy}, noise=noise)
                        begin = time.perf_counter()
                        fit = bpm.NoiseAwareMAP().fit(release)
                        bounds = fit.interval(list(clique), prob=0.9)
                        seconds = time.perf_counter() - begin
                        flat = law.ravel()
                        held = (bounds["lower"].to_numpy() <= flat) & (
                            flat <= bounds["upper"].to_numpy()
                        )
                        loss = float(
                            flat @ np.log(flat / fit.marginal(list(clique)).values.ravel())
                        )
                        if "misfit" in fit.stats:
                            alarm = fit.status is Status.NOT_TRUSTED
                        else:
                            alarm = np.nan
                        rows.append(
                            [study, truth, epsilon, name, loss, held.mean(), alarm, seconds]
                        )
    columns = ["study", "truth", "epsilon", "model", "KL", "held", "alarms", "seconds"]
    table = pd.DataFrame(rows, columns=columns)
    grouped = table.groupby(columns[:4], sort=False)
    result = grouped[["KL", "held", "alarms", "seconds"]].mean()
    result.insert(1, "± KL", grouped["KL"].sem())
    print(result.round(4).to_string())


if __name__ == "__main__":
    main()
