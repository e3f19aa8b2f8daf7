"""Command ``bayesprivmrf audit``: compare an empirical lower bound of the privacy loss with the promise."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bayesprivmrf.audit import AuditResult, audit, audit_draws, exact_cost
from bayesprivmrf.audit.whole import audit_releases, rehearsed, table_draws
from bayesprivmrf.audit.worst_case import Draw, exceeds
from bayesprivmrf.checks import require
from bayesprivmrf.cli.output import aligned, json_text, number, show
from bayesprivmrf.cli.release import chosen_mechanism
from bayesprivmrf.errors import ConsistencyWarning, DeclarationWarning, NoiseWarning, PrivacyError
from bayesprivmrf.mechanisms import available_mechanisms
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.network import IsingNetwork
from bayesprivmrf.noise import noise_source
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import NoisyStatistics, load_release


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one audit: the exact cost of the stated noise, if any is stated, and the bound from runs."""

    what: str
    promised: float
    cost: float | None
    is_refuted: bool
    result: AuditResult


# Promise in words and as a guarantee, the findings about it, and the steps that were not audited
type Audited = tuple[str, PrivacyGuarantee, list[Finding], list[str]]


def run(options: argparse.Namespace) -> int:
    """Audit a saved release or a mechanism, print the findings, and return the exit code: 3 if one is refuted."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        # they concern made-up data
        for category in (
            ConsistencyWarning,
            DeclarationWarning,
            NoiseWarning,
        ):
            warnings.simplefilter("ignore", category)
        if _is_file(options):
            audited = _of_file(options)
        else:
            audited = _of_mechanism(options)
    statement, guarantee, findings, not_audited = audited
    is_refuted = any(finding.is_refuted for finding in findings)
    seconds = time.perf_counter() - begin
    if options.json:
        whole = {
            "audited": options.subject,
            "guarantee": guarantee.as_dict(),
            "statement": statement,
            "not_audited": not_audited,
            "confidence": options.confidence,
            "findings": [asdict(finding) for finding in findings],
            "is_refuted": is_refuted,
            "seconds": seconds,
        }
        show(json_text(whole))
    else:
        verdict = (
            "Not refuted. This is not a proof: other data or more runs may refute the promise."
        )
        if is_refuted:
            verdict = "REFUTED: the promise does not hold."
        show(f"Promised: {statement}\n\n{_table(findings, guarantee)}\n\n{verdict}")
        show(f"Confidence {options.confidence:.6g} for each row; {seconds:.0f} seconds.")
        if not_audited:
            show(f"Not audited, because they do not state their noise: {', '.join(not_audited)}.")
    return 3 if is_refuted else 0


def _is_file(options: argparse.Namespace) -> bool:
    """Return True if the subject is a file, and False if it is a mechanism with a budget."""
    # the budget of a mechanism may be among its settings
    is_set = options.set and options.subject in available_mechanisms()
    if options.epsilon is not None or options.rho is not None or is_set:
        return False
    is_alone = not options.set and options.model is None
    both = "`--model` and `--set`"
    require(is_alone, both, "go with a mechanism and its --epsilon or --rho", "no such budget")
    must = "be given the file of a release, or a mechanism with its --epsilon or --rho"
    seen = options.subject
    require(Path(seen).is_file(), "audit", must, f"{seen!r}, which is not a file")
    return True


def _of_file(options: argparse.Namespace) -> Audited:
    """Audit the noise that a saved release of tables states."""
    release: Any = load_release(options.subject)
    must = "be given a file of noisy tables, which state their noise"
    seen = f"the kind {release.kind!r}"
    remedy = "audit the mechanism instead, for instance `bayesprivmrf audit frank-wolfe --rho 1 --set width=1`"
    require(release.statistics is not None, "audit", must, seen, remedy)
    continuous = ", ".join(
        sorted({law.name for law in release.statistics.noise if not law.is_discrete})
    )
    remedy = "read the publisher's own proof"
    require(not continuous, "audit", "be given tables with integer noise", continuous, remedy)
    guarantee = _required(release.guarantee)
    draws = table_draws(release.statistics, guarantee.adjacency)
    return (
        release.privacy_statement(),
        guarantee,
        [_of_draws("stated noise", draws, guarantee, options)],
        [],
    )


def _of_mechanism(options: argparse.Namespace) -> Audited:
    """Audit the steps of a mechanism that states the noise of each, or else its whole releases."""
    options.mechanism = options.subject
    mechanism = chosen_mechanism(options, is_saved=False)
    # whole releases take longer than draws
    few: Any = {"runs": max(options.runs // 50, 100), "confidence": options.confidence}
    if options.subject == "objective-perturbation":
        is_alone = options.model is None
        require(is_alone, "--model", "be left out for objective-perturbation", "a model")
        return _of_network(mechanism, few)
    if options.model is not None:
        model = read_declaration(options.model).specification
    else:  # a chain of six two-state variables
        domain = Domain.from_states({name: [0, 1] for name in "abcdef"})
        model = ModelSpecification(domain=domain, cliques=tuple(pairwise("abcdef")))
    guarantee = _required(mechanism.promise(model))
    # a public guess of the number of records, which decides the number of steps of some mechanisms
    outlays = mechanism.outlays(model, 1000.0)
    findings = [
        _of_draws(one.step, one.draws, guarantee, options, one.rho or one.epsilon)
        for one in outlays
        if one.draws
    ]
    if findings:
        return (
            guarantee.sentence(),
            guarantee,
            findings,
            [one.step for one in outlays if not one.draws],
        )
    states_noise = not mechanism.releases or NoisyStatistics in mechanism.releases
    must = "be given a mechanism that states the noise of what it releases"
    remedy = "read its proof in the docs"
    require(states_noise, "audit", must, f"{options.subject!r}, which does not", remedy)
    draws = table_draws(rehearsed(mechanism, model), guarantee.adjacency)
    stated = _of_draws("stated noise", draws, guarantee, options)
    whole = _of_runs(stated.promised, audit_releases(mechanism, model, **few))
    return guarantee.sentence(), guarantee, [stated, whole], []


def _of_network(mechanism: Any, few: dict[str, Any]) -> Audited:
    """Audit estimates on a star network, in which the center's outcome has the largest effect on the score."""
    star = IsingNetwork.from_graph([("center", leaf) for leaf in range(6)])
    guarantee = mechanism.promise(star)

    def estimates(center: int) -> Any:
        outcomes = {node: center if node == "center" else 1 for node in star.nodes}
        return lambda runs: np.nan_to_num(
            [mechanism.release(star, outcomes).inverse_temperature for _ in range(runs)]
        )

    result = audit(estimates(1), estimates(-1), guarantee, **few)
    return guarantee.sentence(), guarantee, [_of_runs(guarantee.epsilon, result)], []


def _of_draws(
    what: str,
    draws: Sequence[Draw],
    guarantee: PrivacyGuarantee,
    options: Any,
    share: float | None = None,
) -> Finding:
    """Audit draws from the secure source, and compare their exact cost with the promise, or their share of it."""
    promised = share or guarantee.rho or guarantee.epsilon
    assert promised is not None
    cost = exact_cost(draws, guarantee)
    result = audit_draws(
        draws, noise_source(None), runs=options.runs, confidence=options.confidence
    )
    is_refuted = result.is_violated or exceeds(draws, cost, promised)
    return Finding(what=what, promised=promised, cost=cost, is_refuted=is_refuted, result=result)


def _of_runs(promised: Any, result: AuditResult) -> Finding:
    """Return the finding of an audit of whole releases."""
    is_refuted = result.is_violated
    return Finding(
        what="whole releases", promised=promised, cost=None, is_refuted=is_refuted, result=result
    )


def _required(guarantee: PrivacyGuarantee | None) -> PrivacyGuarantee:
    """Return a guarantee; raise an error if there is none."""
    if guarantee is None:
        raise PrivacyError(
            "`audit` must be given a release or mechanism with a promise, got one without."
        )
    return guarantee


def _table(findings: Sequence[Finding], guarantee: PrivacyGuarantee) -> str:
    """Return a table with one row per finding, at the delta at which the runs' bound is closest to the promise."""
    if guarantee.rho is None:
        name = "epsilon"
    else:
        name = "rho"
    header = [
        f"promised {name}",
        "exact cost",
        "runs",
        "at delta",
        "epsilon allowed",
        "at least",
        "audit of",
    ]
    rows = []
    for one in findings:
        found = one.result
        shares = np.divide(found.epsilon_lower, np.maximum(found.epsilon_claimed, 1e-12))
        at = int(np.argmax(shares))
        numbers = [found.deltas[at], found.epsilon_claimed[at], found.epsilon_lower[at]]
        rows.append(
            [
                number(one.promised),
                number(one.cost),
                f"{found.runs:,}",
                *map(number, numbers),
                one.what,
            ]
        )
    return aligned(header, rows, left=0)
