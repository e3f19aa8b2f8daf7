"""What mbi's MST chooses and measures, and mbi's own estimate from it; run by mbi's Python, not by this project's.

    git clone https://github.com/ryan112358/mbi MBI
    uv venv RIVAL && VIRTUAL_ENV=RIVAL uv pip install ./MBI pandas scipy matplotlib
    RIVAL/bin/python benchmarks/others_measurements_rival.py --mbi MBI --data adult.csv --out adult.npz --seed 1

Rho is spent as MST does: a third on all single variables, a third on the choice of a tree of pairs, a third on the
pairs; normal noise. Tables are not compressed. Writes the noisy tables, their standard deviations, 300 triples of
variables with at most 20,000 cells, and mbi's estimate of each.
"""

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_enable_compilation_cache", False)

MOST_CELLS, TRIPLES = 20_000, 300

parser = argparse.ArgumentParser()
parser.add_argument("--mbi", type=Path, required=True)
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--rho", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--iterations", type=int, default=10_000)
arguments = parser.parse_args()
sys.path.insert(0, str(arguments.mbi / "mechanisms"))

import mst
from mbi import Dataset, Domain, estimation

np.random.seed(arguments.seed)  # noqa: NPY002  mbi draws from it
frame = pd.read_csv(arguments.data)
frame.columns = [str(name) for name in frame.columns]
sizes = json.loads((arguments.data.parent / f"{arguments.data.stem}-domain.json").read_text())
domain = Domain(list(frame.columns), [int(sizes[name]) for name in frame.columns])
data = Dataset({name: frame[name].to_numpy() for name in frame}, domain)

begin = time.perf_counter()
sigma = float(np.sqrt(3 / (2 * arguments.rho)))
singles = mst.measure(data, [(name,) for name in frame], sigma)
tree = mst.select(data, arguments.rho / 3, singles)
pairs = mst.measure(data, tree, sigma)
chosen = time.perf_counter() - begin
estimate = estimation.MirrorDescent().estimate(domain, singles + pairs, iters=arguments.iterations)
estimated = time.perf_counter() - begin - chosen

shape = dict(zip(frame.columns, domain.shape, strict=True))
triples = [
    t for t in itertools.combinations(frame.columns, 3) if np.prod([shape[v] for v in t]) <= MOST_CELLS
]
rng = np.random.default_rng(arguments.seed)
triples = [triples[i] for i in sorted(rng.permutation(len(triples))[:TRIPLES])]
found = {
    "names": np.array(list(frame.columns), dtype=str),
    "shape": np.array(domain.shape),
    "triples": np.array(triples, dtype=str),
}
for place, one in enumerate(singles + pairs):
    found[f"clique_{place}"] = np.array(one.clique, dtype=str)
    found[f"values_{place}"] = np.asarray(one.noisy_measurement)
    found[f"stddev_{place}"] = np.array(one.stddev)
for place, triple in enumerate(triples):
    found[f"triple_{place}"] = np.asarray(estimate.project(triple).datavector())
np.savez(arguments.out, seconds=np.array([chosen, estimated]), **found)
print(f"chosen and measured in {chosen:.0f} s, estimated in {estimated:.0f} s")
