"""Command ``bayesprivmrf test``: test a hypothesis about a saved release."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from bayesprivmrf import analysis
from bayesprivmrf.checks import require
from bayesprivmrf.cli.output import aligned, json_text, number, show
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.release import load_release

if TYPE_CHECKING:
    from bayesprivmrf.analysis import TestResult
    from bayesprivmrf.release import NoisyStatistics


# tests that use --given; the others refuse it
_TESTS_WITHIN = ("independence", "equal-odds")
# test that uses --model; the others refuse it
_TEST_OF_A_MODEL = "fit"


def run(options: argparse.Namespace) -> None:
    """Test a hypothesis about a saved release and print the result."""
    saved: Any = load_release(options.release)
    release: Any = getattr(saved, "statistics", None)
    must = "be given a release of noisy tables"
    require(release is not None, "test", must, f"the kind {saved.kind!r}")
    result = _tested(options, release)
    figures = result.frame.iloc[0].to_dict()
    if not math.isnan(result.pearson_p_value):
        figures["pearson_p_value"] = result.pearson_p_value
    if options.json:
        show(json_text({**figures, "seed": result.seed, "expected": result.expected}))
        return
    show(f"{result.method}\n")
    names = ("statistic", "df", "p_value", "mc_error")
    show(aligned(["figure", "value"], [[name, number(figures[name])] for name in names]))
    show(f"\nStatus: {result.status}. {result.note}\nSeed: {result.seed}.")


def _tested(options: argparse.Namespace, release: NoisyStatistics) -> TestResult:
    """Return the result of the test that the options name."""
    _require_used(options)
    names = [_declared(release, text) for text in options.variables]
    given = [_declared(release, text) for text in options.given]
    how = {"draws": options.draws, "rng": options.seed}
    match options.kind:
        case "independence":
            _require_count(names, 2, "two variables")
            return analysis.independence_test(release, *names, given=given, **how)
        case "equal-odds":
            _require_count(names, 2, "two variables")
            return analysis.equal_odds_test(release, *names, over=given, **how)
        case "symmetry":
            _require_count(names, 2, "two variables")
            return analysis.symmetry(release, *names, **how)
        case "groups":
            must = "be followed by the variable that tells the groups, and perhaps others"
            require(names, "groups", must, "none")
            return analysis.compare_groups(release, names[0], over=names[1:], **how)
        case "fit":
            must = "be given for the test of fit"
            require(options.model is not None, "--model", must, "none", "pass a TOML file")
            model = read_declaration(options.model).specification
            return analysis.goodness_of_fit(release, model, **how)
        case "homogeneity":
            return analysis.homogeneity(release, names, **how)
        case _:
            return analysis.stationarity_test(release, names, **how)


def _declared(release: NoisyStatistics, text: str) -> object:
    """Return the declared name that a text stands for; an unknown one is left to the test."""
    variables = release.specification.domain.variables
    return next((variable for variable in variables if str(variable) == text), text)


def _require_count(names: list[object], count: int, wanted: str) -> None:
    """Raise an ArgumentError unless as many variables were named as the test compares."""
    remedy = "name a third variable by --given"
    require(len(names) <= count, "this test", f"be of {wanted}", f"{len(names)}", remedy)
    require(len(names) == count, "this test", f"be of {wanted}", f"{len(names)}")


def _require_used(options: argparse.Namespace) -> None:
    """Raise an ArgumentError if an option was given that the test would ignore."""
    kind = options.kind
    seen = f"it with {kind}"
    is_used = not options.given or kind in _TESTS_WITHIN
    must = "go with independence and equal-odds only"
    require(is_used, "--given", must, seen, "leave it out")
    is_used = options.model is None or kind == _TEST_OF_A_MODEL
    require(is_used, "--model", "go with fit only", seen, "leave it out")
    is_used = not options.variables or kind != _TEST_OF_A_MODEL
    must = "name no variables beside the model file"
    require(is_used, "the test of fit", must, " ".join(options.variables), "leave them out")
