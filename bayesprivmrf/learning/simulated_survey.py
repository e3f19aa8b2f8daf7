"""A made-up survey of questions with two to twenty answers, whose law is known, for rehearsals and examples."""

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

_SWEEPS, _TOLERANCE = 200, 1e-6  # nats


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedSurvey:
    """Records drawn from a known model; they are nobody's.

    Parameters
    ----------
    simulated
        One row a record, one column a question; the answers are text.
    truth
        The law that the records were drawn from, with one clique a coupling.
    """

    simulated: pd.DataFrame
    truth: Solution

    @property
    def states(self) -> dict[str, tuple[str, ...]]:
        """Possible answers by question, in their order: what `bayesprivmrf.declare` asks for."""
        domain: Any = self.truth.specification.domain
        return dict(zip(domain.variables, domain.states, strict=True))

    def __repr__(self) -> str:
        rows, columns = self.simulated.shape
        return f"SimulatedSurvey({rows:,} MADE-UP records of {columns} questions)"


def simulated_survey(size: int = 20_000, rng: int | np.random.Generator | None = None) -> SimulatedSurvey:
    r"""Make up answers to thirteen questions with two to twenty states, some of them rare, and couplings with loops.

    The model is :math:`P(x) \propto \exp \bigl(\sum_v h_v(x_v) + \sum_C \theta_C \prod_{v \in C} z_{Cv}(x_v)\bigr)`:
    Goodman's linear-by-linear association for each of eighteen pairs, and its like for three questions together. The
    fields h are such that the states of a question have given shares, under which the scores z have mean 0 and
    variance 1, so that :math:`|\theta_C|`, nats, is the root mean square of a coupling. Shares, scores and couplings
    are those of ``bayesprivmrf/data/simulated_survey.toml``, the same at every call. Records are independent.

    Parameters
    ----------
    size
        Number of records, at least 0.
    rng
        A seed or a generator, for the records.

    Raises
    ------
    ArgumentError
        `size` is no whole number of at least 0, or `rng` is neither a seed nor a generator.

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
    size, random = whole_number("size", size), generator(rng)
    truth = _truth()
    return SimulatedSurvey(simulated=truth.sample(size, rng=random), truth=truth)


@functools.cache
def _truth() -> Solution:
    """Return the law of the file, its margins fitted to the shares."""
    content = tomllib.loads(
        (files("bayesprivmrf") / "data" / "simulated_survey.toml").read_text(encoding="utf-8")
    )
    variables, couplings = content["variables"], content["couplings"]
    domain = Domain.from_states({name: each["states"] for name, each in variables.items()})
    shares = {name: np.array(each["shares"]) / sum(each["shares"]) for name, each in variables.items()}
    tables = []
    for coupling in couplings:
        table, own = np.array(coupling["size"]), coupling.get("scores", {})
        for name in coupling["between"]:
            scores = own.get(name) or variables[name].get("scores")
            table = np.multiply.outer(table, _standardised(scores, shares[name]))
        tables.append(table)
    model = ModelSpecification(domain=domain, cliques=tuple(tuple(each["between"]) for each in couplings))
    return Solution(
        specification=model,
        potentials=_with_margins(model, tables, [shares[name] for name in domain.variables]),
        method="truth",
        status=Status.CONVERGED,
    )


def _standardised(scores: list[float] | None, shares: FloatArray) -> FloatArray:
    """Return scores, or the ranks of the states, with mean 0 and variance 1 under the shares."""
    centred = np.arange(len(shares)) if scores is None else np.array(scores)
    centred = centred - shares @ centred
    return centred / np.sqrt(shares @ centred**2)


def _with_margins(
    model: ModelSpecification, tables: list[FloatArray], shares: list[FloatArray]
) -> CliqueTables:
    """Return the potentials with fields that give each variable its shares, by iterative proportional fitting."""
    engine = marginal_engine(model.cardinalities, model.scopes)
    fitted = [np.array(table) for table in tables]
    for _ in range(_SWEEPS):
        furthest = 0.0
        for v, own in enumerate(shares):
            home = parent(model.scopes, (v,))
            assert home is not None  # each variable is in a clique
            potentials = CliqueTables.from_arrays(model.domain, model.cliques, fitted)
            scope, found = model.scopes[home], model.tables(engine.marginals(potentials.flat)[1])
            change = np.log(own / project(found.table(home), scope, (v,)))
            fitted[home] += expand(change, (v,), scope)
            furthest = max(furthest, float(np.abs(change).max()))
        if furthest < _TOLERANCE:
            break
    return CliqueTables.from_arrays(model.domain, model.cliques, fitted)
