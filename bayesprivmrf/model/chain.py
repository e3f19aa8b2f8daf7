r"""Markov chains whose steps are alike: declared with shared potentials, or with shared transitions.

**Shared potentials.** Every step has the same table of potentials, and the first states one of their own:

.. math:: p(x) \propto \exp\Bigl(φ(x_1) + \sum_t ψ(x_t, x_{t+1})\Bigr).

The conditionals :math:`p(x_{t+1} \mid x_t) \propto ψ(x_t, x_{t+1})\, r_{t+1}(x_{t+1})` still change with t, as the
sum r over all that follows has fewer steps to go.

**Shared transitions.** Every step has the same probabilities,

.. math:: p(x) = π(x_1) \prod_t P(x_t, x_{t+1}).

This is another model: its potentials log P are not free, as each row of P sums to one.

**Unequal lengths.** With an end state e that nobody leaves, a record of fewer than T states goes on as e. No record
begins with it, and ``e -> other`` cannot occur: these are structural zeros. So the length is part of the record,

.. math:: P(\text{length} < t) = P(x_t = e),

every sum over steps is linear in the clique tables as before, and P(i, e) is the probability to end after i. A record
that is cut at T has no end, and tells of the ends before T alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from bayesprivmrf.checks import one_of, require, whole_number
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.model.domain import Domain, Label, Variable, listed
from bayesprivmrf.model.specification import ModelSpecification
from bayesprivmrf.model.tables import Clique

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The order of time in a model whose steps are tied.

    Parameters
    ----------
    positions
        Position of each time's variable.
    order
        Number of states that the next one depends on.
    cliques
        Position in the model's cliques of each step's window of order + 1 variables.
    end
        Code of the state that nobody leaves; None where records have one length.
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
    """Declare a Markov chain whose steps are alike.

    Parameters
    ----------
    states
        The states, in order; the same at all times.
    length
        Number of times, at least ``order + 2``. With `end` it is the longest length, public.
    order
        Number of states that the next one depends on.
    share
        ``"potentials"``: every step has the same table of potentials, and the first states have one of their own. The
        conditional probabilities of a step then still change towards the end. ``"transitions"``: every step has the
        same matrix of probabilities. `NaiveMLE`, `NoiseAwareMAP` and `LatentCounts` fit the second.
    end
        Label of a further state for all times after a record's last one, where records are of unequal length. It
        comes last; nobody begins with it or leaves it. `bayesprivmrf.mechanisms.wide_sequences` makes such records.
    names
        Name of each time's variable; ``x1``, ``x2``, ... by default.

    Returns
    -------
    pgmpy.models.DiscreteMarkovNetwork
        As `declare` gives it.

    Examples
    --------
    >>> network = markov_chain(["well", "ill"], 4)
    >>> sorted(network.nodes)
    ['x1', 'x2', 'x3', 'x4']
    """
    order = whole_number("order", order, 1)
    length = whole_number("length", length, 1)
    if length < order + 2:
        raise ArgumentError(
            f"`length` must be at least order + 2 = {order + 2}, for two steps to be alike, got {length}; declare a "
            "shorter chain by its cliques."
        )
    one_of("share", share, ("potentials", "transitions"))
    times = [f"x{t + 1}" for t in range(length)] if names is None else listed("`names`", names)
    require(len(times) == length, "names", f"hold one name for each of {length} times", len(times))
    labels = listed("`states`", states)
    require(len(labels) >= 2, "states", "be at least two, for a chain to have steps", labels)
    require(
        end is None or end not in labels, "end", "be none of `states`: it stands for no state any more", end
    )
    zeros = () if end is None else _after_end(times, labels, end)
    labels = labels if end is None else [*labels, end]
    windows = tuple(tuple(times[t : t + order + 1]) for t in range(length - order))
    own = (tuple(times[:order]),) if share == "potentials" else ()
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
    """Return what cannot occur: to begin with the end state, and to leave it."""
    left = [((one, end), (two, state)) for one, two in pairwise(times) for state in states]
    return (((times[0], end),), *left)


def _end_of(model: ModelSpecification, times: Sequence[Variable]) -> int | None:
    """Return the code of the state that structural zeros let nobody leave, if there is one."""
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
        They are not the windows of one chain.
    """
    windows: tuple[Clique, ...] = next((group for group in model.ties if len(group) > 1), ((),))
    is_chain = len(windows[0]) > 1 and all(one[1:] == two[:-1] for one, two in pairwise(windows))
    scopes = [frozenset(scope) for scope in model.cliques]
    if not is_chain or set(map(frozenset, windows)) != set(scopes):
        raise ModelError(
            "the model must be a chain whose steps are tied, in the order of time; declare it by "
            "markov_chain(states, length)."
        )
    times = [*windows[0], *(window[-1] for window in windows[1:])]
    return Chain(
        positions=tuple(map(model.domain.index, times)),
        order=len(windows[0]) - 1,
        cliques=tuple(scopes.index(frozenset(window)) for window in windows),
        end=_end_of(model, times),
    )
