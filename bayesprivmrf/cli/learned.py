"""A learned model, as the command line prints it: how the fit ended, what was measured, and couplings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesprivmrf.cli.output import aligned
from bayesprivmrf.inference import Status

__all__ = ["told"]

_SHOWN = 10
_CLEAR = 3.0
"""Standard errors from which on an effect is shown: of the entries of a table it is the largest, be it by noise."""
_SIZELESS = 10.0
"""Nats of error from which on an effect has no size: some of its states hardly ever meet, and any size would do."""
_ADVICE = {
    Status.NOT_TRUSTED: "do not use its numbers; spend more, or take more records or fewer variables",
    Status.DIVERGED: "do not use its numbers; spend more, or take a smaller model",
    Status.ITERATION_LIMIT: "the fit had not settled; take a smaller model, or more time",
}


def told(summary: Mapping[str, Any], heading: str, path: Path) -> str:
    """Return status, what was measured, and couplings: the ten largest of those that stand clear of their noise.

    Parameters
    ----------
    summary
        The summary of a release of learned couplings.
    heading
        The words for the couplings, above their list.
    path
        The release's file, which has what is not shown.
    """
    status = summary["status"]
    advice = f": {_ADVICE[status]}" if status in _ADVICE else ""
    lines = [f"Status: {status.value}{advice}.", *_measured(summary["details"]), ""]
    return "\n".join([*lines, _strongest(summary["couplings"], heading, path)])


def _measured(details: Mapping[str, Any]) -> list[str]:
    """Return a sentence on what was measured together, where the details know it."""
    if "tables_measured" in details:
        tables, rounds = details["tables_measured"], details["tables_by_round"]
        by_round = f", in {len(rounds)} rounds of {', '.join(map(str, rounds))}" if len(rounds) > 1 else ""
        return [f"Measured: {_number(tables, 'table')} of several variables{by_round}."]
    if "pairs_measured" in details:
        pairs, kept = details["pairs_measured"], details["pairs_kept"]
        return [f"Measured: {_number(pairs, 'pair')}, of which {kept} stood out from the noise."]
    return []


def _strongest(couplings: list[dict[str, Any]], heading: str, path: Path) -> str:
    if not couplings:
        return "No pair stood out from the noise, which is no evidence that the variables are independent."
    has_errors = all(each["error"] is not None for each in couplings)
    if not has_errors:
        table = _table(couplings[:_SHOWN], ["coupling"])
        remedy = f"bayesprivmrf.load_release({str(path)!r}).interval()"
        return f"{heading}, nats:\n{table}\nTheir noise is not shown: in Python, {remedy} gives intervals."
    sized = [each for each in couplings if each["error"] < _SIZELESS]
    clear = [each for each in sized if abs(each["coupling"]) > _CLEAR * each["error"]]
    lines = []
    if clear:
        lines += [f"{heading}, nats, with standard errors:", _table(clear[:_SHOWN], ["coupling", "error"])]
    if hidden := len(sized) - len(clear):
        lines.append(
            f"The effect of {_number(hidden, 'pair')} is not clear of noise: it is less than three times its error."
        )
    if sizeless := len(couplings) - len(sized):
        lines.append(
            f"The effect of {_number(sizeless, 'pair')} has no size in nats, for some states hardly ever meet; "
            f"in Python it is told by bayesprivmrf.load_release({str(path)!r}).graph(weight='dependence')."
        )
    return "\n".join(lines)


def _table(couplings: list[dict[str, Any]], numbers: list[str]) -> str:
    rows = [[*map(str, each["variables"]), *(f"{each[name]:.3f}" for name in numbers)] for each in couplings]
    return aligned(["variable", "other", *numbers], rows, left=2)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
