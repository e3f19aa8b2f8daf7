"""What MST, AIM and SWIFT choose, measure and estimate, for rivals.py and others_measurements.py.

Run by dpsynth's Python, not by this project's:

    git clone https://github.com/ryan112358/mbi MBI && git clone https://github.com/google/dpsynth DPSYNTH
    uv venv RIVAL && VIRTUAL_ENV=RIVAL uv pip install ./MBI "jax[cpu]==0.11.0" pandas absl-py dp-accounting etils \
        more-itertools pydantic pyyaml tqdm
    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false PYTHONPATH=DPSYNTH taskset -c 0 RIVAL/bin/python \
        benchmarks/rivals_theirs.py adult/adult.csv --mechanism swift --rho 0.1 --seed 1 --out THEIRS

Add-or-remove-one neighbours, rho as given, a tenth of it for single variables, whose rare states are merged
(dpsynth's option) and given back in equal parts; all else dpsynth's own settings (workload: all triples), but for
`--max-clique-size`, `--max-model-size` and `--iterations`. The error is that of rivals.py, of the model itself,
without synthetic records. Seconds are of the processor.

`--solver here` puts rivals_solver.py in the place of mbi's estimator, which compiles for minutes: choices, noise and
loss are the rival's, marginals this library's. That needs this library in RIVAL too (`uv pip install .`).

Writes OUT/DATA_MECHANISM-SOLVER_RHO_SEED.npz: noisy tables, deviations, merged states, and estimates of tables.
"""

import argparse
import itertools
import json
import time
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
import jax
import numpy as np
import pandas as pd

TABLES = 300

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("data", type=Path, nargs="+")
parser.add_argument("--mechanism", choices=["mst", "aim", "swift"], required=True)
parser.add_argument("--rho", type=float, nargs="+", default=[0.1])
parser.add_argument("--seed", type=int, nargs="+", default=[1])
parser.add_argument("--max-clique-size", type=float, default=1e7)
parser.add_argument("--max-model-size", type=float, default=80)
parser.add_argument("--iterations", type=int, default=None)
parser.add_argument("--solver", choices=["mbi", "here"], default="mbi")
parser.add_argument("--out", type=Path, required=True)
arguments = parser.parse_args()

jax.config.update("jax_enable_compilation_cache", False)
jax.config.update("jax_enable_x64", True)

import mbi
from dpsynth.discrete_mechanisms import AIMConfig, DiscreteConfig, MSTConfig, SWIFTConfig


class NoRecords:
    """In place of synthetic records, which are not wanted."""

    def decompress(self, _):
        """Give nothing."""


mbi.MarkovRandomField.synthetic_data = lambda *_, **__: NoRecords()
mbi.extensions.synthetic_data = lambda *_, **__: NoRecords()
mbi.extensions.precompile = lambda *_, **__: argparse.Namespace(result=lambda: None)
if arguments.solver == "here":
    import rivals_solver

    rivals_solver.install()


def mechanism(rho):
    """The rival's mechanism, at its own settings but for those that were asked."""
    if arguments.iterations is None:
        given = {}
    else:
        given = {"pgm_iters": arguments.iterations}
    inner = {
        "mst": lambda: MSTConfig(**given),
        "aim": lambda: AIMConfig(max_model_size=arguments.max_model_size, **given),
        "swift": lambda: SWIFTConfig(max_clique_size=arguments.max_clique_size, **given),
    }[arguments.mechanism]()
    return DiscreteConfig(mechanism=inner, compress_columns=True).configure(zcdp_rho=rho)


def run(path, rho, seed):
    """One release: written, its errors printed."""
    sizes = json.loads((path.parent / f"{path.stem}-domain.json").read_text())
    codes = pd.read_csv(path)[list(sizes)].to_numpy()
    cards = {str(name): int(k) for name, k in sizes.items()}
    names = list(cards)
    whole = mbi.Dataset(
        dict(zip(names, codes.T, strict=True)), mbi.Domain(names, list(cards.values()))
    )
    begin = time.process_time()
    result = mechanism(rho)(np.random.default_rng(seed), whole)
    seconds = time.process_time() - begin
    places = {v: np.asarray(result.mappings.get(v, np.arange(k))) for v, k in cards.items()}
    found = {
        "names": np.array(names),
        "shape": np.array(list(cards.values())),
        "seconds": np.array(seconds),
    }
    for v, place in places.items():
        found[f"place_{v}"] = place
    for k, one in enumerate(result.measurements):
        values = np.asarray(one.noisy_measurement, dtype=float)
        found[f"clique_{k}"] = np.array(one.clique)
        found[f"values_{k}"] = values
        found[f"stddev_{k}"] = np.array(one.stddev)
        found[f"weights_{k}"] = np.asarray(getattr(one.query, "weights", np.ones(values.size)))
    errors = []
    for order in (3, 2):
        scopes = list(itertools.combinations(range(len(names)), order))
        chosen = sorted(np.random.default_rng(0).permutation(len(scopes))[:TABLES])
        off = []
        for scope in (scopes[place] for place in chosen):
            query = tuple(names[v] for v in scope)
            table = np.asarray(result.model.project(query).datavector(flatten=False), dtype=float)
            found["table_" + "|".join(query)] = table / table.sum()
            table = (table / table.sum())[np.ix_(*(places[v] for v in query))]
            for axis, v in enumerate(query):
                share = 1 / np.bincount(places[v])[places[v]]
                table = table * share.reshape([-1 if a == axis else 1 for a in range(order)])
            flat = np.ravel_multi_index(tuple(codes[:, v] for v in scope), table.shape)
            truth = np.bincount(flat, minlength=table.size) / len(codes)
            off.append(0.5 * np.abs(truth - table.ravel()).sum())
        errors.append(float(np.mean(off)))
    arguments.out.mkdir(exist_ok=True)
    label = f"{path.stem}_{arguments.mechanism}-{arguments.solver}_{rho:g}_{seed}"
    np.savez_compressed(arguments.out / f"{label}.npz", errors=np.array(errors), **found)
    size = result.diagnostics.max_jtree_node_size
    print(
        f"{label} {errors} {seconds:.0f} s, {len(result.measurements)} tables, {size} cells",
        flush=True,
    )


for path, rho, seed in itertools.product(arguments.data, arguments.rho, arguments.seed):
    run(path, rho, seed)
