"""Whole records of areas inside larger areas, with levels and without, on the same noisy tables.

The populations of areas of `scores.py`: 24 blocks in six tracts by five groups, 3,000 people, Laplace noise of scale
1/ε on the table of blocks by group; with ``--tracts`` the table of tracts by group beside it, each with half of ε.
`LatentCounts` fits each release three ways: ``formulation="exact"`` without levels, whose rows are Dirichlet;
``"exact"`` with levels; and the relaxed counts that ``"auto"`` takes with levels.

A row a truth, an ε and a fit: which share of 90 % intervals holds the number of people in each block and group, in
each tract and group (`of="records"`), and the population's probability; root mean square errors and mean widths, in
people (of probabilities, times 3,000), with the standard error of coverage over releases; how many fits converged, of
how many; seconds a fit. Each fit has 2 chains of 500 draws after 300, and goes on for a minute where they have not
mixed.

    OMP_NUM_THREADS=1 uv run python benchmarks/exact_levels.py --replications 10 --seed 1
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from scores import AREAS, BLOCKS, GROUPS, TRACTS, nested, networks

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.inference import Status
from bayesprivmrf.privacy import Laplace
from bayesprivmrf.release import Measurement, NoisyStatistics

CLIQUE = ["area", "group"]
IN_TRACTS = q.coarsened(
    *CLIQUE, area={t: range(t * BLOCKS, (t + 1) * BLOCKS) for t in range(TRACTS)}
)
FITS = {
    "flat, exact": ("flat", "exact"),
    "levels, exact": ("levels", "exact"),
    "levels, auto": ("levels", "auto"),
}


def measured(counts, epsilon, rng, *, with_tracts):
    """Noisy tables: of blocks, or of blocks and of tracts."""
    exact = [counts.ravel()]
    if with_tracts:
        exact.append(counts.reshape(TRACTS, BLOCKS, GROUPS).sum(axis=1).ravel())
    scale = len(exact) / epsilon
    return [np.rint(one + rng.laplace(scale=scale, size=one.size)) for one in exact], Laplace(scale)


def judged(frame, truth, times=1.0):
    """Share of intervals that hold the truth, error and width."""
    lower, upper, estimate = (frame[name].to_numpy() for name in ("lower", "upper", "estimate"))
    held = ((lower <= truth) & (truth <= upper)).mean()
    return [held, times * np.sqrt(np.mean((estimate - truth) ** 2)), times * (upper - lower).mean()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replications", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--truths", nargs="+", choices=list(AREAS), default=["tracts", "both"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 1.0])
    parser.add_argument("--fits", nargs="+", choices=list(FITS), default=list(FITS))
    parser.add_argument("--tracts", action="store_true", help="measure the table of tracts too")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--csv", help="file for a row a fit")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    models = networks()["areas"]
    rows = []
    names = [
        f"{of} {what}"
        for of in ("cells", "tracts", "population")
        for what in ("held", "error", "width")
    ]
    columns = ["truth", "epsilon", "fit", "seed", *names, "converged", "R-hat", "seconds"]
    for truth in arguments.truths:
        for epsilon in arguments.epsilons:
            for index in range(arguments.replications):
                rng = np.random.default_rng([arguments.seed, index, list(AREAS).index(truth)])
                law = nested(rng, AREAS[truth])
                counts = rng.multinomial(arguments.records, law.ravel()).reshape(law.shape)
                tables, noise = measured(counts, epsilon, rng, with_tracts=arguments.tracts)
                for name in arguments.fits:
                    model, formulation = FITS[name]
                    given = [
                        Measurement(query, values, noise)
                        for query, values in zip(
                            (q.table(*CLIQUE), IN_TRACTS), tables, strict=False
                        )
                    ]
                    release = NoisyStatistics.from_measurements(models[model], given)
                    begin = time.perf_counter()
                    fit = bpm.LatentCounts(formulation=formulation).fit(
                        release,
                        rng=index,
                        draws=500,
                        tune=300,
                        chains=2,
                        time_limit=arguments.time_limit,
                    )
                    seconds = time.perf_counter() - begin
                    by_tract = counts.reshape(TRACTS, BLOCKS, GROUPS).sum(1)
                    row = judged(fit.interval(CLIQUE, of="records"), counts.ravel())
                    row += judged(fit.interval(IN_TRACTS, of="records"), by_tract.ravel())
                    row += judged(fit.interval(CLIQUE), law.ravel(), arguments.records)
                    is_mixed = fit.status is Status.CONVERGED
                    rows.append(
                        [truth, epsilon, name, index, *row, is_mixed, fit.stats["r_hat"], seconds]
                    )
                    if arguments.csv:
                        pd.DataFrame(rows, columns=columns).to_csv(arguments.csv, index=False)
    table = pd.DataFrame(rows, columns=columns)
    grouped = table.groupby(columns[:3], sort=False)
    result = pd.DataFrame(grouped[[*names, "converged", "R-hat", "seconds"]].mean())
    errors = pd.DataFrame(grouped[[name for name in names if name.endswith("held")]].sem())
    print(result.join(errors.add_prefix("± ")).round(3).to_string())


if __name__ == "__main__":
    main()
