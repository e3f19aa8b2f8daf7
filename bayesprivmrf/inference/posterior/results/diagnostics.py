r"""Convergence diagnostics: rank-normalized R-hat, effective sample sizes, and statistics of NUTS.

Convergence is judged only on variables that the sampler moves. Quantities that are drawn afterwards, such as
marginals, have fresh independent noise in each draw, and would look well mixed even if the latent tables are not.

References
----------
Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021). Rank-normalization, folding, and localization: an improved
R-hat. Bayesian Analysis 16, 667-718.
Betancourt (2016). Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo. arXiv:1604.00695.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.errors import SamplingWarning, warn_caller
from bayesprivmrf.inference.allowed_counts import rules_determine
from bayesprivmrf.inference.convergence import convergence_of
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.posterior.formulation import ChainMixing, Finished, Sampled, Sampler
from bayesprivmrf.model.tables import FloatArray

# Largest R-hat of chains that have mixed: the limit of Vehtari et al. (2021)
LARGEST_R_HAT = 1.01
# Smallest effective sample size per chain, in the bulk and in the tails: the limit of Vehtari et al. (2021)
SMALLEST_ESS = 100
# Largest share of draws that may have diverged
LARGEST_DIVERGING = 0.002
# Largest share of draws whose trajectory may have reached the maximum tree depth
LARGEST_SATURATED = 0.05
# Smallest energy-based fraction of missing information (E-BFMI): the limit of Stan and ArviZ
SMALLEST_BFMI = 0.3
# Smallest mean acceptance probability of the steps that draw the population
SMALLEST_ACCEPTANCE = 0.2
# Smallest number of draws per chain for which anything is judged
FEWEST = 8
# Largest number of variables whose mixing is judged. Of more, those with the largest variance are judged, because of
# thousands some look unmixed by chance
MOST_JUDGED = 500
# Longest sampling of chains that do not mix, as a multiple of the requested length
LONGEST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Diagnosis of one sampling.

    Parameters
    ----------
    numbers
        For `Posterior.stats`: ``r_hat``, ``ess_bulk`` and ``ess_tail``, the largest R-hat and the smallest effective
        sample sizes over all judged numbers, NaN if none varies; ``diverging`` and ``saturated``, the shares of the
        draws that diverged, or whose trajectory reached the maximum tree depth; ``bfmi``, the smallest E-BFMI of a
        chain, NaN with too few draws, or if the energy does not change; and, unless the population is drawn exactly,
        ``population_acceptance``, the mean acceptance probability of the steps that draw it given the latent tables,
        and ``population_unmoved``, the share of the draws in which none of them was accepted, if it is known.
    status
        Status of the fit.
    problems
        Problems, each with its remedy.
    """

    numbers: Mapping[str, float]
    status: Status
    problems: tuple[str, ...] = ()


def diagnose(
    sampled: Sampled,
    judged: Sequence[str],
    evidence: Evidence,
    sampler: Sampler,
    finished: Finished | None = None,
    other: Callable[[], str | None] = lambda: None,
) -> Diagnosis:
    """Judge a sampling by the variables that its formulation names, and by the draws of its population.

    `other` returns the name of a formulation that may mix better, or None. It is called if the chains have not mixed.
    """
    judged_draws = _together([sampled.draws[name] for name in judged])
    varying = _varying(judged_draws)
    statistics = sampled.statistics
    mixing = sampled.mixing
    chains, draws = statistics["lp"].shape
    if mixing is None:
        mixing = _mixing(varying)
    r_hat, bulk, tail, _ = mixing
    # a sampler without trajectories reports only the log density
    diverging = float(np.mean(statistics.get("diverging", 0.0)))
    saturated = float(np.mean(statistics.get("reached_max_treedepth", 0.0)))
    if "energy" in statistics:
        bfmi = _bfmi(statistics["energy"])
    else:
        bfmi = math.nan
    if sampled.is_late and draws >= SMALLEST_ESS:
        longer = "`time_limit`"
    else:
        longer = "`draws` and `tune`"
    # findings that no longer chains would change; R-hat cannot show them
    finite = np.isfinite(judged_draws)
    is_known = not judged_draws.shape[-1] or _is_determined(evidence)
    # judged by the tables: with whole records, potentials move even if the records are stuck
    tables = _together([sampled.draws[name] for name in judged if name in ("counts", "sums")])
    is_still = not varying.size or not _varying(tables).size
    problems = []
    if not finite.all():
        problems.append(
            f"{np.mean(~finite):.1%} of the judged numbers are not finite, so this posterior cannot be used; check "
            "the sizes and noise scales of the tables, raise `tune`, or use NoiseAwareMAP"
        )
    elif draws >= FEWEST and not is_known and is_still and not rules_determine(evidence):
        if evidence.is_bounded.any():
            one = "the bounds allow only one table, or "
        else:
            one = ""
        problems.append(
            f"no judged number changed in any draw: {one}the sampler has not moved; raise `tune`"
        )
    if finished is None:
        shares = ()
    else:
        shares = (finished.acceptance, finished.unmoved)
    acceptance, unmoved = [None if x is None else float(np.mean(x)) for x in shares] or (None, None)
    if acceptance is not None and not acceptance >= SMALLEST_ACCEPTANCE:
        problems.append(
            f"the steps that draw the population given the latent tables were accepted in {acceptance:.0%} of cases "
            f"(wanted: {SMALLEST_ACCEPTANCE:.0%} or more), so its marginals are not draws of the posterior; use "
            "fewer or smaller cliques, or NoiseAwareMAP"
        )
    slow = False
    broken = bool(problems)
    # mixing of the chains
    least = SMALLEST_ESS * chains
    if draws < FEWEST:
        slow = True
        problems.append(f"{draws} draws are too few to judge; use {FEWEST} or more")
    elif varying.shape[-1] and not (r_hat < LARGEST_R_HAT and min(bulk, tail) >= least):
        slow = True
        name = other()
        # advice for a chain whose steps may differ
        steps = (
            ", or, if steps differ (a small `model_p_value` in `predictive_check()`), use the posterior of the sums "
            "over the steps, as the guide to chains shows"
        )
        problems.append(
            f"the chains have not mixed: R-hat {r_hat:.3f} (wanted: below {LARGEST_R_HAT}), effective draws "
            f"{bulk:.0f} in the bulk and {tail:.0f} in the tails (wanted: {least}); raise {longer}"
            f"{f', or use LatentCounts(formulation={name!r})' if name else ''}"
            f"{steps if evidence.specification.shares_transitions else ''}"
        )
    # trajectories of NUTS
    if not saturated <= LARGEST_SATURATED:
        slow = True
        if sampler == "nutpie":
            depth = "maxdepth"
        else:
            depth = "max_treedepth"
        problems.append(
            f"{saturated:.0%} of the draws reached the maximum tree depth, so each draw moves little; raise "
            f"`{depth}` (10 by default)"
        )
    if not diverging <= LARGEST_DIVERGING:
        broken = True
        problems.append(
            f"{diverging:.1%} of the draws diverged, because there are regions that the sampler cannot enter; raise "
            "`target_accept` (0.65 to 0.8 by default) and `tune`"
        )
    if draws >= FEWEST and not is_known and "energy" in statistics and not bfmi >= SMALLEST_BFMI:
        remedy = "" if slow else f"; raise {longer}"
        # longer chains are not expected to help below 0.1
        slow = True
        broken = broken or not bfmi >= 0.1
        problems.append(
            f"the energy hardly changes between draws (E-BFMI {bfmi:.2f}, wanted: {SMALLEST_BFMI} or more), so "
            f"heavy tails are explored slowly{remedy}"
        )
    if slow:
        status = Status.ITERATION_LIMIT
    else:
        status = Status.CONVERGED
    if sampled.is_interrupted:
        status = Status.STOPPED_EARLY
        problems.append(f"sampling was stopped early: {chains} chains of {draws} draws were kept")
    numbers = {"r_hat": r_hat, "ess_bulk": bulk, "ess_tail": tail, "diverging": diverging}
    numbers |= {"saturated": saturated, "bfmi": bfmi}
    of_steps = {"population_acceptance": acceptance, "population_unmoved": unmoved}
    return Diagnosis(
        numbers=numbers | {name: value for name, value in of_steps.items() if value is not None},
        status=Status.NOT_TRUSTED if broken or not evidence.has_total else status,
        problems=tuple(problems),
    )


def diverges(sampled: Sampled) -> bool:
    """Return True if too many NUTS trajectories diverged."""
    return bool(np.mean(sampled.statistics["diverging"]) > LARGEST_DIVERGING)


def mixing_of(draws: Sequence[np.ndarray], energy: FloatArray | None = None) -> ChainMixing:
    """Return the mixing of chains, from arrays of shape (chain, draw, ...).

    Of many numbers, those that vary most are judged.
    """
    if energy is None:
        bfmi = math.nan
    else:
        bfmi = _bfmi(energy)
    return _mixing(_varying(_together(draws)))._replace(bfmi=bfmi)


def is_mixed(mixing: ChainMixing, chains: int) -> bool:
    """Return True if chains have mixed well enough for the status ``converged``."""
    if math.isnan(mixing.r_hat):
        return True
    is_long = (
        mixing.r_hat < LARGEST_R_HAT and min(mixing.bulk, mixing.tail) >= SMALLEST_ESS * chains
    )
    return is_long and not mixing.bfmi < SMALLEST_BFMI


def warn_of(diagnosis: Diagnosis) -> None:
    """Warn of a sampling with problems, by one `SamplingWarning`."""
    if diagnosis.problems:
        text = "; ".join(diagnosis.problems)
        warning = SamplingWarning(f"{text}. `posterior.stats` has the numbers.")
        warning.at_command_line = f"{text}.".replace("`draws` and `tune`", "`--draws`")
        warn_caller(warning)


def _together(draws: Sequence[np.ndarray]) -> FloatArray:
    """Return all judged numbers, shape (chain, draw, numbers)."""
    flat = [values.reshape(*values.shape[:2], math.prod(values.shape[2:])) for values in draws]
    if flat:
        return np.concatenate(flat, axis=-1, dtype=float)
    return np.zeros((1, 1, 0))


def _varying(numbers: FloatArray) -> FloatArray:
    """Return the numbers that vary by more than rounding; none if any is not finite, or if there are no draws."""
    if not numbers.size or not np.isfinite(numbers).all():
        return numbers[..., :0]
    spread = np.ptp(numbers, axis=(0, 1))
    # a relative spread of 1e-13 is rounding; one record of 1e12 is ten times as much
    return numbers[..., spread > 1e-13 * np.maximum(1.0, np.abs(numbers).max(axis=(0, 1)))]


def _is_determined(evidence: Evidence) -> bool:
    """Return True if only one data set is possible: N is public, and each table has a single possible cell."""
    offsets = evidence.specification.offsets
    cells = np.diff(np.concatenate([[0], np.cumsum(evidence.supported_cells)])[list(offsets)])
    return evidence.total_standard_error == 0 and bool((cells <= 1).all())


def _mixing(varying: FloatArray) -> ChainMixing:
    chains, draws, numbers = varying.shape
    if not numbers or draws < FEWEST:
        return ChainMixing(math.nan, math.nan, math.nan)
    if chains == 1:  # compare the two halves of the chain
        half = draws // 2
        varying = np.stack([varying[0, :half], varying[0, half : 2 * half]])
    if numbers > MOST_JUDGED:
        largest = np.argsort(varying.var(axis=(0, 1)))[-MOST_JUDGED:]
        varying = varying[..., largest]
    r_hat, bulk, tail = convergence_of(varying)
    return ChainMixing(float(r_hat.max()), float(bulk.min()), float(tail.min()))


def _bfmi(energy: FloatArray) -> float:
    r"""Return the smallest E-BFMI of a chain, :math:`\sum_t (E_t - E_{t-1})^2 / \sum_t (E_t - \bar E)^2`."""
    if energy.shape[1] < FEWEST:
        return np.nan
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        changes = (np.diff(energy, axis=1) ** 2).sum(axis=1)
        spread = ((energy - energy.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        return float(np.min(changes / spread))
