"""A report of one release and its fit: one file to hand in, with nothing in it beyond what was released.

The report says what was declared and what is promised, then the results with their intervals, and then what must not
be concluded from them. Everything in it is computed from the release and the fit, so that it costs no privacy budget.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bayesprivmrf.analysis._document import (
    Block,
    Bullets,
    Code,
    Document,
    Paragraph,
    Picture,
    Section,
    Table,
)
from bayesprivmrf.analysis.ratios import odds_ratios
from bayesprivmrf.checks import file_path, kind_of, object_with, probability, require
from bayesprivmrf.citation import citation
from bayesprivmrf.errors import ModelError, ModelTooLargeError, NoIntervalError
from bayesprivmrf.files import write_whole
from bayesprivmrf.inference import Result, RowStatus
from bayesprivmrf.plots import declared_graph, interval_forest, learned_graph, svg_text

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.release import Released

# Ends of names of HTML files; those of all files
_HTML = (".html", ".htm")
ENDINGS = (*_HTML, ".md", ".qmd")
# Most tables of cliques, pairs with odds ratios, and variables that are listed: about ten printed pages
_MOST_CLIQUES = 12
_MOST_PAIRS = 15
_MOST_VARIABLES = 100
# Rows of a table, and of a picture, that a reader can still follow
_MOST_ROWS = 200
_MOST_DRAWN = 60
# Significant digits of a number, and the size from which on it has no decimals
_DIGITS = 3
_WHOLE = 1000
# Power of ten of the smallest number that is written without an exponent, and most decimals of a column
_LEAST_SIZE = -5
_MOST_DECIMALS = 6
# Columns of an interval frame with numbers
_NUMBERS = ("estimate", "lower", "upper")
# Statuses of rows that are reported without a warning at the row
_TRUSTED = (RowStatus.OK.value, RowStatus.MODEL.value)
# Statuses of rows of which the reader must beware, with the warning about them
_WARNINGS = {
    RowStatus.PRIOR.value: "the prior of the fit has more influence on them than the release. Do not report them as "
    "findings",
    RowStatus.DOUBTFUL.value: "intervals of such rows miss the truth more often than stated",
    RowStatus.NOT_TRUSTED.value: "a check failed. Do not use them",
    RowStatus.MODEL.value: "they rest on assumptions that no released number checks; the notes name them",
}
# Level at which one of several tests is often called significant, for the warning about several tests
_LEVEL = 0.05


class Test(Protocol):
    """Result of a test, such as that of `independence_test`."""

    @property
    def p_value(self) -> float:
        """Share of replicates under the null hypothesis at least as far from it."""
        ...

    @property
    def status(self) -> str:
        """Row status of the result."""
        ...

    @property
    def note(self) -> str:
        """Reason for the status."""
        ...

    @property
    def frame(self) -> pd.DataFrame:
        """The result as one row."""
        ...


type Tests = Mapping[str, Test] | Sequence[Test]
"""Results of tests, with or without a name for each."""


def report(
    release: Released | Sequence[Released],
    solution: Result,
    *,
    path: str | os.PathLike[str] = "report.html",
    tests: Tests = (),
    tables: Mapping[str, pd.DataFrame] | None = None,
    prob: float = 0.9,
) -> Path:
    """Write a report of a release and its fit to one file.

    The file states what was declared, the privacy promise, the estimates with intervals, statuses and notes, the
    tests, what must not be concluded, the assumptions, versions and references. It contains no data beyond the
    release, so it may be published if the release may.

    Parameters
    ----------
    release
        The release that was fitted, or all releases that were fitted together.
    solution
        Their fit, which must have intervals, such as that of `NoiseAwareMAP` or `LatentCounts`.
    path
        File to write; an existing one is replaced. A name that ends in ``.html`` gives one HTML page that needs no
        other file. A name that ends in ``.md`` or ``.qmd`` gives Markdown for pandoc and Quarto.
    tests
        Results of tests, such as that of `independence_test`: a mapping from the question to the result, or a list.
    tables
        Interval frames by their captions, such as results of `standardize`. Below each table the report states
        the probability of its intervals and its assumptions, as far as the ``attrs`` of the frame have them. By
        default, the odds ratios of the pairs of variables in one clique.
    prob
        Probability of each interval that the report computes, between 0 and 1.

    Returns
    -------
    pathlib.Path
        Path of the file.

    Raises
    ------
    ArgumentError
        An argument has the wrong type or is out of range, or the file cannot be written.
    ModelError
        The fit has other variables or states than the release, or is a fit of another release.
    NoIntervalError
        The fit has no measure of its error.

    Examples
    --------
    >>> analysis.report(release, solution, path="report.html", tests={"smokes and ill": test})  # doctest: +SKIP
    """
    content = report_content(release, solution, tests=tests, tables=tables, prob=prob)
    target = file_path("path", path)
    must = f"end in one of {', '.join(ENDINGS)}"
    is_known = target.suffix.lower() in ENDINGS
    require(is_known, "path", must, repr(str(target)), "write 'report.html'")
    write_report(content, target)
    return target


def write_report(content: ReportContent, target: Path) -> None:
    """Write a report to a file, in the form that the end of its name asks for."""
    document = content.document()
    if target.suffix.lower() in _HTML:
        text = document.html()
    else:
        text = document.markdown()
    write_whole({target: text})


def report_content(
    release: Released | Sequence[Released],
    solution: Result,
    *,
    tests: Tests = (),
    tables: Mapping[str, pd.DataFrame] | None = None,
    prob: float = 0.9,
) -> ReportContent:
    """Return what `report` writes, after checks of its arguments."""
    releases = _checked_releases(release)
    _require_fit_of(releases, solution)
    prob = probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
    must = "map captions to interval frames"
    is_mapping = tables is None or isinstance(tables, Mapping)
    require(is_mapping, "tables", must, kind_of(tables), "write {'caption': frame}")
    for caption, frame in (tables or {}).items():
        has_columns = {*_NUMBERS, "status", "note"} <= set(getattr(frame, "columns", ()))
        must = "hold frames with the columns of `interval`"
        seen = f"{kind_of(frame)} for {caption!r}"
        require(has_columns, "tables", must, seen, "give what a function of the analysis returned")
    named = _named_tests(tests)
    results = _Results.of(solution, tables, prob)
    return ReportContent(releases=releases, solution=solution, tests=named, results=results)


def _checked_releases(release: Any) -> tuple[Released, ...]:
    """Return the releases as a tuple; each must hold noisy tables or answers."""
    if isinstance(release, Sequence):
        releases = tuple(release)
    else:
        releases = (release,)
    require(releases, "release", "be one or more releases", "an empty list")
    for one in releases:
        is_release = hasattr(one, "statistics") and hasattr(one, "provenance")
        must = "be what a mechanism or a reader returned"
        require(is_release, "release", must, kind_of(one), "give the release that was fitted")
        must = "hold noisy tables"
        remedy = "its own text form has its results"
        require(one.statistics is not None, "release", must, kind_of(one), remedy)
    return releases


def _require_fit_of(releases: Sequence[Released], solution: Any) -> None:
    """Raise an error unless a result has intervals and was fitted to some releases."""
    remedy = "fit the release by NoiseAwareMAP() or LatentCounts()"
    object_with("joint_estimate", "solution", solution, "be a result of an estimator", remedy)
    must = "be a fit of `release`"
    remedy = "report the releases that were fitted, all of them"
    domain = solution.specification.domain
    is_same = all(one.statistics.specification.domain == domain for one in releases)
    seen = "one with other variables or states"
    require(is_same, "solution", must, seen, remedy, error=ModelError)
    is_marked = any(one.provenance.simulated for one in releases)
    is_alike = is_marked == solution.is_simulated
    fitted = getattr(solution, "fitted_numbers", None)  # a fit of another package may keep none
    if fitted is not None:
        numbers = np.concatenate([np.ravel(one.statistics.flat) for one in releases])
        # more numbers than these are of a further release, whose cost the report would leave out
        is_whole = fitted.size <= numbers.size
        is_alike = is_alike and is_whole and bool(np.isin(fitted, numbers).all())
    require(is_alike, "solution", must, "a fit of other numbers", remedy, error=ModelError)


def _named_tests(tests: Any) -> dict[str, Test]:
    """Return tests by name; those of a list are numbered."""
    is_collection = isinstance(tests, Mapping | Sequence) and not isinstance(tests, str)
    must = "be a list of test results, or map questions to them"
    remedy = "write tests=[independence_test(...)]"
    require(is_collection, "tests", must, kind_of(tests), remedy)
    named: dict[str, Any]
    if isinstance(tests, Mapping):
        named = {str(name): test for name, test in tests.items()}
    else:
        named = {f"test {number}": test for number, test in enumerate(tests, start=1)}
    for test in named.values():
        is_test = hasattr(test, "p_value") and hasattr(test, "frame")
        require(is_test, "tests", "hold results of tests", kind_of(test), remedy)
    return named


@dataclass(frozen=True, kw_only=True)
class _Results:
    """Interval frames of a report.

    Parameters
    ----------
    asked
        The frames that answer the reader's questions, by caption: odds ratios, unless others were given.
    marginals
        Probabilities of the states of each variable, and of the cliques, by caption.
    remarks
        What was left out, and why.
    prob
        Probability of the intervals that the report computed.
    is_default
        Whether `asked` are odds ratios.
    """

    asked: Mapping[str, pd.DataFrame]
    marginals: Mapping[str, pd.DataFrame]
    remarks: Sequence[str]
    prob: float
    is_default: bool

    @classmethod
    def of(cls, solution: Any, tables: Mapping[str, pd.DataFrame] | None, prob: float) -> _Results:
        """Return the frames of a fit, with the given ones instead of odds ratios."""
        remarks: list[str] = []
        marginals = _marginals(solution, prob, remarks)
        if tables is None:
            asked = _odds_ratios(solution, prob, remarks)
        else:
            asked = {str(caption): frame for caption, frame in tables.items()}
        return cls(
            asked=asked,
            marginals=marginals,
            remarks=remarks,
            prob=prob,
            is_default=tables is None,
        )

    @property
    def every(self) -> dict[str, pd.DataFrame]:
        """All frames by caption."""
        return {**self.asked, **self.marginals}


def _marginals(solution: Any, prob: float, remarks: list[str]) -> dict[str, pd.DataFrame]:
    """Return the interval frames of single variables and of cliques, as many as a reader can follow."""
    variables = solution.specification.domain.variables
    cliques = [clique for clique in solution.specification.cliques if len(clique) > 1]
    asked: list[tuple[Any, ...]] = [(variable,) for variable in variables[:_MOST_VARIABLES]]
    asked += cliques[:_MOST_CLIQUES]
    if len(variables) > _MOST_VARIABLES:
        remarks.append(f"Tables of the first {_MOST_VARIABLES} of {len(variables)} variables.")
    if len(cliques) > _MOST_CLIQUES:
        remarks.append(f"Joint tables of the first {_MOST_CLIQUES} of {len(cliques)} cliques.")
    return {_joined(own): solution.interval(list(own), prob=prob) for own in asked}


def _odds_ratios(solution: Any, prob: float, remarks: list[str]) -> dict[str, pd.DataFrame]:
    """Return local odds ratios of the pairs of variables in one clique, as many as a reader can follow."""
    domain = solution.specification.domain
    states = dict(zip(domain.variables, domain.cardinalities, strict=True))
    # in declared order, because two cliques may name a pair in different orders
    pairs = dict.fromkeys(
        pair
        for clique in solution.specification.cliques
        for pair in itertools.combinations(sorted(clique, key=domain.variables.index), 2)
        if min(states[pair[0]], states[pair[1]]) > 1
    )
    shown = list(pairs)[:_MOST_PAIRS]
    if len(pairs) > len(shown):
        remarks.append(f"Odds ratios of the first {len(shown)} of {len(pairs)} pairs.")
    found = {}
    for a, b in shown:
        try:
            found[f"Odds ratios of {a} and {b}"] = odds_ratios(solution, a, b, prob=prob)
        except (NoIntervalError, ModelTooLargeError) as error:
            remarks.append(f"No odds ratios of {a} and {b}: {error}")
    return found


@dataclass(frozen=True, kw_only=True)
class ReportContent:
    """Content of a report, which the document and the command line's JSON show.

    Parameters
    ----------
    releases
        The fitted releases.
    solution
        Their fit.
    tests
        Tests by name.
    results
        Interval frames.
    """

    releases: tuple[Released, ...]
    solution: Any
    tests: Mapping[str, Test]
    results: _Results

    @property
    def statements(self) -> tuple[str, ...]:
        """Privacy statement of each release, without repetition."""
        return tuple(dict.fromkeys(one.privacy_statement() for one in self.releases))

    @property
    def cautions(self) -> tuple[str, ...]:
        """Sentences on conclusions that the report does not allow."""
        return tuple(_cautions(self))

    def document(self) -> Document:
        """Return the report as a document."""
        return Document(
            title="Report of a private release",
            sections=[
                Section(title="Privacy", blocks=list(_promise(self))),
                Section(title="What was declared and released", blocks=list(_declared(self))),
                Section(title="Results", blocks=list(_shown_results(self.results))),
                *self._shown_tests(),
                Section(title="What must not be concluded", blocks=[Bullets(items=self.cautions)]),
                Section(title="The fit", blocks=list(_fit(self.solution))),
                Section(title="Probabilities", blocks=list(_probabilities(self.results))),
                Section(title="Software and references", blocks=list(_software(self))),
            ],
        )

    def _shown_tests(self) -> list[Section]:
        """Return the section of the tests, if there are any."""
        if not self.tests:
            return []
        frames = [test.frame for test in self.tests.values()]
        header = ["test", *frames[0].columns]
        rows = []
        for name, frame in zip(self.tests, frames, strict=True):
            row = frame.reindex(columns=header[1:]).iloc[0]
            rows.append([name, *map(_text, row)])
        numbers = frozenset(
            place
            for place, column in enumerate(header)
            if column in ("statistic", "df", "p_value", "mc_error")
        )
        beware = (RowStatus.DOUBTFUL.value, RowStatus.NOT_TRUSTED.value)
        marked = frozenset(
            place for place, test in enumerate(self.tests.values()) if test.status in beware
        )
        table = Table(
            caption="Tests through the noise",
            header=header,
            rows=rows,
            numbers=numbers,
            marked=marked,
        )
        return [Section(title="Tests", blocks=[table])]


def _promise(content: ReportContent) -> Iterator[Block]:
    """Yield the promise, or a warning that there is none."""
    is_marked = content.solution.is_simulated
    for statement in content.statements:
        yield Paragraph(text=statement, is_marked=is_marked)
    if len(content.releases) > 1:
        text = f"The fit combines {len(content.releases)} releases, and what they cost together is more than each."
        yield Paragraph(text=text)
    if any(one.is_exact for one in content.releases):
        text = "A release holds exact numbers, which no noise protects."
        yield Paragraph(text=text, is_marked=True)
    has_promise = all(one.guarantee is not None for one in content.releases)
    if has_promise and not is_marked:
        text = "Everything in this report is computed from what was released and costs no further privacy budget."
        yield Paragraph(text=text)


def _declared(content: ReportContent) -> Iterator[Block]:
    """Yield the declared variables and cliques, what was released, and the graph."""
    model = content.solution.specification
    domain = model.domain
    rows = [
        [str(variable), ", ".join(map(str, states))]
        for variable, states in zip(domain.variables, domain.states, strict=True)
    ]
    yield Table(
        caption="Variables and their states",
        header=["variable", "states"],
        rows=rows[:_MOST_VARIABLES],
    )
    if len(rows) > _MOST_VARIABLES:
        yield Paragraph(text=f"These are the first {_MOST_VARIABLES} of {len(rows)} variables.")
    if model.impossible:
        items = [
            " and ".join(f"{variable} = {state}" for variable, state in one)
            for one in model.impossible
        ]
        yield Paragraph(text="Declared impossible: " + "; ".join(items) + ".")
    facts = [*map(_released, content.releases), _records(content.solution.stats)]
    yield Bullets(items=[fact for fact in facts if fact])
    learned: list[Any] = [one for one in content.releases if hasattr(one, "graph")]
    if learned:
        picture = learned_graph(learned[0])
        text = "Graph of the learned model. A missing edge is no evidence of independence."
    else:
        picture = declared_graph(model)
        text = "Graph of the model: an edge for each pair of variables in one clique, as declared."
    yield Picture(svg=svg_text(picture, text), caption=text, is_small=not learned)


def _released(release: Released) -> str:
    """Return a sentence about what one release measured."""
    statistics = release.statistics
    kinds = ", ".join(sorted({law.name for law in statistics.noise}))
    deviations = np.sqrt(statistics.cell_variances())
    spread = ""
    if deviations.size and np.isfinite(deviations).all():
        low = _text(float(deviations.min()))
        high = _text(float(deviations.max()))
        ends = low if low == high else f"{low} to {high}"
        spread = f" of standard deviation {ends} records"
    number = len(statistics.measurements)
    mechanism = release.provenance.mechanism
    return (
        f"{mechanism}: {number} measured tables or queries with {statistics.flat.size:,} numbers; "
        f"noise {kinds}{spread}."
    )


def _records(stats: Mapping[str, Any]) -> str:
    """Return a sentence about the number of records, if the fit knows it."""
    total = stats.get("estimated_total")
    error = stats.get("total_standard_error")
    if total is None or error is None:
        return ""
    if error:
        return f"Records: about {total:,.0f}, with a standard error of {error:,.0f}."
    return f"Records: {total:,.0f}."


def _shown_results(results: _Results) -> Iterator[Block]:
    """Yield the asked frames, as tables and pictures."""
    if results.is_default:
        text = (
            f"Odds ratios of neighboring states, among all people, with {_percent(results.prob)} intervals; "
            "1 means no association. The intervals include the noise and the sampling of the records."
        )
    else:
        text = "The intervals include the noise and, where they describe the population, the sampling of the records."
    yield Paragraph(text=text)
    if results.remarks:
        yield Bullets(items=results.remarks)
    if not results.asked:
        yield Paragraph(text="The model has no two variables to compare.")
    for caption, frame in results.asked.items():
        yield from _frame(caption, frame)
        if not results.is_default:
            yield Bullets(items=[_level(frame), *frame.attrs.get("assumptions", ())])
        if 1 < len(frame) <= _MOST_DRAWN:
            yield _forest(caption, frame, is_ratio=results.is_default)


def _forest(caption: str, frame: pd.DataFrame, *, is_ratio: bool) -> Picture:
    """Return the picture of a frame; points are hollow where the reader must beware."""
    if is_ratio:
        figure = interval_forest(frame, scale="log", reference=1.0, label="odds ratio")
    else:
        figure = interval_forest(frame)
    text = f"{caption}: estimates and intervals."
    if _beware(frame).any():
        text += " Hollow points: see the status and the note of the row."
    return Picture(svg=svg_text(figure, text), caption=text)


def _probabilities(results: _Results) -> Iterator[Block]:
    """Yield the tables of single variables and of cliques."""
    text = f"Probabilities in the population with {_percent(results.prob)} intervals."
    yield Paragraph(text=text)
    for caption, frame in results.marginals.items():
        yield from _frame(caption, frame)


def _frame(caption: str, frame: pd.DataFrame) -> Iterator[Block]:
    """Yield the table of an interval frame, with a remark on rows that were left out."""
    shown = frame.iloc[:_MOST_ROWS]
    levels = [str(name) if name is not None else "" for name in frame.index.names]
    columns = [*_NUMBERS, "status", "note"]
    labels = shown.index.to_frame().to_numpy(dtype=object)
    said = shown[["status", "note"]].to_numpy(dtype=object)
    rows = [
        [*map(str, own), *numbers, *map(str, words)]
        for own, numbers, words in zip(labels, _number_texts(shown), said, strict=True)
    ]
    yield Table(
        caption=caption,
        header=[*levels, *columns],
        rows=rows,
        numbers=frozenset(range(len(levels), len(levels) + len(_NUMBERS))),
        marked=frozenset(np.flatnonzero(_beware(shown)).tolist()),
    )
    if len(frame) > len(shown):
        yield Paragraph(text=f"These are the first {len(shown)} of {len(frame):,} rows.")


def _percent(prob: float) -> str:
    """Return a probability in percent."""
    return f"{100 * prob:.4g} %"


def _level(frame: pd.DataFrame) -> str:
    """Return a sentence on the probability of the intervals of a frame."""
    if "prob" not in frame.attrs:
        return "The probability of these intervals is not stated in the table."
    percent = _percent(frame.attrs["prob"])
    if frame.attrs["simultaneous"]:
        return f"Intervals of {percent}, for all rows jointly."
    return f"Intervals of {percent}, for each row by itself."


def _beware(frame: pd.DataFrame) -> np.ndarray:
    """Return a mask of the rows whose status is worse than `model`."""
    return ~np.isin(frame["status"].to_numpy(dtype=str), _TRUSTED)


def _cautions(content: ReportContent) -> Iterator[str]:
    """Yield sentences on conclusions that a report does not allow."""
    results = content.results
    if content.solution.is_simulated:
        yield "This release is a simulation: it protects nobody, and nothing here may be published as private."
    for problem in content.solution.problems:
        yield f"Problem of the fit: {problem}"
    for status, warning in _WARNINGS.items():
        counts = {
            caption: np.count_nonzero(frame["status"] == status)
            for caption, frame in results.every.items()
        }
        places = [f"{caption} ({number})" for caption, number in counts.items() if number]
        if places:
            number = sum(counts.values())
            rows = "row has" if number == 1 else "rows have"
            yield f"{number} {rows} the status “{status}”: {warning}. Tables: {', '.join(places)}."
    if results.is_default:
        yield f"Each {_percent(results.prob)} interval holds by itself."
    else:
        yield "Each interval holds by itself, unless its table says jointly."
    yield "Of many intervals some miss the truth, so do not search the tables for the most striking row."
    yield (
        "Two intervals that overlap do not show that two numbers are equal. Ask for the interval of their difference "
        "or ratio."
    )
    yield (
        "Odds ratios and differences describe associations in the population. They are effects only under "
        "assumptions that no data can check."
    )
    yield (
        "The numbers describe the population from which the records were drawn, not single people, and not exactly "
        "the records."
    )
    yield from _test_cautions(content.tests)


def _test_cautions(tests: Mapping[str, Test]) -> Iterator[str]:
    """Yield sentences on conclusions that tests do not allow."""
    if not tests:
        return
    yield (
        "A large p-value does not show independence: with this noise and this many records, a dependence may be "
        "missed."
    )
    if len(tests) > 1:
        level = _LEVEL / len(tests)
        yield (
            f"There are {len(tests)} tests. To keep the probability of any false rejection below {_LEVEL}, compare "
            f"each p-value with {level:.2g}."
        )
    for name, test in tests.items():
        if test.status in (RowStatus.DOUBTFUL.value, RowStatus.NOT_TRUSTED.value):
            yield f"The test “{name}” has the status “{test.status}”; its note says why."


def _fit(solution: Any) -> Iterator[Block]:
    """Yield how the fit ended, its assumptions, and the numbers by which it can be judged."""
    method = getattr(solution, "method", type(solution).__name__)
    yield Bullets(items=[f"Method: {method}.", f"Status: {solution.status.value}."])
    if solution.problems:
        yield Paragraph(text="Problems:")
        yield Bullets(items=solution.problems)
    yield Paragraph(text="All results rest on these assumptions:")
    yield Bullets(items=solution.assumptions)
    rows = [
        [name.replace("_", " "), _text(value)]
        for name, value in solution.stats.items()
        # the time of a fit differs from run to run
        if isinstance(value, int | float | str) and name != "seconds"
    ]
    yield Table(caption="Numbers of the fit", header=["number", "value"], rows=rows)


def _software(content: ReportContent) -> Iterator[Block]:
    """Yield the versions behind release and report, and the references."""
    from importlib.metadata import version

    items = [f"Report: bayesprivmrf {version('bayesprivmrf')}."]
    for release in content.releases:
        versions = release.provenance.versions
        if versions:
            drawn = ", ".join(f"{name} {number}" for name, number in versions.items())
            items.append(f"Noise of {release.provenance.mechanism}: {drawn}.")
    yield Bullets(items=items)
    yield Paragraph(text="Please cite the library and the methods:")
    yield Code(text=citation(*content.releases, content.solution))


def _joined(variables: Sequence[Any]) -> str:
    """Return the names of some variables as one text."""
    return " × ".join(map(str, variables))


def _text(value: Any) -> str:
    """Return a value as text, a number with three significant digits."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    if not isinstance(value, float | np.floating):
        return str(value)
    number = float(value)
    if math.isnan(number):
        return "–"
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    if abs(number) >= _WHOLE:
        return f"{number:,.0f}"
    if number == 0:
        return "0"
    size = math.floor(math.log10(abs(number)))
    if size < _LEAST_SIZE:
        return f"{number:.1e}"
    return f"{number:.{max(_DIGITS - 1 - size, 0)}f}"


def _number_texts(frame: pd.DataFrame) -> list[list[str]]:
    """Return estimates and limits as text, with the decimals that show two digits of the usual interval's length.

    Rows with a shorter interval have the decimals that show two digits of its own.
    """
    numbers = frame[list(_NUMBERS)].to_numpy(dtype=float)
    lengths = numbers[:, 2] - numbers[:, 1]
    is_known = np.isfinite(lengths) & (lengths > 0)
    if not is_known.any():
        return [list(map(_text, row)) for row in numbers]
    usual = float(np.median(lengths[is_known]))
    shown = np.where(is_known, np.minimum(lengths, usual), usual)
    decimals = np.clip(1 - np.floor(np.log10(shown)), 0, _MOST_DECIMALS).astype(int).tolist()
    rows = zip(numbers.tolist(), decimals, strict=True)
    return [[_fixed(number, own) for number in row] for row, own in rows]


def _fixed(number: float, decimals: int) -> str:
    """Return a number with some decimals, or with its own digits if these would show it as zero."""
    is_hidden = number != 0 and abs(number) < 10.0**-decimals
    if is_hidden or not math.isfinite(number):
        return _text(number)
    return f"{number:,.{decimals}f}"
