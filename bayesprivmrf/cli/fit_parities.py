"""``bayesprivmrf fit`` on released parities: a learned t-wise model, in a file of its own."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bayesprivmrf.cli.output import aligned, claim_file, json_text, promised, remark
from bayesprivmrf.errors import ArgumentError, ModelTooLargeError

if TYPE_CHECKING:
    from bayesprivmrf.learning import LearnedMonomials, ReleasedParities

_SHOWN = 10


def run(options: argparse.Namespace, release: ReleasedParities) -> None:
    """Fit, print the largest coefficients, and write the model where asked."""
    if options.method is not None or options.inference != "exact":
        raise ArgumentError(
            "released parities have one method of their own, with exact inference: leave out `--method` and "
            "`--inference`."
        )
    target = None
    if options.out is not None:
        target = claim_file(options.out, force=options.force, sources=[options.release])
    try:
        model = release.fit()
    except ModelTooLargeError as error:  # of tables loopy inference is a remedy, here it is none
        raise ArgumentError(str(error)) from None
    if target is not None:
        model.save(target, overwrite=options.force)
    if options.json:
        print(json_text(_summary(model)))
    else:
        print(f"{model}\n\nstatus: {model.status}\n")
        print(_largest(model))
    if target is not None:
        remark(f"\nWrote {target}, which bayesprivmrf.load_release reads.")


def _summary(model: LearnedMonomials) -> dict[str, Any]:
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
    found = model.monomials
    return [(list(members), value) for members, value in zip(found.index, found.tolist(), strict=True)]


def _largest(model: LearnedMonomials) -> str:
    found = sorted(_coefficients(model), key=lambda each: -abs(each[1]))[:_SHOWN]
    rows = [[" ".join(map(str, members)), f"{value:.3f}"] for members, value in found]
    return f"Largest coefficients, nats:\n{aligned(['monomial', 'coefficient'], rows)}"
