"""Command ``bayesprivmrf fit``: fit a Markov random field to a saved release.

A point estimate is written in formats that any program reads: JSON for the model, and a CSV file for each marginal
table and for the transition matrix of a chain that has one. Released parities are fitted to a learned model, which is
one file. Noisy counts that somebody published are read with a model file. An estimate of peer effects on a network is
printed with its interval.
"""

from __future__ import annotations

import argparse
import re
import secrets
from contextlib import suppress
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.cli.methods import WARM_UP, chosen_method, fitted, refuse_unsampled
from bayesprivmrf.cli.output import (
    aligned,
    claim_file,
    claim_folder,
    counted,
    json_text,
    listed,
    promised,
    remark,
    show,
)
from bayesprivmrf.errors import ArgumentError, ForeignFileError, ModelTooLargeError
from bayesprivmrf.escapes import printable
from bayesprivmrf.files import write_whole
from bayesprivmrf.inference import Status
from bayesprivmrf.inference.criticism.assumptions import point_marks
from bayesprivmrf.inference.interval_frame import interval_frame, joint_index, point_status
from bayesprivmrf.inference.registry import estimator
from bayesprivmrf.learning.models.solution import status_with_advice
from bayesprivmrf.learning.select_measure import MeasuredTable, Merging
from bayesprivmrf.learning.select_measure.rounds_solution import RoundsSolution
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.model.tables import free_names
from bayesprivmrf.readers import read_counts
from bayesprivmrf.release import load_release
from bayesprivmrf.sequences import transition_matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from bayesprivmrf.inference import Solution
    from bayesprivmrf.learning import ReleasedParities
    from bayesprivmrf.model import ModelSpecification
    from bayesprivmrf.model.domain import Domain, Label, Variable

# patterns of all files in the folder of a point estimate
FILES = ("solution.json", "network.json", "transitions.csv", "marginals/[0-9][0-9]*_*.csv")


def run(options: argparse.Namespace) -> None:
    """Fit a saved release, print the one-way marginals, and write the files that ``--out`` asks for."""
    (found, model) = opened(options)
    if model is not None:
        is_fitted = found.kind != "network-estimate" and not hasattr(found, "fit")
        must = "be left out for a release without tables"
        require(is_fitted, "--model", must, f"one of the kind {found.kind!r}")
    if found.kind == "network-estimate":
        _fit_network(options, found)
        return
    refuse_unsampled(options, "seed")
    if hasattr(found, "fit"):  # released parities have a fit of their own
        _fit_parities(options, found)
        return
    # the noisy tables themselves, or those inside a learned model
    release = found.statistics
    must = "be given a release of noisy tables or parities"
    seen = f"the kind {found.kind!r}"
    remedy = f"{found._without_tables}; read it in Python with bayesprivmrf.load_release"
    require(release is not None, "fit", must, seen, remedy)
    estimate: Any = learned_solution(options, found, model)
    is_learned = estimate is not None
    if is_learned:
        method = "learned"
    else:
        method = chosen_method(options)
    is_posterior = method == "posterior"
    declared = release.specification if model is None else model
    given = _given_states(declared.domain, options.given)
    target = None
    if options.out is not None:
        claim: Any = claim_file if is_posterior else claim_folder
        what = ".nc" if is_posterior else FILES
        sources = [each for each in (options.release, options.model) if each is not None]
        target = claim(options.out, what, force=options.force, sources=sources)
    if options.seed is None:
        seed = secrets.randbits(32)
    else:
        seed = options.seed
    if not is_learned:
        estimate = fresh_fit(options, release, model, seed)
    elif estimate.status is not Status.CONVERGED:
        status = status_with_advice(estimate.status, estimate.stats)
        remark(f"bayesprivmrf: warning: the learned model is {status}.")
    has_intervals = is_learned or getattr(estimator(method), "has_intervals", False)
    if has_intervals:
        prob = options.prob
    else:
        prob = None
    summary = _summary(method, release, estimate) | ({"seed": seed} if is_posterior else {})
    if estimate.specification.shares_transitions:
        moves = _transitions(estimate, prob)
    else:
        moves = None
    written = ""
    if target is not None and is_posterior:
        estimate.save(target)
    elif target is not None:
        _write_folder(target, summary, estimate, prob, moves)
        written = "solution.json, network.json and marginals/*.csv to "
        if moves is not None:
            written = f"transitions.csv, {written}"
    if options.json:
        entry: dict[str, Any] = {} if prob is None else {"prob": prob}
        if given:
            entry["given"] = [
                {"variable": name, "states": states} for name, states in given.items()
            ]
        if moves is not None:
            entry["transitions"] = moves.to_dict("records")
        show(json_text({**summary, **entry, "marginals": _marginals(estimate, prob, given)}))
    else:
        text = str(estimate)
        statement = release.privacy_statement()
        show(f"{text}\n" if statement in text else f"{text}\n\n{statement}\n")
        if given:
            show(f"Given {', '.join(printable(text) for text in options.given)}:")
        show(_one_way(estimate, prob, given))
        if moves is not None:
            show(f"\nTransition matrix of every step:\n{_aligned_moves(moves)}")
        if isinstance(estimate, RoundsSolution):
            show(f"\n{trusted_tables(estimate)}")
        if prob is not None:
            if is_posterior:
                kind = f"sampled with seed {seed}"
            else:
                kind = "approximate"
            show(f"\nLower and upper: {100 * prob:.4g} % intervals, {kind}.")
    if target is not None:
        remark(f"\nWrote {written}{options.out}.")


def learned_solution(
    options: argparse.Namespace, found: Any, model: ModelSpecification | None
) -> RoundsSolution | None:
    """Return the fit that a learned model has itself, unless another method or another model is asked for."""
    is_refitted = options.method or model is not None
    estimate: Any = None if is_refitted else getattr(found, "solution", None)
    if issubclass(type(estimate), RoundsSolution):
        return estimate
    return None


def fresh_fit(
    options: argparse.Namespace, release: Any, model: ModelSpecification | None, seed: int
) -> Any:
    """Return the fit of noisy tables by the method that the options name."""
    sampling = {
        name: getattr(options, name) for name in ("draws", "chains") if getattr(options, name)
    }
    if "draws" in sampling:
        sampling["tune"] = min(sampling["draws"], WARM_UP)
    how: dict[str, Any] = {"inference": options.inference, "rng": seed, "sampling": sampling}
    return fitted(chosen_method(options), release, **how, model=model)


def opened(options: argparse.Namespace) -> tuple[Any, ModelSpecification | None]:
    """Return the release of a file, and the model that is fitted to it if the release declares another.

    A given model is that of the published noisy counts in the file, or, for a saved release, the model to fit.
    """
    is_plain = options.noise is None and options.total is None
    if options.model is not None:
        model = read_declaration(options.model).specification
        saved = None
        if is_plain:
            with suppress(ForeignFileError):
                saved = load_release(options.release)
        if saved is not None:
            return saved, model
        counts = read_counts(model, options.release, noise=options.noise, total=options.total)
        return counts, None
    seen = "one of them without `--model`"
    remedy = "pass the model file of the published counts"
    require(is_plain, "`--noise` and `--total`", "be left out", seen, remedy)
    try:
        return load_release(options.release), None
    except ForeignFileError as error:
        raise ForeignFileError(
            f"{str(error).partition(';')[0]}; if it holds noisy counts that somebody published, pass their model "
            "file as `--model`, and their noise as `--noise` if no column states it."
        ) from None


def _transitions(estimate: Any, prob: float | None) -> pd.DataFrame:
    """Return the transition matrix of a chain that has one, with interval limits if `prob` is given."""
    frame = transition_matrix(estimate, prob=0.9 if prob is None else prob).reset_index()
    if prob is not None:
        return frame
    return frame.drop(columns=["lower", "upper"])


def _aligned_moves(moves: pd.DataFrame) -> str:
    """Return the transition matrix as a plain table, without the notes of its rows."""
    shown = moves.drop(columns="note")
    cells = shown.astype({"from": str, "to": str}).to_numpy().tolist()
    rows = [[cell if isinstance(cell, str) else f"{cell:.3f}" for cell in row] for row in cells]
    return aligned(list(shown), rows)


def _fit_network(options: argparse.Namespace, release: Any) -> None:
    """Print the estimate of the peer effects on a network with its interval, which is simulated."""
    no_file = options.out is None and not options.given
    is_plain = options.method is None and no_file and options.inference == "exact"
    must = "be left out for an estimate of one number"
    remedy = "`--json` prints it for a program"
    require(
        is_plain, "`--method`, `--inference`, `--given` and `--out`", must, "one of them", remedy
    )
    if options.seed is None:
        seed = secrets.randbits(32)
    else:
        seed = options.seed
    frame = release.interval(options.prob, rng=seed)
    (row,) = frame.to_dict("records")
    if options.json:
        facts = {
            "kind": release.kind,
            "guarantee": promised(release),
            "statement": release.privacy_statement(),
        }
        show(json_text({**facts, "prob": options.prob, "seed": seed, **row}))
        return
    shown = [cell if isinstance(cell, str) else f"{cell:.3f}" for cell in row.values()]
    show(f"{release}\n\n{aligned(['coefficient', *row], [['beta', *shown]])}")
    show(f"\nLower and upper: {100 * options.prob:.4g} % interval, simulated with seed {seed}.")


def _summary(name: str, release: Any, estimate: Any) -> dict[str, Any]:
    """Return the contents of ``solution.json``: the fit, and the release that it was fitted to.

    It repeats the facts of the release, because the folder and the release file may be separated.
    """
    provenance = release.provenance
    solution: Solution = getattr(estimate, "solution", estimate)
    return {
        "format": "bayesprivmrf-solution",
        "version": 2,  # to be raised when a key changes
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
            "variables": _variables(solution),
            "cliques": list(solution.specification.cliques),
        },
        "noise": [law.as_dict() for law in release.noise],
        "provenance": {
            "mechanism": provenance.mechanism,
            "settings": dict(provenance.settings),
            "simulated": provenance.simulated,
            "versions": dict(provenance.versions),
        },
    }


def _given_states(domain: Domain, texts: Sequence[str]) -> dict[Variable, list[Label]]:
    """Return the states that ``--given VARIABLE=STATE`` names, in a list for each variable."""
    pairs = {
        f"{name}={state}": (name, state)
        for name in domain.variables
        for state in domain.states_of(name)
    }
    found: dict[Variable, list[Label]] = {}
    for text in texts:
        known = [pair for pair in pairs if pair.startswith(f"{text.partition('=')[0]}=")]
        remedy = f"write one of {listed(known or [*pairs])}"
        require(text in pairs, "--given", "name a declared variable and state", repr(text), remedy)
        found.setdefault(pairs[text][0], []).append(pairs[text][1])
    is_one_left = len(found) < len(domain.variables)
    remedy = "leave out one of them"
    require(is_one_left, "--given", "leave a variable to show", "states of all variables", remedy)
    return found


def _marginals(
    estimate: Any, prob: float | None, given: Mapping[Variable, list[Label]]
) -> list[dict[str, Any]]:
    """Return the tables of all cliques, or for a model learned in rounds, of all measured scopes.

    Given states of some variables, they are conditional tables of the other variables.
    """
    domain = estimate.specification.domain
    statistics = getattr(estimate, "statistics", None)
    if statistics is None:
        measured = []
    else:
        measured = [each.query.scope for each in statistics.measurements]
    found = []
    scopes = [
        tuple(name for name in scope if name not in given)
        for scope in measured or estimate.specification.cliques
    ]
    if given:  # of several cliques, the same variables may be left, or none
        scopes = list(dict.fromkeys(filter(None, scopes)))
    for scope in scopes:
        states = [domain.states_of(variable) for variable in scope]
        table = marginal_table(estimate, scope, prob, given)
        shape = [len(own) for own in states]
        cells = {str(name): column.to_numpy().reshape(shape) for name, column in table.items()}
        found.append({"variables": scope, "states": states, **cells})
    return found


def _one_way(estimate: Any, prob: float | None, given: Mapping[Variable, list[Label]]) -> str:
    """Return the one-way marginals as a plain table, conditional on given states."""
    domain = estimate.specification.domain
    rows: list[list[str]] = []
    names: list[str] = []
    for variable in [name for name in domain.variables if name not in given]:
        # the notes are too wide for a terminal; files and --json have them
        table = marginal_table(estimate, [variable], prob, given).drop(columns="note")
        names = list(table)
        for state, cells in zip(domain.states_of(variable), table.to_numpy().tolist(), strict=True):
            shown = [cell if isinstance(cell, str) else f"{cell:.3f}" for cell in cells]
            rows.append([str(variable), *shown, str(state)])
    return aligned(["variable", *names, "state"], rows)


def trusted_tables(solution: RoundsSolution) -> str:
    """Return a text on which tables of a model learned in rounds can be trusted, as its intervals mark them.

    A pair in no measured table is `not trusted`, unless one of its variables has a single state in the fit. Rows of
    merged states are `doubtful` in tables of several variables.
    """
    domain = solution.specification.domain
    if solution.status not in (Status.CONVERGED, Status.APPROXIMATE):
        is_short = solution.status is Status.ITERATION_LIMIT
        if is_short:
            verdict = "doubtful, because the model is"
        else:
            verdict = "not trusted, because the model is not"
        return f"Tables: all are {verdict}."
    tables = [MeasuredTable.of(each, domain) for each in solution.statistics.measurements]
    merging = Merging.released(domain, solution.statistics.measurements, solution.groups)
    names = [printable(str(variable)) for variable in domain.variables]
    together = {pair for table in tables for pair in combinations(sorted(table.scope), 2)}
    several = [v for v, states in enumerate(merging.cardinalities) if states > 1]
    apart = [
        f"({names[v]}, {names[w]})" for v, w in combinations(several, 2) if (v, w) not in together
    ]
    merged = [name for v, name in enumerate(names) if merging.is_merged(v)]
    text = f"Tables: {counted(len(together), 'pair')} of variables lie in measured tables and can be trusted."
    if apart:
        text += (
            f"\nNot trusted: {counted(len(apart), 'pair')} never measured together; their tables, and larger ones "
            f"with them, rest on independences: {listed(apart)}."
        )
    if merged:
        text += (
            f"\nDoubtful: rare states of {counted(len(merged), 'variable')} are merged in the fit, and their rows in "
            f"tables of several variables are doubtful: {listed(merged)}."
        )
    return text


def _write_folder(
    folder: Path,
    summary: dict[str, Any],
    solution: Solution,
    prob: float | None,
    moves: pd.DataFrame | None,
) -> None:
    """Write summary, network, tables of the cliques and transition matrix in place of the files of an earlier run.

    The network has the log-potentials of each clique, with null for minus infinity: P(x) is proportional to the
    exponential of their sum.
    """
    cliques = solution.specification.cliques
    factors = [{"variables": own, "log_potential": solution.potentials[own]} for own in cliques]
    network = {
        "simulated": solution.is_simulated,
        "variables": _variables(solution),
        "factors": factors,
        "log_partition": solution.log_partition,
    }
    contents: dict[Path, str | bytes] = {
        folder / "solution.json": json_text(summary) + "\n",
        folder / "network.json": json_text(network) + "\n",
    }
    for position, clique in enumerate(cliques, start=1):
        name = re.sub(r"[^A-Za-z0-9]+", "_", "_".join(map(str, clique)))[:80]
        table = marginal_table(solution, clique, prob).assign(simulated=solution.is_simulated)
        # as text, because pandas leaves out the name 0
        levels = free_names(map(str, table.index.names), table.columns)
        path = folder / "marginals" / f"{position:02d}_{name}.csv"
        contents[path] = table.to_csv(index_label=levels)
    if moves is not None:
        table = moves.assign(simulated=solution.is_simulated)
        contents[folder / "transitions.csv"] = table.to_csv(index=False)
    (folder / "marginals").mkdir(exist_ok=True)
    write_whole(contents, "--out")
    # files of an earlier run whose names are no longer used go last, when the new ones are there
    earlier = chain.from_iterable(map(folder.glob, FILES))
    for path in set(earlier) - contents.keys():
        path.unlink()


def marginal_table(
    estimate: Any,
    variables: Sequence[Variable],
    prob: float | None,
    given: Mapping[Variable, list[Label]] | None = None,
) -> pd.DataFrame:
    """Return the probabilities of a marginal with statuses and notes, and with interval limits if `prob` is given."""
    if prob is not None:
        # left out unless needed, because a method of another package may not take it
        condition: dict[str, Any] = {"given": given} if given else {}
        return estimate.interval(list(variables), prob=prob, **condition)
    model = estimate.specification
    table = estimate.marginal(list(variables)).to_numpy()
    evidence = getattr(estimate, "_evidence", None)  # an estimator of another package may keep none
    frame = interval_frame(
        table,
        *(np.nan, np.nan),
        joint_index(model.domain, variables),
        status=point_status(estimate.status),
        marks=point_marks(evidence, model.positions_of(variables)[1], table),
        is_simulated=estimate.is_simulated,
    )
    return frame.drop(columns=["lower", "upper"])


def _variables(solution: Solution) -> list[dict[str, Any]]:
    """Return names and states of the variables for JSON."""
    domain = solution.specification.domain
    pairs = zip(domain.variables, domain.states, strict=True)
    return [{"name": variable, "states": states} for variable, states in pairs]


def _fit_parities(options: argparse.Namespace, release: ReleasedParities) -> None:
    """Fit released parities, print the ten largest coefficients, and write the model that ``--out`` asks for."""
    must = "be left out for released parities, which have one method with exact inference"
    seen = "one of them"
    is_plain = options.method is None and options.inference == "exact" and not options.given
    require(is_plain, "`--method`, `--inference` and `--given`", must, seen)
    target = None
    if options.out is not None:
        target = claim_file(options.out, force=options.force, sources=[options.release])
    try:
        model = release.fit()
    except ModelTooLargeError as error:  # unlike for tables, loopy inference is no remedy here
        raise ArgumentError(str(error)) from None
    if target is not None:
        model.save(target, overwrite=options.force)
    coefficients: list[Any] = list(model.monomials.items())
    if options.json:
        facts = {
            "kind": model.kind,
            "status": model.status,
            "guarantee": promised(model),
            "statement": model.privacy_statement(),
            "total": model.total,
            "monomials": [{"variables": own, "coefficient": value} for own, value in coefficients],
        }
        show(json_text(facts))
    else:
        largest = sorted(coefficients, key=lambda each: -abs(each[1]))[:10]
        rows = [[" ".join(map(str, members)), f"{value:.3f}"] for members, value in largest]
        table = aligned(["monomial", "coefficient"], rows)
        show(f"{model}\n\nstatus: {model.status}\n\nLargest coefficients, nats:\n{table}")
    if target is not None:
        remark(f"\nWrote {target}, which bayesprivmrf.load_release reads.")
