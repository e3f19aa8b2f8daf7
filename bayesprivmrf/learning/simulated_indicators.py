"""Simulated records of two-state indicators with known couplings, for rehearsals and examples."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import generator, whole_number

if TYPE_CHECKING:
    import pandas as pd

_FEWEST, _MOST = 6, 20  # number of variables: two in each group, and 2^p probabilities in memory
# coefficients of pairs within a group, of pairs between groups, and of one triple in each group, nats
_WITHIN, _BETWEEN, _TRIPLE = (0.2, 0.9), 0.1, -0.12
_SWEEPS, _TOLERANCE = 100, 1e-6  # most sweeps of iterative scaling, and its tolerance, nats


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
