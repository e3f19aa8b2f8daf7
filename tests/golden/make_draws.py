"""Results with fixed seeds, of every part that draws or iterates, on made-up data and on the golden files.

``uv run python tests/golden/make_draws.py`` writes ``expected_draws.json`` anew, the slow part with it;
``test_draws.py`` compares. Whole numbers and labels are compared exactly, the rest to a part in a million.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # for a run by hand

from golden import make_files  # noqa: E402
from golden.made_up import BINARY, CHAIN, binary_records, network_edges, outcomes  # noqa: E402
from golden.noted import Found, has_intervals, machine, noted  # noqa: E402
from golden.reading import FILES  # noqa: E402

EXPECTED = HERE / "expected_draws.json"


def released(release: Any) -> Found:
    """The numbers that a mechanism let out."""
    if release.kind == "network-estimate":
        return {"mechanism": release.provenance.mechanism, "beta": release.inverse_temperature}
    if release.kind == "released-graph":
        edges = None if release.is_refusal else [list(map(repr, edge)) for edge in release.edges]
        return {
            "mechanism": release.provenance.mechanism,
            "edges": edges,
            "details": dict(release.details),
        }
    found: Found = {"mechanism": release.provenance.mechanism, "total": release.total}
    for name in ("field_vector", "coupling_matrix", "coefficients", "intercept", "effects", "sums"):
        if not callable(getattr(release, name, callable)):
            found[name] = noted(getattr(release, name))
    if hasattr(release, "tables"):
        flat = release.tables.flat
        found["tables"] = noted(
            np.where(np.isfinite(flat), flat, -1e9) if flat.dtype.kind == "f" else flat
        )
    if release.kind == "noisy-measurements":
        found["answers"] = noted(release.answers)
    tables = getattr(release, "statistics", None)
    if tables is not None and tables is not release and tables.kind == "noisy-statistics":
        found["statistics"] = noted(release.statistics.tables.flat)
    for name in ("steps", "rounds", "method", "status"):
        if name in getattr(release, "details", {}):
            found[name] = release.details[name]
    return found


def releases(recipe: Callable[[], Iterator[tuple[str, Any]]]) -> Callable[[], dict[str, Found]]:
    """Releases of a recipe of the golden files, made anew."""
    return lambda: {name: released(release) for name, release in recipe()}


def golden(name: str) -> Any:
    from bayesprivmrf import load_release

    return load_release(FILES / f"{name}.golden")


def estimators() -> dict[str, Found]:
    """Point estimates of fixed releases, and records drawn from them."""
    import bayesprivmrf as bpm

    tables = (
        "laplace-add-or-remove",
        "laplace-impossible-weights",
        "gaussian-replace-one",
        "exact",
    )
    given: dict[str, Any] = {name: golden(f"v1/{name}") for name in tables}
    given["two releases"] = [given["laplace-add-or-remove"], golden("v1/laplace-replace-one")]
    found = {}
    for name, release in given.items():
        for method in (bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP()):
            if name == "exact" and not isinstance(method, bpm.NaiveMLE):
                continue
            solution = method.fit(release)
            own: Found = {
                "status": solution.status.value,
                "marginals": noted(solution.marginals.flat),
                "log_partition": solution.log_partition,
                "sample": noted(solution.sample(60, rng=5)),
                "a marginal": noted(
                    solution.marginal([solution.specification.domain.variables[0]])
                ),
            }
            if has_intervals(solution):
                first = solution.specification.domain.variables[0]
                own["interval"] = noted(solution.interval([first], prob=0.8).reset_index(drop=True))
            found[f"{name}, {type(method).__name__}"] = own
    loopy = bpm.CGM(inference="loopy").fit(given["laplace-add-or-remove"])
    found["loopy"] = {"marginals": noted(loopy.marginals.flat)}
    truth = bpm.NaiveMLE().fit(given["exact"])
    estimate = bpm.NaiveMLE().fit(given["laplace-add-or-remove"])
    found["evaluation"] = {
        "kl_divergence": float(bpm.kl_divergence(truth, estimate)),
        "holdout": noted(np.asarray(bpm.holdout_log_likelihood(estimate, binary_records(100)))),
    }
    return found


def learned() -> dict[str, Found]:
    """Records drawn from learned models, and intervals for them."""
    names = (
        "ising-moments",
        "pairwise-tables",
        "monomials-frank-wolfe",
        "monomials-fitted",
        "potentials-dpsgd",
        "potentials-dpsgd-impossible",
    )
    models = {name: golden(f"v3/{name}") for name in names}
    found: dict[str, Found] = {
        name: {
            "sample": noted(model.sample(60, rng=7)),
            "graph": sorted(
                [repr(a), repr(b), float(w)] for a, b, w in model.graph().edges(data="weight")
            ),
        }
        for name, model in models.items()
    }
    for name in ("ising-moments", "pairwise-tables", "monomials-fitted"):
        for of in ("couplings", "fields") if name != "monomials-fitted" else ("couplings",):
            table = models[name].couplings_interval(0.9, rng=8, replicates=4, of=of)
            found[name][f"interval of {of}"] = noted(table.reset_index(drop=True))
    paths = golden("v3/ising-frank-wolfe")
    table = paths.couplings_interval(0.9, rng=9, replicates=5, method="calibrated")
    found["ising-frank-wolfe, calibrated"] = {"interval": noted(table.reset_index(drop=True))}
    regression = golden("v3/regression")
    chances = [
        regression.probability({"smokes": a, "coughs": b, "old": a})
        for a in BINARY["old"]
        for b in BINARY["ill"]
    ]
    found["regression"] = {"probabilities": [float(each) for each in chances]}
    parities = golden("v3/parities-gaussian")
    for order, ridge in ((None, None), (2, None), (3, 0.1)):
        model = parities.fit(order, ridge=ridge)
        found[f"parities fitted, order {order}, ridge {ridge}"] = {
            "coefficients": noted(model.coefficients),
            "status": model.status,
        }
    return found


def networks() -> dict[str, Found]:
    """Outcomes drawn on a network, and what is inferred from them."""
    from bayesprivmrf.learning import simulated_survey
    from bayesprivmrf.network import EstimateLaw, IsingNetwork

    network = IsingNetwork.from_graph(network_edges(), "mean-degree")
    found: dict[str, Found] = {
        moves: {"spins": noted(network.sample(0.7, 5, 3, burn_in=20, sweeps=5, moves=moves))}
        for moves in ("heat-bath", "swendsen-wang")
    }
    found["maximum pseudo-likelihood"] = {
        "beta": float(network.pseudo_likelihood_estimate(outcomes()))
    }
    estimate = golden("v2/later-weighted-named-outcomes")
    law = EstimateLaw.simulate(
        estimate.network,
        estimate.constants,
        estimate.bounds,
        betas=np.linspace(0.0, 2.0, 6),
        configurations=40,
        burn_in=20,
        sweeps=2,
        rng=4,
        progress=False,
    )
    ends = estimate.interval(0.8, law)
    found["an estimate's law"] = {
        "rows": noted(np.asarray(law.sorted_rows)),
        "interval": [float(ends.loc["beta", end]) for end in ("lower", "upper")],
    }
    survey = simulated_survey(50, rng=6)
    found["simulated survey"] = {
        "records": noted(survey.simulated),
        "potentials": noted(survey.truth.potentials.flat),
    }
    return found


def posterior() -> dict[str, Found]:
    """A posterior of few draws."""
    import bayesprivmrf as bpm

    fitted = bpm.LatentCounts().fit(
        golden("v1/laplace-add-or-remove"), rng=11, draws=60, tune=100, chains=2, progress_bar=False
    )
    return {
        "latent counts": {
            "marginals": noted(fitted.marginals.flat),
            "sample": noted(fitted.sample(60, rng=5)),
        }
    }


def previews() -> dict[str, Found]:
    """What mechanisms tell before any data is read."""
    from bayesprivmrf.marginals import forecast
    from bayesprivmrf.mechanisms import (
        GaussianStatistics,
        LaplaceStatistics,
        ParityQueries,
        PrivateFrankWolfe,
        PrivateLogisticRegression,
        SelectMeasure,
    )
    from bayesprivmrf.model import ModelSpecification, declare

    chain, variables = declare(BINARY, CHAIN), declare(BINARY)
    found: dict[str, Found] = {}
    for mechanism, model in (
        (LaplaceStatistics(epsilon=0.7), chain),
        (GaussianStatistics(rho=0.3, adjacency="replace-one"), chain),
        (PrivateFrankWolfe(rho=1.0, width=2.0), variables),
        (PrivateFrankWolfe(rho=1.0, width=2.0, order=3, target="linf"), variables),
        (PrivateLogisticRegression(rho=1.0, radius=3.0, target="ill"), variables),
        (SelectMeasure(rho=1.0, degree=1), variables),
        (ParityQueries(rho=1.0, order=2), variables),
        (ParityQueries(rho=1.0, order=2, method="pmw"), variables),
    ):
        table = mechanism.preview(model, total=5000)
        found[f"{len(found)} {type(mechanism).__name__}"] = noted(table)
    model = ModelSpecification.from_pgmpy(chain)
    cost = forecast(model.cardinalities, model.scopes)
    found["forecast"] = {"treewidth": cost.treewidth, "largest table": cost.largest_table}
    return found


GROUPS: dict[str, Callable[[], dict[str, Found]]] = {
    "statistics": releases(make_files.statistics),
    "network estimates": releases(make_files.network_estimates),
    "couplings": releases(make_files.couplings),
    "monomials": releases(make_files.monomials),
    "parities": releases(make_files.parities),
    "potentials": releases(lambda: islice(make_files.potentials(), 2)),
    "regressions": releases(make_files.regressions),
    "graphs": releases(make_files.graphs),
    "previews": previews,
    "estimators": estimators,
    "learned": learned,
    "networks": networks,
    "tables within bounds": releases(make_files.bounded_rows),
    "queries": releases(make_files.measurements),
    "queries within bounds": releases(make_files.bounded_counts),
    "ties": releases(make_files.tied),
    "sums of ties": releases(make_files.tied_sums),
    "chains": releases(make_files.chains),
    "scores and levels": releases(make_files.scores_and_levels),
    "fields": releases(make_files.fields),
    "rounds": releases(make_files.learned_by_rounds),
}
SLOW = {
    "graphs with loops": releases(make_files.graphs_with_loops),
    "graphs of threes": releases(make_files.graphs_of_threes),
    "searches": releases(make_files.potentials),
    "posterior": posterior,
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    made = {name: group() for name, group in (GROUPS | SLOW).items()}
    text = json.dumps({"made on": machine(), "found": made}, indent=1, ensure_ascii=False)
    EXPECTED.write_text(text + "\n", encoding="utf-8")
