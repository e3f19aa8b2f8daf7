"""Write the benchmark pages from the data files in benchmarks/results, when the site is built.

``benchmarks/results/index.toml`` describes every data file. For each of its sections this module writes one page,
``docs/benchmarks/<section>.md``, with the tables and a line that says how each was made. It also draws the pictures
and writes ``docs/benchmarks/_headlines.inc``, the three figures of the summary page. Git ignores all of them.

    python docs/benchmark_pages.py        # writes the pages without building the site
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
INDEX = "index.toml"
OPTIONS = {"pivot", "records", "data"}  # keys that a table may have
REQUIRED = {
    "file",
    "section",
    "title",
    "text",
    "columns",
    "command",
    "machine",
    "commit",
    "stored",
    "seeds",
    "date",
    "caveat",
}  # keys that every table has

# Okabe and Ito's colors, which readers with color blindness can tell apart
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")


def index(results: Path = RESULTS) -> dict[str, Any]:
    """Return the parsed index of the data files, with the defaults filled in."""
    parsed = tomllib.loads((results / INDEX).read_text(encoding="utf-8"))
    for entry in parsed["table"]:
        for key, value in parsed["defaults"].items():
            entry.setdefault(key, value)
    return parsed


# Tables


def significant(value: float, digits: int) -> str:
    """Return a number with so many significant digits, never in scientific notation."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else ""
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{decimals}f}"


def shown(value: Any, form: str = "3g") -> str:
    """Return a cell of a table: ``"3g"`` for three significant digits, ``".2f"`` for two decimals."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return f"{value:{form}}" if form.endswith("f") else significant(value, int(form[:-1]))
    text = str(value)
    return f"{int(text):,}" if text.isdigit() and len(text) > 3 else text


def label(value: Any) -> str:
    """Return a row or column label; whole numbers lose their decimals."""
    if value is None:
        return "–"
    if isinstance(value, (float, np.floating)):
        return f"{int(value):,}" if value == int(value) else f"{value:g}"
    return shown(value)


STATISTICS: Mapping[str, Callable[[pd.Series], float]] = {
    "mean": lambda x: x.mean(),
    "median": lambda x: x.median(),
    "min": lambda x: x.min(),
    "max": lambda x: x.max(),
    "count": lambda x: len(x),
    "count above 1": lambda x: int((x > 1).sum()),
    "count below 0.7": lambda x: int((x < 0.7).sum()),
}


def kept(frame: pd.DataFrame, where: Mapping[str, Iterable[Any]]) -> pd.DataFrame:
    """Return the rows whose columns have one of the values listed, in the order of these values."""
    for column, values in where.items():
        frame = frame[frame[column].isin(list(values))]
        order = pd.Categorical(frame[column], categories=list(values), ordered=True)
        frame = frame.assign(**{column: order})
    return frame


def measured(part: pd.DataFrame, measure: Mapping[str, Any]) -> str:
    """Return one statistic of some rows; with ``of`` a share, the sum of one column over that of another."""
    if part.empty:
        return ""
    if "of" in measure:
        total = part[measure["of"]].sum()
        value = part[measure["value"]].sum() / total if total else math.nan
    else:
        value = STATISTICS[measure.get("statistic", "mean")](part[measure["value"]])
    text = shown(value, measure.get("format", "3g"))
    if text and "error" in measure:
        text += f" ± {shown(part[measure['error']].mean(), measure.get('format', '3g'))}"
    return text


def pivoted(frame: pd.DataFrame, pivot: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: a line for each value of the row columns, a column for each measure."""
    frame = kept(frame, pivot.get("where", {}))
    rows, across, measures = pivot["rows"], pivot.get("columns", []), pivot["measures"]
    names = pivot.get("names", {})  # other words for values of the data
    grouped = {
        tuple(None if pd.isna(v) else v for v in key): part  # NaN is not equal to itself
        for key, part in frame.groupby(rows + across, dropna=False, observed=True)
    }
    lines = list(dict.fromkeys(key[: len(rows)] for key in grouped))
    groups = list(dict.fromkeys(key[len(rows) :] for key in grouped))
    if not pivot.get("sorted", True):
        seen = list(dict.fromkeys(frame[rows].itertuples(index=False, name=None)))
        lines.sort(key=seen.index)
    ranks = [
        {v: i for i, v in enumerate(pivot.get("where", {}).get(column, []))} for column in across
    ]
    groups.sort(key=lambda key: tuple(rank.get(v, v) for rank, v in zip(ranks, key, strict=True)))
    shown_measures = [
        (g, m) for g in groups for m in measures if m.get("only", g[0] if g else None) in {*g, None}
    ]

    def worded(value: Any) -> str:
        return names.get(label(value), label(value))

    titles = [pivot.get("titles", {}).get(column, column) for column in rows]
    for group, measure in shown_measures:
        words = [worded(v) for v in group] + ([measure["label"]] if measure.get("label") else [])
        titles.append(" / ".join(words))
    cells = [
        [worded(v) for v in line]
        + [measured(grouped.get(line + group, frame[:0]), m) for group, m in shown_measures]
        for line in lines
    ]
    return titles, cells


def at(record: Any, path: str | list[str]) -> Any:
    """Return a value inside nested JSON: the smallest of several paths, and of a list where the path has ``*``."""
    if isinstance(path, list):
        return min((value for p in path if (value := at(record, p)) is not None), default=None)
    for k, name in enumerate(steps := path.split(".")):
        if name == "*":
            rest = ".".join(steps[k + 1 :])
            return min(at(item, rest) for item in record)
        if name not in record:
            return None
        record = record[name]
    return record


def from_json(parsed: Any, spec: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a JSON file: a line for each record, a column for each path."""
    records = parsed[spec["at"]]
    if isinstance(records, Mapping):
        records = [{"name": name, **record} for name, record in records.items()]
    form = spec.get("format", "3g")
    return list(spec["paths"]), [
        [shown(at(r, path), form) for path in spec["paths"].values()] for r in records
    ]


def table(entry: Mapping[str, Any], results: Path = RESULTS) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a table as they are shown."""
    path = results / entry["file"]
    if path.suffix == ".json":
        return from_json(json.loads(path.read_text(encoding="utf-8")), entry["records"])
    if "pivot" in entry:
        return pivoted(pd.read_csv(path), entry["pivot"])
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    return list(frame.columns), [[shown(v) for v in row] for row in frame.itertuples(index=False)]


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table, in which a short cell, such as a number with its error, stays on one line."""

    def cell(text: str) -> str:
        text = re.sub(r"(?<=\de)-(?=\d)", "\u2011", text.replace("|", "\\|"))  # 1e-5
        return text.replace(" ", "\u00a0") if len(text) <= 20 else text

    lines = [header, ["---"] * len(header), *([cell(c) for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# Pages


def commands(entry: Mapping[str, Any]) -> str:
    """Return how a file was made: ``Made by`` its commands, or ``Made by hand``."""
    lines = entry["command"].strip().splitlines()
    return "Made " + " and ".join(
        line if line.startswith("by hand") else f"by `{line}`" for line in lines
    )


def provenance(entry: Mapping[str, Any]) -> str:
    """Return the paragraph that says how a table was made."""
    files = ", ".join(
        f"`benchmarks/results/{name}`" for name in [entry["file"], *entry.get("data", [])]
    )
    return (
        f"*Provenance.* {commands(entry)}. Machine: {entry['machine']}. "
        f"Commit of the library: {entry['commit']}; numbers stored on {entry['date']} by commit {entry['stored']}. "
        f"Seeds: {entry['seeds']}. Data: {files}."
    )


def page(section: Mapping[str, Any], parsed: Mapping[str, Any], results: Path = RESULTS) -> str:
    """Return the Markdown of one section."""
    entries, raw = (
        [e for e in parsed[kind] if e["section"] == section["name"]] for kind in ("table", "raw")
    )
    parts = [f"# {section['title']}", section["text"].strip()]
    if picture := section.get("picture"):
        parts.append(f"![{PICTURES[picture][1]}](images/{picture}.png)")
    for entry in entries:
        parts += [f"## {entry['title']}", entry["text"].strip(), markdown(*table(entry, results))]
        parts.append(
            "\n".join(f"- {name}: {meaning}" for name, meaning in entry["columns"].items())
        )
        if entry["caveat"]:
            parts.append(f"*Read with care.* {entry['caveat'].strip()}")
        parts.append(provenance(entry))
    if raw:
        parts.append("## Data without a table")
    for entry in raw:
        parts.append(
            f"`benchmarks/results/{entry['file']}`: {entry['text'].strip()} {commands(entry)}; "
            f"stored on {entry['date']} by commit {entry['stored']}. Seeds: {entry['seeds']}."
        )
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(spec: Mapping[str, Any], results: Path = RESULTS) -> str:
    """Return one sentence of the summary, its numbers looked up in the data files."""
    values = {}
    for name, look in spec["numbers"].items():
        frame = kept(pd.read_csv(results / look["file"]), look.get("where", {}))
        stacked = pd.concat([frame[column] for column in look["columns"]])
        stacked = pd.to_numeric(stacked.astype(str).str.split(" ").str[0], errors="coerce").dropna()
        values[name] = shown(
            STATISTICS[look.get("statistic", "mean")](stacked), look.get("format", ".2f")
        )
    return spec["text"].strip().format(**values)


# Pictures


def axes(width: float = 7.0, height: float = 3.8) -> tuple[Figure, Any]:
    """Return a figure with one pair of axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    ax = figure.add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    return figure, ax


def draw_estimators(results: Path) -> Figure:
    """Divergence from the truth of three estimators, relative to the best ridge in hindsight."""
    frame = pd.read_csv(results / "noise-aware-relative.csv", index_col=0)
    figure, ax = axes()
    width = 0.25
    for k, (method, row) in enumerate(frame.iterrows()):
        name = {"noise-aware, learned": "NoiseAwareMAP", "naive, default ridge": "NaiveMLE"}.get(
            method, method
        )
        at_x = np.arange(len(row)) + (k - 1) * width
        ax.bar(
            at_x,
            row,
            width * 0.9,
            label=name,
            color=COLORS[k],
            hatch=("", "//", "..")[k],
            edgecolor="white",
        )
    ax.axhline(1, color="black", linewidth=1, linestyle="--")
    ax.set_xticks(range(frame.shape[1]), [f"{c}" for c in frame.columns])
    ax.set_ylabel("KL divergence, relative to the\nbest of five ridges in hindsight")
    ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def draw_calibration(results: Path) -> Figure:
    """Coverage of 90 % intervals under the prior, one point a setting."""
    frame = pd.read_csv(results / "calibration.csv")
    quantities = {
        "marginals": "marginals",
        "potentials": "interactions",
        "counts": "true counts",
        "total": "number of records",
        "log scale": "prior scale",
    }
    figure, ax = axes()
    rng = np.random.default_rng(0)  # spreads the points sideways, nothing else
    for k, quantity in enumerate(quantities):
        part = frame[frame["quantity"] == quantity]
        at_x = k + rng.uniform(-0.25, 0.25, len(part))
        coverage, error = part["coverage 0.9"], 2 * part["error 0.9"]
        limits = [error, np.minimum(error, 1 - coverage)]  # a share is at most 1
        ax.errorbar(
            at_x, coverage, limits, fmt=MARKERS[k], color=COLORS[k], markersize=5, elinewidth=0.8
        )
    ax.axhline(0.9, color="black", linewidth=1, linestyle="--")
    ax.set_xticks(range(len(quantities)), list(quantities.values()))
    ax.set_ylabel("share of 90 % intervals\nthat cover the truth")
    return figure


def draw_priors(results: Path) -> Figure:
    """Posterior means of log odds ratios in strata against the truth, under two priors."""
    frame = pd.read_csv(results / "effects-of-priors-points.csv")
    titles = {"auto": "normal effects (default)", "rows": "Dirichlet rows"}
    figure = Figure(figsize=(7.0, 3.8), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    reach = 3.0  # nats; the few points beyond are left out
    for ax, (prior, title), color in zip(panels, titles.items(), COLORS, strict=False):
        own = frame[frame["prior"] == prior]
        ax.plot([-reach, reach], [-reach, reach], color="black", linewidth=1)
        ax.scatter(own["mean"], own["truth"], s=9, alpha=0.4, color=color, edgecolor="none")
        slope, height = np.polyfit(own["mean"], own["truth"], 1)
        ends = np.array([-reach, reach])
        ax.plot(
            ends, slope * ends + height, color=color, linestyle="--", label=f"slope {slope:.2f}"
        )
        ax.set_title(title, fontsize="medium")
        ax.set_xlabel("posterior mean, nats")
        ax.set_xlim(-reach, reach)
        ax.set_ylim(-reach, reach)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, loc="upper left")
    panels[0].set_ylabel("true log odds ratio\nin a stratum, nats")
    return figure


def draw_couplings(results: Path) -> Figure:
    """Largest error of a coupling against the number of records, by mechanism."""
    frame = pd.read_csv(results / "learning.csv")
    frame = frame[(frame["graph"] == "3-regular") & (frame["variables"] == 200)]
    frame = frame[frame["rho"].isna() | (frame["rho"] == 1)]
    figure, ax = axes()
    methods = {
        "Frank-Wolfe, paper": "Frank-Wolfe, paper",
        "Frank-Wolfe, tight": "Frank-Wolfe, tight",
        "moments": "all pairs measured",
        "SelectMeasure": "SelectMeasure",
        "l1-logistic, not private": "l1-logistic regression,\nnot private",
        "likelihood of the true graph, not private": "true graph known,\nnot private",
    }
    for k, (method, words) in enumerate(methods.items()):
        line = frame[frame["method"] == method].groupby("records")["error"].mean()
        style = ":" if "not private" in method else "-"
        ax.plot(line.index, line, marker=MARKERS[k], color=COLORS[k], linestyle=style, label=words)
    ax.set(xscale="log", yscale="log", xlabel="records", ylabel="largest error of a coupling, nats")
    ticks = sorted(frame["records"].unique())
    ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
    ax.minorticks_off()
    levels = (0.02, 0.05, 0.1, 0.2, 0.3)
    ax.set_yticks(levels, [f"{v:g}" for v in levels])
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def draw_tables(results: Path) -> Figure:
    """Error of three-way tables of SelectMeasure over that of other mechanisms, one point a data set and budget."""
    mst = pd.read_csv(results / "rounds-mst.csv")
    adaptive = pd.read_csv(results / "rounds-swift-aim.csv")
    rivals = pd.read_csv(results / "rivals.csv")
    means = rivals.groupby(["data", "rho", "method"])["3-way"].mean().unstack("method")
    name = adaptive["rival and data"]
    groups = {
        "independent\ncolumns": means["rounds"] / means["independent"],
        "MST": mst["ratio, triples"],
        "SWIFT": adaptive["ratio, triples"][name.str.startswith("SWIFT,")],
        "SWIFT, model\nof limited size": adaptive["ratio, triples"][
            name.str.startswith("SWIFT limited")
        ],
        "AIM": adaptive["ratio, triples"][name.str.startswith("AIM")],
    }
    figure, ax = axes()
    rng = np.random.default_rng(0)  # spreads the points sideways, nothing else
    for k, values in enumerate(groups.values()):
        values = values.dropna()
        ax.plot(
            k + rng.uniform(-0.2, 0.2, len(values)),
            values,
            MARKERS[k],
            color=COLORS[k],
            markersize=6,
            alpha=0.8,
        )
    ax.axhline(1, color="black", linewidth=1, linestyle="--")
    ax.set_yscale("log")
    levels = (0.002, 0.01, 0.1, 0.3, 1)
    ax.set_yticks(levels, [f"{v:g}" for v in levels])
    ax.minorticks_off()
    ax.set_xticks(range(len(groups)), list(groups))
    ax.set_ylabel("error of three-way tables:\nSelectMeasure / the other")
    return figure


def draw_census(results: Path) -> Figure:
    """Coverage of 90 % intervals of people in census cells, by the true size of the cell."""
    frame = pd.read_csv(results / "census-by-truth.csv")
    figure, ax = axes()
    for k, (level, part) in enumerate(frame.groupby("level", sort=False)):
        for column, color, words in (
            ("coverage", COLORS[0], "posterior"),
            ("least squares: coverage", COLORS[1], "least squares"),
        ):
            style = {"marker": MARKERS[k], "linestyle": ("-", "--")[k], "color": color}
            ax.plot(range(len(part)), part[column], label=f"{words}, {level}", **style)
    ax.axhline(0.9, color="black", linewidth=1, linestyle=":")
    ax.set_xticks(range(4), frame["size of the truth"].iloc[:4])
    ax.set(
        xlabel="people in the cell",
        ylabel="share of 90 % intervals\nthat cover the count",
        ylim=(0.5, 1.02),
    )
    ax.legend(frameon=False, loc="lower right")
    return figure


def draw_marginals(results: Path) -> Figure:
    """Time of one evaluation of all marginals, beside mbi's fastest oracle."""
    models = json.loads((results / "marginals.json").read_text(encoding="utf-8"))["models"]
    figure, ax = axes(height=4.6)
    at_y = np.arange(len(models))
    ours = [record["ours"]["marginals"]["median_ms"] for record in models.values()]
    theirs = [at(record, "mbi.*.median_ms") for record in models.values()]
    ax.hlines(at_y, ours, theirs, color="gray", linewidth=1)
    ax.plot(ours, at_y, MARKERS[0], color=COLORS[0], label="bayesprivmrf")
    ax.plot(theirs, at_y, MARKERS[1], color=COLORS[1], label="mbi, fastest oracle")
    ax.set_xscale("log")
    levels = (0.01, 0.1, 1, 10, 100)
    ax.set_xticks(levels, [f"{v:g}" for v in levels])
    ax.set_yticks(at_y, list(models))
    ax.set_xlabel("milliseconds for all marginals")
    ax.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.4, 1.0))
    return figure


# name: how it is drawn, and the text for readers who do not see it
PICTURES: dict[str, tuple[Callable[[Path], Figure], str]] = {
    "estimators": (
        draw_estimators,
        "Bars: divergence of three estimators at three levels of signal",
    ),
    "calibration": (
        draw_calibration,
        "Points: coverage of 90 % intervals in all settings, by quantity",
    ),
    "priors": (
        draw_priors,
        "Points: true log odds ratios in strata against their posterior means, under two priors",
    ),
    "couplings": (
        draw_couplings,
        "Lines: error of learned couplings against the number of records",
    ),
    "tables": (
        draw_tables,
        "Points: error of learned three-way tables relative to other mechanisms",
    ),
    "census": (draw_census, "Lines: coverage of census counts by the size of the cell"),
    "marginals": (draw_marginals, "Points: milliseconds for all marginals, this library and mbi"),
}


# The build


def written(path: Path, text: str) -> None:
    """Write a file unless it has this content, so that Sphinx reads again only what changed."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def write(docs: Path = DOCS, results: Path = RESULTS) -> list[str]:
    """Write the pages, the pictures and the headline figures, and return the names of the pages."""
    parsed = index(results)
    target = docs / "benchmarks"
    (target / "images").mkdir(parents=True, exist_ok=True)
    for section in parsed["section"]:
        written(target / f"{section['name']}.md", page(section, parsed, results))
    lines = [f"{k}. {headline(spec, results)}" for k, spec in enumerate(parsed["headline"], 1)]
    written(target / "_headlines.inc", "\n".join(lines) + "\n")
    with mpl.rc_context({"font.size": 10}):
        for name, (draw, _) in PICTURES.items():
            draw(results).savefig(
                target / "images" / f"{name}.png", dpi=130, metadata={"Software": ""}
            )
    return [section["name"] for section in parsed["section"]]


def setup(app: Any) -> dict[str, Any]:
    """Write the pages when Sphinx starts."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir)))
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    print("\n".join(write()))
