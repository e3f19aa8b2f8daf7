"""Error of mbi's MST and AIM, for the table of learning_rounds.py; run by mbi's Python, not by this project's.

    git clone https://github.com/ryan112358/mbi MBI
    uv venv RIVAL && VIRTUAL_ENV=RIVAL uv pip install ./MBI pandas scipy matplotlib
    RIVAL/bin/python benchmarks/learning_rounds_rival.py MBI FOLDER/adult/adult.csv --mechanism mst --rho 0.1 --seed 1

Add-or-remove-one neighbours, rho as given (MST and AIM turn their epsilon and delta into one). MST merges rare states
as its authors do and gives each an equal part; AIM's workload are all triples of at most 20,000 cells, its other
settings its own. The error is that of learning_rounds.py, of the model itself, without synthetic records.
"""

import argparse
import itertools
import json
import math
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser()
parser.add_argument("mbi", type=Path)
parser.add_argument("data", type=Path)
parser.add_argument("--mechanism", choices=["mst", "aim"], required=True)
parser.add_argument("--rho", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=1)
arguments = parser.parse_args()
sys.path.insert(0, str(arguments.mbi / "mechanisms"))

import aim
import mbi
import mst

np.random.seed(arguments.seed)  # noqa: NPY002  mbi draws from it
sizes = json.loads((arguments.data.parent / f"{arguments.data.stem}-domain.json").read_text())
frame = pd.read_csv(arguments.data)[list(sizes)]
names, cards = [str(name) for name in sizes], [int(k) for k in sizes.values()]
codes = frame.to_numpy()
shape = dict(zip(names, cards, strict=True))
whole = mbi.Dataset(dict(zip(names, codes.T, strict=True)), mbi.Domain(names, cards))


def by_mst():
    """MST as mbi has it, but for its records: the model, and the share of each state in its merged one."""
    sigma = math.sqrt(3 / (2 * arguments.rho))
    singles = mst.measure(whole, [(name,) for name in names], sigma)
    supports = {one.clique[0]: np.asarray(one.noisy_measurement) >= 3 * one.stddev for one in singles}
    merged, singles, _ = mst.compress_domain(whole, singles)
    tree = mst.select(merged, arguments.rho / 3, singles)
    pairs = mst.measure(merged, tree, sigma)
    model = mbi.estimation.MirrorDescent().estimate(merged.domain, singles + pairs, iters=10_000)
    parts = {}
    for name, kept in supports.items():
        place = np.where(kept, np.cumsum(kept) - 1, kept.sum())
        parts[name] = place, np.where(kept, 1.0, 1 / max((~kept).sum(), 1))
    return model, parts


def by_aim():
    """AIM as mbi has it, but for its records."""
    mbi.MarkovRandomField.synthetic_data = lambda *_, **__: None
    mechanism = aim.AIM(1.0, 1e-9)
    mechanism.rho = arguments.rho
    triples = [t for t in itertools.combinations(names, 3) if math.prod(shape[v] for v in t) <= 20_000]
    model, _ = mechanism.run(whole, [(t, 1.0) for t in triples])
    return model, {name: (np.arange(k), np.ones(k)) for name, k in shape.items()}


begin = time.perf_counter()
model, parts = by_mst() if arguments.mechanism == "mst" else by_aim()
seconds = time.perf_counter() - begin
found = {}
for order in (3, 2):
    off = []
    for scope in itertools.combinations(range(len(names)), order):
        query = [names[v] for v in scope]
        merged = np.asarray(model.project(query).values, dtype=float)
        table = (merged / merged.sum())[np.ix_(*(parts[v][0] for v in query))]
        for axis, v in enumerate(query):
            table = table * parts[v][1].reshape([-1 if a == axis else 1 for a in range(order)])
        flat = np.ravel_multi_index(tuple(codes[:, v] for v in scope), table.shape)
        truth = np.bincount(flat, minlength=table.size) / len(codes)
        off.append(0.5 * np.abs(truth - table.ravel()).sum())
    found[f"{order}-way"] = round(float(np.mean(off)), 5)
print(
    arguments.data.stem,
    arguments.mechanism,
    arguments.rho,
    arguments.seed,
    found,
    f"{seconds:.0f} s",
    flush=True,
)
