"""Time of counting 10 pair tables over 10 million records, against Polars' own group-bys on the same frame.

Run: python benchmarks/counting.py [--records 10000000] [--repeats 3]
Writes benchmarks/results/counting.json. Polars uses as many threads as it finds cores; ours uses Polars' threads
for text columns and one NumPy thread for the rest. Two layouts: the ten pairs of five variables, and a chain of
ten pairs over eleven, where each column is used once or twice only and coding it pays least.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl

from bayesprivmrf.mechanisms.reading.counting import count_tables
from bayesprivmrf.model import Domain, ModelSpecification

STATES = 6
TEXT = ["never", "seldom", "sometimes", "often", "always", "prefers not to say"]


def best(function: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def layouts() -> dict[str, list[tuple[str, str]]]:
    five = [f"v{i}" for i in range(5)]
    eleven = [f"v{i}" for i in range(11)]
    return {
        "five variables": list(itertools.combinations(five, 2)),
        "chain of eleven": list(itertools.pairwise(eleven)),
    }


def coded(records: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame({f"v{i}": rng.integers(0, STATES, records) for i in range(11)})


def as_text(codes: pl.DataFrame) -> pl.DataFrame:
    labels = pl.Series(TEXT)
    return pl.DataFrame({name: labels.gather(codes[name]) for name in codes.columns})


def measure(
    kind: str, pairs: list[tuple[str, str]], frame: pl.DataFrame, repeats: int, with_pandas: bool
) -> dict:
    names = list(dict.fromkeys(itertools.chain.from_iterable(pairs)))
    if kind == "integers":
        states = list(range(STATES))
    else:
        states = TEXT
    model = ModelSpecification(
        domain=Domain.from_states(dict.fromkeys(names, states)), cliques=tuple(pairs)
    )
    lazies = [frame.lazy().group_by(pair).agg(pl.len()) for pair in pairs]
    ours = count_tables(model, frame)
    theirs = frame.group_by(pairs[0]).len().sort(*pairs[0])
    assert sorted(theirs["len"].to_list()) == sorted(ours.flat[: STATES**2].tolist())
    # interleaved, so that a busy machine slows both
    rows = {"ours": [], "polars one after another": [], "polars collect_all": []}
    for _ in range(repeats):
        rows["ours"].append(best(lambda: count_tables(model, frame), 1))
        rows["polars one after another"].append(
            best(lambda: [frame.group_by(p).len() for p in pairs], 1)
        )
        rows["polars collect_all"].append(best(lambda: pl.collect_all(lazies), 1))
    seconds = {name: min(times) for name, times in rows.items()}
    seconds["ours, lazy Polars"] = best(lambda: count_tables(model, frame.lazy()), 1)
    if with_pandas:
        in_pandas = frame.select(names).to_pandas()
        seconds["ours, pandas"] = best(lambda: count_tables(model, in_pandas), repeats)
        seconds["pandas groupby"] = best(
            lambda: [in_pandas.groupby(list(p)).size() for p in pairs], 1
        )
        table = frame.select(names).to_arrow()
        seconds["ours, PyArrow"] = best(lambda: count_tables(model, table), 1)
    fastest = min(seconds["polars one after another"], seconds["polars collect_all"])
    return {"seconds": seconds, "ratio to the faster Polars": seconds["ours"] / fastest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    results = []
    codes = coded(arguments.records, seed=1)
    for kind, frame in (("integers", codes), ("text", as_text(codes))):
        for layout, pairs in layouts().items():
            row = measure(
                kind, pairs, frame, arguments.repeats, with_pandas=layout == "five variables"
            )
            results.append({"labels": kind, "layout": layout, **row})
            print(kind, layout, json.dumps(row, indent=2), flush=True)
    document = {
        "command": f"python benchmarks/counting.py --records {arguments.records} --repeats {arguments.repeats}",
        "records": arguments.records,
        "pair tables": 10,
        "states": STATES,
        "seed": 1,
        "cores": os.cpu_count(),
        "polars threads": pl.thread_pool_size(),
        "processor": platform.processor() or platform.machine(),
        "versions": {"numpy": np.__version__, "pandas": pd.__version__, "polars": pl.__version__},
        "results": results,
    }
    target = Path(__file__).parent / "results" / "counting.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
