"""Simulated records of known models, for rehearsals and examples: a survey, and two-state indicators."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import generator, whole_number
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.model.tables import FloatArray, expand, parent, project

if TYPE_CHECKING:
    import pandas as pd


_SWEEPS, _TOLERANCE = 200, 1e-6  # most sweeps of iterative proportional fitting, and its tolerance, nats


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


def simulated_survey(size: int = 20_000, rng: int | np.random.Generator | None = None) -> SimulatedSurvey:
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
    size, random = whole_number("size", size), generator(rng)
    truth = _truth()
    return SimulatedSurvey(simulated=truth.sample(size, rng=random), truth=truth)


@functools.cache
def _truth() -> Solution:
    """Return the distribution in the data file, with margins fitted to the shares."""
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
    """Return scores, by default the ranks of the states, with mean 0 and variance 1 under the shares."""
    centred = np.arange(len(shares)) if scores is None else np.array(scores)
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
            scope, found = model.scopes[home], model.tables(engine.marginals(potentials.flat)[1])
            change = np.log(own / project(found.table(home), scope, (v,)))
            fitted[home] += expand(change, (v,), scope)
            furthest = max(furthest, float(np.abs(change).max()))
        if furthest < _TOLERANCE:
            break
    return CliqueTables.from_arrays(model.domain, model.cliques, fitted)


_FEWEST, _MOST = 6, 20  # number of variables: two in each group, and 2^p probabilities in memory
# coefficients of pairs within a group, of pairs between groups, and of one triple in each group, nats
_WITHIN, _BETWEEN, _TRIPLE = (0.2, 0.9), 0.1, -0.12


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedIndicators:
    """Records drawn from a known model of two-state indicators; no real person is in them.

    Parameters
    ----------
    simulated
        One row for each record, and a column of 0 and 1 for each indicator ``q0``, ``q1``, ...
    monomials
        Coefficients h of the model by tuples of variables, nats, for the spins -1 (state 0) and +1 (state 1). There
        are coefficients of single variables, of all pairs, and of one triple in each group.
    """

    simulated: pd.DataFrame
    monomials: pd.Series

    def __repr__(self) -> str:
        rows, columns = self.simulated.shape
        return f"SimulatedIndicators({rows:,} MADE-UP records of {columns} indicators)"


def simulated_indicators(
    size: int = 20_000, rng: int | np.random.Generator | None = None, *, variables: int = 16
) -> SimulatedIndicators:
    r"""Simulate records of two-state indicators with known couplings.

    The model is :math:`P(x) \propto \exp \sum_I h_I \prod_{i \in I} x_i`, :math:`x_i = \pm 1`, with sets I of one,
    two and three variables. Variables form three groups of g or g + 1. The coefficient of a pair within a group of g
    is uniform on 0.2 to 0.9, divided by the root of g. Between groups, one pair in four has a coefficient uniform on
    -0.1 to 0.1, the others 0. The first three variables of a group of three or more have the coefficient -0.12.
    Fields are chosen such that the probability of state 1 is uniform on 0.1 to 0.6. Records are independent; their
    order is not random.

    Parameters
    ----------
    size
        Number of records, at least 0.
    rng
        Seed or generator for the model and the records.
    variables
        Number of indicators p, from 6 to 20.

    Raises
    ------
    ArgumentError
        A number is out of range.

    Examples
    --------
    >>> from bayesprivmrf.learning import simulated_indicators
    >>> made = simulated_indicators(100, rng=1, variables=6)
    >>> made.simulated.shape
    (100, 6)
    """
    import pandas as pd

    size, p = whole_number("size", size), whole_number("variables", variables, _FEWEST, _MOST)
    random = generator(rng)
    # three groups of variables, dependent within and nearly independent between
    groups = np.array_split(np.arange(p), 3)
    coefficients = _couplings(groups, random)
    states = (np.arange(2**p)[:, None] >> np.arange(p)) & 1
    spins = (2 * states - 1).astype(np.int8)
    energy = np.zeros(2**p)
    for members, value in coefficients.items():
        energy += value * spins[:, members].prod(axis=1)
    # the probability of state 1 is uniform on 0.1 to 0.6
    fields, probability = _fields(energy, spins, random.uniform(0.1, 0.6, p))
    counts = random.multinomial(size, probability)
    rows = np.repeat(np.arange(2**p), counts)
    frame = pd.DataFrame(states[rows].astype(np.int8), columns=pd.Index([f"q{i}" for i in range(p)]))
    coefficients = {(i,): h for i, h in enumerate(fields)} | coefficients
    keys: Any = np.empty(len(coefficients), dtype=object)
    keys[:] = [tuple(f"q{i}" for i in members) for members in coefficients]
    index = pd.Index(keys, tupleize_cols=False, name="monomial")
    return SimulatedIndicators(
        simulated=frame, monomials=pd.Series(list(coefficients.values()), index=index, name="coefficient")
    )


def _couplings(groups: list[np.ndarray], generator: np.random.Generator) -> dict[tuple[int, ...], float]:
    """Return the coefficients of all pairs, and of one triple in each group."""
    found: dict[tuple[int, ...], float] = {}
    owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    for pair in combinations(range(owner.size), 2):
        inside, chosen = generator.uniform(*_WITHIN), generator.random() < 0.25
        across = generator.uniform(-_BETWEEN, _BETWEEN) if chosen else 0.0
        members = len(groups[owner[pair[0]]])
        found[pair] = inside / members**0.5 if owner[pair[0]] == owner[pair[1]] else across
    for group in groups:
        if len(group) > 2:
            found[tuple(group[:3].tolist())] = _TRIPLE
    return found


def _fields(energy: np.ndarray, spins: np.ndarray, shares: np.ndarray) -> tuple[list[float], np.ndarray]:
    """Return fields that give each variable its share of ones, and the distribution of the joint states."""
    fields = np.zeros(shares.size)
    log = energy.copy()
    for _ in range(_SWEEPS):
        before = fields.copy()
        for i in range(shares.size):
            weight = np.exp(log - log.max())
            ones = weight[spins[:, i] > 0].sum() / weight.sum()
            step = 0.5 * float(np.log(shares[i] / (1 - shares[i])) - np.log(ones / (1 - ones)))
            fields[i] += step
            log += step * spins[:, i]
        if np.abs(fields - before).max() < _TOLERANCE:
            break
    weight = np.exp(log - log.max())
    return fields.tolist(), weight / weight.sum()
