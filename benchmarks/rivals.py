"""`SelectMeasure(rho)` with no other setting beside SWIFT, AIM, MST and independent columns: errors and seconds.

    uv run --group benchmarks python benchmarks/rivals.py SOURCE DATA --write      # once: what all of them read
    ... benchmarks/rivals_theirs.py DATA/adult/adult.csv --mechanism swift --rho 0.1 --out THEIRS ...
    OMP_NUM_THREADS=1 taskset -c 0 uv run --group benchmarks python benchmarks/rivals.py SOURCE DATA --theirs THEIRS

SOURCE is the folder of learning_rounds.py, with coronary/coronary.csv beside; DATA gets a folder for each of nine
sets of records: these four, and five simulated ones. Two are the library's; in the others, written here,
records are drawn from

- `tree`: 20 variables of 2 to 6 states, each given one before it, which it copies with probability .5;
- `classes`: 12 variables of 2 to 8 states, independent given one of six classes: all depend on all, in all orders;
- `wide`: 10 variables of 2 to 100 states, whose shares fall like 1/rank^1.5, most of them rare, each given up to two
  before it.

Add-or-remove-one neighbours, budget rho, one release a seed. Error: mean total variation, over all or 300 random
tables of three variables and all of two, between the records and the model, and N balanced records of it. Seconds are
of the processor.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
import warnings
from itertools import combinations
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from learning_models import RESULTS
from learning_rounds import Tables, independent_tables, read, shares

import bayesprivmrf as bpm
from bayesprivmrf.learning import simulated_survey
from bayesprivmrf.mechanisms import SelectMeasure

NAMES = ("nltcs", "adult", "msnbc", "coronary", "survey", "indicators", "tree", "classes", "wide")
RHOS, SEEDS, TABLES = (0.01, 0.1, 1.0), (21, 22), 300

type Row = dict[str, object]
type Records = tuple[np.ndarray, tuple[int, ...]]


def coded(frame: pd.DataFrame) -> Records:
    """Codes of a frame's states, sorted."""
    columns = [pd.Categorical(frame[name]) for name in frame]
    return np.column_stack([c.codes for c in columns]), tuple(len(c.categories) for c in columns)


def records(source: Path, name: str) -> Records:
    """One set of records, made or read."""
    rng = np.random.default_rng([len(name), ord(name[0])])
    if name == "coronary":
        return coded(pd.read_csv(source / name / f"{name}.csv"))
    if name == "survey":
        made = simulated_survey(30_000, rng=rng)
        states = made.states
        frame = made.simulated
        codes = [frame[v].map({s: i for i, s in enumerate(states[v])}) for v in frame]
        return np.column_stack(codes), tuple(len(states[v]) for v in frame)
    if name == "indicators":
        return made_indicators(rng)
    if name in MADE:
        return MADE[name](rng)
    return read(source, name)


def made_indicators(rng: np.random.Generator) -> Records:
    """Return 14 indicators in three groups, dependent within and nearly independent between.

    Coefficients of pairs in a group of g are uniform on 0.2 to 0.9 over the root of g; one pair in four between
    groups has one of at most 0.1; three variables of each group have one of -0.12. Shares of state 1 are 0.1 to 0.6.
    """
    p = 14
    groups = np.array_split(np.arange(p), 3)
    coefficients = group_couplings(groups, rng)
    states = (np.arange(2**p)[:, None] >> np.arange(p)) & 1
    spins = (2 * states - 1).astype(np.int8)
    energy = np.zeros(2**p)
    for members, value in coefficients.items():
        energy += value * spins[:, members].prod(axis=1)
    _, probability = group_fields(energy, spins, rng.uniform(0.1, 0.6, p))
    rows = np.repeat(np.arange(2**p), rng.multinomial(20_000, probability))
    return states[rows].astype(int), (2,) * p


def group_couplings(
    groups: list[np.ndarray], generator: np.random.Generator
) -> dict[tuple[int, ...], float]:
    """Return the coefficients of all pairs, and of one triple in each group."""
    found: dict[tuple[int, ...], float] = {}
    owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    for pair in combinations(range(owner.size), 2):
        inside = generator.uniform(0.2, 0.9)
        chosen = generator.random() < 0.25
        if chosen:
            across = generator.uniform(-0.1, 0.1)
        else:
            across = 0.0
        members = len(groups[owner[pair[0]]])
        if owner[pair[0]] == owner[pair[1]]:
            found[pair] = inside / members**0.5
        else:
            found[pair] = across
    for group in groups:
        if len(group) > 2:
            found[tuple(group[:3].tolist())] = -0.12
    return found


def group_fields(
    energy: np.ndarray, spins: np.ndarray, shares: np.ndarray
) -> tuple[list[float], np.ndarray]:
    """Return fields that give each variable its share of ones, and the distribution of the joint states."""
    fields = np.zeros(shares.size)
    log = energy.copy()
    for _ in range(200):
        before = fields.copy()
        for i in range(shares.size):
            weight = np.exp(log - log.max())
            ones = weight[spins[:, i] > 0].sum() / weight.sum()
            step = 0.5 * float(np.log(shares[i] / (1 - shares[i])) - np.log(ones / (1 - ones)))
            fields[i] += step
            log += step * spins[:, i]
        if np.abs(fields - before).max() < 1e-6:
            break
    weight = np.exp(log - log.max())
    return fields.tolist(), weight / weight.sum()


def tree(rng: np.random.Generator) -> Records:
    cards = tuple(int(k) for k in rng.integers(2, 7, 20))
    codes = np.column_stack(
        [rng.choice(k, 25_000, p=rng.dirichlet(np.full(k, 2.0))) for k in cards]
    )
    for v in range(1, len(cards)):
        before = codes[:, rng.integers(v)]
        codes[:, v] = np.where(rng.random(len(codes)) < 0.5, before % cards[v], codes[:, v])
    return codes, cards


def classes(rng: np.random.Generator) -> Records:
    cards = tuple(int(k) for k in rng.integers(2, 9, 12))
    kind = rng.choice(6, 40_000, p=rng.dirichlet(np.full(6, 3.0)))
    codes = np.zeros((len(kind), len(cards)), dtype=int)
    for v, k in enumerate(cards):
        ladder = np.cumsum(rng.dirichlet(np.full(k, 1.0), 6), axis=1)
        codes[:, v] = np.minimum((rng.random(len(kind))[:, None] > ladder[kind]).sum(axis=1), k - 1)
    return codes, cards


def wide(rng: np.random.Generator) -> Records:
    cards = (2, 3, 5, 8, 12, 20, 40, 100, 2, 4)
    codes = np.zeros((50_000, len(cards)), dtype=int)
    for v, k in enumerate(cards):
        logits = -1.5 * np.log(1 + rng.permutation(k))
        for u in rng.permutation(v)[:2]:
            logits = logits + rng.normal(0, 0.7, (cards[u], k))[codes[:, u]]
        codes[:, v] = (logits + rng.gumbel(size=(len(codes), k))).argmax(axis=1)
    return codes, cards


MADE = {"tree": tree, "classes": classes, "wide": wide}


def write(source: Path, folder: Path, name: str) -> None:
    """Write codes, and numbers of states beside them."""
    codes, cards = records(source, name)
    names = [f"v{i}" for i in range(len(cards))]
    (folder / name).mkdir(parents=True, exist_ok=True)
    pd.DataFrame(codes, columns=names).to_csv(folder / name / f"{name}.csv", index=False)
    (folder / name / f"{name}-domain.json").write_text(
        json.dumps(dict(zip(names, cards, strict=True)))
    )


def load(folder: Path, name: str) -> Records:
    sizes = json.loads((folder / name / f"{name}-domain.json").read_text())
    return pd.read_csv(folder / name / f"{name}.csv").to_numpy(), tuple(sizes.values())


def errors(codes: np.ndarray, cards: tuple[int, ...], table_of: Tables) -> Row:
    """Mean total variation of the tables that rivals_theirs.py looks at as well."""
    found: Row = {}
    for order in (3, 2):
        scopes = list(itertools.combinations(range(len(cards)), order))
        chosen = sorted(np.random.default_rng(0).permutation(len(scopes))[:TABLES])
        off = [
            0.5 * np.abs(shares(codes, scopes[k], cards) - table_of(scopes[k])).sum()
            for k in chosen
        ]
        found[f"{order}-way"] = float(np.mean(off))
    return found


def ours(codes: np.ndarray, cards: tuple[int, ...], rho: float, seed: int) -> list[Row]:
    """A release as anybody makes it: of its model, and of as many balanced records."""
    names = [f"v{i}" for i in range(len(cards))]
    network = bpm.declare(states={v: range(k) for v, k in zip(names, cards, strict=True)})
    frame = pd.DataFrame(codes, columns=names)
    begin = time.process_time()
    learned = SelectMeasure(rho=rho).release(network, frame, rng=seed)
    seconds = time.process_time() - begin
    solution = learned.solution
    of_model = errors(
        codes, cards, lambda scope: solution.marginal([names[v] for v in scope]).values
    )
    told = {"seconds": seconds, "status": learned.status.value}
    begin = time.process_time()
    drawn = learned.sample(len(codes), rng=seed, method="balanced")[names].to_numpy()
    told_drawn = {"seconds": time.process_time() - begin, "status": learned.status.value}
    of_records = errors(codes, cards, lambda scope: shares(drawn, scope, cards))
    return [
        {"method": "rounds"} | of_model | told,
        {"method": "balanced"} | of_records | told_drawn,
    ]


def theirs(folder: Path) -> list[Row]:
    """What the rivals had."""
    rows: list[Row] = []
    for path in sorted(folder.glob("*.npz")):
        name, method, rho, seed = path.stem.split("_")
        found = np.load(path)
        three, two = found["errors"].tolist()
        rows.append(
            {
                "data": name,
                "rho": float(rho),
                "seed": int(seed),
                "method": method,
                "3-way": three,
                "2-way": two,
            }
            | {"seconds": float(found["seconds"])}
        )
    return rows


def main() -> None:
    """Run the cells and print their table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", action="store_true", help="write the records, and nothing else")
    parser.add_argument("--theirs", type=Path, help="what rivals_theirs.py wrote")
    parser.add_argument("--only", nargs="+", default=NAMES)
    parser.add_argument("--rhos", nargs="+", type=float, default=RHOS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument(
        "--table", action="store_true", help="the table of what was run before, and nothing else"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.write:
        for name in options.only:
            write(options.source, options.data, name)
        return
    kept = RESULTS / "rivals.csv"
    for name, rho, seed in itertools.product(options.only, options.rhos, options.seeds):
        if options.table:
            break
        codes, cards = load(options.data, name)
        rows = ours(codes, cards, rho, seed)
        alone = errors(codes, cards, independent_tables(codes, cards, rho, seed))
        rows.append({"method": "independent", "status": "converged"} | alone)
        frame = pd.DataFrame([{"data": name, "rho": rho, "seed": seed} | row for row in rows])
        print(frame.to_string(header=False), flush=True)
        if kept.exists():
            frame = pd.concat([pd.read_csv(kept), frame])
        frame = frame.drop_duplicates(["data", "rho", "seed", "method"], keep="last")
        frame.to_csv(kept, index=False, float_format="%.5g")
    frame = pd.read_csv(kept)
    if options.theirs:
        rows = pd.DataFrame(theirs(options.theirs))
        frame = pd.concat([frame, rows]).drop_duplicates(
            ["data", "rho", "seed", "method"], keep="last"
        )
        frame.to_csv(kept, index=False, float_format="%.5g")
    numbers = ["3-way", "2-way", "seconds"]
    means = frame.pivot_table(index=["data", "rho"], columns="method", values=numbers)
    print(means.round(5).to_string())


if __name__ == "__main__":
    main()
