"""Learning tasks: the goal, the accuracy, and the class of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bayesprivmrf.checks import one_of, positive_finite, whole_number
from bayesprivmrf.errors import ArgumentError

type Goal = Literal["parameters", "structure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    r"""A learning task: a class of Markov random fields and the accuracy asked for.

    Parameters
    ----------
    variables
        Number of variables p, at least 2.
    size
        For parameters, the allowed error :math:`\alpha` of a coupling, nats. For structure, the size :math:`\eta` of
        the smallest coupling of an edge, nats.
    goal
        ``"parameters"`` for all couplings, ``"structure"`` for the edges only.
    states
        Number of states k of every variable.
    order
        Largest number t of variables that interact; above 2 for variables with two states only.
    width
        Largest total size :math:`\lambda` of the couplings and field of a variable, nats.

    Raises
    ------
    ArgumentError
        A number is out of range, or an order above 2 has more than two states.
    """

    variables: int
    size: float
    goal: Goal = "parameters"
    states: int = 2
    order: int = 2
    width: float = 1.0

    def __post_init__(self) -> None:
        one_of("goal", self.goal, ("parameters", "structure"))
        whole_number("variables", self.variables, 2, remedy="one variable has no coupling")
        whole_number("states", self.states, 2)
        whole_number("order", self.order, 2, self.variables, remedy="2 is for couplings of pairs")
        if self.order > 2 and self.states > 2:
            raise ArgumentError(
                f"`order` must be 2 for more than two states, got {self.order!r}; the bounds cover pairs of any "
                "states, and larger interactions of two states."
            )
        for name in ("size", "width"):
            object.__setattr__(self, name, positive_finite(name, getattr(self, name)))
