"""Command ``bayesprivmrf fit``: fit a Markov random field to a saved release.

A point estimate is written in formats that any program reads: JSON for the model, and a CSV file for each marginal
table. Released parities are fitted to a learned model, which is one file.
"""

from __future__ import annotations

import argparse
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.cli.learned import trusted_tables
from bayesprivmrf.cli.methods import chosen_method, fitted
from bayesprivmrf.cli.output import (
    aligned,
    claim_file,
    claim_folder,
    clear_folder,
    json_text,
    promised,
    remark,
)
from bayesprivmrf.errors import ArgumentError, ModelTooLargeError
from bayesprivmrf.files import replaced_when_whole
from bayesprivmrf.inference import Status
from bayesprivmrf.inference.criticism.assumptions import point_marks
from bayesprivmrf.inference.interval_frame import interval_frame, joint_index, point_status
from bayesprivmrf.learning.models.advice import status_with_advice
from bayesprivmrf.learning.rounds.solution import RoundsSolution
from bayesprivmrf.release import NoisyStatistics, load_release

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from bayesprivmrf.inference import Solution
    from bayesprivmrf.learning import LearnedMonomials, ReleasedParities
    from bayesprivmrf.model.domain import Variable

# patterns of all files that `write_folder` writes
FILES = ("solution.json", "network.json", "marginals/[0-9][0-9]*_*.csv")


def run(options: argparse.Namespace) -> None:
    """Fit a saved release, print the one-way marginals, and write the files that ``--out`` asks for."""
    found = load_release(options.release)
    if hasattr(found, "fit"):  # released parities have a fit of their own
        _fit_parities(options, found)
        return
    release = _tables_of(found)
    learned = None if options.method else _learned_solution(found)
    method = chosen_method(options) if learned is None else "learned"
    is_posterior = method == "posterior"
    target = None
    if options.out is not None:
        chosen = {"force": options.force, "sources": [options.release]}
        target = (
            claim_file(options.out, ".nc", **chosen)
            if is_posterior
            else claim_folder(options.out, FILES, **chosen)
        )
    seed = secrets.randbits(32) if options.seed is None else options.seed
    sampling = {name: getattr(options, name) for name in ("draws", "chains") if getattr(options, name)}
    if "draws" in sampling:
        sampling["tune"] = sampling["draws"]
    estimate: Any = learned
    if learned is None:
        estimate = fitted(method, release, inference=options.inference, rng=seed, sampling=sampling)
    trust = "" if learned is None else _trust(learned)
    prob = options.prob if hasattr(estimate, "interval") else None
    summary = _summary(method, release, estimate)
    if is_posterior:
        summary |= {"seed": seed}
    if target is not None and is_posterior:
        write_posterior(estimate, target)
    elif target is not None:
        clear_folder(target, FILES)
        write_folder(target, summary, estimate, prob)
    if options.json:
        entry = {} if prob is None else {"prob": prob}
        print(json_text({**summary, **entry, "marginals": _marginals(estimate, prob)}))
    else:
        print(f"{estimate}\n\n{release.privacy_statement()}\n")
        print(_one_way(estimate, prob))
        if trust:
            print(f"\n{trust}")
        if prob is not None:
            kind = f"sampled with seed {seed}" if is_posterior else "approximate"
            print(f"\nLower and upper: {100 * prob:.4g} % intervals, {kind}.")
    if target is not None:
        files = "solution.json, network.json and marginals/*.csv to " if not is_posterior else ""
        remark(f"\nWrote {files}{options.out}.")


def _tables_of(release: Any) -> NoisyStatistics:
    """Return the noisy tables of a release, or those inside a learned model."""
    if release.statistics is None:
        raise ArgumentError(
            f"`fit` must be given a release of noisy tables or parities, got the kind {release.kind!r}; it is fitted "
            "already, so read it in Python with bayesprivmrf.load_release."
        )
    return release.statistics


def _learned_solution(release: Any) -> Solution | None:
    """Return the fitted model inside a release, if it has intervals; another fit of its tables would add little."""
    solution = getattr(release, "solution", None)
    return solution if hasattr(solution, "interval") else None


def _trust(learned: Solution) -> str:
    """Return a text on which tables of a learned model can be trusted; warn if its own fit did not converge."""
    if learned.status is not Status.CONVERGED:
        remark(
            f"bayesprivmrf: warning: the learned model is {status_with_advice(learned.status, learned.stats)}."
        )
    return trusted_tables(learned) if isinstance(learned, RoundsSolution) else ""


def write_posterior(posterior: Any, target: Path) -> None:
    """Write a posterior to a new file, then move it into place, so that no incomplete file is left."""
    with replaced_when_whole(target) as part:
        posterior.save(part)


def _summary(name: str, release: NoisyStatistics, estimate: Any) -> dict[str, Any]:
    """Return the contents of ``solution.json``: the fit, and the release that it was fitted to.

    It repeats the facts of the release, because the folder and the release file may be separated.
    """
    provenance = release.provenance
    solution: Solution = getattr(estimate, "solution", estimate)
    return {
        "format": "bayesprivmrf-solution",
        "version": 1,  # to be raised when a key changes
        "method": name,
        "inference": solution.inference,
        "status": estimate.status,
        "log_partition": solution.log_partition,
        "stats": dict(estimate.stats),
        "problems": list(estimate.problems),
        "assumptions": list(estimate.assumptions),
        "guarantee": None if release.guarantee is None else promised(release),
        "statement": release.privacy_statement(),
        "model": {
            "variables": variables_of(solution),
            "cliques": [list(clique) for clique in solution.specification.cliques],
        },
        "noise": [law.as_dict() for law in release.noise],
        "provenance": {
            "mechanism": provenance.mechanism,
            "settings": dict(provenance.settings),
            "simulated": provenance.simulated,
            "versions": dict(provenance.versions),
        },
    }


def _table(estimate: Any, variables: Sequence[Variable], prob: float | None) -> dict[str, np.ndarray]:
    """Return the columns of a marginal's table, each in the shape of the marginal."""
    domain = estimate.specification.domain
    shape = [len(domain.states_of(variable)) for variable in variables]
    table = marginal_table(estimate, variables, prob)
    return {str(name): column.to_numpy().reshape(shape) for name, column in table.items()}


def _marginals(estimate: Any, prob: float | None) -> list[dict[str, Any]]:
    """Return the tables of all cliques, or for a model learned in rounds, of all measured scopes."""
    domain = estimate.specification.domain
    statistics = getattr(estimate, "statistics", None)
    measured = [] if statistics is None else [each.query.scope for each in statistics.measurements]
    found = []
    for scope in measured or estimate.specification.cliques:
        cells = _table(estimate, scope, prob)
        states = [list(domain.states_of(variable)) for variable in scope]
        found.append({"variables": list(scope), "states": states, **cells})
    return found


def _one_way(estimate: Any, prob: float | None) -> str:
    """Return the one-way marginals as a plain table."""
    domain = estimate.specification.domain
    names: list[str] = []
    states: list[str] = []
    found: dict[str, list[str]] = {}
    for variable in domain.variables:
        names += [str(variable)] * len(domain.states_of(variable))
        states += [str(state) for state in domain.states_of(variable)]
        for name, values in _table(estimate, [variable], prob).items():
            if name != "note":  # too wide for a terminal; files and --json have the notes
                shown = values.tolist()
                found.setdefault(name, []).extend(one if name == "status" else f"{one:.3f}" for one in shown)
    rows = zip(names, *found.values(), states, strict=True)
    return aligned(["variable", *found, "state"], [list(row) for row in rows])


def write_folder(
    folder: Path, summary: dict[str, Any], solution: Solution, prob: float | None = None
) -> None:
    """Write the summary, the network and the marginal tables of the cliques, with intervals if `prob` is given."""
    (folder / "solution.json").write_text(json_text(summary) + "\n", encoding="utf-8")
    (folder / "network.json").write_text(json_text(_network(solution)) + "\n", encoding="utf-8")
    (folder / "marginals").mkdir(exist_ok=True)
    for position, clique in enumerate(solution.specification.cliques, start=1):
        name = re.sub(r"[^A-Za-z0-9]+", "_", "_".join(map(str, clique)))[:80]
        table = marginal_table(solution, clique, prob).assign(simulated=solution.is_simulated)
        table.to_csv(folder / "marginals" / f"{position:02d}_{name}.csv")


def marginal_table(estimate: Any, variables: Sequence[Variable], prob: float | None) -> pd.DataFrame:
    """Return the probabilities of a marginal with statuses and notes, and with interval limits if `prob` is given."""
    if prob is not None:
        return estimate.interval(list(variables), prob=prob).rename(columns={"estimate": "probability"})
    model, table = estimate.specification, estimate.marginal(list(variables)).to_numpy()
    evidence = getattr(estimate, "_evidence", None)  # an estimator of another package may keep none
    frame = interval_frame(
        table,
        *(np.nan, np.nan),
        joint_index(model.domain, variables),
        status=point_status(estimate.status),
        marks=point_marks(evidence, model.positions_of(variables)[1], table),
        is_simulated=estimate.is_simulated,
    )
    return frame.drop(columns=["lower", "upper"]).rename(columns={"estimate": "probability"})


def variables_of(solution: Solution) -> list[dict[str, Any]]:
    """Return names and states of the variables for JSON."""
    domain = solution.specification.domain
    return [
        {"name": variable, "states": list(states)}
        for variable, states in zip(domain.variables, domain.states, strict=True)
    ]


def _network(solution: Solution) -> dict[str, Any]:
    """Return the contents of ``network.json``: the log-potentials of each clique, with null for minus infinity.

    P(x) is proportional to the exponential of their sum.
    """
    return {
        "simulated": solution.is_simulated,
        "variables": variables_of(solution),
        "factors": [
            {"variables": list(clique), "log_potential": solution.potentials[clique]}
            for clique in solution.specification.cliques
        ],
        "log_partition": solution.log_partition,
    }


def _fit_parities(options: argparse.Namespace, release: ReleasedParities) -> None:
    """Fit released parities, print the largest coefficients, and write the model that ``--out`` asks for."""
    if options.method is not None or options.inference != "exact":
        raise ArgumentError(
            "`--method` and `--inference` must be left out for released parities, which have one method with exact "
            "inference."
        )
    target = None
    if options.out is not None:
        target = claim_file(options.out, force=options.force, sources=[options.release])
    try:
        model = release.fit()
    except ModelTooLargeError as error:  # unlike for tables, loopy inference is no remedy here
        raise ArgumentError(str(error)) from None
    if target is not None:
        model.save(target, overwrite=options.force)
    if options.json:
        print(json_text(_summary_of_monomials(model)))
    else:
        print(f"{model}\n\nstatus: {model.status}\n")
        print(_largest(model))
    if target is not None:
        remark(f"\nWrote {target}, which bayesprivmrf.load_release reads.")


def _summary_of_monomials(model: LearnedMonomials) -> dict[str, Any]:
    """Return a model learned from parities for JSON."""
    return {
        "kind": model.kind,
        "status": model.status,
        "guarantee": promised(model),
        "statement": model.privacy_statement(),
        "total": model.total,
        "monomials": [
            {"variables": members, "coefficient": value} for members, value in _coefficients(model)
        ],
    }


def _coefficients(model: LearnedMonomials) -> list[tuple[list[Any], float]]:
    """Return the variables and the coefficient of each monomial."""
    found = model.monomials
    return [(list(members), value) for members, value in zip(found.index, found.tolist(), strict=True)]


def _largest(model: LearnedMonomials) -> str:
    """Return the ten largest coefficients as a plain table; the file has all of them."""
    found = sorted(_coefficients(model), key=lambda each: -abs(each[1]))[:10]
    rows = [[" ".join(map(str, members)), f"{value:.3f}"] for members, value in found]
    return f"Largest coefficients, nats:\n{aligned(['monomial', 'coefficient'], rows)}"
