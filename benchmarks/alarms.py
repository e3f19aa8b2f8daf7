"""How often a posterior's alarms are raised, on fits that are wrong and on fits that are right.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/alarms.py --jobs 2

Chains of T variables with K states, N records, discrete Laplace noise for epsilon, N private, fitted by
``LatentCounts(formulation="exact")`` with the prior's concentration fixed at 1 and learned. Truths: rows from
Dirichlet(1), for which 1 is right; from Dirichlet(.2); sticky ones, that stay with probability .93 to .99; and weak
ones, rows that are nearly alike. A fit is wrong where fewer than three quarters of its 90 % intervals hold the truth;
it is right where the prior is: concentration 1 on Dirichlet(1), the learned one on all. Right fits with an R-hat
above 1.1, whose chains had too little time, are counted apart. Writes benchmarks/results/alarms.csv.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from itertools import product, takewhile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import numpy as np
import pandas as pd
from rich.progress import track

from bayesprivmrf.inference import LatentCounts
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import DiscreteLaplace
from bayesprivmrf.release import NoisyStatistics

RESULTS = Path(__file__).parent / "results"
SETTINGS = {
    "Dirichlet(1)": ((6, 3, 1_000, 1.0), (6, 3, 2_000, 0.3), (6, 4, 1_000, 0.5)),
    "Dirichlet(.2)": ((6, 4, 1_000, 0.5), (5, 4, 1_000, 0.3), (6, 3, 500, 0.5)),
    "sticky": ((6, 4, 1_000, 0.3), (6, 3, 500, 1.0)),
    "weak": ((6, 3, 1_000, 0.3), (6, 3, 1_000, 1.0)),
}
SCORES = (
    "total_score",
    "pressed_score",
    "prior_fit_score",
    "prior_fit_open",
    "learned_score",
    "margin_tail",
)
ALARMS = (
    "contradicts",
    "small cells hold",
    "released tables disagree",
    "the prior has it",
    "was learned to be",
)
SEED = 27_182_818


def rows_of(truth: str, length: int, states: int, rng: np.random.Generator) -> np.ndarray:
    """Transition probabilities, shape (length - 1, states, states)."""
    shape = (length - 1, states)
    if truth == "sticky":
        stay = rng.uniform(0.93, 0.99, states)
        rows = np.repeat(((1 - stay) / (states - 1))[:, np.newaxis], states, axis=1)
        np.fill_diagonal(rows, stay)
        return np.broadcast_to(rows, (*shape, states))
    if truth == "weak":
        rows = np.exp(
            0.1 * rng.normal(size=(*shape, states)) + 0.7 * rng.normal(size=(length - 1, 1, states))
        )
        return rows / rows.sum(axis=-1, keepdims=True)
    return rng.dirichlet(np.full(states, 1.0 if truth == "Dirichlet(1)" else 0.2), shape)


def released(
    truth: str, length: int, states: int, records: int, epsilon: float, index: int
) -> tuple[np.ndarray, NoisyStatistics]:
    """True probabilities of the pairs, flat, and a release."""
    settings = (length, states, records, round(1000 * epsilon), index)
    rng = np.random.default_rng([SEED, list(SETTINGS).index(truth), *settings])
    rows = rows_of(truth, length, states, rng)
    margin = rng.dirichlet(np.full(states, 3.0))
    now = rng.choice(states, records, p=margin)
    law = DiscreteLaplace((length - 1) / epsilon)
    pairs = []
    tables = {}
    for t, row in enumerate(rows):
        pairs.append(margin[:, np.newaxis] * row)
        margin = pairs[-1].sum(axis=0)
        later = (rng.random((records, 1)) > row[now].cumsum(axis=1)[:, :-1]).sum(axis=1)
        counts = np.bincount(now * states + later, minlength=states**2).reshape(states, states)
        tables[t, t + 1] = counts + law.draw(counts.shape, rng)
        now = later
    variables = tuple(range(length))
    domain = Domain(variables=variables, states=(tuple(range(states)),) * length)
    model = ModelSpecification(domain=domain, cliques=tuple(tables))
    return np.ravel(pairs), NoisyStatistics.from_tables(model, tables, noise=law)


def replicate(
    truth: str, setting: tuple[Any, ...], concentration: float | None, index: int
) -> dict[str, Any]:
    """One fit: what its intervals hold, and its alarms."""
    probabilities, release = released(truth, *setting, index=index)
    estimator = LatentCounts(formulation="exact", concentration=concentration)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = estimator.fit(
            release, rng=index, draws=300, tune=300, chains=4, time_limit=3.0, cores=1
        )
    frames = [posterior.interval([t, t + 1]) for t in range(setting[0] - 1)]
    frame = pd.concat([one.reset_index(drop=True) for one in frames])
    holds = (frame["lower"] <= probabilities) & (probabilities <= frame["upper"])
    marked = frame["note"].str.contains("the prior decides")
    problems = " ".join(posterior.stats["problems"])
    return {
        "truth": truth,
        "setting": "T {}, K {}, N {:,}, ε {:g}".format(*setting),
        "concentration": concentration or "learned",
        "index": index,
        "held": holds.mean(),
        "marked": marked.mean(),
        "held, not marked": holds[~marked].mean(),
        "r_hat": posterior.stats["r_hat"],
        "status": posterior.status.value,
        **{name: posterior.stats.get(name) for name in SCORES},
        **{alarm: alarm in problems for alarm in ALARMS},
    }


def report(frame: pd.DataFrame) -> str:
    """Markdown: alarms by truth and prior, and how many of the wrong and of the right fits raise one."""
    raised: Any = frame[list(ALARMS)].any(axis=1)
    is_wrong = (frame["held"] < 0.75) & (frame["concentration"] != "learned")
    is_right = (frame["concentration"] == "learned") | (frame["truth"] == "Dirichlet(1)")
    is_mixed = frame["r_hat"] < 1.1
    lines = [
        "| truth | concentration | fits | held | marked | held, not marked | with an alarm |",
        "|---" * 7 + "|",
    ]
    groups: Any = frame.groupby(["truth", "concentration"], sort=False)
    for key, part in groups:
        means = [f"{part[name].mean():.3f}" for name in ("held", "marked", "held, not marked")]
        lines.append(
            f"| {key[0]} | {key[1]} | {len(part)} | {' | '.join(means)} | {raised[part.index].sum()} |"
        )
    for name, of in (
        ("wrong", is_wrong),
        ("right", is_right & is_mixed),
        ("right, not mixed", is_right & ~is_mixed),
    ):
        each = ", ".join(f"{alarm!r} {frame.loc[of, alarm].sum()}" for alarm in ALARMS)
        lines.append(f"\n{name}: {raised[of].sum()} of {of.sum()} fits raise an alarm ({each})")
    return "\n".join(lines)


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description="How often a posterior's alarms are raised.")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--replications", type=int, default=15)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no fit after this time"
    )
    arguments = parser.parse_args()
    tasks = [
        (truth, setting, concentration, index)
        for index in range(arguments.replications)
        for truth, settings in SETTINGS.items()
        for setting, concentration in product(settings, (1.0, None))
    ]
    stop = time.monotonic() + arguments.seconds
    begun = (
        joblib.delayed(replicate)(*task)
        for task in takewhile(lambda _: time.monotonic() < stop, tasks)
    )
    work: Any = joblib.Parallel(
        n_jobs=arguments.jobs, return_as="generator", pre_dispatch=arguments.jobs
    )(begun)
    frame = pd.DataFrame(list(track(work, total=len(tasks), description="fits")))
    RESULTS.mkdir(exist_ok=True)
    frame.to_csv(RESULTS / "alarms.csv", index=False, float_format="%.5g")
    print(report(frame))


if __name__ == "__main__":
    main()
