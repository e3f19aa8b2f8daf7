"""A folder of published tables for each of many areas: time, and coverage of counts, rates and odds ratios.

Six tables of two and three variables are published for each area, in a folder with one count a line: rounded at
random to base 3, rounded to the nearest 5, changed by cell keys, or with counts of 1 to 4 suppressed and others
suppressed to protect them. `readers.read_folder` reads each folder, and `NoiseAwareMAP` fits it.

- `Adult`: each area has its own weights of the records of the 1994 census, and some hundred people drawn by them.
- `Rhode Island`: the 28 block groups of the redistricting data of 2018, each divided into eight zones of blocks, with
  their people's voting age, Hispanic origin and race. There is no population of which these people are a sample, and
  so there are no true rates and odds ratios.
- `Rhode Island, drawn`: as many people, drawn with the shares of each zone, which are mixed with those of the state
  so that none of them is 0.

A hidden cell is protected by another one in its line of the last variable, and in `Rhode Island`, where few cells are
small, by others in its lines in all directions.

    python -m benchmarks.published.folder --data ../shared/data --areas 40 > benchmarks/results/published-folder.csv

Columns: data; rule; areas; share of suppressed cells; mean and greatest processor seconds of reading and fitting one
area; coverage of 90 % intervals of counts, of rates (Adult: income given education, and given age and marital status;
Rhode Island: voting age and Hispanic origin given the zone) and of odds ratios of cells that have records. Seeds are
96000, 96001, ... of each rule.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.noise import CellKey, Likelihood, RandomRounding, Rounded, Suppressed

FIRST_SEED = 96_000
STATES = {
    "age": ["<29", "29-38", "39-48", ">48"],
    "sex": ["Female", "Male"],
    "education": ["school", "high school", "some college", "degree"],
    "marital": ["married", "never", "other"],
    "race": ["one", "others"],
    "income": ["low", "high"],
}
TABLES = [
    ("age", "sex"),
    ("race", "education"),
    ("age", "marital", "income"),
    ("sex", "education", "income"),
    ("race", "income"),
    ("marital", "sex"),
]
BLOCK_STATES = {
    "zone": list(range(8)),
    "age": ["<18", "18+"],
    "hispanic": ["no", "yes"],
    "race": ["white", "black", "native", "Asian", "Pacific", "other", "several"],
}
BLOCK_TABLES = [
    ("zone", "age"),
    ("zone", "race"),
    ("zone", "hispanic"),
    ("age", "race"),
    ("zone", "hispanic", "age"),
    ("race", "hispanic", "age"),
]
RATES = [("income", ["education"]), ("income", ["age", "marital"])]
RATIOS = [("education", "income"), ("age", "sex"), ("race", "income"), ("marital", "sex")]
BLOCK_RATES = [("age", ["zone"]), ("hispanic", ["zone"])]
BLOCK_RATIOS = [("zone", "age"), ("zone", "hispanic"), ("race", "age"), ("hispanic", "age")]
# Share of the state's people among those by which the people of a zone are drawn
SHARE_OF_STATE = 0.1
# Records of an area, and the standard deviation of log weights of the states of each variable in it
RECORDS = (300, 1500)
SPREAD = 0.5
# A made-up perturbation table: changes of a count by eight keys, with mean 0
CHANGES = {
    1: [-1, -1, 0, 0, 0, 0, 1, 1],
    2: [-2, -1, -1, 0, 0, 1, 1, 2],
    3: [-2, -1, -1, 0, 0, 1, 1, 2],
}
# Largest count that is suppressed, and rounds of protection
PRIMARY = 4
ROUNDS = 3


def adult(path: Path) -> pd.DataFrame:
    """Return the records, with few states of each variable."""
    raw = pd.read_csv(path)
    age = np.digitize(raw["age"], [12, 22, 32])
    education = np.digitize(raw["education-num"], [8, 9, 12])
    marital = np.select([raw["marital-status"] == 2, raw["marital-status"] == 0], [0, 1], 2)
    columns = {"age": age, "sex": raw["sex"], "education": education, "marital": marital}
    columns |= {"race": (raw["race"] > 0).astype(int), "income": raw["income>50K"]}
    return pd.DataFrame(columns)


def block_groups(path: Path) -> list[pd.DataFrame]:
    """Return the people of each block group, one row a person."""
    cells = pd.read_csv(path)
    age = (cells["voting_age"] == "18+").astype(int)
    hispanic = (cells["hispanic"] == "yes").astype(int)
    # codes 1 to 6 are one race, and larger ones several
    race = np.minimum(cells["race"], 7) - 1
    people = pd.DataFrame({"age": age, "hispanic": hispanic, "race": race})
    found = []
    for _, rows in cells.groupby("block_group"):
        number = rows["block"].rank(method="dense") - 1
        zone = (number * len(BLOCK_STATES["zone"]) // (number.max() + 1)).astype(int)
        own = people.loc[rows.index].assign(zone=zone)
        found.append(own.loc[own.index.repeat(rows["count"])])
    return found


class Design(NamedTuple):
    """What is published of each area, and what is asked.

    Parameters
    ----------
    states, tables
        States of the variables; variables of each published table.
    rates, ratios
        Variables of rates with those that are given; pairs of variables with odds ratios.
    protects_all
        True if a hidden cell is protected in all directions of a table, False if in the last one alone.
    """

    states: dict[Any, list[Any]]
    tables: list[tuple[str, ...]]
    rates: list[tuple[str, list[str]]]
    ratios: list[tuple[str, str]]
    protects_all: bool


ADULT = Design(STATES, TABLES, RATES, RATIOS, protects_all=False)
BLOCKS = Design(BLOCK_STATES, BLOCK_TABLES, BLOCK_RATES, BLOCK_RATIOS, protects_all=True)
DRAWN = BLOCKS._replace(protects_all=False)


class Area(NamedTuple):
    """An area.

    Parameters
    ----------
    design
        What is published and asked.
    people
        Records of the area, one row a person and one column of codes a variable.
    weighed
        Records of the population with their shares in the column `share`; None if there is no population.
    """

    design: Design
    people: pd.DataFrame
    weighed: pd.DataFrame | None = None

    def counts(self, scope: tuple[str, ...]) -> np.ndarray:
        """Return the people of the area in the cells of some variables."""
        return self._summed(self.people, scope, np.ones(len(self.people))).astype(int)

    def probabilities(self, scope: tuple[str, ...]) -> np.ndarray:
        """Return the population's probabilities of the cells of some variables."""
        assert self.weighed is not None
        return self._summed(self.weighed, scope, self.weighed["share"].to_numpy())

    def _summed(
        self, records: pd.DataFrame, scope: tuple[str, ...], weights: np.ndarray
    ) -> np.ndarray:
        shape = [len(self.design.states[name]) for name in scope]
        cells = np.ravel_multi_index([records[name].to_numpy() for name in scope], shape)
        return np.bincount(cells, weights, int(np.prod(shape))).reshape(shape)


def adult_area(records: pd.DataFrame, rng: np.random.Generator) -> Area:
    """Return an area with weights of the records of its own, by which its people are drawn."""
    logs = sum(rng.normal(0, SPREAD, len(own))[records[name]] for name, own in STATES.items())
    shares = np.exp(logs) / np.exp(logs).sum()
    people = records.iloc[rng.choice(len(records), rng.integers(*RECORDS), p=shares)]
    return Area(ADULT, people, records.assign(share=shares))


def drawn_area(people: pd.DataFrame, state: pd.DataFrame, rng: np.random.Generator) -> Area:
    """Return an area with as many people, drawn by the shares of its zones mixed with those of the state."""
    own = people.value_counts(normalize=True).rename("share").reset_index()
    zones = people["zone"].value_counts(normalize=True).rename("share").reset_index()
    others = state.value_counts(normalize=True).rename("of_state").reset_index()
    mixed = zones.merge(others, how="cross")
    mixed["share"] *= SHARE_OF_STATE * mixed.pop("of_state")
    own["share"] *= 1 - SHARE_OF_STATE
    weighed = pd.concat([own, mixed], ignore_index=True)
    chosen = rng.choice(len(weighed), len(people), p=weighed["share"].to_numpy())
    return Area(DRAWN, weighed.iloc[chosen], weighed)


def hidden_cells(counts: np.ndarray, directions: Sequence[int]) -> np.ndarray:
    """Return the cells of 1 to 4, and the smallest others until no line has one hidden cell alone.

    Lines run in some directions of the table. Lines of one direction are protected after those of another one, in
    three rounds.
    """
    hidden = (counts >= 1) & (counts <= PRIMARY)
    for axis in [*directions] * ROUNDS:
        lines = np.moveaxis(hidden, axis, -1)
        own = np.moveaxis(counts, axis, -1)
        for place in np.ndindex(lines.shape[:-1]):
            if lines[place].sum() == 1:
                others = np.where(lines[place], np.inf, own[place])
                lines[(*place, int(np.argmin(others)))] = True
    return hidden


def written(folder: Path, area: Area, rule: Likelihood, rng: np.random.Generator) -> float:
    """Write the tables of an area, and return the share of suppressed cells."""
    hidden = 0
    cells = 0
    for scope in area.design.tables:
        own = area.counts(scope)
        shown = [str(number) for number in rule.draw_given(own, rng).ravel()]
        if isinstance(rule, Suppressed):
            directions = [*range(own.ndim)]
            if not area.design.protects_all:
                directions = directions[-1:]
            for cell in np.flatnonzero(hidden_cells(own, directions)):
                shown[cell] = "s" if 1 <= own.ravel()[cell] <= PRIMARY else "x"
        hidden += sum(text in "sx" for text in shown)
        cells += own.size
        index = pd.MultiIndex.from_product(
            [area.design.states[name] for name in scope], names=scope
        )
        frame = pd.DataFrame({"Count": shown}, index=index)
        frame.to_csv(folder / f"{'-'.join(scope)}.csv")
    return hidden / cells


def rules() -> dict[str, Likelihood]:
    """Return the rules by name."""
    keys = [(n, key, change) for n, own in CHANGES.items() for key, change in enumerate(own)]
    return {
        "suppressed": Suppressed(1, PRIMARY + 1),
        "random to 3": RandomRounding(3),
        "nearest 5": Rounded(5),
        "cell keys": CellKey(pd.DataFrame(keys, columns=["pcv", "ckey", "pvalue"])),
    }


def held(frame: pd.DataFrame, truth: np.ndarray) -> np.ndarray:
    """Return a mask of the rows whose interval holds the truth."""
    return (frame.lower.to_numpy() <= truth) & (truth <= frame.upper.to_numpy())


def held_counts(solution: Any, area: Area) -> list[np.ndarray]:
    """Return masks of the counts that their intervals hold, one for each table."""
    found = []
    for scope in area.design.tables:
        frame = solution.interval(list(scope), of="records")
        frame = frame.assign(lower=np.floor(frame.lower), upper=np.ceil(frame.upper))
        found.append(held(frame, area.counts(scope).ravel()))
    return found


def held_rates(solution: Any, area: Area) -> list[np.ndarray]:
    """Return masks of the rates that their intervals hold; groups without people have none."""
    found = []
    for name, given in area.design.rates:
        joint = area.probabilities((*given, name))
        sizes = joint.sum(axis=-1, keepdims=True)
        truth = joint / np.where(sizes > 0, sizes, 1.0)
        has_people = np.broadcast_to(sizes > 0, joint.shape).ravel()
        own = held(solution.interval([name], given=given), truth.ravel())
        found.append(own[has_people])
    return found


def held_ratios(solution: Any, area: Area) -> list[np.ndarray]:
    """Return masks of the odds ratios of cells with records that their intervals hold."""
    found = []
    for a, b in area.design.ratios:
        p = area.probabilities((a, b))
        n = area.counts((a, b))
        truth = p[:-1, :-1] * p[1:, 1:] / (p[:-1, 1:] * p[1:, :-1])
        least = np.minimum(np.minimum(n[:-1, :-1], n[1:, 1:]), np.minimum(n[:-1, 1:], n[1:, :-1]))
        own = held(analysis.odds_ratios(solution, a, b), truth.ravel())
        found.append(own[least.ravel() > 0])
    return found


class Figures(NamedTuple):
    """Share of suppressed cells, processor seconds, and what the intervals of an area hold."""

    suppressed: float
    seconds: float
    counts: list[np.ndarray]
    rates: list[np.ndarray]
    ratios: list[np.ndarray]


def figures(area: Area, rule: Likelihood, rng: np.random.Generator) -> Figures:
    """Return the figures of one area."""
    withheld = {"s": (1, PRIMARY), "x": None}
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings(action="ignore"):
        network = bpm.declare(area.design.states, area.design.tables)
        suppressed = written(Path(place), area, rule, rng)
        begin = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            release = bpm.readers.read_folder(
                network, place, noise=rule, withheld=withheld, total=len(area.people)
            )
        solution = bpm.NoiseAwareMAP().fit(release)
        seconds = time.process_time() - begin
        rates: list[np.ndarray] = []
        ratios: list[np.ndarray] = []
        if area.weighed is not None:
            rates = held_rates(solution, area)
            ratios = held_ratios(solution, area)
        return Figures(suppressed, seconds, held_counts(solution, area), rates, ratios)


def row(data: str, rule: str, found: list[Figures]) -> list[object]:
    """Return the row of the result for some areas."""
    seconds = [own.seconds for own in found]
    cells: list[object] = [data, rule, len(found)]
    shares = [np.mean([own.suppressed for own in found]), np.mean(seconds), max(seconds)]
    cells += [f"{share:.3f}" for share in shares]
    for masks in ("counts", "rates", "ratios"):
        parts = [part for own in found for part in getattr(own, masks)]
        cells.append(f"{np.concatenate(parts).mean():.3f}" if parts else "")
    return cells


def rows(data: Path, areas: int) -> Iterator[list[object]]:
    """Yield the rows of the result."""
    records = adult(data / "adult" / "adult.csv")
    for name, rule in rules().items():
        found = []
        for area in range(areas):
            rng = np.random.default_rng(FIRST_SEED + area)
            found.append(figures(adult_area(records, rng), rule, rng))
        yield row("Adult", name, found)
    groups = block_groups(data / "pl94_ri" / "blocks.csv")
    state = pd.concat([people.drop(columns="zone") for people in groups])
    for data_name, is_drawn in (("Rhode Island", False), ("Rhode Island, drawn", True)):
        for name, rule in rules().items():
            found = []
            for number, people in enumerate(groups):
                rng = np.random.default_rng(FIRST_SEED + number)
                area = Area(BLOCKS, people)
                if is_drawn:
                    area = drawn_area(people, state, rng)
                found.append(figures(area, rule, rng))
            yield row(data_name, name, found)


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--areas", type=int, default=40)
    given = arguments.parse_args()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    named = ["data", "rule", "areas", "suppressed", "seconds", "most_seconds", "counts", "rates"]
    writer.writerow([*named, "odds_ratios"])
    for found in rows(given.data, given.areas):
        writer.writerow(found)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
