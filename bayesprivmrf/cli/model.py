"""Command ``bayesprivmrf model``: draft a model file from a public codebook, never from data."""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Mapping, Sequence

from bayesprivmrf.cli.output import claim_file, json_text, remark
from bayesprivmrf.errors import DataError, ModelError
from bayesprivmrf.escapes import CONTROLS
from bayesprivmrf.model.declaration_file import declaration_of
from bayesprivmrf.readers.columns import csv_columns, or_near

# first lines of a drafted model file
_HEAD = """\
# Drafted from a codebook. Check it: the states are public, and results and plots list them in this order.
# Add the tables to measure, as `cliques = [["a", "b"], ["b", "c"]]`, or leave them out to learn the dependences.
"""


def run(options: argparse.Namespace) -> None:
    """Print the drafted model file, or write it to ``--out``."""
    target = None
    if options.out is not None:
        target = claim_file(options.out, force=options.force, sources=[options.codebook])
    text = drafted(csv_columns(options.codebook))
    if target is not None:
        target.write_text(text, encoding="utf-8")
        remark(f"Saved to {target}. Check it, and add `cliques` to measure tables.")
    if options.json:
        print(json_text(tomllib.loads(text)))
    elif target is None:
        print(text, end="")


def drafted(columns: Mapping[str, Sequence[str]]) -> str:
    """Return a model file for the columns of a codebook.

    Parameters
    ----------
    columns
        Columns ``variable`` and ``state``, with one row per state, in order, and optionally ``label``, the name of
        the state in the model. States of a variable with the same label are merged. An empty state means missing
        values.

    Raises
    ------
    DataError
        A column or an entry is missing.
    ModelError
        A variable or a state occurs twice, or has no name.
    """
    for name in ("variable", "state"):
        if name not in columns:
            raise DataError(
                f"a codebook must have the columns 'variable' and 'state', one row per state, got no {name!r}"
                f"{or_near(name, columns)}. Records are not a codebook: states are declared, never read from data."
            )
    labels = columns.get("label", [""] * len(columns["state"]))
    rows: dict[str, list[tuple[str, str]]] = {}
    for variable, state, label in zip(columns["variable"], columns["state"], labels, strict=True):
        if not variable.strip():
            raise DataError("each row of a codebook must name its variable, got none; complete it.")
        rows.setdefault(variable.strip(), []).append((state.strip(), label.strip()))
    text = _HEAD + "".join(
        f"\n[variables.{_quoted(name)}]\n{_table(own)}" for name, own in rows.items()
    )
    # raises an error for anything that a model file must not contain
    declaration_of(tomllib.loads(text))
    return text


def _table(rows: Sequence[tuple[str, str]]) -> str:
    """Return the lines of one variable in the model file."""
    missing = [label or "missing" for state, label in rows if not state]
    named = [(state, label) for state, label in rows if state]
    states = [state for state, _ in named]
    if len(set(states)) < len(states) or len(missing) > 1:
        raise ModelError(
            "a codebook must list each state of a variable once, got a state twice; drop a row."
        )
    is_whole = all(re.fullmatch("0|-?[1-9][0-9]{0,17}", state) for state in states)
    written = [state if is_whole else _quoted(state) for state in states]
    if not any(label for _, label in named):
        names = written
        values = None
    else:  # states with one label are merged
        values = {}
        for (state, label), value in zip(named, written, strict=True):
            values.setdefault(_quoted(label or state), []).append(value)
        names = list(values)
    lines = [f"states = [{', '.join([*names, *map(_quoted, missing)])}]"]
    if values is not None:
        groups = [own[0] if len(own) == 1 else f"[{', '.join(own)}]" for own in values.values()]
        lines.append(f"values = [{', '.join(groups)}]")
    lines += [f"missing = {_quoted(one)}" for one in missing]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a basic string of TOML, whose escapes are those of JSON; control characters beyond ASCII are escaped."""
    return CONTROLS.sub(
        lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False)
    )
