"""The command ``python -m benchmarks.papers``: the figures of a paper, as tables and pictures.

A run that was interrupted resumes where it stopped. Results go to standard output; messages and progress go to
standard error. Exit codes are those of the program ``bayesprivmrf``: 0 for success, 1 for an error, 2 for wrong
usage.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bayesprivmrf.cli import guarded
from bayesprivmrf.cli.output import aligned, claim_folder, json_text, progress, remark
from bayesprivmrf.cli.parser import Parser, number_from
from bayesprivmrf.errors import ArgumentError

from .registry import ALL, FIGURES, paper_of
from .run import PAPERS, Made, lacking, reproduce
from .sources import find_networks

if TYPE_CHECKING:
    from rich.progress import Progress


def main(argv: Sequence[str] | None = None) -> int:
    """Make the figures that the arguments name, and return the exit code; without names, list all figures."""
    options = papers_parser().parse_args(argv)
    return guarded(lambda: _run(options))


def papers_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(
        prog="python -m benchmarks.papers",
        description="Make figures of Chakraborty, Chatterjee and Dalal 2024 (PrIsing), the paper's calibration and "
        "the tight one side by side, of Bernstein et al. 2017 (CGM), beside the noise-aware estimate, and of Zhang "
        "et al. 2020, slopes and lower bounds. Results are kept, so an interrupted run resumes where it stopped. "
        "Without arguments: a list of the figures.",
    )
    # not `choices`: with them argparse refuses an empty list
    add = parser.add_argument
    add(
        "figures",
        nargs="*",
        type=_figure,
        metavar="FIGURE",
        help="e.g. prising-fig1, cgm-fig2, prising-all, cgm-all or zhang-all",
    )
    add("--quick", action="store_true", help="fewer points and repetitions: takes minutes")
    add(
        "--out",
        default="reproduction",
        metavar="DIR",
        help="folder of the files, by default reproduction",
    )
    add(
        "--data",
        action="append",
        metavar="PATH",
        help="the blogs' GML file, table DS0002 of ICPSR 22140, MSNBC's sequences, biofam's table, or a folder that "
        "holds them; may be given twice",
    )
    add(
        "--seed",
        type=number_from(0),
        default=1,
        help="seed of graphs, outcomes and noise; by default 1, which gives the figures of the docs",
    )
    add("--jobs", type=number_from(1), help="number of parallel processes, by default one per core")
    add("--json", action="store_true", help="print JSON on standard output")
    return parser


def _figure(text: str) -> str:
    if text not in ALL and text not in FIGURES:
        raise argparse.ArgumentTypeError(
            f"must be {', '.join(ALL)} or one of {', '.join(FIGURES)}, got {text!r}"
        )
    return text


def _run(options: argparse.Namespace) -> int:
    """Make the requested figures, or list all figures if none is named."""
    if not options.figures:
        _list_figures(options.json)
        return 0
    wanted = {paper_of(given) for given in options.figures if given in ALL}
    named = [name for name in FIGURES if paper_of(name) in wanted]
    named += [given for given in options.figures if given not in ALL]
    names = list(dict.fromkeys(named))
    made, skipped = _make(names, options)
    if options.json:
        print(json_text({"figures": [_described(one) for one in made], "skipped": skipped}))
    else:
        for one in made:
            print(f"{one.table}\n{one.picture}")
            if one.finding:
                print(one.finding)
    return 0


def _make(names: list[str], options: argparse.Namespace) -> tuple[list[Made], dict[str, str]]:
    import joblib

    published = find_networks(options.data or [])
    # the folder may contain files: this run resumes from those of an earlier one
    folder = claim_folder(
        options.out, [f"{name}*.csv" for name in names], sources=options.data or []
    )
    jobs = options.jobs or joblib.cpu_count()
    made = []
    skipped = {}
    with progress() as bar:
        for name in names:
            task = bar.add_task(name, total=None)
            paper = PAPERS[paper_of(name)]
            one = reproduce(
                name,
                paper.QUICK if options.quick else paper.FULL,
                published,
                folder,
                seed=options.seed,
                jobs=jobs,
                begin=lambda count, task=task: bar.update(task, total=count),
                advance=lambda task=task: _advance(bar, task),
            )
            missing = " and ".join(lacking(name, published))
            if one is None:
                bar.remove_task(task)
                skipped[name] = f"it needs {missing}; name the file or its folder by --data"
                remark(f"{name} skipped: {skipped[name]}.")
                continue
            made.append(one)
            if missing:
                remark(f"{name}: panels that need {missing} are left out; name the file by --data.")
            _remark_on(one)
    if not made:
        name, reason = next(iter(skipped.items()))
        raise ArgumentError(f"no figure could be made: {name} was skipped, because {reason}.")
    return made, skipped


def _remark_on(one: Made) -> None:
    if one.unmixed:
        remark(
            f"{one.name}: some chains have not mixed (largest R-hat {one.unmixed:.2f}); distrust the rows "
            "of its table with an R-hat above 1.2."
        )
    if one.is_real:
        remark(f"{one.name} is computed from real outcomes, unprotected: no release.")


def _advance(bar: Progress, task: Any) -> None:
    bar.advance(task)
    state = next(entry for entry in bar.tasks if entry.id == task)
    name = state.description.split()[0]
    bar.update(task, description=f"{name} {state.completed:g} of {state.total:g}")


def _list_figures(is_json: bool) -> None:
    if is_json:
        print(json_text({name: info.title for name, info in FIGURES.items()}))
        return
    rows = [[name, " ".join(info.needs) or "-", info.title] for name, info in FIGURES.items()]
    print(aligned(["figure", "data", "shows"], rows, left=2))


def _described(one: Made) -> dict[str, Any]:
    return {
        "figure": one.name,
        "table": str(one.table),
        "picture": str(one.picture),
        "cells": one.cells,
        "kept": one.kept,
        "finding": one.finding,
    }
