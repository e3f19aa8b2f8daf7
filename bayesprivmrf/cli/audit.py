"""``bayesprivmrf audit``: an empirical lower bound of the privacy loss beside what was promised."""

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
from bayesprivmrf.cli.mechanism import chosen_mechanism
from bayesprivmrf.cli.output import aligned, json_text, number
from bayesprivmrf.errors import (
    ArgumentError,
    ConsistencyWarning,
    DeclarationWarning,
    NoiseWarning,
    PrivacyError,
)
from bayesprivmrf.mechanisms import available_mechanisms
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.network import IsingNetwork
from bayesprivmrf.noise import noise_source
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import load_release

# Exit status where a promise is refuted
REFUTED = 3

_RECORDS = 1000.0  # a public guess: some mechanisms take as many steps as the number of records asks for
_DRAWS_A_RELEASE = 50  # a whole release takes longer than a draw
# what is printed, by whether a promise was refuted
_VERDICTS = {
    False: "Not refuted. That is no proof: other data, or more runs, might show what these do not.",
    True: "REFUTED: what is promised is not kept.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One audit: the exact cost of stated draws, where there are some, and what runs show."""

    what: str
    promised: float
    cost: float | None
    is_refuted: bool
    result: AuditResult


@dataclass(frozen=True, kw_only=True)
class _Audited:
    """The promise, in a sentence that names a simulation as one, what was found, and the steps left out."""

    guarantee: PrivacyGuarantee
    statement: str
    findings: list[Finding]
    not_audited: tuple[str, ...] = ()


def run(options: argparse.Namespace) -> int:
    """Audit a saved release or a mechanism, print what was found, and return the exit status."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        for category in (ConsistencyWarning, DeclarationWarning, NoiseWarning):  # they are of made-up data
            warnings.simplefilter("ignore", category)
        audited = _of_file(options) if _is_file(options) else _of_mechanism(options)
    guarantee, findings = audited.guarantee, audited.findings
    is_refuted = any(finding.is_refuted for finding in findings)
    seconds = time.perf_counter() - begin
    if options.json:
        head = {
            "audited": options.subject,
            "guarantee": guarantee.as_dict(),
            "statement": audited.statement,
            "not_audited": list(audited.not_audited),
            "confidence": options.confidence,
        }
        body = {"findings": [asdict(finding) for finding in findings], "is_refuted": is_refuted}
        print(json_text(head | body | {"seconds": seconds}))
    else:
        print(f"Promised: {audited.statement}\n\n{_table(findings, guarantee)}\n\n{_VERDICTS[is_refuted]}")
        print(f"Confidence {options.confidence:.6g} for each row; {seconds:.0f} seconds.")
        if audited.not_audited:
            print(f"Not audited, because nothing states their draws: {', '.join(audited.not_audited)}.")
    return REFUTED if is_refuted else 0


def _is_file(options: argparse.Namespace) -> bool:
    if options.epsilon is not None or options.rho is not None:
        return False
    if options.set and options.subject in available_mechanisms():  # its budget is among its settings
        return False
    if options.set or options.model is not None:
        raise ArgumentError("`--model` and `--set` must go with a mechanism and its --epsilon or --rho.")
    if not Path(options.subject).is_file():
        raise ArgumentError(
            "`audit` must be given the file of a release, or a mechanism with its --epsilon or --rho, got "
            f"{options.subject!r}, which is no file."
        )
    return True


def _of_file(options: argparse.Namespace) -> _Audited:
    release: Any = load_release(options.subject)
    if release.statistics is None:
        raise ArgumentError(
            f"`audit` reads files of noisy tables, which state their noise, got the kind {release.kind!r}; audit the "
            "mechanism that made it, such as `bayesprivmrf audit frank-wolfe --rho 1 --set width=1`."
        )
    continuous = sorted({law.name for law in release.statistics.noise if not law.is_discrete})
    if continuous:
        raise ArgumentError(
            f"`audit` computes the loss of noise of whole numbers, but these tables state {', '.join(continuous)}; "
            "read their publisher's own proof."
        )
    guarantee = _required(release.guarantee)
    draws = table_draws(release.statistics, guarantee.adjacency)
    found = _of_draws("stated noise", draws, guarantee, None, options)
    return _Audited(guarantee=guarantee, statement=release.privacy_statement(), findings=[found])


def _of_mechanism(options: argparse.Namespace) -> _Audited:
    options.mechanism = options.subject
    mechanism = chosen_mechanism(options, is_saved=False)
    if options.subject == "objective-perturbation":
        return _of_network(mechanism, options)
    model = _chain() if options.model is None else read_declaration(options.model).specification
    guarantee = _required(mechanism.promise(model))
    outlays = mechanism.outlays(model, _RECORDS)
    steps = [step for step in outlays if step.draws]
    if steps:
        return _Audited(
            guarantee=guarantee,
            statement=guarantee.sentence(),
            findings=[
                _of_draws(one.step, one.draws, guarantee, one.rho or one.epsilon, options) for one in steps
            ],
            not_audited=tuple(step.step for step in outlays if not step.draws),
        )
    draws = table_draws(rehearsed(mechanism, model), guarantee.adjacency)
    stated = _of_draws("stated noise", draws, guarantee, None, options)
    runs, confidence = _fewer(options.runs), options.confidence
    result = audit_releases(mechanism, model, runs=runs, confidence=confidence)
    findings = [stated, _of_runs(stated.promised, result)]
    return _Audited(guarantee=guarantee, statement=guarantee.sentence(), findings=findings)


def _of_network(mechanism: Any, options: argparse.Namespace) -> _Audited:
    """Audit estimates on a star, whose centre's outcome moves the score most."""
    if options.model is not None:
        raise ArgumentError(
            "`--model` must be left out for objective-perturbation, which is audited on a star."
        )
    star = IsingNetwork.from_graph([("centre", leaf) for leaf in range(6)])
    guarantee = mechanism.promise(star)

    def estimates(centre: int) -> Any:
        outcomes = {node: centre if node == "centre" else 1 for node in star.nodes}
        return lambda runs: np.nan_to_num(
            [mechanism.release(star, outcomes).inverse_temperature for _ in range(runs)]
        )

    result = audit(
        estimates(1), estimates(-1), guarantee, runs=_fewer(options.runs), confidence=options.confidence
    )
    findings = [_of_runs(guarantee.epsilon, result)]
    return _Audited(guarantee=guarantee, statement=guarantee.sentence(), findings=findings)


def _of_draws(
    what: str, draws: Sequence[Draw], guarantee: PrivacyGuarantee, share: float | None, options: Any
) -> Finding:
    """Audit the secure source, and hold the exact cost of the draws against the promise, or their share of it."""
    promised = share or guarantee.rho or guarantee.epsilon
    assert promised is not None
    cost = exact_cost(draws, guarantee)
    result = audit_draws(draws, noise_source(None), runs=options.runs, confidence=options.confidence)
    is_refuted = result.is_violated or exceeds(draws, cost, promised)
    return Finding(what=what, promised=promised, cost=cost, is_refuted=is_refuted, result=result)


def _of_runs(promised: Any, result: AuditResult) -> Finding:
    return Finding(
        what="whole releases", promised=promised, cost=None, is_refuted=result.is_violated, result=result
    )


def _fewer(runs: int) -> int:
    return max(runs // _DRAWS_A_RELEASE, 100)


def _required(guarantee: PrivacyGuarantee | None) -> PrivacyGuarantee:
    if guarantee is None:
        raise PrivacyError(
            "there must be a promise to audit, got a release or a mechanism that promises nothing."
        )
    return guarantee


def _chain() -> ModelSpecification:
    """Return the model that stands in where none is given: six two-state variables in a row."""
    names = "abcdef"
    return ModelSpecification(
        domain=Domain.from_states({name: [0, 1] for name in names}),
        cliques=tuple(pairwise(names)),
    )


def _table(findings: Sequence[Finding], guarantee: PrivacyGuarantee) -> str:
    """Return a row a finding, each at the delta where runs come nearest to what is allowed."""
    name = "epsilon" if guarantee.rho is None else "rho"
    header = [f"promised {name}", "exact cost", "runs", "at delta", "epsilon allowed", "at least", "audit of"]
    rows = []
    for one in findings:
        found = one.result
        shares = np.divide(found.epsilon_lower, np.maximum(found.epsilon_claimed, 1e-12))
        at = int(np.argmax(shares))
        numbers = [found.deltas[at], found.epsilon_claimed[at], found.epsilon_lower[at]]
        rows.append(
            [number(one.promised), number(one.cost), f"{found.runs:,}", *map(number, numbers), one.what]
        )
    return aligned(header, rows, left=0)
