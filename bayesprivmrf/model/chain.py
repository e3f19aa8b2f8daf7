r"""Markov chains whose steps share potentials or transition probabilities.

**Shared potentials.** Every step has the same table of potentials, and the first states have a separate table:

.. math:: p(x) \propto \exp\Bigl(φ(x_1) + \sum_t ψ(x_t, x_{t+1})\Bigr).

The conditional probabilities :math:`p(x_{t+1} \mid x_t) \propto e^{ψ(x_t, x_{t+1})}\, r_{t+1}(x_{t+1})` still depend
on t, because the sum r over the remaining steps has fewer steps for larger t.

**Shared transitions.** Every step has the same transition probabilities,

.. math:: p(x) = π(x_1) \prod_t P(x_t, x_{t+1}).

This is a different model. Its potentials log P are restricted, because each row of P sums to one.

**Unequal lengths.** With an end state e that nobody leaves, a record of fewer than T states continues as e. No record
begins with e, and a step from e to another state cannot occur; these are structural zeros. Hence the length is part
of the record,

.. math:: P(\text{length} < t) = P(x_t = e),

every sum over steps remains linear in the clique tables, and P(i, e) is the probability of ending after state i. A
record that is cut at T has no end state. It is only informative about endings before T.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from bayesprivmrf.checks import one_of, require, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.domain import (
    Domain,
    Label,
    Variable,
    label_key,
    listed,
    require_fit,
    require_hashable,
    require_name,
)
from bayesprivmrf.model.specification import ModelSpecification
from bayesprivmrf.model.tables import Clique

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Times of a Markov chain in a model whose steps are tied.

    Parameters
    ----------
    positions
        Position of the variable of each time.
    order
        Number of previous states on which the next state depends.
    cliques
        Position of each step's clique of order + 1 variables in the model's cliques.
    end
        Code of the end state; None if all records have the same length.
    """

    positions: tuple[int, ...]
    order: int
    cliques: tuple[int, ...]
    end: int | None = None


def markov_chain(
    states: Iterable[Label],
    length: int,
    order: int = 1,
    share: Literal["potentials", "transitions"] = "potentials",
    *,
    end: Label | None = None,
    names: Sequence[Variable] | None = None,
) -> DiscreteMarkovNetwork:
    """Declare a Markov chain whose steps share potentials or transition probabilities.

    Parameters
    ----------
    states
        The states, in order. They are the same at all times.
    length
        Number of times, at least ``order + 2``. With `end` it is the largest length, which is public.
    order
        Number of previous states on which the next state depends.
    share
        ``"potentials"``: every step has the same table of potentials, and the first states have a separate table. The
        conditional probabilities of a step then still change towards the end. ``"transitions"``: every step has the
        same transition probabilities; `NaiveMLE`, `NoiseAwareMAP` and `LatentCounts` fit this model.
    end
        Label of an additional state for all times after the last time of a record, if records have different lengths.
        It is the last state. No record begins with it or leaves it. `bayesprivmrf.mechanisms.wide_sequences` makes
        such records.
    names
        Name of each time's variable; ``x1``, ``x2``, ... by default.

    Returns
    -------
    pgmpy.models.DiscreteMarkovNetwork
        The network, as `declare` returns it.

    Raises
    ------
    ArgumentError
        `length`, `order`, `share`, `states`, `names` or `end` is not as described.

    Examples
    --------
    >>> network = markov_chain(["well", "ill"], 4)
    >>> sorted(network.nodes)
    ['x1', 'x2', 'x3', 'x4']
    """
    order = whole_number("order", order, 1)
    remedy = "order + 2 times make two steps; declare a shorter chain by its cliques"
    length = whole_number("length", length, order + 2, remedy=remedy)
    one_of("share", share, ("potentials", "transitions"))
    if names is None:
        times = [f"x{t + 1}" for t in range(length)]
    else:
        times = listed("`names`", names)
    require(len(times) == length, "names", f"hold one name for each of {length} times", len(times))
    for name in times:
        require_name("each of `names`", name, ArgumentError)
    labels = listed("`states`", states)
    require(len(labels) >= 2, "states", "be at least two", labels)
    zeros = ()
    if end is not None:
        require_hashable("`end`", end, ArgumentError)
        for label in labels:
            require_hashable("each of `states`", label)
        must = "differ from `states`, because it marks times after a record"
        is_other = label_key(end) not in map(label_key, labels)
        require(is_other, "end", must, end)
        zeros = _after_end(times, labels, end)
    if end is not None:
        labels = [*labels, end]
    windows = tuple(tuple(times[t : t + order + 1]) for t in range(length - order))
    if share == "potentials":
        own = (tuple(times[:order]),)
    else:
        own = ()
    model = ModelSpecification(
        domain=Domain.from_states(dict.fromkeys(times, labels)),
        cliques=(*own, *windows),
        impossible=zeros,
        ties=(windows,),
        shares_transitions=share == "transitions",
    )
    return model.to_pgmpy()


def _after_end(
    times: Sequence[Variable], states: Sequence[Label], end: Label
) -> tuple[tuple[tuple[Variable, Label], ...], ...]:
    """Return the structural zeros of an end state: no record begins with it or leaves it."""
    left = [((one, end), (two, state)) for one, two in pairwise(times) for state in states]
    return (((times[0], end),), *left)


def _end_of(model: ModelSpecification, times: Sequence[Variable]) -> int | None:
    """Return the code of the end state, which the structural zeros define; None if there is none."""
    states = model.domain.states[model.domain.index(times[0])]
    zeros = {frozenset(zero) for zero in model.impossible}
    for code, end in enumerate(states if zeros else ()):
        others = [state for state in states if state != end]
        if zeros == set(map(frozenset, _after_end(times, others, end))):
            return code
    return None


def chain_of(model: ModelSpecification) -> Chain:
    """Return the chain that the first group of tied cliques of a model forms.

    Raises
    ------
    ModelError
        These cliques are not the steps of one chain.
    """
    windows: tuple[Clique, ...] = next((group for group in model.ties if len(group) > 1), ((),))
    is_chain = len(windows[0]) > 1 and all(one[1:] == two[:-1] for one, two in pairwise(windows))
    scopes = [frozenset(scope) for scope in model.cliques]
    is_whole = is_chain and set(map(frozenset, windows)) == set(scopes)
    must = "be a chain whose steps are tied, in the order of time"
    seen = "another"
    remedy = (
        "declare it by markov_chain(states, length); for one step of another model, "
        "ask interval([later], given=[earlier])"
    )
    in_every_step = sorted(map(str, set.intersection(*map(set, windows))))
    if in_every_step and model.shares_transitions:
        # such as a group variable
        seen = f"{in_every_step} in every step, and one transition matrix takes no covariate"
        remedy = (
            "fit a release of each group apart, or declare the steps as cliques with the covariate"
        )
    require_fit(is_whole, "the model", must, seen, remedy)
    times = [*windows[0], *(window[-1] for window in windows[1:])]
    return Chain(
        positions=tuple(map(model.domain.index, times)),
        order=len(windows[0]) - 1,
        cliques=tuple(scopes.index(frozenset(window)) for window in windows),
        end=_end_of(model, times),
    )
