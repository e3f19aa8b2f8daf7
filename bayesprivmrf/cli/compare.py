"""Command ``bayesprivmrf compare``: score every method at several epsilon on held-out records."""

from __future__ import annotations

import argparse
import io
import math
import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.cli.methods import (
    WARM_UP,
    fitted,
    in_order,
    is_plug_in,
    label,
    offers_loopy,
    takes,
)
from bayesprivmrf.cli.output import (
    aligned,
    claim_folder,
    json_text,
    number,
    progress,
    promised,
    remark,
    show,
)
from bayesprivmrf.cli.release import recoded_records
from bayesprivmrf.errors import (
    ArgumentError,
    BayesPrivMRFError,
    ConsistencyWarning,
    DataError,
    ForecastWarning,
    ModelError,
    ModelTooLargeError,
    NoiseWarning,
    SamplingWarning,
    warn_caller,
)
from bayesprivmrf.evaluation import compare
from bayesprivmrf.files import Json, write_whole
from bayesprivmrf.inference import NaiveMLE, Status
from bayesprivmrf.inference.registry import estimator_names
from bayesprivmrf.inference.solution import uniform_solution
from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics
from bayesprivmrf.mechanisms.reading.frame import Counts, frame_of
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.survey import fair_survey_declaration, fair_survey_records

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# note that is printed first, and written into every file
NOTE = (
    "An evaluation, not a release: it reads the records unprotected and simulates the noise. "
    "Nothing here may be published as private."
)
# columns of comparison.csv, whose names are a file format
COLUMNS = ["epsilon", "method", "holdout_log_likelihood", "kl_divergence", "seconds", "status"]
# warnings that any fit may give; each is shown once, with the fit that it is about
_FIT_WARNINGS = (ConsistencyWarning, ForecastWarning, NoiseWarning, SamplingWarning)
# statuses of fits that failed a check; they get neither a star nor the advice, whatever their score
_UNTRUSTED = (Status.NOT_TRUSTED.value, Status.DIVERGED.value)
# files in the folder of `--out`
_FILES = ("comparison.csv", "comparison.json", "comparison.png")


def run(options: argparse.Namespace) -> None:
    """Compare the methods, print the results, and write them to the folder of ``--out``."""
    if options.seed is None:
        seed = secrets.randbits(32)
    else:
        seed = options.seed
    folder = None
    if options.out is not None:
        folder = claim_folder(
            options.out, _FILES, force=options.force, sources=[options.data, options.model]
        )
    if options.data is None:
        declaration = fair_survey_declaration()
        data = fair_survey_records()
    else:
        declaration = read_declaration(options.model)
        data = recoded_records(options, declaration)
    model = declaration.specification
    learner = "learn the couplings with `bayesprivmrf release --mechanism select-measure`"
    remedy = f"add a line such as cliques = [['a', 'b'], ['b', 'c']], or {learner}"
    require(
        model.cliques_declared,
        "the model file",
        "declare cliques",
        "none",
        remedy,
        error=ModelError,
    )
    other = _other_model(options, model)
    results, guarantees, (train, test) = evaluated(options, model, data, seed, other)
    described = {
        "source": declaration.title or Path(str(options.data)).name,
        "variables": len(model.domain.variables),
        "cliques": len(model.cliques if other is None else other.cliques),
        "train": train,
        "test": test,
        "seed": seed,
        "inference": options.inference,
        "note": NOTE,
    }
    rows = results.to_dict(orient="records")
    written = json_text({"data": described, "results": rows, "guarantees": guarantees})
    if folder is not None:
        # each file has the note, because files may be separated
        contents: dict[Path, str | bytes] = {
            folder / "comparison.csv": results.assign(note=NOTE).to_csv(index=False),
            folder / "comparison.json": written + "\n",
        }
        picture = folder / "comparison.png"
        drawn = _drawn(results)
        if drawn is not None:
            contents[picture] = drawn
        write_whole(contents, "--out")
        if drawn is None:
            picture.unlink(missing_ok=True)
            remark(f"\nNo {picture.name}: there is no score to draw.")
    if options.json:
        show(written)
        return
    show(
        f"{described['source']}: {described['variables']} variables, {described['cliques']} cliques, "
        f"{train:,} records to learn from, {test:,} held out, seed {seed}.\n{NOTE}\n"
    )
    show(_table(results))
    show(
        "\nheld-out: log-likelihood of held-out records, nats per record, higher is better. lost: difference from "
        f"the non-private MLE{_under_model(other)}. *: best at its epsilon, to the digits shown, among fits that are "
        "trusted."
    )
    show(_advice(results, other))
    if folder is not None:
        remark(
            f"\nWrote {', '.join(name for name in _FILES if (folder / name).exists())} to {folder}."
        )


def evaluated(
    options: argparse.Namespace,
    model: ModelSpecification,
    data: pd.DataFrame,
    seed: int,
    other: ModelSpecification | None = None,
) -> tuple[pd.DataFrame, list[dict[str, Json]], list[int]]:
    """Score the methods on a held-out quarter of the records.

    Parameters
    ----------
    options
        Options of the command. The noise of each epsilon is simulated on the same training records. Scores always
        need exact inference; a model too large for that has none (NaN).
    model, data
        The declared model, and records with its states.
    seed
        Seed of the split, of the simulated noise and of sampling. The results of one method do not depend on which
        other methods are compared.
    other
        Model that the estimators and the non-private MLE fit; None fits the declared model. The tables of the
        declared model are measured.

    Returns
    -------
    results
        One row for each method and epsilon, with the columns of the file: `epsilon` is NaN for methods without one,
        `holdout_log_likelihood` is nats per record, and `kl_divergence` is NaN, because the truth is unknown.
    guarantees
        Guarantee that each epsilon would have if the noise were not simulated.
    records
        Numbers of records to learn from and held out.
    """
    import pandas as pd

    count = options.count
    inference = options.inference
    mechanisms = [
        LaplaceStatistics(epsilon=epsilon, adjacency=options.adjacency)
        for epsilon in options.epsilon
    ]
    split, *streams = np.random.SeedSequence(seed).spawn(1 + len(mechanisms))
    train, test = _training_and_test(model, data, count, np.random.default_rng(split))
    sizes = [
        len(part) if count is None else int(part[count].to_numpy().sum()) for part in (train, test)
    ]
    methods = in_order(options.methods, inference)
    estimators = [name for name in methods if name in estimator_names()]
    # two chains of few warm-up draws: enough for the mean, which is scored
    sampling = {
        "chains": 2,
        "progress_bar": False,
        "draws": options.draws,
        "tune": min(options.draws, WARM_UP),
    }
    guarantees: list[dict[str, Any]] = []
    tables: list[pd.DataFrame] = []

    def score(epsilon: float, name: str, estimate: Any) -> None:
        if isinstance(estimate, str):
            scored = pd.DataFrame({"method": [name], "status": [estimate]})
        else:
            scored = compare({name: estimate}, holdout=test, count=count).reset_index()
        tables.append(scored.assign(epsilon=epsilon))

    with progress() as bar:
        task = bar.add_task("", total=len(estimators) * len(mechanisms))
        # a first comparison, so that preparations do not count in the seconds of a method
        uniform = uniform_solution(model)
        compare({"uniform": uniform}, holdout=test, count=count)
        if "uniform" in methods:
            score(math.nan, "uniform", uniform)
        exact = ExactStatistics().release(model, train, count=count)
        if "mle" in methods:
            # the ridge gives cells without training records a positive probability; held-out records may be in them
            reference = NaiveMLE(ridge=1 / sizes[0], inference=inference).fit(exact, model=other)
            score(math.nan, "mle", reference)
        for mechanism, stream in zip(mechanisms, streams, strict=True):
            with _warnings_of(f"at epsilon {mechanism.epsilon:g}"):
                release = mechanism.release(
                    model, train, rng=np.random.default_rng(stream), count=count
                )
            guarantees.append(promised(release))
            (own,) = stream.spawn(1)
            for name in estimators:
                where = f"{label(name)} at epsilon {mechanism.epsilon:g}"
                bar.update(task, description=where)
                given = {
                    "inference": inference,
                    "rng": np.random.default_rng(own),
                    "sampling": sampling,
                    "model": other,
                }
                with _warnings_of(where):
                    score(mechanism.epsilon, name, _fitted_if_it_fits(name, release, given))
                bar.advance(task)
    return pd.concat(tables, ignore_index=True).reindex(columns=COLUMNS), guarantees, sizes


def _other_model(
    options: argparse.Namespace, model: ModelSpecification
) -> ModelSpecification | None:
    """Return the model of ``--fit-model``; None without it."""
    if options.fit_model is None:
        return None
    other = read_declaration(options.fit_model).specification
    left = sorted(str(v) for v in model.domain.variables if v not in other.domain)
    must = "have every variable of the compared model, so that scores are of the same records"
    require(not left, "--fit-model", must, f"none of {left}", "add them", error=ModelError)
    return other


def _training_and_test(
    specification: ModelSpecification,
    data: pd.DataFrame,
    count: str | None,
    generator: np.random.Generator,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a random three quarters of the records and the others; a row may be one record or several."""
    # the largest number of records is that of mechanisms that use whole records
    column = Counts.of(count, specification.domain.variables, 2**27)
    # how many records each row stands for
    if column is None:
        units = np.ones(len(data), dtype=np.int64)
    else:
        units = column.units(data, frame_of(data))
    records = int(units.sum())
    train = int(0.75 * records)  # a usual share for comparisons of predictions
    if not 0 < train < records:
        raise DataError(
            "`compare` must have at least 2 records, so that some can be held out, got fewer."
        )
    if count is None:
        order = generator.permutation(len(data))
        return data.iloc[order[:train]], data.iloc[order[train:]]
    taken = generator.multivariate_hypergeometric(units, train, method="marginals")
    return data.assign(**{count: taken}), data.assign(**{count: units - taken})


def _fitted_if_it_fits(name: str, release: Any, given: dict[str, Any]) -> Any:
    """Return the estimate of a method, or a status if it has none, so that the other methods' rows are not lost."""
    try:
        estimate = fitted(name, release, **given)
    except ModelTooLargeError as error:
        if offers_loopy(name):
            raise
        remark(f"No {label(name)}: {error}")
        return "too large"
    except BayesPrivMRFError as error:
        if not is_plug_in(name):
            raise
        kind = type(error.__cause__ or error).__name__  # the message itself may quote the records
        remark(
            f"No {label(name)}: it failed with {kind}; fit a release of made-up records to see why."
        )
        return "failed"
    if takes(name, "draws") and estimate.status is Status.STOPPED_EARLY:
        raise KeyboardInterrupt  # the sampler caught the interruption, to keep its draws
    return estimate


@contextmanager
def _warnings_of(where: str) -> Iterator[None]:
    """Show each warning of a fit once, with the fit that it is about, and hide warnings of other kinds."""
    with warnings.catch_warnings(record=True) as caught:
        yield
    for text, category in {(str(warning.message), warning.category): None for warning in caught}:
        if issubclass(category, _FIT_WARNINGS):
            warn_caller(f"{where}: {text}", category)


def _table(results: pd.DataFrame) -> str:
    """Return the results as a plain table, with the loss against the non-private score, in nats, and a mark.

    The mark is for the best score at each epsilon among fits that can be trusted.
    """
    score = results["holdout_log_likelihood"].astype(float)
    may_win = score.where(~results["status"].isin(_UNTRUSTED))
    best = may_win.groupby(results["epsilon"]).transform("max")  # NaN in rows without epsilon
    lost = score[results["method"] == "mle"].mean() - score
    rows = [
        [
            label(row["method"]),
            number(float(row["epsilon"])),
            _decimals(row["holdout_log_likelihood"], 3) + (" *" if is_best else "  "),
            _decimals(own, 3),
            _decimals(row["seconds"], 2),
            row["status"],
        ]
        for row, own, is_best in zip(
            results.to_dict(orient="records"), lost, may_win.round(3) >= best.round(3), strict=True
        )
    ]
    return aligned(["method", "epsilon", "held-out  ", "lost", "seconds", "status"], rows)


def _decimals(value: float, decimals: int) -> str:
    """Return a number with fixed decimals, or a dash if it is not finite."""
    if math.isfinite(value):
        return f"{value:.{decimals}f}"
    return "-"


def _under_model(other: ModelSpecification | None) -> str:
    """Name the fitted model within a sentence; empty where it is the declared one."""
    if other is None:
        return ""
    return " under the model of --fit-model"


def _advice(results: pd.DataFrame, other: ModelSpecification | None) -> str:
    """Return a sentence that names the method with the best mean score over the budgets, and when to use another.

    A method with a fit that is not trusted, at any budget, is not advised. The remedy for a model that is too large
    speaks of the model that was fitted.
    """
    if other is None:
        smaller = "declare smaller cliques"
    else:
        smaller = "give --fit-model smaller cliques"
    private = results.dropna(subset=["epsilon", "holdout_log_likelihood"])
    if private.empty:
        return f"Advice: the model is too large for exact scores; {smaller} to compare methods."
    scores: Any = private.groupby("method", sort=False)["holdout_log_likelihood"].agg(
        ["size", "mean"]
    )
    untrusted = results.loc[results["status"].isin(_UNTRUSTED), "method"]
    advised = scores[(scores["size"] == scores["size"].max()) & ~scores.index.isin(untrusted)]
    if advised.empty:
        return (
            "Advice: each method that was scored at every budget has a fit that is not trusted; use none of them as "
            f"it is, but spend more or {smaller}."
        )
    best = advised["mean"].idxmax()
    found = f"Advice: {label(str(best))} predicts best over these budgets{_under_model(other)}"
    if best == "posterior":
        return f"{found}, and its intervals account for the noise."
    point = f"{found}, so use it for a point estimate"
    if "posterior" in set(untrusted):
        return (
            f"{point}; the posterior, which has intervals, is not trusted at some of these budgets."
        )
    return f"{point}, and the posterior if you need intervals that account for the noise."


def _drawn(results: pd.DataFrame) -> bytes | None:
    """Return the figure as a PNG file with the note in its metadata; None without a finite score."""
    try:
        figure = figure_of(results)
    except ArgumentError:  # no score is finite, because the model is too large for exact inference
        return None
    picture = io.BytesIO()
    figure.savefig(
        picture, format="png", dpi=150, bbox_inches="tight", metadata={"Description": NOTE}
    )
    return picture.getvalue()


def figure_of(results: pd.DataFrame) -> Figure:
    """Return a figure with the held-out score of each method against epsilon."""
    from bayesprivmrf.plots import holdout_against_epsilon

    table = results.assign(method=[label(method) for method in results["method"]])
    scored = table[np.isfinite(table["holdout_log_likelihood"])]
    has_reference = label("mle") in set(scored["method"])
    figure = holdout_against_epsilon(table, reference=label("mle") if has_reference else None)
    figure.text(0.01, -0.02, NOTE, fontsize=7, verticalalignment="top")
    return figure
