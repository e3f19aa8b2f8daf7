"""Description of a learned model for the terminal: status, measurements and couplings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from bayesprivmrf.cards import printable
from bayesprivmrf.cli.output import aligned
from bayesprivmrf.inference import Status
from bayesprivmrf.learning.models.advice import status_with_advice
from bayesprivmrf.learning.models.base import LearnedNetwork
from bayesprivmrf.learning.rounds import MeasuredTable, Merging
from bayesprivmrf.learning.rounds.solution import RoundsSolution

# rows of a table, or names of a list, that are printed; the file has all
_SHOWN = 10


def description(release: LearnedNetwork, summary: Mapping[str, Any], path: Path) -> str:
    """Return a text with status, measurements and the ten largest couplings that stand out from their noise.

    Parameters
    ----------
    release
        Learned model.
    summary
        Summary of the model, by its method `summary`.
    path
        File of the release, for the hint at the end.
    """
    status = status_with_advice(summary["status"], summary["details"])
    lines = [f"Status: {status}.", *_measured(summary["details"]), ""]
    couplings = summary["couplings"]
    is_of_tables = bool(couplings) and all(each["error"] is not None for each in couplings)
    if is_of_tables and len(release.domain.variables) <= 100:  # all dependences then take about a second
        lines += _dependences(release)
    return "\n".join([*lines, _strongest(couplings, release.graph_heading, path), "", _next(release, path)])


def _next(release: LearnedNetwork, path: Path) -> str:
    """Return a hint on the next step, which spends no budget."""
    loaded = f"bayesprivmrf.load_release({str(path)!r})"
    if release.statistics is None:
        return f"Next: {loaded}.sample(1000) in Python draws synthetic records, which spends no budget."
    if isinstance(release.solution, RoundsSolution):
        asked = f".interval({list(release.domain.variables[:2])!r}) gives a table with intervals"
    else:
        asked = ".couplings_interval() gives intervals of the couplings"
    return (
        f"Next: `bayesprivmrf fit {path}` fits what was measured, which spends no budget; in Python, "
        f"{loaded}{asked}, and .graph() gives the pairs that stand out."
    )


def _dependences(release: LearnedNetwork) -> list[str]:
    """Return a table of the ten strongest dependences of two variables given all others, without errors."""
    edges = sorted(release.graph(weight="dependence").edges(data="weight"), key=lambda edge: -edge[2])
    rows = [[str(a), str(b), f"{size:.2f}"] for a, b, size in edges[:_SHOWN]]
    table = aligned(["variable", "other", "dependence"], rows, left=2)
    return [f"Strongest dependences given all other variables, from 0 to 1, noise included:\n{table}", ""]


def _measured(details: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the tables or pairs that were measured, if the details record them."""
    if "tables_measured" in details:
        tables, rounds = details["tables_measured"], details["tables_by_round"]
        by_round = f", in {len(rounds)} rounds of {', '.join(map(str, rounds))}" if len(rounds) > 1 else ""
        return [f"Measured: {_number(tables, 'table')} of several variables{by_round}."]
    if "pairs_measured" in details:
        pairs, kept = details["pairs_measured"], details["pairs_kept"]
        return [f"Measured: {_number(pairs, 'pair')}, of which {kept} stood out from the noise."]
    return []


def _strongest(couplings: list[dict[str, Any]], heading: str, path: Path) -> str:
    """Return a table of the largest couplings, and sentences on those that are not shown.

    A coupling is the entry of its table with the largest size, which may be large by noise alone. It is shown from
    three standard errors. With a standard error of a nat or more, its size is unknown: some states rarely occur
    together.
    """
    if not couplings:
        return "No pair stood out from the noise, which is not evidence that the variables are independent."
    has_errors = all(each["error"] is not None for each in couplings)
    if not has_errors:
        table = _table(couplings[:_SHOWN], ["coupling"])
        remedy = f"bayesprivmrf.load_release({str(path)!r}).couplings_interval()"
        return f"{heading}, nats:\n{table}\nTheir standard errors are not shown; in Python, {remedy} gives intervals."
    sized = [each for each in couplings if each["error"] < 1.0]
    clear = [each for each in sized if abs(each["coupling"]) > 3.0 * each["error"]]
    lines = []
    if clear:
        lines += [f"{heading}, nats, with standard errors:", _table(clear[:_SHOWN], ["coupling", "error"])]
    if hidden := len(sized) - len(clear):
        lines.append(
            f"The effect of {_number(hidden, 'pair')} is less than three times its standard error, so it may be "
            "noise."
        )
    sizeless = len(couplings) - len(sized)
    if not sized:
        lines.append(
            "No pairwise effect is known to within a nat, because its largest entry is for states that rarely "
            f"occur together; in Python, bayesprivmrf.load_release({str(path)!r}).graph(weight='dependence') "
            "weights states by their frequency."
        )
    elif sizeless:
        lines.append(
            f"The effect of {_number(sizeless, 'pair')} is not known to within a nat, for instance because some "
            "states rarely occur together; in Python, "
            f"bayesprivmrf.load_release({str(path)!r}).graph(weight='dependence') gives all dependences."
        )
    return "\n".join(lines)


def trusted_tables(solution: RoundsSolution) -> str:
    """Return a text on which tables of a model learned in rounds can be trusted, as its intervals mark them.

    A pair in no measured table is `not trusted`, unless one of its variables has a single state in the fit. Rows of
    merged states are `doubtful` in tables of several variables.
    """
    domain = solution.specification.domain
    if solution.status not in (Status.CONVERGED, Status.APPROXIMATE):
        is_short = solution.status is Status.ITERATION_LIMIT
        verdict = "doubtful, because the model is" if is_short else "not trusted, because the model is not"
        return f"Tables: all are {verdict}."
    tables = [MeasuredTable.of(each, domain) for each in solution.statistics.measurements]
    merging = Merging.released(domain, solution.statistics.measurements, solution.groups)
    names = [printable(str(variable)) for variable in domain.variables]
    together = {pair for table in tables for pair in combinations(sorted(table.scope), 2)}
    several = [v for v, states in enumerate(merging.cardinalities) if states > 1]
    apart = [pair for pair in combinations(several, 2) if pair not in together]
    merged = [name for v, name in enumerate(names) if merging.is_merged(v)]
    lines = [
        f"Tables: {_number(len(together), 'pair')} of variables lie in measured tables and can be trusted."
    ]
    if apart:
        listed = _listed([f"({names[v]}, {names[w]})" for v, w in apart])
        lines.append(
            f"Not trusted: {_number(len(apart), 'pair')} never measured together; their tables, and larger ones with "
            f"them, rest on independences: {listed}."
        )
    if merged:
        lines.append(
            f"Doubtful: rare states of {_number(len(merged), 'variable')} are merged in the fit, and their rows in "
            f"tables of several variables are doubtful: {_listed(merged)}."
        )
    return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    """Return the first names as a list, with the number of the others."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _table(couplings: list[dict[str, Any]], numbers: list[str]) -> str:
    """Return couplings as a plain table with the given columns of numbers."""
    rows = [[*map(str, each["variables"]), *(f"{each[name]:.3f}" for name in numbers)] for each in couplings]
    return aligned(["variable", "other", *numbers], rows, left=2)


def _number(count: int, what: str) -> str:
    """Return a number with its noun, in the singular or the plural."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
