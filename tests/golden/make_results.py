"""What every fitter, posterior and interval gives on small releases of every kind (`golden.cases`), seeds fixed.

``uv run python tests/golden/make_results.py`` writes ``expected_results.json`` anew, to ten digits, the slow part
with it; ``test_results.py`` compares. Of intervals the limits and the status of each row are kept, and not the notes,
whose words may be improved. A refusal is kept as the class of its error.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # for a run by hand

from golden.cases import released, waves  # noqa: E402
from golden.noted import LONGEST, Found, as_written, has_intervals, machine, noted  # noqa: E402
from golden.reading import FILES  # noqa: E402

EXPECTED = HERE / "expected_results.json"

PROB = 0.8
FORMULATIONS = ("hyper-dirichlet", "log-linear")
SHORT: dict[str, Any] = {"rng": 3, "draws": 12, "tune": 12, "chains": 2, "progress_bar": False}
"""Chains far too short to be used: a difference of the code shows in the first draws."""


def or_refusal(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a call returns, or the class of the error by which it refuses."""
    from bayesprivmrf.errors import BayesPrivMRFError

    try:
        return function(*arguments, **options)
    except BayesPrivMRFError as error:
        return f"refused: {type(error).__name__}"


def given() -> dict[str, tuple[Any, dict[str, Any]]]:
    """What `fit` is given, by the name of the case."""
    found: dict[str, tuple[Any, dict[str, Any]]] = {
        name: (each, {}) for name, each in released().items()
    }
    found["waves"] = (waves(), {"population": "waves"})
    return found


def limits(frame: Any) -> Found:
    """An interval's numbers, and the status of its rows."""
    numbers = frame[["estimate", "lower", "upper"]].to_numpy(dtype=float)
    # a status that all rows have is told once
    statuses = (
        list(dict.fromkeys(map(str, frame["status"]))) if frame["status"].nunique() == 1 else None
    )
    return {"limits": noted(numbers), "status": statuses or list(map(str, frame["status"]))}


def intervals(fit: Any) -> Found:
    """Intervals in every form that a fit with intervals takes."""
    from bayesprivmrf import queries as q

    model = fit.specification
    names, clique = model.domain.variables, model.cliques[0]
    state = {clique[-1]: model.domain.states[names.index(clique[-1])][0]}
    apart = list(dict.fromkeys([names[0], names[-1]]))
    forms: dict[str, Callable[[], Any]] = {
        "population": lambda: fit.interval(clique, PROB),
        "records": lambda: fit.interval(clique, PROB, of="records"),
        "apart": lambda: fit.interval(apart, PROB),
        "query": lambda: fit.interval(q.table(clique[0]), PROB),
        "query of the records": lambda: fit.interval(q.table(clique[0]), PROB, of="records"),
    }
    if len(clique) > 1:
        forms["given"] = lambda: fit.interval(clique[0], PROB, given=state)
        forms["given, records"] = lambda: fit.interval(clique[0], PROB, of="records", given=state)
    return {f"interval, {form}": or_refusal(_asked, ask) for form, ask in forms.items()}


def _asked(ask: Callable[[], Any]) -> Found:
    return limits(ask())


def point(solution: Any) -> Found:
    """The numbers of a point estimate."""
    found: Found = {
        "status": solution.status.value,
        "problems": len(solution.problems),
        "log_partition": or_refusal(lambda: solution.log_partition),
        "marginals": noted(solution.marginals.flat),
        "potentials": noted(solution.potentials.flat),
        "records": or_refusal(_sampled, solution),
    }
    return found | (intervals(solution) if has_intervals(solution) else {})


def _sampled(fit: Any) -> Any:
    """A digest of records that are drawn."""
    return noted(fit.sample(LONGEST + 1, rng=5).astype(str).agg(" ".join, axis=1).to_numpy())[
        "sha256"
    ]


def fits() -> dict[str, Found]:
    """Every fitter on every case."""
    import bayesprivmrf as bpm

    fitters: dict[str, Any] = {
        "NaiveMLE": bpm.NaiveMLE(),
        "CGM": bpm.CGM(),
        "NoiseAwareMAP": bpm.NoiseAwareMAP(),
    }
    found: dict[str, Found] = {}
    for case, (release, options) in given().items():
        for name, fitter in fitters.items():
            found[f"{case}, {name}"] = or_refusal(_estimated, fitter, release, options)
    cases = given()
    further: dict[str, tuple[str, Any]] = {
        "a fixed scale": ("tables of a cycle", bpm.NoiseAwareMAP(scale=0.5)),
        "loopy NoiseAwareMAP": ("tables of a cycle", bpm.NoiseAwareMAP(inference="loopy")),
        "loopy CGM": ("tables of a cycle", bpm.CGM(inference="loopy")),
        "loopy NaiveMLE": ("tables of a cycle", bpm.NaiveMLE(inference="loopy")),
    }
    for name, (case, fitter) in further.items():
        found[name] = or_refusal(_estimated, fitter, *cases[case])
    return found


def _estimated(fitter: Any, release: Any, options: dict[str, Any]) -> Found:
    return point(fitter.fit(release, **options))


def drawn(posterior: Any) -> Found:
    """The draws of a posterior, and what is told of them."""
    group = posterior.tree["posterior"]
    counts = np.concatenate(
        [np.asarray(group[name]).ravel() for name in group.data_vars if name.startswith("counts")]
    )
    is_whole = bool((counts == np.floor(counts)).all())
    return {
        "formulation": posterior.stats["formulation"],
        "status": posterior.status.value,
        "counts": noted(counts.astype(int) if is_whole else counts),
        "totals": noted(np.asarray(group["total"])) if "total" in group else "public",
        "marginals": noted(posterior.marginals.flat),
        "records": _sampled(posterior),
    } | intervals(posterior)


def _posterior(name: str, release: Any, options: dict[str, Any], **settings: Any) -> Any:
    from bayesprivmrf import LatentCounts

    return LatentCounts(formulation=name, **settings).fit(release, **SHORT, **options)  # type: ignore[arg-type]


def _short(name: str, release: Any, options: dict[str, Any], **settings: Any) -> Found:
    return drawn(_posterior(name, release, options, **settings))


def whole_records() -> dict[str, Found]:
    """Posteriors over whole records of every case, and what else a posterior tells, once."""
    found = {
        case: or_refusal(_short, "exact", release, options)
        for case, (release, options) in given().items()
    }
    cases = given()
    found["a fixed concentration"] = _short("exact", *cases["tables of a chain"], concentration=1.0)
    found["a fixed scale"] = _short("exact", *cases["tables of a cycle"], scale=0.5)
    found["further results"] = _further(_posterior("exact", *cases["tables of a cycle"]))
    return found


def _further(posterior: Any) -> Found:
    """Probabilities, quantities, edges, checks and synthetic records."""
    from bayesprivmrf import combine_estimates

    sets = posterior.synthetic(3, 15, rng=4)
    combined = combine_estimates([0.4, 0.5, 0.45], [0.01, 0.02, 0.01], prob=PROB)
    quantity = posterior.quantity(lambda draw: draw.marginal("a").values[0], PROB, draws=10)
    return {
        "probability": str(posterior.probability({"a": "x"}, PROB)),
        "quantity": noted(np.asarray(quantity.draws)),
        "edges": noted(posterior.edge_presence(0.1, PROB).reset_index(drop=True)),
        "check": noted(posterior.predictive_check(rng=2).reset_index(drop=True)),
        "synthetic": [noted(each) for each in sets],
        "combined": [combined.estimate, combined.lower, combined.upper],
    }


FEW = (
    "tables of a chain",
    "tables with structural zeros",
    "tables of a cycle",
    "ties, sums",
    "levels of areas",
)
"""Cases whose relaxed posteriors are drawn in the quick part."""


def relaxed(names: tuple[str, ...] | None = None) -> dict[str, Found]:
    """Posteriors over relaxed counts of some cases or of all, and which engine `auto` chooses."""
    found: dict[str, Found] = {}
    cases = given()
    for case in names or cases:
        for name in FORMULATIONS:
            found[f"{case}, {name}"] = or_refusal(_relaxed, name, *cases[case])
        chosen = or_refusal(_posterior, "auto", *cases[case])
        found[f"{case}, auto"] = chosen if isinstance(chosen, str) else chosen.stats["formulation"]
    return found


def relaxed_settings() -> dict[str, Found]:
    """Posteriors over relaxed counts with settings of the prior."""
    cases = given()
    return {
        "a fixed concentration": _relaxed(
            "hyper-dirichlet", *cases["tables of a chain"], concentration=1.0
        ),
        "a fixed scale": _relaxed("log-linear", *cases["tables of a cycle"], scale=0.5),
        "prior": _prior(*cases["tables of a chain"]),
    }


def _relaxed(name: str, release: Any, options: dict[str, Any], **settings: Any) -> Found:
    posterior = _posterior(name, release, options, **settings)
    return _density(posterior) | drawn(posterior)


def _prior(release: Any, options: dict[str, Any]) -> Found:
    """Draws from the prior."""
    group = _posterior("hyper-dirichlet", release, options | {"prior": True}).tree["prior"]
    return {name: noted(np.asarray(group[name])) for name in ("total", "marginal[smokes,coughs]")}


def _density(posterior: Any) -> Found:
    """Log density and gradient at two points, which no chain's rounding changes.

    The coordinates may be turned where another processor's rounding orders equal directions otherwise; the log
    density at the start, and the gradient's length there, are the same all the same.
    """
    model = posterior.pymc_model
    start = model.initial_point()["position"]
    compiled = model.logp_dlogp_function(mode="FAST_COMPILE", ravel_inputs=True)
    compiled.set_extra_values({})
    value, gradient = compiled(start)
    other, slopes = compiled(start + 0.1 * np.sin(np.arange(start.size)))
    return {
        "parameters": int(start.size),
        "log density": float(value),
        "slope": float(np.linalg.norm(gradient)),
        "log density beside": float(other),
        "gradient beside": noted(np.asarray(slopes)),
    }


def sequences() -> dict[str, Found]:
    """Quantities of chains, of estimates and of posteriors."""
    import bayesprivmrf as bpm
    from bayesprivmrf import sequences as s

    cases = given()
    found: dict[str, Found] = {}
    for case in ("transitions", "transitions with an end", "ties, sums"):
        release, _ = cases[case]
        fits = {
            "NaiveMLE": bpm.NaiveMLE().fit(release),
            "NoiseAwareMAP": bpm.NoiseAwareMAP().fit(release),
            "posterior": _posterior("exact", release, {}),
        }
        for name, fit in fits.items():
            state = fit.specification.domain.states[0][0]
            asked: dict[str, Callable[[], Any]] = {
                "transition matrix": lambda fit=fit: s.transition_matrix(fit, PROB),
                "lengths": lambda fit=fit: s.lengths(fit, PROB),
                "stationary law": lambda fit=fit: s.stationary_law(fit, PROB),
                "hitting times": lambda fit=fit, state=state: s.hitting_times(fit, state, PROB),
                "sojourn times": lambda fit=fit: s.sojourn_times(fit, PROB),
            }
            found[f"{case}, {name}"] = {
                each: or_refusal(_asked, ask) for each, ask in asked.items()
            }
    return found


def rounds() -> dict[str, Found]:
    """Distributions learned in rounds, with their intervals."""
    from bayesprivmrf import load_release

    found: dict[str, Found] = {}
    for name in ("potentials-rounds", "potentials-rounds-merged"):
        solution = load_release(FILES / f"v4/{name}.golden").solution
        model = solution.specification
        names = model.domain.variables
        found[name] = {
            "marginals": noted(solution.marginals.flat),
            "records": _sampled(solution),
            "merged": repr(dict(solution.merged_states)),
        }
        for form in ("population", "records"):
            for variables in (names[:1], names[:2], names[-2:]):
                found[name][f"interval, {form}, {'+'.join(variables)}"] = limits(
                    solution.interval(list(variables), PROB, of=form)
                )
    return found


GROUPS: dict[str, Callable[[], dict[str, Any]]] = {
    "fits": fits,
    "sequences": sequences,
    "rounds": rounds,
    "posteriors over whole records": whole_records,
    "posteriors over relaxed counts, a few": partial(relaxed, FEW),
}
SLOW: dict[str, Callable[[], dict[str, Any]]] = {
    "posteriors over relaxed counts": relaxed,
    "settings of relaxed counts": relaxed_settings,
}


def processor() -> str:
    """What numba compiles for: another one may round otherwise."""
    import llvmlite.binding

    return llvmlite.binding.get_host_cpu_name()


def rounded(value: Any) -> Any:
    """A result with numbers of ten digits, far beyond what is compared."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def text_of(made: dict[str, Any]) -> str:
    """JSON with one line for each list of numbers."""
    text = json.dumps(
        {"made on": machine() | {"processor": processor()}, "found": rounded(made)},
        indent=1,
        ensure_ascii=False,
    )
    return (
        re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda found: f"[{re.sub(r',\s+', ', ', found[1])}]", text)
        + "\n"
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    # those of a few cases are among those of all
    chosen = {name: group for name, group in (GROUPS | SLOW).items() if not name.endswith("a few")}
    EXPECTED.write_text(
        text_of({name: as_written(group()) for name, group in chosen.items()}), encoding="utf-8"
    )
