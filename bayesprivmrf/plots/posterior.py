"""Checks of a posterior: noisy counts against true ones, and ranks of simulation-based calibration."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import object_with, probability, require, truth, whole_number
from bayesprivmrf.inference.posterior.noisy_tables import dimension_names
from bayesprivmrf.model.domain import asked_positions
from bayesprivmrf.plots.style import (
    COLORS,
    GRAY,
    HAIRLINE,
    LETTER,
    MEDIUM,
    PAGE_WIDTH,
    SMALL,
    panels,
    share,
    tidy,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesprivmrf.inference import Posterior
    from bayesprivmrf.model.tables import FloatArray, IntArray


# Colors of the true counts, of the released ones, and of the replicated ones behind these two
_LATENT = COLORS[0]
_OBSERVED = COLORS[2]
_REPLICATED = "#bdbdbd"
# Cells in one figure: more could not be read
_MOST_CELLS = 1000
# Panels side by side at most, of tables and of ranks
_COLUMNS = 4
_RANK_COLUMNS = 3
# Inches: the least for a cell, for a name below a cell, and beside the cells of a panel
_CELL = 0.15
_NAMED_CELL = 0.11
_BESIDE = 0.6
# Inches: height of a panel above its cells' names, if there is at most one row of panels and if there are more
_HIGH = 2.8
_LOW = 1.45
# Columns left free before the first cell and after the last
_LEFT = 0.7
_RIGHT = 0.3
# Bars of intervals, points on the true counts and crosses on the released ones, in points and square points
_REPLICATED_BAR = {"color": _REPLICATED, "linewidth": 5, "capstyle": "butt"}
_TRUE_BAR = {"color": _LATENT, "linewidth": 1.8, "capstyle": "butt"}
_TRUE_POINT = {"color": _LATENT, "marker": "o", "s": 12}
_CROSS = {"color": _OBSERVED, "marker": "x", "s": 22, "linewidth": 1.2}
# Layer of the points, above the bars
_IN_FRONT = 3
# Points of a line of ranks; more could not be distinguished in a panel
_POINTS = 100
# Inches: size of a panel of ranks
_RANK_WIDTH = 5.0
_RANK_HEIGHT = 3.4
_RANK_TICKS = {0: "0", 0.25: "0.25", 0.5: "0.5", 0.75: "0.75", 1: "1"}
_RANK_LINE = {"color": COLORS[0], "alpha": 0.7, "linewidth": 1.0}
# Difference of two shares that is rounding
_ROUNDING = 1e-12
# Seed and number of the simulations of a band: equal arguments give the same band, and the Monte Carlo error of a
# level of 95 % is 0.3 %
_SEED = 20220318
_SIMULATIONS = 4000
# Factor that lowers a level so that rounding excludes no simulated function that reaches it
_LOWER = 1 - 1e-9


def noisy_against_posterior(
    posterior: Posterior,
    cliques: Sequence[Any] | None = None,
    *,
    prob: float = 0.9,
    is_centred: bool = True,
) -> Figure:
    """Draw released noisy counts against the posterior of the true counts and against replicated noisy counts.

    Parameters
    ----------
    posterior
        A posterior of noisy tables, as `LatentCounts` gives. Its tree holds ``counts[...]``, and observed as well as
        predicted ``noisy_counts[...]``.
    cliques
        Measured cliques to draw, each a sequence of variables; all by default.
    prob
        Probability of the equal-tailed intervals, between 0 and 1.
    is_centred
        Whether to subtract the posterior mean of the true count from every cell, so that noise shows beside large
        counts. Otherwise the counts themselves are drawn.

    Returns
    -------
    matplotlib.figure.Figure
        A panel a table, with a column a cell (C order) and records up. A wide gray bar is the interval of a noisy
        count replicated by the posterior, a narrow bar with a point that of the true count, and a cross the count
        as released. The title says how many released counts lie outside the gray bars. If the model fits, this is
        less than the share ``1 - prob``, because the posterior was fitted to these counts. Structural zeros are left
        out.

    Raises
    ------
    ArgumentError
        `posterior` is not a posterior, `cliques` is not a list, a clique was not measured, `prob` is not between 0
        and 1, or there are more than 1,000 cells.
    ModelError
        A variable is unknown.
    """
    prob = probability("prob", prob, zero=False, remedy="0.9 asks for 90 % intervals")
    truth("is_centred", is_centred)
    object_with("tree", "posterior", posterior, "be a Posterior, as LatentCounts().fit gives")
    tree: Any = posterior.tree
    names = _chosen(posterior, cliques)
    tables = [tree["observed_data"][name] for name in names]
    cells = sum(table.size for table in tables)
    must = "have at most 1,000 cells to be read"
    require(cells <= _MOST_CELLS, "the figure", must, cells, "choose some `cliques`")
    labels = [
        [
            ", ".join(map(str, cell))
            for cell in product(*(table.coords[dim].values for dim in table.dims))
        ]
        for table in tables
    ]
    # as many columns as leave the least width to each cell, where that is possible
    fitting = int(PAGE_WIDTH / (_CELL * max(map(len, labels)) + _BESIDE))
    columns = max(1, min(_COLUMNS, math.ceil(math.sqrt(len(tables))), fitting))
    # cells are named where the names do not touch
    is_named = [len(own) <= (PAGE_WIDTH / columns - _BESIDE) / _NAMED_CELL for own in labels]
    written = (own for own, fits in zip(labels, is_named, strict=True) if fits)
    below = SMALL * LETTER * max((len(text) for own in written for text in own), default=0)
    height = (_HIGH if len(tables) <= _COLUMNS else _LOW) + below
    figure, axes = panels(
        len(names), width=PAGE_WIDTH / columns, height=height, columns=columns, is_shared=False
    )
    for panel, name, table, own, fits in zip(axes, names, tables, labels, is_named, strict=True):
        replicated = tree["posterior_predictive"][name].transpose("chain", "draw", *table.dims)
        true = _true_counts(posterior, table.dims)
        drawn = (each.values.reshape(-1, table.size) for each in (replicated, true))
        what = name.removeprefix("noisy_counts").translate(
            str.maketrans({",": " × ", "[": None, "]": None})
        )
        outside = _draw(panel, table.values.ravel(), *drawn, prob=prob, is_centred=is_centred)
        panel.set_title(f"{what}\n{outside} outside", fontsize=SMALL, loc="left")
        panel.set_xlim(-_LEFT, table.size - _RIGHT)
        if fits:
            panel.set_xticks(range(len(own)), own, rotation="vertical")
        else:
            panel.set_xticks([])
            panel.set_xlabel("cells in C order", fontsize=SMALL)
        tidy(panel)
        panel.grid(visible=False, axis="x")
    for panel in axes[::columns]:
        panel.set_ylabel(
            "records minus\nposterior mean" if is_centred else "records", fontsize=SMALL
        )
    handles, _ = axes[0].get_legend_handles_labels()
    figure.legend(handles=handles, loc="outside upper left", frameon=False, fontsize=SMALL, ncols=2)
    return figure


def _draw(
    panel: Axes,
    released: FloatArray,
    replicated: FloatArray,
    true: FloatArray,
    *,
    prob: float,
    is_centred: bool,
) -> str:
    """Draw one table, and say how many of its released counts are outside the intervals of replicated ones."""
    # a structural zero is 0 without noise in every draw
    places = np.flatnonzero((replicated != 0).any(axis=0))
    released = released[places]
    replicated = replicated[:, places]
    true = true[:, places]
    mean = true.mean(axis=0)
    centre = mean * float(is_centred)
    tails = [(1 - prob) / 2, (1 + prob) / 2]
    low, high = np.quantile(replicated, tails, axis=0)
    interval = f"count, {share(prob)} interval"
    bar: Any = {**_REPLICATED_BAR, "label": f"replicated noisy {interval}"}
    panel.vlines(places, low - centre, high - centre, **bar)
    bar = {**_TRUE_BAR, "label": f"true {interval}"}
    panel.vlines(places, *(np.quantile(true, tails, axis=0) - centre), **bar)
    point: Any = _TRUE_POINT
    panel.scatter(places, mean - centre, zorder=_IN_FRONT, **point)
    cross: Any = {**_CROSS, "label": "noisy count as released"}
    panel.scatter(places, released - centre, zorder=_IN_FRONT + 1, **cross)
    return f"{np.sum((released < low) | (released > high))} of {len(places)}"


def _chosen(posterior: Posterior, cliques: Sequence[Any] | None) -> list[str]:
    """Return the names of the tables to draw; a clique that was measured several times has several."""
    observed: Any = posterior.tree["observed_data"].data_vars
    domain = posterior.specification.domain
    dims = dimension_names(domain)
    members = {str(name): {*own.dims} for name, own in observed.items() if {*own.dims} <= {*dims}}
    require(members, "posterior", "hold at least one measured table to draw", "none")
    if cliques is None:
        return list(members)
    is_list = isinstance(cliques, Sequence) and not isinstance(cliques, str) and len(cliques) > 0
    require(is_list, "cliques", "be a list of measured cliques", repr(cliques))
    chosen: list[str] = []
    for clique in cliques:
        asked = {dims[position] for position in asked_positions(domain, clique)}
        found = [name for name, own in members.items() if own == asked]
        known = ", ".join(name.removeprefix("noisy_counts") for name in members)
        require(
            found,
            "cliques",
            "hold measured cliques",
            repr(clique),
            f"the measured ones are {known}",
        )
        chosen += found
    return list(dict.fromkeys(chosen))


def _true_counts(posterior: Posterior, dims: Sequence[Hashable]) -> xr.DataArray:
    """Return draws of the true counts of some variables, summed from the counts of a clique that contains them."""
    drawn: Any = posterior.tree["posterior"].data_vars
    tables = [own for name, own in drawn.items() if str(name).startswith("counts[")]
    table = next(own for own in tables if {*dims} <= {*own.dims})
    outside = [dim for dim in table.dims if dim not in ("chain", "draw", *dims)]
    return table.sum(outside).transpose("chain", "draw", *dims)


def calibration_ranks(ranks: Mapping[str, Any], *, draws: int, prob: float = 0.95) -> Figure:
    r"""Draw the difference between the empirical and the uniform distribution of ranks, with a simultaneous band.

    The rank of a true value among L posterior draws is uniform on 0, ..., L if the posterior is calibrated. A line
    that leaves the band upwards on the left and stays above zero means draws that are too large. A line that is above
    zero on the left and below zero on the right means intervals that are too short; the mirror image means intervals
    that are too long.

    Parameters
    ----------
    ranks
        Ranks of simulated true values, by name: shape (replications,) or (replications, quantities), whole numbers
        from 0 to `draws`. Each name has a panel, and each quantity a line.
    draws
        L, the number of posterior draws among which each true value was ranked.
    prob
        Probability that the whole line of one calibrated quantity stays inside the band. The band holds for each
        quantity by itself.

    Returns
    -------
    matplotlib.figure.Figure
        Rank divided by L + 1 across, empirical minus uniform distribution function up. The title says how many
        quantities leave the band.

    Raises
    ------
    ArgumentError
        No rank is given, a rank is not a whole number from 0 to `draws`, or `prob` is not between 0 and 1.

    References
    ----------
    Säilynoja, Bürkner, Vehtari, "Graphical test for discrete uniformity and its applications in goodness-of-fit
    evaluation and multiple sample comparison", Statistics and Computing 32, 2022, section 2, with the simulated band.

    Examples
    --------
    >>> import numpy as np
    >>> ranks = np.random.default_rng(1).integers(0, 100, size=(50, 2))
    >>> figure = calibration_ranks({"uniform": ranks}, draws=99)
    >>> figure.axes[0].get_title(loc="left")
    'uniform\n50 replications\n0 of 2 leave the 95 % band'
    """
    prob = probability("prob", prob, zero=False, remedy="0.9 asks for 90 % intervals")
    tables = _checked(ranks, draws)
    points = np.unique(np.linspace(0, draws + 1, min(draws + 1, _POINTS) + 1).astype(int))
    places = points / (draws + 1)
    columns = min(len(tables), _RANK_COLUMNS)
    width = min(PAGE_WIDTH / columns, _RANK_WIDTH)
    figure, axes = panels(len(tables), width=width, height=_RANK_HEIGHT, columns=columns)
    line: Any = _RANK_LINE
    for panel, (name, table) in zip(axes, tables.items(), strict=True):
        # the empirical distribution function at each place
        below = np.stack([np.searchsorted(np.sort(column), points) for column in table.T], axis=1)
        shares = below / len(table) - places[:, None]
        lower, upper = (bound - places for bound in band_of(len(table), places, prob))
        panel.fill_between(places, lower, upper, color="#d9d9d9", zorder=1)
        panel.axhline(0.0, color=GRAY, linewidth=HAIRLINE, zorder=1)
        panel.plot(places, shares, **line)
        is_below = shares < lower[:, None] - _ROUNDING
        is_above = shares > upper[:, None] + _ROUNDING
        is_out = np.any(is_below | is_above, axis=0)
        what = f"{int(is_out.sum())} of {table.shape[1]} leave the {share(prob)} band"
        panel.set_title(f"{name}\n{len(table):,} replications\n{what}", fontsize=MEDIUM, loc="left")
        panel.set_xlim(0, 1)
        panel.set_xticks([*_RANK_TICKS], [*_RANK_TICKS.values()])
        panel.set_xlabel(f"rank / {draws + 1:,}")
        tidy(panel)
    for panel in axes[::columns]:
        panel.set_ylabel("empirical minus uniform\ndistribution function")
    return figure


def band_of(replications: int, places: FloatArray, prob: float) -> tuple[FloatArray, FloatArray]:
    """Return bounds that contain the whole empirical distribution function of uniform ranks with probability `prob`.

    The numbers of ranks between neighboring places have a multinomial distribution, which is simulated. All places
    have the same pointwise level, chosen so that the share `prob` of the simulated functions stays inside everywhere.
    """
    from scipy.stats import binom

    generator = np.random.default_rng(_SEED)
    drawn = generator.multinomial(replications, np.diff(places), size=_SIMULATIONS)
    counts = drawn.cumsum(axis=1)[:, :-1]
    inner = places[1:-1]
    tails = np.minimum(
        binom.cdf(counts, replications, inner), binom.sf(counts - 1, replications, inner)
    )
    level = _LOWER * float(np.quantile(tails.min(axis=1), 1 - prob, method="lower"))
    # at both ends the function is 0 and 1
    lower = places.copy()
    upper = places.copy()
    lower[1:-1] = binom.ppf(level, replications, inner) / replications
    upper[1:-1] = 1 - binom.ppf(level, replications, 1 - inner) / replications
    return lower, upper


def _checked(ranks: Any, draws: int) -> dict[str, IntArray]:
    whole_number("draws", draws, 1)
    has_names = isinstance(ranks, Mapping) and len(ranks) and all(map(str, ranks))
    require(has_names, "ranks", "map at least one name to ranks", "none or an empty name")
    tables: dict[str, IntArray] = {}
    for name, values in ranks.items():
        table = np.asarray(values)
        if table.ndim == 1:
            table = table[:, None]
        is_table = table.ndim == 2 and table.size > 0 and table.dtype.kind in "uif"
        must = "be numbers of the shape (replications,) or (replications, quantities)"
        require(is_table, f"the ranks {name!r}", must, f"shape {np.shape(values)}")
        is_rank = (table >= 0) & (table <= draws) & (table == np.round(table))
        seen = table[~is_rank][:1]
        must = f"be whole numbers from 0 to {draws}"
        require(is_rank.all(), f"the ranks {name!r}", must, seen, "count the draws below the truth")
        tables[str(name)] = table.astype(np.int64)
    return tables
