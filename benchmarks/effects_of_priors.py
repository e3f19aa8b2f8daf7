"""Effects and cells of populations made of real tables, under each prior of the posterior.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/effects_of_priors.py --fits 100 --seed 20431
    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/effects_of_priors.py --fits 10 --priors auto rows

With `--kept FOLDER` each fit is written when it is done, and a second call continues after the last one.

A population is the joint table of four columns of a real table, resampled: Adult, NLTCS, a coronary study and a
personality questionnaire (--data), and Fair's survey, which the library contains. Columns with more than five states
are merged to at most five by the order of their codes; the Likert answers of the questionnaire keep their six states.
The cliques are declared blindly. N of 300 to 6,000 records are drawn, and released by `LaplaceStatistics` with
epsilon .3 to 3. Everything that is judged lies inside one clique, so no declared independence is needed for it.

Judged are 90 % intervals and posterior means of

- common cells (above half a percent), rare cells and empty cells of the cliques,
- local log odds ratios of two variables, in the margin and in the strata of a third,
- standardized risk differences: P(outcome | one state of the exposure) less that of the first, over the third
  variable's distribution,
- coefficients of the logistic regression of a binary outcome on the indicators of the other two variables; for a
  population they are those of the likelihood's maximum.

An effect is judged if each of the cells that it compares has at least eight expected records. *Slope* is that of the
regression of truth on posterior mean: an ideal posterior has 1, one that shrinks too much has more, and one that
exaggerates less than 1. Standard errors of coverage and slope are clustered by fit (a jackknife over fits).

Priors: `auto` is `LatentCounts()`, `rows` `LatentCounts(formulation="hyper-dirichlet")` and `effects`
`LatentCounts(formulation="log-linear")`. Where `auto` has the settings of one of the others, the fit is not repeated.

Writes benchmarks/results/effects-of-priors.csv, a row for each prior and kind, effects-of-priors-fits.csv, a row for
each fit and prior, and effects-of-priors-points.csv, the log odds ratios in strata of the first fits.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from bayesprivmrf import LatentCounts, declare
from bayesprivmrf.inference import Posterior
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.survey import fair_survey_records

RESULTS = Path(__file__).parent / "results"
PRIORS = {
    "auto": LatentCounts(),
    "rows": LatentCounts(formulation="hyper-dirichlet"),
    "effects": LatentCounts(formulation="log-linear"),
}
TABLES = ("adult", "nltcs", "coronary", "bfi", "fair")
CLIQUES = {
    "triples": ((0, 1, 2), (1, 2, 3)),
    "triple and pair": ((0, 1, 2), (2, 3)),
    "chain": ((0, 1), (1, 2), (2, 3)),
    "star": ((0, 1), (0, 2), (0, 3)),
    "one triple": ((0, 1, 2),),
}
LEVEL = 0.9
# least expected number of records in each cell that an effect compares
LEAST = 8
# probability from which a cell is common
COMMON = 0.005
# most states of a column, and of the questionnaire's
STATES = 5
# most cells of a clique
MOST_CELLS = 160
# fits of which the points are stored
POINTED = 60
# columns of Adult without those that have a hundred states
ADULT = (
    "age",
    "workclass",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "hours-per-week",
    "income>50K",
)
# answers of the questionnaire
ITEMS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One judged number: its kind, its draws, and the truth."""

    kind: str
    draws: np.ndarray
    truth: float


# populations


def table_of(name: str, data: Path) -> pd.DataFrame:
    """Return a real table as codes 0, 1, ..., with at most `STATES` states a column."""
    if name == "fair":
        frame = fair_survey_records()
    else:
        frame = pd.read_csv(data / name / f"{name}.csv")
    if name == "bfi":
        items = frame.iloc[:, :ITEMS].dropna().astype(int)
        return items - 1
    if name == "adult":
        frame = frame[list(ADULT)]
    return pd.DataFrame({str(column): merged(frame[column]) for column in frame})


def merged(column: pd.Series) -> np.ndarray:
    """Return codes of a column, of which neighbors are merged to at most `STATES` of about equal size."""
    codes = np.unique(column.to_numpy(), return_inverse=True)[1]
    if codes.max() < STATES:
        return codes
    ranks = (pd.Series(codes).rank(method="average") - 0.5) / len(codes)
    by_code = ranks.groupby(codes).first().to_numpy()
    groups = np.floor(by_code * STATES).astype(int)
    return np.unique(groups[codes], return_inverse=True)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One population, its declaration, and the size of its release."""

    table: str
    cliques: str
    names: tuple[str, ...]
    joint: np.ndarray
    records: int
    epsilon: float

    @classmethod
    def drawn(cls, tables: dict[str, pd.DataFrame], rng: np.random.Generator) -> Setting:
        """Draw a setting whose cliques have at most `MOST_CELLS` cells."""
        while True:
            name = str(rng.choice(TABLES))
            cliques = str(rng.choice(list(CLIQUES)))
            frame = tables[name]
            width = 1 + max(itertools.chain(*CLIQUES[cliques]))
            names = tuple(str(v) for v in rng.choice(frame.columns, width, replace=False))
            shape = tuple(int(frame[v].max()) + 1 for v in names)
            if max(math.prod(shape[v] for v in c) for c in CLIQUES[cliques]) <= MOST_CELLS:
                break
        found = np.zeros(shape)
        np.add.at(found, tuple(frame[v].to_numpy() for v in names), 1)
        size = int(found.sum())
        joint = rng.multinomial(size, found.ravel() / size).reshape(shape) / size
        records = round(math.exp(rng.uniform(math.log(300), math.log(6000))))
        epsilon = math.exp(rng.uniform(math.log(0.3), math.log(3.0)))
        return cls(
            table=name,
            cliques=cliques,
            names=names,
            joint=joint,
            records=records,
            epsilon=epsilon,
        )

    @property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        return CLIQUES[self.cliques]

    def margin(self, scope: tuple[int, ...]) -> np.ndarray:
        """Return the population's table of some variables, in their order."""
        others = tuple(v for v in range(self.joint.ndim) if v not in scope)
        table = self.joint.sum(axis=others)
        kept = sorted(scope)
        return table.transpose([kept.index(v) for v in scope])

    def release(self, rng: np.random.Generator) -> Any:
        """Draw the records, and release their tables."""
        states = {
            name: list(range(k)) for name, k in zip(self.names, self.joint.shape, strict=True)
        }
        cliques = [tuple(self.names[v] for v in scope) for scope in self.scopes]
        counts = rng.multinomial(self.records, self.joint.ravel())
        cells = np.repeat(np.arange(self.joint.size), counts)
        codes = np.unravel_index(cells, self.joint.shape)
        data = pd.DataFrame(dict(zip(self.names, codes, strict=True)))
        return LaplaceStatistics(epsilon=self.epsilon).release(
            declare(states=states, cliques=cliques), data, rng=rng
        )


# effects of tables, shape (draws, states, states[, states])


def local_odds_ratios(table: np.ndarray) -> np.ndarray:
    """Return log odds ratios of neighboring states of the last two axes."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(table)
        rows = logs[..., 1:, :] - logs[..., :-1, :]
        return rows[..., 1:] - rows[..., :-1]


def smallest(table: np.ndarray) -> np.ndarray:
    """Return the least of the four cells of each local odds ratio."""
    rows = np.minimum(table[..., 1:, :], table[..., :-1, :])
    return np.minimum(rows[..., 1:], rows[..., :-1])


def standardized_differences(table: np.ndarray) -> np.ndarray:
    """Return differences of standardized risks, from a table of exposure, stratum, outcome."""
    with np.errstate(divide="ignore", invalid="ignore"):
        risk = table / table.sum(axis=-1, keepdims=True)
    share = table.sum(axis=(-3, -1))
    standard = (risk * share[..., np.newaxis, :, np.newaxis]).sum(axis=-2)
    return standard[..., 1:, :] - standard[..., :1, :]


def logistic_coefficients(table: np.ndarray) -> np.ndarray:
    """Return the coefficients of the indicators of two variables, from tables of both and a binary outcome.

    Newton's method on all draws at once; the intercept is left out.
    """
    first, second = table.shape[-3:-1]
    rows = [(i, j) for i in range(first) for j in range(second)]
    design = np.array(
        [
            [
                1.0,
                *(float(i == k) for k in range(1, first)),
                *(float(j == k) for k in range(1, second)),
            ]
            for i, j in rows
        ]
    )
    flat = table.reshape(*table.shape[:-3], len(rows), 2)
    weight = flat.sum(axis=-1)
    beta = np.zeros((*table.shape[:-3], design.shape[1]))
    ridge = 1e-10 * np.eye(design.shape[1])
    for _ in range(40):
        share = 1 / (1 + np.exp(-np.clip(beta @ design.T, -30, 30)))
        score = (flat[..., 1] - weight * share) @ design
        curvature = np.einsum("...r,ra,rb->...ab", weight * share * (1 - share), design, design)
        step = np.linalg.solve(curvature + ridge, score[..., np.newaxis])[..., 0]
        beta = beta + np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-8:
            break
    return beta[..., 1:]


def effects_of(draws: np.ndarray, truth: np.ndarray, records: int) -> Iterator[Quantity]:
    """Return the effects inside one clique's table that are judged."""
    number = truth.ndim
    for pair in itertools.combinations(range(number), 2):
        rest = tuple(v for v in range(number) if v not in pair)
        ends = draws.sum(axis=tuple(1 + v for v in rest))
        yield from judged("marginal log odds ratio", ends, truth.sum(axis=rest), records)
        for third in rest:
            moved = np.moveaxis(truth, third, 0)
            strata = np.moveaxis(draws, 1 + third, 1)
            for state in range(truth.shape[third]):
                yield from judged("stratum log odds ratio", strata[:, state], moved[state], records)
    if number == 3:
        for order in itertools.permutations(range(3)):
            axes = (0, *(1 + v for v in order))
            yield from regressions(draws.transpose(axes), truth.transpose(order), records, order)


def judged(kind: str, draws: np.ndarray, truth: np.ndarray, records: int) -> Iterator[Quantity]:
    """Return the local log odds ratios of one two-way table whose cells have enough expected records."""
    enough = smallest(truth) * records >= LEAST
    values = local_odds_ratios(draws)
    for place, value in zip(np.argwhere(enough), local_odds_ratios(truth)[enough], strict=True):
        yield Quantity(kind=kind, draws=values[:, *place], truth=float(value))


def regressions(
    draws: np.ndarray, truth: np.ndarray, records: int, order: tuple[int, ...]
) -> Iterator[Quantity]:
    """Return standardized differences and logistic coefficients, from tables of exposure, stratum, outcome."""
    if truth.shape[2] == 2 and (truth * records).min() >= LEAST:
        values = standardized_differences(draws)[..., 1]
        for k, value in enumerate(standardized_differences(truth)[..., 1]):
            yield Quantity(kind="standardized difference", draws=values[:, k], truth=float(value))
    pairs = [truth.sum(axis=1), truth.sum(axis=0)]
    # each pair of variables gives the same coefficients in either order
    if truth.shape[2] == 2 and order[0] < order[1] and min(map(np.min, pairs)) * records >= LEAST:
        values = logistic_coefficients(draws)
        for k, value in enumerate(logistic_coefficients(truth[np.newaxis])[0]):
            yield Quantity(kind="logistic coefficient", draws=values[:, k], truth=float(value))


# fits


def cells_of(posterior: Posterior, setting: Setting) -> Iterator[dict[str, Any]]:
    """Return the judgment of each cell of each clique, by the intervals of the posterior."""
    for scope in setting.scopes:
        truth = setting.margin(scope).ravel()
        frame = posterior.interval([setting.names[v] for v in scope], prob=LEVEL)
        kind = np.where(
            truth >= COMMON, "common cell", np.where(truth > 0, "rare cell", "empty cell")
        )
        holds = (frame["lower"].to_numpy() <= truth) & (truth <= frame["upper"].to_numpy())
        for place in range(truth.size):
            yield {
                "kind": str(kind[place]),
                "truth": truth[place],
                "mean": float(frame["estimate"].iloc[place]),
                "holds": bool(holds[place]),
            }


def judgments(posterior: Posterior, setting: Setting) -> list[dict[str, Any]]:
    """Return the judgment of each cell and effect of one posterior."""
    found = list(cells_of(posterior, setting))
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    for scope in setting.scopes:
        name = f"marginal[{','.join(setting.names[v] for v in scope)}]"
        draws = posterior.tree["posterior"][name].values
        draws = np.maximum(draws.reshape(-1, *draws.shape[2:]), 1e-300)
        for each in effects_of(draws, setting.margin(scope), setting.records):
            low, high = np.quantile(each.draws, ends)
            found.append(
                {
                    "kind": each.kind,
                    "truth": each.truth,
                    "mean": float(each.draws.mean()),
                    "holds": bool(low <= each.truth <= high),
                }
            )
    return found


def fitted(
    setting: Setting, release: Any, priors: list[str], seed: int
) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """Fit a release under each prior, and return facts about the fit and its judgments."""
    known: dict[tuple[str, str], tuple[dict[str, Any], list[dict[str, Any]]]] = {}
    own = {"rows": "hyper-Dirichlet", "effects": "log-linear"}
    for prior in priors:
        if ("auto", own.get(prior, "")) in known:
            facts, found = known["auto", own[prior]]
            yield prior, facts, found
            continue
        begin = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = PRIORS[prior].fit(release, rng=seed, progress_bar=False)
        facts = {
            "engine": posterior.stats["formulation"],
            "is_rows": "concentration_floor" in posterior.stats,
            "status": posterior.status.value,
            "cpu": time.process_time() - begin,
            "effective": posterior.stats.get("ess_bulk", math.nan),
        }
        found = judgments(posterior, setting)
        known[prior, facts["engine"]] = facts, found
        yield prior, facts, found


# report


def slope(rows: pd.DataFrame) -> float:
    """Return the slope of the regression of truth on posterior mean."""
    mean = rows["mean"] - rows["mean"].mean()
    return float((mean * rows["truth"]).sum() / max((mean**2).sum(), 1e-300))


def jackknife(rows: pd.DataFrame, statistic: Any) -> float:
    """Return the standard error of a statistic that leaves out one fit at a time."""
    fits = rows["fit"].unique()
    values = np.array([statistic(rows[rows["fit"] != fit]) for fit in fits])
    return float(np.sqrt((len(fits) - 1) / len(fits) * ((values - values.mean()) ** 2).sum()))


def report(rows: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """Return the table of each kind and prior."""
    table = []
    for (kind, prior), part in rows.groupby(["kind", "prior"], sort=False):
        fits = facts[facts["prior"] == prior]
        table.append(
            {
                "kind": kind,
                "prior": prior,
                "rows": len(part),
                "fits": part["fit"].nunique(),
                "coverage": part["holds"].mean(),
                "coverage_error": jackknife(part, lambda own: own["holds"].mean()),
                "slope": slope(part),
                "slope_error": jackknife(part, slope),
                "rmse": float(np.sqrt(((part["mean"] - part["truth"]) ** 2).mean())),
                "cpu": fits["cpu"].median(),
                "usable": fits["status"].isin(["converged", "approximate"]).mean(),
            }
        )
    return pd.DataFrame(table)


def done(folder: Path | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows and the facts of fits that are done; of a fit that was interrupted, neither."""
    if folder is None or not (folder / "rows.csv").exists():
        return [], []
    rows = pd.read_csv(folder / "rows.csv")
    facts = pd.read_csv(folder / "fits.csv")
    is_whole = facts["fit"].isin(rows["fit"])
    return rows.to_dict("records"), facts[is_whole].to_dict("records")


def keep(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Append rows to a file of a folder."""
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{name}.csv"
    pd.DataFrame(rows).to_csv(path, mode="a", header=not path.exists(), index=False)


def main() -> None:
    """Fit, print the table and write the files."""
    parser = argparse.ArgumentParser(description="Effects and cells under each prior.")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--priors", nargs="+", choices=list(PRIORS), default=list(PRIORS))
    parser.add_argument("--fits", type=int, default=100, help="number of the last fit, and 1")
    parser.add_argument("--first", type=int, default=0, help="number of the first fit")
    parser.add_argument("--seed", type=int, default=20431)
    parser.add_argument("--out", default="effects-of-priors")
    parser.add_argument("--kept", type=Path, help="folder of the fits that are done")
    options = parser.parse_args()
    tables = {name: table_of(name, options.data) for name in TABLES}
    kept = options.kept
    rows, facts = done(kept)
    for fit in range(options.first + len({own["fit"] for own in facts}), options.fits):
        rng = np.random.default_rng([options.seed, fit])
        setting = Setting.drawn(tables, rng)
        release = setting.release(rng)
        about = {
            "fit": fit,
            "table": setting.table,
            "cliques": setting.cliques,
            "cells": sum(setting.margin(scope).size for scope in setting.scopes),
            "records": setting.records,
            "epsilon": setting.epsilon,
        }
        fits = []
        judged_rows = []
        for prior, own, found in fitted(setting, release, options.priors, fit):
            fits.append({**about, "prior": prior, **own})
            judged_rows += [{"fit": fit, "prior": prior, **each} for each in found]
        if kept is not None:
            keep(kept, "fits", fits)
            keep(kept, "rows", judged_rows)
        facts += fits
        rows += judged_rows
        if fit % 10 == 9 or fit + 1 == options.fits:
            write(pd.DataFrame(rows), pd.DataFrame(facts), options.out)
    print(report(pd.DataFrame(rows), pd.DataFrame(facts)).round(3).to_string(index=False))


def write(rows: pd.DataFrame, facts: pd.DataFrame, out: str) -> None:
    """Write the three files."""
    RESULTS.mkdir(exist_ok=True)
    tables = {"": report(rows, facts), "-fits": facts}
    strata = rows[(rows["kind"] == "stratum log odds ratio") & (rows["fit"] < POINTED)]
    tables["-points"] = strata[["fit", "prior", "truth", "mean"]]
    for end, table in tables.items():
        table.to_csv(RESULTS / f"{out}{end}.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
