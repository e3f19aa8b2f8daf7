"""Simulated records of a survey with a known model, for rehearsals and examples."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import generator, whole_number
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.model.tables import FloatArray, expand, parent, project

if TYPE_CHECKING:
    import pandas as pd


# most sweeps of iterative proportional fitting, and its tolerance, nats
_SWEEPS, _TOLERANCE = (
    200,
    1e-6,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedSurvey:
    """Records drawn from a known model of a survey; no real person is in them.

    Parameters
    ----------
    simulated
        One row for each record and one column for each question; the answers are text.
    truth
        Distribution that the records were drawn from, with one clique for each coupling.
    """

    simulated: pd.DataFrame
    truth: Solution

    @property
    def states(self) -> dict[str, tuple[str, ...]]:
        """Possible answers by question, in their order, as `bayesprivmrf.declare` takes them."""
        domain: Any = self.truth.specification.domain
        return dict(zip(domain.variables, domain.states, strict=True))

    def __repr__(self) -> str:
        rows, columns = self.simulated.shape
        return f"SimulatedSurvey({rows:,} MADE-UP records of {columns} questions)"


def simulated_survey(
    size: int = 20_000, rng: int | np.random.Generator | None = None
) -> SimulatedSurvey:
    r"""Simulate answers to thirteen questions with two to twenty states, some rare, whose couplings form loops.

    The model is :math:`P(x) \propto \exp \bigl(\sum_v h_v(x_v) + \sum_C \theta_C \prod_{v \in C} z_{Cv}(x_v)\bigr)`:
    Goodman's linear-by-linear association for each of eighteen pairs, and its analogue for three questions together.
    The fields h are chosen such that the states of a question have given shares. Under these the scores z have mean 0
    and variance 1, so :math:`|\theta_C|`, nats, is the root mean square of a coupling. The shares, scores and
    couplings of ``bayesprivmrf/data/simulated_survey.toml`` are the same in every call. Records are independent.

    Parameters
    ----------
    size
        Number of records, at least 0.
    rng
        Seed or generator for the records.

    Raises
    ------
    ArgumentError
        `size` is not a whole number of at least 0, or `rng` is neither a seed nor a generator.

    References
    ----------
    L. A. Goodman, "Simple models for the analysis of association in cross-classifications having ordered categories",
    Journal of the American Statistical Association 74, 1979, 537-552.

    Examples
    --------
    >>> made = simulated_survey(100, rng=1)
    >>> made
    SimulatedSurvey(100 MADE-UP records of 13 questions)
    >>> made.states["tenure"]
    ('rents', 'owns with debt', 'owns')
    """
    size = whole_number("size", size)
    random = generator(rng)
    truth = _truth()
    return SimulatedSurvey(simulated=truth.sample(size, rng=random), truth=truth)


@functools.cache
def _truth() -> Solution:
    """Return the distribution in the data file, with margins fitted to the shares."""
    content = tomllib.loads(
        (files("bayesprivmrf") / "data" / "simulated_survey.toml").read_text(encoding="utf-8")
    )
    variables = content["variables"]
    couplings = content["couplings"]
    domain = Domain.from_states({name: each["states"] for name, each in variables.items()})
    shares = {
        name: np.array(each["shares"]) / sum(each["shares"]) for name, each in variables.items()
    }
    tables = []
    for coupling in couplings:
        table = np.array(coupling["size"])
        own = coupling.get("scores", {})
        for name in coupling["between"]:
            scores = own.get(name) or variables[name].get("scores")
            table = np.multiply.outer(table, _standardised(scores, shares[name]))
        tables.append(table)
    model = ModelSpecification(
        domain=domain, cliques=tuple(tuple(each["between"]) for each in couplings)
    )
    return Solution(
        specification=model,
        potentials=_with_margins(model, tables, [shares[name] for name in domain.variables]),
        method="truth",
        status=Status.CONVERGED,
    )


def _standardised(scores: list[float] | None, shares: FloatArray) -> FloatArray:
    """Return scores, by default the ranks of the states, with mean 0 and variance 1 under the shares."""
    if scores is None:
        centred = np.arange(len(shares))
    else:
        centred = np.array(scores)
    centred = centred - shares @ centred
    return centred / np.sqrt(shares @ centred**2)


def _with_margins(
    model: ModelSpecification, tables: list[FloatArray], shares: list[FloatArray]
) -> CliqueTables:
    """Return potentials whose margins are the given shares, by iterative proportional fitting."""
    engine = marginal_engine(model.cardinalities, model.scopes)
    fitted = [np.array(table) for table in tables]
    for _ in range(_SWEEPS):
        furthest = 0.0
        for v, own in enumerate(shares):
            home = parent(model.scopes, (v,))
            assert home is not None  # each variable is in a clique
            potentials = CliqueTables.from_arrays(model.domain, model.cliques, fitted)
            scope = model.scopes[home]
            found = model.tables(engine.marginals(potentials.flat)[1])
            change = np.log(own / project(found.table(home), scope, (v,)))
            fitted[home] += expand(change, (v,), scope)
            furthest = max(furthest, float(np.abs(change).max()))
        if furthest < _TOLERANCE:
            break
    return CliqueTables.from_arrays(model.domain, model.cliques, fitted)
