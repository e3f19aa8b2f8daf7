"""One prior scale for each effect, or one for each order: what it changes for `NoiseAwareMAP` and the posterior.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/effect_scales.py --jobs 2
    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/effect_scales.py --jobs 2 --posterior --runs 2

Populations and settings of robustness_truths.py whose posterior is log-linear (grids, a three-way model), and Fair's
survey, of which three quarters are released and the rest is predicted. The same releases are fitted with
`EffectsPrior.spread_between_effects` as it is (.5) and 0. A row a setting: the Kullback-Leibler divergence from the
truth, nats, under either, and the geometric mean of their ratio with its standard error; of the survey, held-out
log-likelihood in nats a record. `--posterior` fits `LatentCounts` as well: coverage of its 90 % intervals for
marginals and for N, statuses, seconds. Replications are numbered from 1,000: robustness.py takes others.
"""

from __future__ import annotations

import argparse
import os
import warnings
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import numpy as np
import pandas as pd
from rich.progress import track
from robustness_truths import STUDIES, Cell, Population

from bayesprivmrf.evaluation import compare
from bayesprivmrf.inference import LatentCounts, NoiseAwareMAP
from bayesprivmrf.inference.loglinear_fit import scale_prior as effects_prior
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.survey import fair_survey_declaration, fair_survey_records

RESULTS = Path(__file__).parent / "results"
FIRST = 1000
SPREADS = (effects_prior.SPREAD_BETWEEN_EFFECTS, 0.0)
EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
CELLS = [cell for cell in STUDIES["potentials"] if "grid" in cell.graph] + STUDIES["three-way"]
LEVEL = 0.9


class Spread:
    """Fits inside it give effects of one order that much room of their own."""

    def __init__(self, spread: float) -> None:
        self._spread = spread

    def __enter__(self) -> None:
        self._before = effects_prior.EffectsPrior.__init__.__kwdefaults__
        effects_prior.EffectsPrior.__init__.__kwdefaults__ = {
            **self._before,
            "spread_between_effects": self._spread,
        }

    def __exit__(self, *_: object) -> None:
        effects_prior.EffectsPrior.__init__.__kwdefaults__ = self._before


def of_cell(cell: Cell, index: int, *, has_posterior: bool) -> list[dict[str, Any]]:
    rng = cell.rng(index)
    truth = Population(cell.graph, cell.law, rng)
    release = truth.release(truth.counts(cell.records, rng), cell.epsilon, rng)
    rows = []
    for spread in SPREADS:
        with Spread(spread), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mode = NoiseAwareMAP().fit(release)
            row = {
                "graph": cell.graph, "law": cell.law, "records": cell.records, "epsilon": cell.epsilon,
                "index": index, "spread": spread, "map": truth.divergence(mode.potentials.flat),
            }  # fmt: skip
            if has_posterior:
                row |= _of_posterior(truth, cell, release, index)
        rows.append(row)
    return rows


def _of_posterior(truth: Population, cell: Cell, release: Any, index: int) -> dict[str, Any]:
    posterior = LatentCounts(formulation="log-linear").fit(
        release, rng=index, draws=400, tune=400, chains=2, time_limit=20.0, progress_bar=False
    )
    held = []
    for clique, table in zip(truth.model.cliques, truth.tables, strict=True):
        found = posterior.interval(list(clique), LEVEL)[["lower", "upper"]].to_numpy()
        held.append((found[:, 0] <= table) & (table <= found[:, 1]))
    total = posterior.tree["posterior"]["total"].values
    low, high = np.quantile(total, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {
        "posterior": truth.divergence(posterior.solution.potentials.flat),
        "marginals": float(np.mean(np.concatenate(held))),
        "total": bool(low <= cell.records <= high),
        "status": posterior.status.value,
        "seconds": posterior.stats["seconds"],
        "effective": posterior.stats["ess_bulk"],
        "pressed": posterior.stats.get("pressed_score", np.nan),
    }


def of_survey(epsilon: float, index: int) -> list[dict[str, Any]]:
    declaration = fair_survey_declaration()
    data = fair_survey_records()
    train = data.sample(frac=0.75, random_state=index)
    test = data.drop(train.index)
    rng = np.random.default_rng([FIRST, index])
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        release = LaplaceStatistics(epsilon=epsilon).release(
            declaration.specification, train, rng=rng
        )
        for spread in SPREADS:
            with Spread(spread):
                scored = compare({"map": NoiseAwareMAP().fit(release)}, holdout=test)
            rows.append(
                {
                    "graph": "survey",
                    "epsilon": epsilon,
                    "index": index,
                    "spread": spread,
                    "map": float(scored["holdout_log_likelihood"].iloc[0]),
                }
            )
    return rows


def report(rows: pd.DataFrame) -> None:
    truths = rows[rows["graph"] != "survey"]
    keys = ["graph", "law", "records", "epsilon"]
    for measure in [name for name in ("map", "posterior") if name in truths]:
        wide = truths.pivot(index=[*keys, "index"], columns="spread", values=measure)
        ratio = np.log(wide[SPREADS[0]] / wide[0.0])
        table = wide.groupby(keys).mean()
        table["ratio"] = np.exp(ratio.groupby(keys).mean())
        table["error"] = np.exp(ratio.groupby(keys).std() / np.sqrt(ratio.groupby(keys).size()))
        print(f"{measure}: divergence\n{table.round(4).to_string()}")
        by_law = ratio.groupby("law")
        print(np.exp(by_law.agg(["mean", "sem"])).round(3).to_string(), "\n")
    for measure in [
        name for name in ("marginals", "total", "seconds", "effective") if name in truths
    ]:
        print(
            measure,
            truths.groupby(["law", "spread"])[measure].mean().unstack().round(3).to_string(),
            "\n",
        )
    if "status" in truths:
        print(truths.groupby(["spread", "status"]).size().to_string(), "\n")
    survey = rows[rows["graph"] == "survey"]
    if len(survey):
        wide = survey.pivot(index=["epsilon", "index"], columns="spread", values="map")
        table = wide.groupby("epsilon").mean()
        gain = (wide[SPREADS[0]] - wide[0.0]).groupby("epsilon")
        print(table.assign(gain=gain.mean(), error=gain.sem()).round(4).to_string())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--posterior", action="store_true")
    options = parser.parse_args()
    chosen = range(FIRST, FIRST + options.runs)
    jobs = [
        joblib.delayed(of_cell)(cell, index, has_posterior=options.posterior)
        for index, cell in product(chosen, CELLS)
    ]
    jobs += [joblib.delayed(of_survey)(*one) for one in product(EPSILONS, chosen)]
    found = joblib.Parallel(n_jobs=options.jobs, return_as="generator")(jobs)
    rows = pd.DataFrame([row for some in track(found, total=len(jobs)) for row in some])
    RESULTS.mkdir(exist_ok=True)
    rows.to_csv(
        RESULTS / f"effect-scales{'-posterior' if options.posterior else ''}.csv", index=False
    )
    report(rows)


if __name__ == "__main__":
    main()
