"""Ranks of simulation-based calibration against the uniform law that they should follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import probability, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.plots.style import COLOURS, GREY, panels, plot_collection, share, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bayesprivmrf.model.tables import FloatArray, IntArray

# Points of a line; arbitrary: more cannot be told apart in a panel
_MOST_POINTS = 100
# Simulated functions behind the band; the Monte Carlo error of its level of 95 % is 0.3 %
_SIMULATIONS = 4000


def calibration_ranks(ranks: Mapping[str, Any], *, draws: int, prob: float = 0.95) -> Figure:
    r"""Draw the difference between the empirical and the uniform distribution of ranks, with a simultaneous band.

    The rank of a true value among L posterior draws is uniform on 0, ..., L where the posterior is calibrated. A
    line above the band on the left means that the truth is too often below the draws: they lie too high. A line
    that rises, then falls through the band (or the mirror image) means intervals that are too short (too long).

    Parameters
    ----------
    ranks
        Ranks of simulated truths, by name: shape (replications,) or (replications, quantities), whole
        numbers from 0 to `draws`. One panel a name, one line a quantity.
    draws
        L, the number of posterior draws that each truth was ranked among.
    prob
        Probability that the whole line of one calibrated quantity stays inside the band. Several quantities of
        one replication are dependent, and each has the band of its own.

    Returns
    -------
    matplotlib.figure.Figure
        Rank over L + 1 across, difference of the distribution functions up.

    Raises
    ------
    ArgumentError
        There is no rank, one is no whole number from 0 to `draws`, or `prob` is no probability between 0 and 1.

    References
    ----------
    Säilynoja, Bürkner, Vehtari, "Graphical test for discrete uniformity and its applications in goodness-of-fit
    evaluation and multiple sample comparison", Statistics and Computing 32, 2022, section 2; the band by
    simulation of the exact law.
    """
    prob = probability("prob", prob, zero=False, remedy="0.9 asks for 90 % intervals")
    tables = _checked(ranks, draws)
    figure, axes = panels(len(tables), width=3.6, height=3.2)
    _draw(dict(zip(tables, axes, strict=True)), tables, draws, prob)
    for panel in axes:
        panel.axhline(0.0, color=GREY, linewidth=0.8, zorder=1)
        panel.set_xlim(0, 1)
        panel.set_xlabel(f"rank among {draws:,} draws, as a share")
        tidy(panel)
    axes[0].set_ylabel("difference of distribution functions")
    return figure


def _draw(axes: dict[str, Any], tables: Mapping[str, IntArray], draws: int, prob: float) -> None:
    import xarray as xr
    from arviz_plots.visuals import fill_between_y, multiple_lines

    points = np.unique(np.linspace(0, draws + 1, min(draws + 1, _MOST_POINTS) + 1).astype(int))
    places = points / (draws + 1)
    lines: dict[str, Any] = {}
    bands: dict[str, Any] = {}
    for position, (name, table) in enumerate(tables.items()):
        # the empirical distribution function at each place
        below = np.stack([np.searchsorted(np.sort(column), points) for column in table.T], axis=1)
        shares = below / len(table) - places[:, None]
        lower, upper = (bound - places for bound in band_of(len(table), places, prob))
        lines[name] = (("point", f"quantity {position}"), shares)
        bands[name] = (("kwarg", "point"), np.stack([places, lower, upper]))
        is_out = np.any((shares < lower[:, None] - 1e-12) | (shares > upper[:, None] + 1e-12), axis=0)
        what = f"{int(is_out.sum())} of {table.shape[1]} leave the {share(prob)} band"
        axes[name].set_title(f"{name}\n{len(table):,} replications\n{what}", fontsize=10, loc="left")
    data = xr.Dataset(lines, coords={"point": places})
    collection = plot_collection(data, axes)
    band = xr.Dataset(bands, coords={"kwarg": ["x", "y_bottom", "y_top"]})
    collection.map(fill_between_y, "band", data=band, color="#d9d9d9", zorder=1)
    collection.map(multiple_lines, "ranks", x_dim="point", color=COLOURS[0], alpha=0.7, width=1.0)


def band_of(replications: int, places: FloatArray, prob: float) -> tuple[FloatArray, FloatArray]:
    """Return bounds that hold the whole empirical distribution function of uniform ranks with probability `prob`.

    Between two neighbouring places the number of ranks is multinomial, exactly; the pointwise level is the one
    that this share of simulated functions keeps at all places together.
    """
    from scipy.stats import binom

    generator = np.random.default_rng(20220318)  # the band of equal arguments is the same band
    counts = generator.multinomial(replications, np.diff(places), size=_SIMULATIONS).cumsum(axis=1)[:, :-1]
    inner = places[1:-1]
    tails = np.minimum(binom.cdf(counts, replications, inner), binom.sf(counts - 1, replications, inner))
    # a hair lower: a simulated function that reaches the level is inside, whatever the rounding
    level = (1 - 1e-9) * float(np.quantile(tails.min(axis=1), 1 - prob, method="lower"))
    lower, upper = places.copy(), places.copy()  # at both ends the function is 0 and 1
    lower[1:-1] = binom.ppf(level, replications, inner) / replications
    upper[1:-1] = 1 - binom.ppf(level, replications, 1 - inner) / replications
    return lower, upper


def _checked(ranks: Any, draws: int) -> dict[str, IntArray]:
    whole_number("draws", draws, 1)
    if not isinstance(ranks, Mapping) or not ranks or not all(map(str, ranks)):
        raise ArgumentError("`ranks` must map at least one name to ranks, got none or an empty name.")
    tables: dict[str, IntArray] = {}
    for name, values in ranks.items():
        table = np.asarray(values)
        table = table[:, None] if table.ndim == 1 else table
        if table.ndim != 2 or table.size == 0 or table.dtype.kind not in "uif":
            raise ArgumentError(
                f"the ranks {name!r} must have shape (replications,) or (replications, quantities) and hold numbers, "
                f"got shape {np.shape(values)}."
            )
        is_rank = (table >= 0) & (table <= draws) & (table == np.round(table))
        if not is_rank.all():
            raise ArgumentError(
                f"the ranks {name!r} must be whole numbers from 0 to {draws}, got {table[~is_rank][0]!r}; count the "
                "draws below the truth."
            )
        tables[str(name)] = table.astype(np.int64)
    return tables
