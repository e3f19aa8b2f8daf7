"""``bayesprivmrf reproduce``: the figures of a paper, as tables and pictures, resumed where a run was broken off."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bayesprivmrf.cli.output import aligned, claim_folder, json_text, progress, remark
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.reproduce.registry import ALL, FIGURES, paper_of

if TYPE_CHECKING:
    from rich.progress import Progress

    from bayesprivmrf.reproduce import Made


def run(options: argparse.Namespace) -> None:
    """Make the figures asked for, or list them where none is named."""
    if not options.figures:
        _list_figures(options.json)
        return
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


def _make(names: list[str], options: argparse.Namespace) -> tuple[list[Made], dict[str, str]]:
    import joblib

    from bayesprivmrf.reproduce import find_networks, lacking, reproduce
    from bayesprivmrf.reproduce.run import PAPERS

    published = find_networks(options.data or [])
    # it may hold files: an earlier run's are what this one goes on from
    folder = claim_folder(options.out, [f"{name}*.csv" for name in names], sources=options.data or [])
    jobs = options.jobs or joblib.cpu_count()
    made, skipped = [], {}
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
