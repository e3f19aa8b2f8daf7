"""``bayesprivmrf fit``: a Markov random field from a saved release."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from bayesprivmrf.cli.output import aligned, claim_folder, clear_folder, json_text, number, remark
from bayesprivmrf.inference import CGM, NaiveMLE
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.release import NoisyStatistics, load_release

__all__ = ["run"]

SOLUTION_FORMAT = "bayesprivmrf-solution"
SOLUTION_VERSION = 1
_FILES = ("solution.json", "network.json", "marginals/[0-9][0-9]*_*.csv")


def run(options: argparse.Namespace) -> None:
    """Fit, print the one-way marginals, and write the solution where asked."""
    release = load_release(options.release)
    folder = None
    if options.out is not None:
        folder = claim_folder(options.out, _FILES, force=options.force, sources=[options.release])
    kind = CGM if options.method == "cgm" else NaiveMLE
    solution = kind(inference=options.inference).fit(release)
    summary = _summary(options.method, release, solution)
    if folder is not None:
        clear_folder(folder, _FILES)
        _write(folder, summary, solution)
    if options.json:
        print(json_text({**summary, "marginals": _marginals(solution)}))
        return
    print(f"{solution}\n\n{release.privacy_statement()}\n")
    print(_one_way(solution))
    if options.out is not None:
        remark(f"\nWrote solution.json, network.json and marginals/*.csv to {options.out}.")


def _summary(name: str, release: NoisyStatistics, solution: Solution) -> dict[str, Any]:
    """What was fitted to what: it must stand by itself, for a folder and a release part company."""
    provenance = release.provenance
    return {
        "format": SOLUTION_FORMAT,
        "version": SOLUTION_VERSION,
        "method": name,
        "inference": solution.inference,
        "status": solution.status,
        "log_partition": solution.log_partition,
        "stats": dict(solution.stats),
        "guarantee": _promised(release),
        "statement": release.privacy_statement(),
        "model": {
            "variables": _variables(solution),
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


def _variables(solution: Solution) -> list[dict[str, Any]]:
    domain = solution.specification.domain
    return [
        {"name": variable, "states": list(states)}
        for variable, states in zip(domain.variables, domain.states, strict=True)
    ]


def _promised(release: NoisyStatistics) -> dict[str, Any] | None:
    """The guarantee never without the mark that its noise was simulated and protects nobody."""
    if release.guarantee is None:
        return None
    return {**release.guarantee.as_dict(), "simulated": release.provenance.simulated}


def _marginals(solution: Solution) -> list[dict[str, Any]]:
    domain = solution.specification.domain
    return [
        {
            "variables": list(clique),
            "states": [list(domain.states_of(variable)) for variable in clique],
            "probability": solution.marginals[clique],
        }
        for clique in solution.specification.cliques
    ]


def _one_way(solution: Solution) -> str:
    rows: list[list[str]] = []
    for variable in solution.specification.domain.variables:
        marginal = solution.marginal([variable])
        for state, value in zip(marginal.coords[variable].values, marginal.values, strict=True):
            rows.append([str(variable), number(float(value), 3), str(state)])
    return aligned(["variable", "probability", "state"], rows)


def _write(folder: Path, summary: dict[str, Any], solution: Solution) -> None:
    """Files that a statistician can read anywhere: JSON for the model, one CSV a marginal table."""
    (folder / "solution.json").write_text(json_text(summary) + "\n", encoding="utf-8")
    (folder / "network.json").write_text(json_text(_network(solution)) + "\n", encoding="utf-8")
    (folder / "marginals").mkdir(exist_ok=True)
    for position, clique in enumerate(solution.specification.cliques, start=1):
        name = re.sub(r"[^A-Za-z0-9]+", "_", "_".join(map(str, clique)))[:80]
        table = solution.marginal(list(clique)).to_series()
        table.to_csv(folder / "marginals" / f"{position:02d}_{name}.csv")


def _network(solution: Solution) -> dict[str, Any]:
    """The fitted field: P(x) is proportional to exp of the sum of the log-potentials; null is minus infinity."""
    return {
        "variables": _variables(solution),
        "factors": [
            {"variables": list(clique), "log_potential": solution.potentials[clique]}
            for clique in solution.specification.cliques
        ],
        "log_partition": solution.log_partition,
    }
