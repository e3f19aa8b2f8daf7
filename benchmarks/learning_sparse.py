"""Private Frank-Wolfe on sparse indicators: margins and tables, the width told to it, intervals.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/learning_sparse.py [--part margins]

Parts are margins, width, intervals and bootstrap. Data: 32,710 people of MSNBC, drawn with seed 0 (17 indicators: did
this person visit this category of pages; shares .002 to .32), and NLTCS (21,574 people, 16 indicators, shares .11 to
.68), both from ../shared/data beside the repository (or its path by --data); and 32,000 simulated records of a
3-regular Ising model of 20 variables, couplings of .3, three in ten negative, fields of the shares .02 to .33 by
themselves. Add-or-remove-one neighbours; three releases a cell, seeds 0 to 2. "margin" is the largest gap of a margin
in any of them, "tables" the mean over all triples of the total variation of their table in the model from that of the
records, both with and without the share of rho for single variables. Intervals are at 90 %, on records simulated from
the simulated model, or from one fitted to the data with nearly no noise; a coupling is "told" where the interval is
narrower than half a nat, and seconds are of one core's processor time. `bootstrap` is the calibrated interval of one
release beside the linearised one. Markdown to stdout.
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import combinations, product
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
from learning_models import COUPLING

import bayesprivmrf as bpm
from bayesprivmrf.chains import gibbs_draws
from bayesprivmrf.learning import LearnedIsing
from bayesprivmrf.mechanisms import PrivateFrankWolfe, SelectMeasure

SEEDS, BUDGETS = range(3), (0.1, 1.0)
SHARED = Path(__file__).parents[2] / "shared" / "data"


def msnbc(folder: Path) -> pd.DataFrame:
    """People of MSNBC, from the counts of their patterns."""
    counts = pd.read_csv(folder / "msnbc" / "msnbc17_binary_counts.csv")
    often = counts.pop("count")
    drawn = np.random.default_rng(0).choice(len(counts), 32_710, p=often / often.sum())
    return counts.iloc[drawn].reset_index(drop=True)


def nltcs(folder: Path) -> pd.DataFrame:
    """All people of NLTCS."""
    return pd.read_csv(folder / "nltcs" / "nltcs.csv")


def rare() -> tuple[np.ndarray, np.ndarray]:
    """Couplings and fields of the simulated model."""
    rng = np.random.default_rng(1)
    A = np.zeros((20, 20))
    for i, j in nx.random_regular_graph(3, 20, seed=1).edges:
        A[i, j] = A[j, i] = COUPLING * rng.choice([-1, 1], p=[0.3, 0.7])
    return A, np.arctanh(2 * np.geomspace(0.02, 0.33, 20) - 1)


def records(A: np.ndarray, h: np.ndarray, size: int, rng: np.random.Generator) -> pd.DataFrame:
    """Records of an Ising model, by Gibbs sampling."""
    pairs = [(int(i), int(j)) for i, j in np.argwhere(np.triu(A))]
    tables = [A[pair] * np.array([1, -1, -1, 1.0]) for pair in pairs] + [
        field * np.array([-1, 1.0]) for field in h
    ]
    scopes = [*pairs, *((i,) for i in range(len(h)))]
    codes = gibbs_draws([2] * len(h), scopes, np.concatenate(tables), size, rng).codes
    return pd.DataFrame(codes, columns=[f"v{i}" for i in range(len(h))])


def network(data: pd.DataFrame) -> object:
    return bpm.declare(states={name: [0, 1] for name in data})


def margin_gap(learned: LearnedIsing, data: pd.DataFrame) -> float:
    """Largest difference of a margin of the model from the records'."""
    told = [learned.solution.marginal([name]).values[-1] for name in learned.domain.variables]
    return float(np.abs(told - data.mean().to_numpy()).max())


def tables_gap(learned: LearnedIsing, data: pd.DataFrame) -> float:
    """Mean total variation of all three-way tables: differences of cells from those of moments up to the third."""
    p = data.shape[1]
    spins = 2.0 * ((np.arange(2**p)[:, None] >> np.arange(p)) & 1) - 1
    energy = ((spins @ learned.coupling_matrix) * spins).sum(
        axis=1
    ) / 2 + spins @ learned.field_vector
    law = np.exp(energy - energy.max())
    law /= law.sum()
    law -= np.bincount(data.to_numpy() @ (1 << np.arange(p)), minlength=2**p) / len(data)
    one = law @ spins
    three = np.stack([(spins * (law * spins[:, k])[:, None]).T @ spins for k in range(p)])
    two = (spins * law[:, None]).T @ spins
    i, j, k = np.array(list(combinations(range(p), 3))).T
    gaps = np.zeros(len(i))
    for a, b, c in product((-1, 1), repeat=3):
        cell = (
            a * one[i]
            + b * one[j]
            + c * one[k]
            + a * b * two[i, j]
            + a * c * two[i, k]
            + b * c * two[j, k]
        )
        gaps += np.abs(cell + a * b * c * three[k, i, j]) / 16
    return float(gaps.mean())


def margins(folder: Path) -> None:
    """Print what the share for single variables changes, on real data."""
    print(
        "| data | ρ | width | margin, without | with | tables, without | with | s |\n|" + "---|" * 8
    )
    for name, data in (("MSNBC", msnbc(folder)), ("NLTCS", nltcs(folder))):
        for rho in BUDGETS:
            for width in (2.0, 4.0, 8.0):
                found = {}
                for share in (0.0, 0.05):
                    mechanism = PrivateFrankWolfe(rho=rho, width=width, single_share=share)
                    begin = time.perf_counter()
                    made = [mechanism.release(network(data), data, rng=seed) for seed in SEEDS]
                    seconds = (time.perf_counter() - begin) / len(SEEDS)
                    gaps = [(margin_gap(each, data), tables_gap(each, data)) for each in made]
                    found[share] = np.max(gaps, axis=0)[0], np.mean(gaps, axis=0)[1]
                (margin, table) = found[0.0]
                (after, better) = found[0.05]
                print(
                    f"| {name} | {rho:g} | {width:g} | {margin:.3f} | {after:.4f} | {table:.4f} | {better:.4f} "
                    f"| {seconds:.1f} |",
                    flush=True,
                )
            best = SelectMeasure(rho=rho, degree=data.shape[1] - 1).release(
                network(data), data, rng=0
            )
            row = [name, f"{rho:g}", "all pairs measured", "", f"{margin_gap(best, data):.4f}"]
            print(f"| {' | '.join([*row, '', f'{tables_gap(best, data):.4f}', ''])} |", flush=True)


def width() -> None:
    """Print what telling a width costs where states are rare."""
    A, h = rare()
    true = float((np.abs(A).sum(axis=1) + np.abs(h)).max())
    upper = np.triu_indices(20, 1)
    multiples = (0.5, 1.0, 2.0, 4.0, 8.0)
    print(
        f"true width {true:.2f}\n\n| n, ρ | | "
        + " | ".join(f"{m:g} times" for m in multiples)
        + " |\n|"
        + "---|" * 7
    )
    for size, rho in ((32_000, 1.0), (32_000, 0.1), (5_000, 0.3)):
        rows: dict[str, list[str]] = {"mean error": [], "mean error of .3": [], "steps": []}
        for multiple in multiples:
            gaps = []
            steps = 0
            for seed in SEEDS:
                data = records(A, h, size, np.random.default_rng([seed, size]))
                learned = PrivateFrankWolfe(rho=rho, width=multiple * true).release(
                    network(data), data, rng=seed
                )
                gap = np.abs(learned.coupling_matrix - A)[upper]
                gaps.append((gap.mean(), gap[A[upper] != 0].mean()))
                steps = learned.details["steps"]
            for row, value in zip(rows, np.mean(gaps, axis=0), strict=False):
                rows[row].append(f"{value:.3f}")
            rows["steps"].append(str(steps))
        for row, values in rows.items():
            print(f"| {size:,}, {rho:g} | {row} | " + " | ".join(values) + " |", flush=True)


def intervals(folder: Path, seeds: range = SEEDS) -> None:
    """Print coverage, width and time of default intervals."""
    print(
        "| model | n | ρ | width | steps | coupled | free | fields | mean width | median | told | s |\n|"
        + "---|" * 12
    )
    populations = {"simulated": (*rare(), 32_000)}
    for name, data in (("as MSNBC", msnbc(folder)), ("as NLTCS", nltcs(folder))):
        fitted = SelectMeasure(rho=1e4, degree=data.shape[1] - 1).release(
            network(data), data, rng=0
        )
        populations[name] = fitted.coupling_matrix, fitted.field_vector, len(data)
    for name, (A, h, size) in populations.items():
        pairs = A[np.triu_indices(len(h), 1)]
        truth = np.concatenate([pairs, h])
        for rho in BUDGETS[::-1]:
            for told_width in (4.0, 8.0):
                hits = []
                spans = []
                seconds = []
                steps = 0
                for seed in seeds:
                    rng = np.random.default_rng([seed, size, int(10 * rho)])
                    data = records(A, h, size, rng)
                    learned = PrivateFrankWolfe(rho=rho, width=told_width).release(
                        network(data), data, rng=rng
                    )
                    begin = time.process_time()
                    # the default here
                    lower, upper = learned.map.linearised(learned, 0.9, learned.total, rng)
                    seconds.append(time.process_time() - begin)
                    steps = learned.details["steps"]
                    held, own = np.split((lower <= truth) & (truth <= upper), [pairs.size])
                    if (pairs == 0).any():
                        free = held[pairs == 0].mean()
                    else:
                        free = np.nan
                    hits.append((held[pairs != 0].mean(), free, own.mean()))
                    spans.append((upper - lower)[: pairs.size])
                span = np.concatenate(spans)
                row = [name, f"{size:,}", f"{rho:g}", f"{told_width:g}", f"{steps}"]
                row += [
                    f"{value:.2f}"
                    for value in (*np.mean(hits, axis=0), span.mean(), np.median(span))
                ]
                row += [f"{np.mean(span < 0.5):.2f}", f"{np.median(seconds):.0f}"]
                print(f"| {' | '.join(row)} |", flush=True)


def bootstrap(folder: Path) -> None:
    """Print time and width of the calibrated interval of one release."""
    data = msnbc(folder)
    learned = PrivateFrankWolfe(rho=1.0, width=4.0).release(network(data), data, rng=0)
    for method in ("linearised", "calibrated"):
        begin = time.perf_counter()
        frame = learned.couplings_interval(0.9, rng=1, method=method)
        span = (frame["upper"] - frame["lower"]).to_numpy()
        print(
            f"{method}: took {time.perf_counter() - begin:.0f} s, mean width "
            f"{span.mean():.2f}, median {np.median(span):.2f}",
            flush=True,
        )


def main() -> None:
    """Run the parts and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=("margins", "width", "intervals", "bootstrap"))
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="of intervals: how many")
    parser.add_argument("--first", type=int, default=0, help="of them")
    parser.add_argument("--data", type=Path, default=SHARED)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = {
        "margins": lambda: margins(options.data),
        "width": width,
        "intervals": lambda: intervals(
            options.data, range(options.first, options.first + options.seeds)
        ),
        "bootstrap": lambda: bootstrap(options.data),
    }
    for name, run in parts.items():
        if options.part in (None, name):
            print(f"\n{name}\n")
            run()


if __name__ == "__main__":
    main()
