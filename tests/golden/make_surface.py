"""Text of all that users of the package may write or read: names, signatures, options, keys of what is printed.

``uv run python tests/golden/make_surface.py`` writes it to ``surface/`` anew; ``test_surface.py`` compares.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import importlib
import inspect
import io
import json
import os
import re
import sys
import tempfile
import tomllib
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = HERE / "surface"
ROOT = HERE.parents[1]
sys.path.append(str(ROOT))  # the benchmarks are not installed

from benchmarks.house import names_beside, names_listed  # noqa: E402

PACKAGES = (
    "bayesprivmrf",
    "bayesprivmrf.analysis",
    "bayesprivmrf.audit",
    "bayesprivmrf.citation",
    "bayesprivmrf.cli",
    "bayesprivmrf.errors",
    "bayesprivmrf.evaluation",
    "bayesprivmrf.inference",
    "bayesprivmrf.learning",
    "bayesprivmrf.marginals",
    "bayesprivmrf.mechanisms",
    "bayesprivmrf.model",
    "bayesprivmrf.network",
    "bayesprivmrf.planning",
    "bayesprivmrf.plots",
    "bayesprivmrf.privacy",
    "bayesprivmrf.queries",
    "bayesprivmrf.readers",
    "bayesprivmrf.records",
    "bayesprivmrf.release",
    "bayesprivmrf.sequences",
    "bayesprivmrf.survey",
)

_OPERATORS = ("__call__", "__contains__", "__getitem__", "__iter__", "__len__")

MODEL = """
title = "A toy"
[variables.a]
states = ["x", "y"]
[variables.b]
states = ["low", "high"]
[variables.c]
states = ["01", "02"]
"""
CLIQUES = 'cliques = [["a", "b"], ["b", "c"]]\n'


def _plain(text: str) -> str:
    """Text without the modules that names live in, and without addresses."""
    text = re.sub(r"\b(?:bayesprivmrf|golden)\.(?:\w+\.)*", "", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _signature(of: Any) -> str:
    """Signature with annotations as they are written."""
    try:
        found = inspect.signature(of)
    except (TypeError, ValueError):
        return "(?)"
    parts: list[str] = []
    kinds = [one.kind for one in found.parameters.values()]
    for position, one in enumerate(found.parameters.values()):
        if one.kind is one.KEYWORD_ONLY and not {one.KEYWORD_ONLY, one.VAR_POSITIONAL} & set(
            kinds[:position]
        ):
            parts.append("*")
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        text = stars + one.name
        if one.annotation is not one.empty:
            text += f": {_annotation(one.annotation)}"
        if one.default is not one.empty:
            text += f" = {one.default!r}"
        parts.append(text)
        if one.kind is one.POSITIONAL_ONLY and one.POSITIONAL_ONLY not in kinds[position + 1 :]:
            parts.append("/")
    end = found.return_annotation
    return _plain(
        f"({', '.join(parts)})" + ("" if end is found.empty else f" -> {_annotation(end)}")
    )


def _described(name: str, held: Any) -> list[str]:
    """Lines about one public name."""
    if inspect.isclass(held):
        return _class(name, held)
    if inspect.ismodule(held):
        return [f"package {name}"]
    if callable(held) and hasattr(held, "__name__"):
        return [f"function {name}{_signature(held)}"]
    if isinstance(held, dict):
        return [
            f"value {name}: dict",
            *[f"    {key!r}: {_plain(repr(each))}" for key, each in held.items()],
        ]
    return [f"value {name}: {type(held).__name__} = {_plain(repr(held))}"]


def _class(name: str, held: type) -> list[str]:
    above = [
        base.__name__
        for base in held.__mro__[1:]
        if (base.__name__ in _public() or base.__module__ == "builtins") and base is not object
    ]
    word = "abstract class" if inspect.isabstract(held) else "class"
    # how enumerations and plain exceptions are called is Python's, and differs between its versions
    is_error = issubclass(held, BaseException)
    own = [base for base in held.__mro__ if base.__module__.startswith("bayesprivmrf")]
    is_pythons = issubclass(held, enum.Enum) or (
        is_error and not any("__init__" in vars(o) for o in own)
    )
    lines = [f"{word} {name}{'' if is_pythons else _signature(held)}"]
    if above:
        lines.append(f"    is {', '.join(above)}")
    if issubclass(held, enum.Enum):
        lines += [f"    {one.name} = {one.value!r}" for one in held]
    fields = dataclasses.fields(held) if dataclasses.is_dataclass(held) else ()
    of_fields = {one.name: f"    {one.name}: {_plain(_annotation(one.type))}" for one in fields}
    found = {**of_fields}
    for member in dir(held):
        if (
            member in of_fields
            or member in getattr(held, "__members__", ())
            or (member.startswith("_") and member not in _OPERATORS)
        ):
            continue
        home = next((base for base in held.__mro__ if member in vars(base)), type)
        if home.__module__.partition(".")[0] == "bayesprivmrf":
            found[member] = f"    {_member(member, vars(home)[member])}"
    return [*lines, *[found[member] for member in sorted(found)]]


def _member(name: str, held: Any) -> str:
    if isinstance(held, classmethod | staticmethod):
        return f"{type(held).__name__} {name}{_signature(held.__func__)}"
    if isinstance(held, property) or type(held).__name__ == "cached_property":
        getter = held.fget if isinstance(held, property) else held.func
        end = inspect.signature(getter).return_annotation
        return f"property {name}" + (
            "" if end is inspect.Signature.empty else f": {_plain(_annotation(end))}"
        )
    if callable(held):
        return f"{name}{_signature(held)}"
    return f"{name} = {_plain(repr(held))}"


def _names(package: str) -> list[str]:
    return sorted(importlib.import_module(package).__all__)


@functools.cache
def _public() -> set[str]:
    return {name for package in PACKAGES for name in _names(package)}


def package_text(package: str) -> str:
    """Every public name of a package."""
    module = importlib.import_module(package)
    return _text(
        line for name in _names(package) for line in _described(name, getattr(module, name))
    )


def documented_text() -> str:
    """Every name that the reference shows, wherever it lives: listed, beside another, or an error."""
    beside = [name for names in names_beside(ROOT).values() for name in names]
    found: dict[str, list[str]] = {}
    for path in [*names_listed(ROOT), *beside]:
        module, _, name = path.rpartition(".")
        held = getattr(importlib.import_module(module), name)
        if isinstance(held, types.ModuleType):  # a page for a whole module
            found |= {each: _described(each, getattr(held, each)) for each in held.__all__}
        else:
            found[name] = _described(name, held)
    return _text(line for name in sorted(found) for line in found[name])


def _command(*arguments: str) -> str:
    """What a command prints on standard output."""
    from bayesprivmrf.cli import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            code = main(arguments)
        except SystemExit as end:
            code = end.code
    if code != 0:
        raise RuntimeError(
            f"`bayesprivmrf {' '.join(arguments)}` ended with {code}: {errors.getvalue()}"
        )
    return out.getvalue()


def help_text() -> str:
    """The help of the program and of each of its commands, on a terminal of 100 columns."""
    kept = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        commands = ("compare", "model", "plan", "release", "fit", "report", "audit")
        texts = [_command("--help"), *[_command(command, "--help") for command in commands]]
    finally:
        if kept is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = kept
    return "\n----\n\n".join(texts)


def _shape(value: Any, path: str = "") -> Iterator[str]:
    """Paths of keys and what is there; of a list, what is in any entry."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _shape(each, f"{path}.{key}" if path else key)
        if not value:
            yield f"{path}: empty"
    elif isinstance(value, list):
        for each in value:
            yield from _shape(each, f"{path}[]")
        if not value:
            yield f"{path}[]: empty"
    else:
        kinds = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "text"}
        yield f"{path}: {kinds[type(value)]}"


def _keys(title: str, text: str) -> str:
    return "\n".join(
        [title, *["    " + line for line in dict.fromkeys(_shape(json.loads(text)))], ""]
    )


def json_text() -> str:
    """The keys of all that the commands print with ``--json`` or write as JSON."""
    import numpy as np
    import pandas as pd

    here = Path.cwd()
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            Path("tables.toml").write_text(CLIQUES + MODEL)
            Path("variables.toml").write_text(MODEL)
            Path("codebook.csv").write_text("variable,state,label\na,0,no\na,1,yes\n")
            rows = np.arange(400)
            pd.DataFrame(
                {
                    "a": np.where(rows % 2, "x", "y"),
                    "b": np.where((rows % 2) ^ (rows % 10 < 2), "low", "high"),
                    "c": np.where(rows % 3, "01", "02"),
                }
            ).to_csv("data.csv", index=False)
            tables, variables = ("--model", "tables.toml"), ("--model", "variables.toml")
            pairs = ("--rho", "1000", "--mechanism", "select-measure", "--set", "degree=1")
            products = ("--rho", "1000", "--mechanism", "parity-queries", "--set", "order=2")
            commands = {
                "plan, tables": ("plan", *tables, "--epsilon", "9", "--total", "400"),
                "plan, couplings": ("plan", *variables, *pairs),
                "release, tables": (
                    "release",
                    "data.csv",
                    *tables,
                    "--epsilon",
                    "90",
                    "--out",
                    "tables.release",
                ),
                "release, couplings": (
                    "release",
                    "data.csv",
                    *variables,
                    *pairs,
                    "--out",
                    "pairs.release",
                ),
                "release, parities": (
                    "release",
                    "data.csv",
                    *variables,
                    *products,
                    "--out",
                    "sums.release",
                ),
                "fit, naive-mle": (
                    "fit",
                    "tables.release",
                    "--method",
                    "naive-mle",
                    "--out",
                    "fitted",
                ),
                "fit, cgm": ("fit", "tables.release"),
                "fit, noise-aware": ("fit", "tables.release", "--method", "noise-aware"),
                "fit, parities": ("fit", "sums.release"),
                "fit, posterior": (
                    *("fit", "tables.release", "--method", "posterior"),
                    *("--seed", "1", "--draws", "200", "--chains", "2"),
                ),
                "model": ("model", "codebook.csv"),
                "audit, tables": ("audit", "tables.release", "--runs", "1000"),
                "audit, a mechanism": ("audit", "laplace", "--epsilon", "1", "--runs", "1000"),
                "compare": (
                    *(
                        "compare",
                        "data.csv",
                        *tables,
                        "--epsilon",
                        "9",
                        "--seed",
                        "1",
                        "--out",
                        "compared",
                    ),
                    *("--methods", "uniform", "mle", "naive-mle"),
                ),
            }
            for title, arguments in commands.items():
                found.append(_keys(title, _command(*arguments, "--json")))
            found += [
                _keys(f"file {path}", path.read_text()) for path in sorted(Path().glob("*/*.json"))
            ]
            heads = {
                path: path.read_text().splitlines()[0] for path in sorted(Path().rglob("*/*.csv"))
            }
            found += [f"file {path}\n    {head}\n" for path, head in heads.items()]
        finally:
            os.chdir(here)
    return "\n".join(found)


def forms_text() -> str:
    """Forms of guarantees and noise laws, names of mechanisms, entry points."""
    import bayesprivmrf.mechanisms as mechanisms
    from bayesprivmrf.privacy import (
        DiscreteGaussian,
        DiscreteLaplace,
        Gaussian,
        Laplace,
        NoNoise,
        PrivacyGuarantee,
        compose,
    )
    from bayesprivmrf.release import NoisyStatistics, Provenance

    lines = ["guarantees"]
    one, other = {"adjacency": "add-or-remove-one"}, {"adjacency": "replace-one", "unit": "person"}
    pure, concentrated = PrivacyGuarantee(epsilon=1.0, **one), PrivacyGuarantee(rho=0.5, **other)
    approximate = PrivacyGuarantee(epsilon=1.0, delta=1e-6, **one)
    converted = (
        pure.to_zero_concentrated(),
        concentrated.to_approximate(1e-6),
        compose(approximate, approximate),
    )
    for each in (pure, approximate, concentrated, *converted):
        lines += [
            f"    {json.dumps(each.as_dict())}",
            f"        {each.sentence()}",
            f"        {_plain(repr(each))}",
        ]
    lines.append("noise laws")
    for law in (
        NoNoise(),
        *(kind(2.0) for kind in (DiscreteLaplace, Laplace, DiscreteGaussian, Gaussian)),
    ):
        shown = f"discrete {law.is_discrete}, variance {law.variance:.12g}"
        lines.append(f"    {json.dumps(law.as_dict())} {_plain(repr(law))} {shown}")
    lines.append("mechanisms, as a provenance names them")
    for name in _names("bayesprivmrf.mechanisms"):
        held = getattr(mechanisms, name)
        if (
            isinstance(held, type)
            and issubclass(held, mechanisms.Mechanism)
            and not inspect.isabstract(held)
        ):
            lines.append(f"    {held.__name__}, runs from a file: {held.runs_from_file}")
    published = _published(NoisyStatistics)
    lines += [f"    {published}", "a provenance", f"    {_plain(repr(Provenance(mechanism='M')))}"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines.append("entry points")
    lines += [f"    script {name} = {value}" for name, value in sorted(project["scripts"].items())]
    for group, points in sorted(project["entry-points"].items()):
        lines += [f"    {group} {name} = {value}" for name, value in sorted(points.items())]
    lines.append("extras")
    lines += [f"    {name}" for name in sorted(project["optional-dependencies"])]
    return _text(lines)


def _published(kind: Any) -> str:
    from bayesprivmrf.model import declare
    from bayesprivmrf.privacy import Laplace

    release = kind.from_tables(declare({"a": [0, 1]}, [("a",)]), {"a": [1, 2]}, noise=Laplace(1.0))
    return release.provenance.mechanism


def _text(lines: Any) -> str:
    return "\n".join(lines) + "\n"


TEXTS: dict[str, Callable[[], str]] = {
    **{f"{package}.txt": functools.partial(package_text, package) for package in PACKAGES},
    "documented.txt": documented_text,
    "command_help.txt": help_text,
    "command_json.txt": json_text,
    "forms.txt": forms_text,
}
"""What each file holds, made when it is called."""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    FOLDER.mkdir(exist_ok=True)
    texts = {file: text() for file, text in TEXTS.items()}
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for file, text in texts.items():
        (FOLDER / file).write_text(text, encoding="utf-8")
    sys.stdout.write(f"Wrote {len(texts)} files to {FOLDER.relative_to(ROOT)}.\n")
