"""Command ``bayesprivmrf compare``: score every method at several epsilon on held-out records."""

from __future__ import annotations

import argparse
import math
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayesprivmrf.cli.engines import build_engines, engine_of
from bayesprivmrf.cli.mechanism import recoded_records, training_and_test
from bayesprivmrf.cli.methods import fitted, in_order, is_plug_in, label, offers_loopy, takes
from bayesprivmrf.cli.output import aligned, claim_folder, json_text, number, progress, promised, remark
from bayesprivmrf.errors import (
    ArgumentError,
    BayesPrivMRFError,
    ConsistencyWarning,
    ForecastWarning,
    ModelError,
    ModelTooLargeError,
    NoiseWarning,
    SamplingWarning,
)
from bayesprivmrf.evaluation import compare
from bayesprivmrf.inference import NaiveMLE, Status
from bayesprivmrf.inference.registry import estimator_names
from bayesprivmrf.inference.solution import uniform_solution
from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.privacy import Adjacency
from bayesprivmrf.survey import fair_survey_declaration, fair_survey_records

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from bayesprivmrf.inference import Posterior, Solution
    from bayesprivmrf.release import NoisyStatistics

# note that is printed first, and written into every file
NOTE = (
    "An evaluation, not a release: it reads the records unprotected and simulates the noise. "
    "Nothing here may be published as private."
)
# columns of comparison.csv, whose names are a file format
COLUMNS = ["epsilon", "method", "holdout_log_likelihood", "kl_divergence", "seconds", "status"]
# warnings that any fit may give; each is shown once, with the fit that it is about
_FIT_WARNINGS = (ConsistencyWarning, ForecastWarning, NoiseWarning, SamplingWarning)
# files in the folder of `--out`
_FILES = ("comparison.csv", "comparison.json", "comparison.png")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Results of one run of ``compare``.

    Parameters
    ----------
    results
        One row for each method and epsilon: `epsilon` (NaN for methods without one), `method`,
        `holdout_log_likelihood` (nats per record), `kl_divergence` (NaN, because the truth is unknown), `seconds`,
        `status`.
    guarantees
        Guarantee that each epsilon would have if the noise were not simulated.
    train, test
        Numbers of records to learn from and held out.
    """

    results: pd.DataFrame
    guarantees: tuple[dict[str, Any], ...]
    train: int
    test: int


def run(options: argparse.Namespace) -> None:
    """Compare the methods, print the results, and write them to the folder of ``--out``."""
    seed = secrets.randbits(32) if options.seed is None else options.seed
    folder = None
    if options.out is not None:
        folder = claim_folder(options.out, _FILES, force=options.force, sources=[options.data, options.model])
    title, specification, data = _read(options)
    if not specification.cliques_declared:  # checked before engines are built
        raise ModelError(
            "`compare` must be given a model with cliques, but the model file declares none; add a line such as "
            "cliques = [['a', 'b'], ['b', 'c']], or learn the couplings with "
            "`bayesprivmrf release --mechanism select-measure`."
        )
    has_posterior = "posterior" in in_order(options.methods, options.inference)
    build_engines([engine_of(specification)] if has_posterior else [])
    comparison = evaluate(
        specification,
        data,
        epsilons=options.epsilon,
        seed=seed,
        adjacency=Adjacency(options.adjacency),
        inference=options.inference,
        methods=options.methods,
        draws=options.draws,
        count=options.count,
    )
    described = {
        "source": title,
        "variables": len(specification.domain.variables),
        "cliques": len(specification.cliques),
        "train": comparison.train,
        "test": comparison.test,
        "seed": seed,
        "inference": options.inference,
        "note": NOTE,
    }
    if folder is not None:
        _write(folder, described, comparison)
    if options.json:
        print(_json(described, comparison))
        return
    print(
        f"{title}: {described['variables']} variables, {described['cliques']} cliques, "
        f"{comparison.train:,} records to learn from, {comparison.test:,} held out, seed {seed}.\n{NOTE}\n"
    )
    print(_table(comparison.results))
    print(
        "\nheld-out: log-likelihood of held-out records, nats per record, higher is better. lost: difference from "
        "the non-private MLE. *: best at its epsilon, to the digits shown."
    )
    print(_advice(comparison.results))
    if folder is not None:
        remark(f"\nWrote {', '.join(name for name in _FILES if (folder / name).exists())} to {folder}.")


def evaluate(
    specification: ModelSpecification,
    data: pd.DataFrame,
    *,
    epsilons: Sequence[float],
    seed: int,
    adjacency: Adjacency,
    inference: Literal["exact", "loopy"] = "exact",
    methods: Sequence[str] | None = None,
    draws: int = 1000,
    count: str | None = None,
) -> Comparison:
    """Score methods on a held-out quarter of the records.

    Parameters
    ----------
    specification, data
        The declared model, and records with its states.
    epsilons
        Budgets of the discrete Laplace mechanism, which is simulated on the same training records for each.
    seed
        Seed of the split, of the simulated noise and of sampling. The results of one method do not depend on which
        other methods are compared.
    adjacency
        Neighboring relation of every guarantee.
    inference
        Marginals that the methods use. Scores always need exact inference; a model too large for that has none (NaN).
    methods
        Names of methods; all by default.
    draws
        Number of draws of each of the posterior's 2 chains, after at most 400 warm-up draws.
    count
        Column of a frequency table with the number of records of each row.
    """
    import pandas as pd

    mechanisms = [LaplaceStatistics(epsilon=epsilon, adjacency=adjacency) for epsilon in epsilons]
    split, *streams = np.random.SeedSequence(seed).spawn(1 + len(mechanisms))
    train, test = training_and_test(specification, data, count, np.random.default_rng(split))
    sizes = [len(part) if count is None else int(part[count].to_numpy().sum()) for part in (train, test)]
    methods = in_order(methods, inference)
    estimators = [name for name in methods if name in estimator_names()]
    tables: list[pd.DataFrame] = []

    def score(epsilon: float | None, name: str, estimate: Any) -> None:
        if isinstance(estimate, str):
            scored = pd.DataFrame({"method": [name], "status": [estimate]})
        else:
            scored = compare({name: estimate}, holdout=test, count=count).reset_index()
        scored.insert(0, "epsilon", np.nan if epsilon is None else epsilon)
        tables.append(scored)

    guarantees: list[dict[str, Any]] = []
    with _bars(estimators, len(mechanisms)) as advance:
        # a first comparison, so that preparations do not count in the seconds of a method
        uniform = uniform_solution(specification)
        compare({"uniform": uniform}, holdout=test, count=count)
        if "uniform" in methods:
            score(None, "uniform", uniform)
        exact = ExactStatistics().release(specification, train, count=count)
        if "mle" in methods:
            # the ridge gives cells without training records a positive probability; held-out records may be in them
            score(None, "mle", NaiveMLE(ridge=1 / sizes[0], inference=inference).fit(exact))
        for mechanism, stream in zip(mechanisms, streams, strict=True):
            with _warnings_of(f"at epsilon {mechanism.epsilon:g}"):
                release = mechanism.release(
                    specification, train, rng=np.random.default_rng(stream), count=count
                )
            (sampling,) = stream.spawn(1)
            for name in estimators:
                begin, rng = time.monotonic(), np.random.default_rng(sampling)
                with _warnings_of(f"{label(name)} at epsilon {mechanism.epsilon:g}"):
                    score(mechanism.epsilon, name, _fitted_if_it_fits(name, release, inference, rng, draws))
                advance(name, time.monotonic() - begin)
            if release.guarantee is not None:
                guarantees.append(promised(release))
    return Comparison(
        results=pd.concat(tables, ignore_index=True).reindex(columns=COLUMNS),
        guarantees=tuple(guarantees),
        train=sizes[0],
        test=sizes[1],
    )


@contextmanager
def _bars(estimators: Sequence[str], fits: int) -> Iterator[Callable[[str, float], None]]:
    """Show a progress bar for each method with a forecast of the remaining seconds.

    Yields a function to call after each fit, with the name of the method and the seconds that the fit took.
    """
    # seconds of a fit until one was timed: 10 for a method that samples, 0.3 for another
    forecasts = {name: 10.0 if takes(name, "draws") else 0.3 for name in estimators}
    left = dict.fromkeys(estimators, fits)
    with progress(has_forecast=True) as bar:
        tasks = {name: bar.add_task(label(name), total=fits) for name in estimators}

        def forecast() -> None:
            until = time.monotonic() + sum(forecasts[name] * left[name] for name in estimators)
            for position, task in enumerate(tasks.values(), start=1):
                bar.update(task, until=until if position == len(tasks) else math.nan)

        def advance(name: str, seconds: float) -> None:
            forecasts[name] = seconds
            left[name] -= 1
            bar.advance(tasks[name])
            forecast()

        forecast()
        yield advance


def _fitted_if_it_fits(
    name: str,
    release: NoisyStatistics,
    inference: Literal["exact", "loopy"],
    rng: np.random.Generator,
    draws: int,
) -> Solution | Posterior | str:
    """Return the estimate of a method, or a status if it has none, so that the other methods' rows are not lost."""
    try:
        # two chains of few warm-up draws: enough for the mean, which is scored
        sampling = {"chains": 2, "progress_bar": False, "draws": draws, "tune": min(draws, 400)}
        estimate = fitted(name, release, inference=inference, rng=rng, sampling=sampling)
    except ModelTooLargeError as error:
        if offers_loopy(name):
            raise
        remark(f"No {label(name)}: {error}")
        return "too large"
    except BayesPrivMRFError as error:
        if not is_plug_in(name):
            raise
        kind = type(error.__cause__ or error).__name__  # the message itself may quote the records
        remark(f"No {label(name)}: it failed with {kind}; fit a release of made-up records to see why.")
        return "failed"
    if name == "posterior" and estimate.status is Status.STOPPED_EARLY:
        raise KeyboardInterrupt  # the sampler caught the interruption, to keep its draws
    return estimate


@contextmanager
def _warnings_of(where: str) -> Iterator[None]:
    """Show each warning of a fit once, with the fit that it is about, and hide warnings of other kinds."""
    with warnings.catch_warnings(record=True) as caught:
        for category in _FIT_WARNINGS:
            warnings.simplefilter("always", category)
        yield
    for text, category in {(str(warning.message), warning.category): None for warning in caught}:
        if issubclass(category, _FIT_WARNINGS):
            warnings.warn(f"{where}: {text}", category, stacklevel=2)


def _read(options: argparse.Namespace) -> tuple[str, ModelSpecification, pd.DataFrame]:
    """Return title, model and records of the given files, or of Fair's survey."""
    if options.data is None:
        declaration = fair_survey_declaration()
        return declaration.title, declaration.specification, fair_survey_records()
    declaration = read_declaration(options.model)
    data = recoded_records(options, declaration)
    return declaration.title or Path(options.data).name, declaration.specification, data


def _table(results: pd.DataFrame) -> str:
    """Return the results as a plain table."""
    rows = [
        [
            label(row["method"]),
            number(float(row["epsilon"])),
            _decimals(row["holdout_log_likelihood"], 3) + (" *" if row["is_best"] else "  "),
            _decimals(row["lost"], 3),
            _decimals(row["seconds"], 2),
            row["status"],
        ]
        for row in _judged(results).to_dict(orient="records")
    ]
    return aligned(["method", "epsilon", "held-out  ", "lost", "seconds", "status"], rows)


def _decimals(value: float, decimals: int) -> str:
    """Return a number with fixed decimals, or a dash if it is not finite."""
    return f"{value:.{decimals}f}" if math.isfinite(value) else "-"


def _judged(results: pd.DataFrame) -> pd.DataFrame:
    """Return the results with the loss against the non-private score, in nats, and a flag for the best rows."""
    score = results["holdout_log_likelihood"].astype(float)
    best = score.groupby(results["epsilon"]).transform("max")  # NaN in rows without epsilon
    lost = score[results["method"] == "mle"].mean() - score
    return results.assign(lost=lost, is_best=score.round(3) >= best.round(3))


def _advice(results: pd.DataFrame) -> str:
    """Return a sentence that names the method with the best mean score over the budgets, and when to use another."""
    private = results.dropna(subset=["epsilon", "holdout_log_likelihood"])
    if private.empty:
        return "Advice: the model is too large for exact scores; declare smaller cliques to compare methods."
    scores: dict[str, list[float]] = {}
    for row in private.to_dict(orient="records"):
        scores.setdefault(row["method"], []).append(row["holdout_log_likelihood"])
    most = max(len(own) for own in scores.values())
    best = max(
        (name for name in scores if len(scores[name]) == most), key=lambda name: float(np.mean(scores[name]))
    )
    found = f"Advice: {label(best)} predicts best over these budgets"
    if best == "posterior":
        return f"{found}, and its intervals account for the noise."
    point = f"{found}, so use it for a point estimate"
    return f"{point}, and the posterior if you need intervals that account for the noise."


def _json(described: dict[str, Any], comparison: Comparison) -> str:
    """Return the results as JSON."""
    rows = comparison.results.reindex(columns=COLUMNS).to_dict(orient="records")
    return json_text({"data": described, "results": rows, "guarantees": list(comparison.guarantees)})


def _write(folder: Path, described: dict[str, Any], comparison: Comparison) -> None:
    """Write table, JSON and figure; each file has the note, because files may be separated."""
    table, whole, picture = (folder / name for name in _FILES)
    comparison.results.assign(note=NOTE).to_csv(table, index=False)
    whole.write_text(_json(described, comparison) + "\n", encoding="utf-8")
    try:
        figure = figure_of(comparison)
    except ArgumentError:  # no score is finite, because the model is too large for exact inference
        picture.unlink(missing_ok=True)
        remark(f"\nNo {picture.name}: there is no score to draw.")
    else:
        figure.savefig(picture, dpi=150, bbox_inches="tight", metadata={"Description": NOTE})


def figure_of(comparison: Comparison) -> Figure:
    """Return a figure with the held-out score of each method against epsilon."""
    from bayesprivmrf.plots import holdout_against_epsilon

    table = comparison.results.assign(method=[label(method) for method in comparison.results["method"]])
    scored = table[np.isfinite(table["holdout_log_likelihood"])]
    has_reference = label("mle") in set(scored["method"])
    figure = holdout_against_epsilon(table, reference=label("mle") if has_reference else None)
    figure.text(0.01, -0.02, NOTE, fontsize=7, verticalalignment="top")
    return figure
