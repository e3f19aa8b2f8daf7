r"""Hard instances of the lower bounds: groups of variables, one interaction in each, none between them.

Zhang et al. 2020 (Theorems 5.1, 7.1, 7.4) put the p variables in p/2 fixed pairs. Here a group has s variables, and
the groups may be any that share no variable, so that there are more members and the bounds are larger.

A group has the log-potential

.. math:: W(u_1, \ldots, u_s) = \eta\, S(a_1, \ldots, a_s) \prod_i x_i, \qquad
    u_i = 2 a_i + b_i,\ x_i = 2 b_i - 1,

where S has signs, one for each of the :math:`\lfloor k/2 \rfloor^s` blocks of states, and the last of an odd number
of states has W = 0. It adds to zero along every axis, hence it is the coupling itself, however fields and
couplings are separated. The matrices of Theorem 7.4, with entries 0 or :math:`\eta`, do not: adding a constant to a
row of W is a field, so different ones of them are one distribution. That theorem moreover counts tables, but two
tables without a zero have one graph; so for structure only groups are counted here, tables for parameters alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy import PrivacyGuarantee

from .lower_bounds import reach

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

type Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Grouped:
    """A model of groups that are independent of each other; variables outside every group are uniform.

    Parameters
    ----------
    variables, states
        p and k.
    groups
        The groups, positions of variables, none in two of them.
    tables
        The log-potential of each group, one axis a variable.
    """

    variables: int
    states: int
    groups: Groups
    tables: tuple[FloatArray, ...]

    def __post_init__(self) -> None:
        used = [i for group in self.groups for i in group]
        if len(set(used)) != len(used) or not set(used) <= set(range(self.variables)):
            raise ArgumentError(
                "`groups` must be of different variables, each in one group; leave some out."
            )

    @property
    def specification(self) -> DiscreteMarkovNetwork:
        """The declaration without any clique: variables ``v0``, ``v1``, ..., states 0, 1, ...."""
        from bayesprivmrf.model import declare

        return declare(states={f"v{i}": list(range(self.states)) for i in range(self.variables)})

    def laws(self) -> list[FloatArray]:
        """Return the distribution of each group."""
        return [np.exp(table) / np.exp(table).sum() for table in self.tables]

    def joint(self) -> FloatArray:
        """Return the probability of every record, one axis a variable; for few variables."""
        rest = [i for i in range(self.variables) if not any(i in group for group in self.groups)]
        laws = [*self.laws(), *[np.full(self.states, 1 / self.states) for _ in rest]]
        order = [i for group in self.groups for i in group] + rest
        return reduce(np.multiply.outer, laws, np.ones(())).transpose(np.argsort(order))

    def codes(self, total: int, rng: np.random.Generator) -> IntArray:
        """Draw a number of independent records, one in each row."""
        codes = rng.integers(self.states, size=(total, self.variables))
        for group, law in zip(self.groups, self.laws(), strict=True):
            cells = rng.choice(law.size, total, p=law.ravel())
            codes[:, group] = np.column_stack(np.unravel_index(cells, law.shape))
        return codes

    def coupling_matrix(self) -> FloatArray:
        """Return the couplings of an Ising model, shape (p, p): groups of two variables of two states."""
        found = np.zeros((self.variables, self.variables))
        for (i, j), table in zip(self.groups, self.tables, strict=True):
            found[i, j] = found[j, i] = (table[0, 0] + table[1, 1] - table[0, 1] - table[1, 0]) / 4
        return found


def coupling_table(size: float, signs: FloatArray, states: int = 2) -> FloatArray:
    """Return the log-potential of a group, eta S times the product of spins; the module derives it.

    Parameters
    ----------
    size
        Eta, nats.
    signs
        S, shape (states // 2,) * variables.
    states
        k.
    """
    spins = np.tile([-1.0, 1.0], states // 2)
    whole = reduce(np.multiply.outer, [spins] * signs.ndim)
    for axis in range(signs.ndim):
        signs = signs.repeat(2, axis=axis)
    return np.pad(size * whole * signs, (0, states % 2))


def all_groups(variables: int, order: int, groups: int) -> Iterator[Groups]:
    """Iterate over all ways to choose that many groups; for few variables."""
    for chosen in combinations(combinations(range(variables), order), groups):
        if len(set().union(*chosen)) == order * groups:
            yield chosen


def packing(
    variables: int,
    size: float,
    groups: int,
    *,
    order: int = 2,
    states: int = 2,
    with_signs: bool = True,
) -> Iterator[Grouped]:
    """Iterate over the whole packing, the model without any coupling first; for few variables.

    Parameters
    ----------
    variables, size, groups
        p, eta and h.
    order, states
        s and k.
    with_signs
        Whether tables differ in signs, as for parameters; one table otherwise, as for structure.
    """
    yield Grouped(variables=variables, states=states, groups=(), tables=())
    shape = (states // 2,) * order
    if with_signs:
        all_signs = product((-1.0, 1.0), repeat=math.prod(shape))
    else:
        all_signs = [(1.0,) * math.prod(shape)]
    tables = [coupling_table(size, np.reshape(one, shape), states) for one in all_signs]
    for chosen in all_groups(variables, order, groups):
        for own in product(tables, repeat=groups):
            yield Grouped(variables=variables, states=states, groups=chosen, tables=own)


def random_member(
    variables: int,
    size: float,
    groups: int,
    rng: np.random.Generator,
    *,
    order: int = 2,
    states: int = 2,
    with_signs: bool = True,
) -> Grouped:
    """Return a member of `packing` other than the first, drawn uniformly."""
    places = rng.permutation(variables)[: order * groups].reshape(groups, order)
    shape = (groups, *(states // 2,) * order)
    if with_signs:
        signs = rng.choice([-1.0, 1.0], shape)
    else:
        signs = np.ones(shape)
    return Grouped(
        variables=variables,
        states=states,
        groups=tuple(tuple(sorted(map(int, group))) for group in places),
        tables=tuple(coupling_table(size, one, states) for one in signs),
    )


def fingerprinting_error(
    variables: int, width: float, total: int, guarantee: PrivacyGuarantee
) -> float:
    """Return the root mean square error that no private learner of an Ising model can get below, on average.

    The average is over couplings as `random_means` draws them. It is the error whose `fingerprinting_records` is the
    number of records.
    """
    pairs = variables // 2
    largest = math.tanh(width)
    slope = total * reach(guarantee) / math.sqrt(pairs)
    rest = 1 / 3 - 8 * guarantee.delta * largest * total
    if rest <= 0:
        return 0.0
    # the positive root of error^2 / largest^2 + slope error = rest
    return 2 * rest / (slope + math.sqrt(slope**2 + 4 * rest / largest**2))


def random_means(variables: int, width: float, rng: np.random.Generator) -> Grouped:
    r"""Return an Ising model of fixed pairs, means of the products uniform in :math:`\pm\tanh\lambda`.

    This is the distribution of the couplings under which `fingerprinting_records` bounds every private estimate.
    """
    largest = math.tanh(width)
    means = rng.uniform(-largest, largest, variables // 2)
    return Grouped(
        variables=variables,
        states=2,
        groups=tuple((2 * i, 2 * i + 1) for i in range(variables // 2)),
        tables=tuple(coupling_table(float(size), np.ones((1, 1))) for size in np.arctanh(means)),
    )
