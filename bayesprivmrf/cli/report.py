"""Command ``bayesprivmrf report``: fit a saved release, and write a report of it to one file."""

from __future__ import annotations

import argparse
import secrets
from typing import TYPE_CHECKING, Any

from bayesprivmrf.analysis import independence_test
from bayesprivmrf.analysis.reports import ENDINGS, ReportContent, report_content, write_report
from bayesprivmrf.checks import require
from bayesprivmrf.cli.fit import fresh_fit, learned_solution, opened
from bayesprivmrf.cli.output import claim_file, json_text, listed, remark, show
from bayesprivmrf.escapes import printable

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import pandas as pd

    from bayesprivmrf.model.domain import Domain


def run(options: argparse.Namespace) -> None:
    """Fit a saved release, run the tests that were asked for, and write the report."""
    (found, model) = opened(options)
    release = found.statistics
    must = "be given a release of noisy tables"
    remedy = "`fit` prints the result of such a release"
    require(release is not None, "report", must, f"the kind {found.kind!r}", remedy)
    asked = [_asked_test(release.specification.domain, texts) for texts in options.test]
    must = f"name a file that ends in one of {', '.join(ENDINGS)}"
    is_known = options.out.lower().endswith(ENDINGS)
    require(is_known, "--out", must, repr(options.out), "write report.html")
    sources = [each for each in (options.release, options.model) if each is not None]
    target = claim_file(options.out, force=options.force, sources=sources)
    if options.seed is None:
        seed = secrets.randbits(32)
    else:
        seed = options.seed
    solution: Any = learned_solution(options, found, model)
    if solution is None:
        solution = fresh_fit(options, release, model, seed)
    tests = {
        _question(variables): independence_test(
            release, variables[0], variables[1], given=variables[2:], rng=seed
        )
        for variables in asked
    }
    content = report_content(found, solution, tests=tests, prob=options.prob)
    write_report(content, target)
    if options.json:
        show(json_text({**_as_json(content), "seed": seed, "path": str(target)}))
    else:
        _print(content)
    remark(f"\nWrote {target}. Seed: {seed}.")


def _asked_test(domain: Domain, texts: Sequence[str]) -> list[Hashable]:
    """Return the variables that ``--test`` names: the two that are tested, and those given."""
    names = {str(variable): variable for variable in domain.variables}
    remedy = f"write --test with some of {listed([*names])}"
    require(len(texts) > 1, "--test", "name two variables or more", repr(texts[0]), remedy)
    for text in texts:
        require(text in names, "--test", "name declared variables", repr(text), remedy)
    return [names[text] for text in texts]


def _question(variables: Sequence[Hashable]) -> str:
    """Return the name of a test in the report."""
    a, b, *given = map(str, variables)
    if not given:
        return f"independence of {a} and {b}"
    return f"independence of {a} and {b} given {', '.join(given)}"


def _print(content: ReportContent) -> None:
    """Print the promise, the tests and what must not be concluded."""
    show(f"status: {content.solution.status.value}\n")
    show("\n".join(content.statements))
    for name, test in content.tests.items():
        show(f"\n{printable(name)}: p = {test.p_value:.3g} ({test.status}; {test.note})")
    show("\nWhat must not be concluded:")
    for sentence in content.cautions:
        show(f"- {printable(sentence)}")


def _as_json(content: ReportContent) -> dict[str, Any]:
    """Return the content of a report as JSON values."""
    solution = content.solution
    frames = content.results.every
    return {
        "format": "bayesprivmrf-report",
        "version": 1,  # to be raised when a key changes
        "statements": content.statements,
        "simulated": solution.is_simulated,
        "status": solution.status,
        "problems": solution.problems,
        "assumptions": solution.assumptions,
        "prob": content.results.prob,
        "tables": [{"caption": caption, "rows": _rows(frame)} for caption, frame in frames.items()],
        "tests": [
            {"question": name, **_rows(test.frame)[0]} for name, test in content.tests.items()
        ],
        "cautions": content.cautions,
    }


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame, with the labels of its index."""
    return frame.reset_index().to_dict("records")
