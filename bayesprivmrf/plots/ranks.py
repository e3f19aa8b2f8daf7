"""Ranks of simulation-based calibration against the uniform distribution that they should follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import probability, require, whole_number
from bayesprivmrf.plots.style import COLORS, GRAY, PAGE_WIDTH, panels, share, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bayesprivmrf.model.tables import FloatArray, IntArray


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
    # 100 points of a line at most; more could not be told apart in a panel
    points = np.unique(np.linspace(0, draws + 1, min(draws + 1, 100) + 1).astype(int))
    places = points / (draws + 1)
    columns = min(len(tables), 3)
    figure, axes = panels(len(tables), width=min(PAGE_WIDTH / columns, 5.0), height=3.4, columns=columns)
    for panel, (name, table) in zip(axes, tables.items(), strict=True):
        # the empirical distribution function at each place
        below = np.stack([np.searchsorted(np.sort(column), points) for column in table.T], axis=1)
        shares = below / len(table) - places[:, None]
        lower, upper = (bound - places for bound in band_of(len(table), places, prob))
        panel.fill_between(places, lower, upper, color="#d9d9d9", zorder=1)
        panel.axhline(0.0, color=GRAY, linewidth=0.8, zorder=1)
        panel.plot(places, shares, color=COLORS[0], alpha=0.7, linewidth=1.0)
        is_out = np.any((shares < lower[:, None] - 1e-12) | (shares > upper[:, None] + 1e-12), axis=0)
        what = f"{int(is_out.sum())} of {table.shape[1]} leave the {share(prob)} band"
        panel.set_title(f"{name}\n{len(table):,} replications\n{what}", fontsize=10, loc="left")
        panel.set_xlim(0, 1)
        panel.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
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

    # a fixed seed, so that equal arguments give the same band; with 4,000 simulations, the Monte Carlo error of a
    # level of 95 % is 0.3 %
    generator = np.random.default_rng(20220318)
    counts = generator.multinomial(replications, np.diff(places), size=4000).cumsum(axis=1)[:, :-1]
    inner = places[1:-1]
    tails = np.minimum(binom.cdf(counts, replications, inner), binom.sf(counts - 1, replications, inner))
    # slightly lower, so that rounding does not exclude a simulated function that reaches the level
    level = (1 - 1e-9) * float(np.quantile(tails.min(axis=1), 1 - prob, method="lower"))
    # at both ends the function is 0 and 1
    lower, upper = places.copy(), places.copy()
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
        table = table[:, None] if table.ndim == 1 else table
        is_table = table.ndim == 2 and table.size > 0 and table.dtype.kind in "uif"
        must = "be numbers of the shape (replications,) or (replications, quantities)"
        require(is_table, f"the ranks {name!r}", must, f"shape {np.shape(values)}")
        is_rank = (table >= 0) & (table <= draws) & (table == np.round(table))
        seen = table[~is_rank][:1]
        must = f"be whole numbers from 0 to {draws}"
        require(is_rank.all(), f"the ranks {name!r}", must, seen, "count the draws below the truth")
        tables[str(name)] = table.astype(np.int64)
    return tables
