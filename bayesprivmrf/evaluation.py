"""Evaluation of estimates against a known truth or held-out records.

This is the only public module that takes records. It reads them without protection, so its results carry no
privacy guarantee and are not releases.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.cards import UNPROTECTED
from bayesprivmrf.checks import instance_of, kind_of, object_with, require
from bayesprivmrf.errors import DeclarationWarning, ModelError, ModelTooLargeError
from bayesprivmrf.inference import Posterior, Solution, Status
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.pgmpy_networks import network_potentials, read_network
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd
    from pgmpy.models import DiscreteMarkovNetwork

    from bayesprivmrf.learning import LearnedNetwork

__all__ = ["compare", "holdout_log_likelihood", "kl_divergence", "solution_of"]


def kl_divergence(
    truth: DiscreteMarkovNetwork | Solution | Posterior | LearnedNetwork,
    estimate: DiscreteMarkovNetwork | Solution | Posterior | LearnedNetwork,
) -> float:
    r"""Return the exact Kullback-Leibler divergence of an estimate from the truth, nats.

    .. math:: KL(p \Vert q) = θ_p'μ_p - A(θ_p) - (θ_q'μ_p - A(θ_q)),

    where :math:`μ_p` are the marginals of the truth, on the cliques of the estimate in the second term. The
    divergence is infinite if the estimate excludes a state that the truth allows.

    Parameters
    ----------
    truth, estimate
        Solutions, learned models, or pgmpy networks with factors, over the same variables and states (in any order).
        A posterior stands for the mean of its marginals, `Posterior.solution`.

    Raises
    ------
    ModelError
        The variables or states differ.
    ModelTooLargeError
        Exact inference does not fit into memory.

    Examples
    --------
    >>> from bayesprivmrf import declare, kl_divergence, uniform_solution
    >>> uniform = uniform_solution(declare(states={"a": ["no", "yes"]}, cliques=[("a",)]))
    >>> kl_divergence(uniform, uniform)
    0.0
    """
    p = _distribution("truth", truth)
    q = _distribution("estimate", estimate)
    scopes, potentials = _expressed_in(p.specification, q)
    own = p.specification
    engine = marginal_engine(own.cardinalities, (*own.scopes, *scopes))
    padded = np.concatenate([p.potentials.flat, np.zeros(len(potentials))])
    log_partition, marginals = engine.marginals(padded)
    inner = _expectation(p.potentials.flat, marginals[: own.size]) - log_partition
    return float(inner - _expectation(potentials, marginals[own.size :]) + _exact_log_partition(q))


def holdout_log_likelihood(
    estimate: DiscreteMarkovNetwork | Solution | Posterior | LearnedNetwork,
    data: Any,
    *,
    missing: Any = None,
    other: Any = None,
    count: Hashable | None = None,
) -> float:
    r"""Return the mean log probability of a held-out record, nats.

    For a solution it is :math:`\sum_C \hatμ_C'θ_C - A(θ)`, with the tables :math:`\hatμ_C` of the records. For a
    posterior it is the mean over the records of the log predictive probability :math:`\log E[p(x; θ)]`, where the
    expectation is over about 500 draws.

    Parameters
    ----------
    estimate
        A solution, a posterior, a learned model, or a pgmpy network with factors.
    data
        Held-out records, in any data frame that a mechanism accepts. They are read without protection.
    missing, other
        The declared states for missing and for undeclared values, as in the mechanisms.
    count
        Column of a frequency table that says how many records each row stands for, as in the mechanisms.

    Raises
    ------
    DataError
        There is no record, or a value is outside the declared states.
    ModelTooLargeError
        Exact inference, which the log-partition function needs, does not fit into memory.
    """
    from bayesprivmrf.mechanisms.reading.counting import count_tables
    from bayesprivmrf.mechanisms.reading.frame import Counts
    from bayesprivmrf.mechanisms.record_mechanisms import checked_redirect, redirect_codes

    order = "the order is holdout_log_likelihood(estimate, data)"
    judged: Any = (
        estimate if isinstance(estimate, Posterior) else _distribution("estimate", estimate, order)
    )
    model = judged.specification
    given = {"missing": missing, "other": other}
    redirects = {
        name: redirect_codes(name, checked_redirect(name, own), model)
        for name, own in given.items()
    }
    counts = count_tables(model, data, **redirects, rows=Counts.of(count, model.domain.variables))
    require(counts.records != 0, "data", "hold at least one record to evaluate on", "none")
    if isinstance(judged, Posterior):
        from bayesprivmrf.inference.posterior.results.draws import log_predictive
        from bayesprivmrf.mechanisms.reading.coded import read_records

        # its warnings were given by the first reading
        with warnings.catch_warnings(action="ignore", category=DeclarationWarning):
            records = read_records(model.domain, data, **redirects, count=count)
        # the predictive probability is a mean over about 500 draws
        return records.unprotected_mean(lambda codes: log_predictive(judged._draws, codes, 500))
    return _expectation(
        judged.potentials.flat, counts.flat / counts.records
    ) - _exact_log_partition(judged)


def compare(
    methods: Mapping[str, Solution | Posterior | LearnedNetwork],
    *,
    truth: DiscreteMarkovNetwork | Solution | None = None,
    holdout: Any = None,
    missing: Any = None,
    other: Any = None,
    count: Hashable | None = None,
) -> pd.DataFrame:
    """Return a table that compares methods.

    Parameters
    ----------
    methods
        Solutions, posteriors and learned models by name.
    truth
        The true distribution, if it is known.
    holdout
        Held-out records, if there are some. They are read without protection, so the table is not a release.
    missing, other
        The declared states for missing and for undeclared values of `holdout`, as in the mechanisms.
    count
        Column of `holdout` that says how many records each row stands for, as in the mechanisms.

    Returns
    -------
    pandas.DataFrame
        One row for each method, in the given order: mean held-out log-likelihood (nats per record),
        Kullback-Leibler divergence from the truth (nats), seconds of the fit, and its status. A score is NaN without
        `holdout` or `truth`, and for a model that is too large for the exact score. If a method or
        the truth is the result of `bayesprivmrf.mechanisms.reference`, a column ``note`` names the rows that protect
        nobody. A table that was computed from unprotected data has the mark in ``attrs["privacy"]``.

    Examples
    --------
    >>> from bayesprivmrf import compare, declare, uniform_solution
    >>> uniform = uniform_solution(declare(states={"a": ["no", "yes"]}, cliques=[("a",)]))
    >>> float(compare({"uniform": uniform}, truth=uniform).loc["uniform", "kl_divergence"])
    0.0
    """
    import pandas as pd

    instance_of("methods", methods, Mapping, "be a mapping from name to solution")
    judged: dict[str, Any] = {name: _judged(estimate) for name, estimate in methods.items()}
    for name, solution in judged.items():
        must = "map names to solutions, posteriors or learned models"
        seen = kind_of(methods[name])
        require(
            solution is not None, "methods", must, f"{seen} for {name!r}", "fit a release first"
        )
    columns = ["holdout_log_likelihood", "kl_divergence", "seconds", "status"]
    table = pd.DataFrame(
        math.nan, index=pd.Index(list(methods), name="method"), columns=columns[:3]
    )
    given = {"missing": missing, "other": other, "count": count}
    # a model that is too large for an exact score keeps its NaN
    for name, solution in judged.items():
        table.loc[name, "seconds"] = float(solution.stats.get("seconds", math.nan))
        with contextlib.suppress(ModelTooLargeError):
            if holdout is not None:
                table.loc[name, columns[0]] = holdout_log_likelihood(solution, holdout, **given)
        with contextlib.suppress(ModelTooLargeError):
            if truth is not None:
                table.loc[name, columns[1]] = kl_divergence(truth, solution)
    table["status"] = [solution.status.value for solution in judged.values()]
    is_reference = [_is_unprotected(solution) for solution in judged.values()]
    if any(is_reference) or _is_unprotected(truth):
        if _is_unprotected(truth):
            against = f"against {UNPROTECTED} data"
        else:
            against = ""
        table["note"] = [UNPROTECTED if own else against for own in is_reference]
    if "note" in table or holdout is not None:
        table.attrs["privacy"] = UNPROTECTED
    return table


def _is_unprotected(estimate: Any) -> bool:
    """Return True for the result of `reference`, which is fitted to the data without noise."""
    return isinstance(estimate, Solution) and estimate.is_unprotected


def solution_of(network: DiscreteMarkovNetwork | Solution | Posterior | LearnedNetwork) -> Solution:
    """Return the solution itself, or that of a posterior, a learned model or a pgmpy network."""
    return _distribution("network", network)


def _distribution(
    name: str, value: Any, remedy: str = "fit a release, or give the network its factors"
) -> Solution:
    """Return the solution that an argument stands for; a declared model alone has no probabilities."""
    found = _judged(value)
    if isinstance(found, Posterior):
        return found.solution
    if isinstance(found, Solution):
        return found
    must = "be a solution, a posterior, a learned model or a pgmpy network"
    object_with("get_factors", name, value, must, remedy)
    given: Any = value
    model = read_network(given, warns=False)  # here a zero is a probability
    return Solution(
        specification=model,
        potentials=network_potentials(model, given),
        method="given network",
        status=Status.CONVERGED,
    )


def _judged(estimate: Any) -> Solution | Posterior | None:
    """Return the object to score: a solution or a posterior itself, or the solution of a learned model."""
    if isinstance(estimate, type):  # a class may have the attribute as well
        return None
    if isinstance(estimate, Solution | Posterior):
        return estimate
    return getattr(estimate, "solution", None)


def _exact_log_partition(solution: Solution) -> float:
    """Return the exact A(θ), never the Bethe approximation."""
    if solution.inference == "exact":
        return solution.log_partition
    model = solution.specification
    return marginal_engine(model.cardinalities, model.scopes).log_partition(
        solution.potentials.flat
    )


def _expectation(potentials: FloatArray, marginals: FloatArray) -> float:
    """Return the sum of potentials times probabilities, with -inf times 0 as 0."""
    used = marginals > 0
    return float(potentials[used] @ marginals[used])


def _expressed_in(
    model: ModelSpecification, solution: Solution
) -> tuple[tuple[tuple[int, ...], ...], FloatArray]:
    """Return scopes and potentials of a solution in another model's variable positions and state codes."""
    theirs = solution.specification
    domain = model.domain
    if set(theirs.domain.variables) != set(domain.variables):
        raise ModelError("both distributions must be over the same variables.")
    codes = {}
    for variable in domain.variables:
        labels = domain.states_of(variable)
        if len(theirs.domain.states_of(variable)) != len(labels):
            raise ModelError(f"both distributions must have the same states of {variable!r}.")
        codes[variable] = [theirs.domain.code(variable, label) for label in labels]
    scopes = tuple(tuple(map(domain.index, clique)) for clique in theirs.cliques)
    tables = [
        solution.potentials[c][np.ix_(*(codes[v] for v in c))].ravel() for c in theirs.cliques
    ]
    return scopes, np.concatenate([np.zeros(0), *tables])
