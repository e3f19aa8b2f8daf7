r"""Laws fitted to errors that were measured: how many records a mechanism of this library really takes.

`benchmarks/learning_law.py` fits

.. math:: \text{error}^2 = \frac{A \log p}{n} + \frac{B p^u}{(n \sqrt\rho)^v}

to ``benchmarks/results/learning.csv``: the largest error of a coupling, averaged over five Ising models, couplings of
size .3 with random signs on random 3-regular graphs and on grids, replace-one neighbours, where that average is below
.2. Squares of logarithms of errors are least. A law is no bound: it says nothing of other couplings, and little far
from where it was fitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bayesprivmrf.learning.sample_size.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLaw:
    """Error of a mechanism against records, variables and budget.

    Parameters
    ----------
    mechanism
        The method that was run, and how it was told what it must be told.
    sampling, private
        A and B.
    variables_power, total_power
        The exponents u and v.
    spread
        Standard deviation of what is left of the logarithms of mean errors.
    single
        The factor over the law that the errors of 19 of 20 single populations stay below.
    """

    mechanism: str
    sampling: float
    private: float
    variables_power: float
    total_power: float
    spread: float
    single: float

    def error(self, variables: int, rho: float, total: float) -> float:
        """Return the error to be expected, nats; the ranges are not looked at."""
        private = (
            self.private * variables**self.variables_power / (total * math.sqrt(rho)) ** self.total_power
        )
        return math.sqrt(self.sampling * math.log(variables) / total + private)

    def largest_error(self, task: Task) -> float:
        """Return the error at which a task is done.

        For structure, edges are the couplings above half of the smallest, so 19 of 20 single errors are to be below
        it.
        """
        return task.size if task.goal == "parameters" else task.size / 2 / self.single

    def records_for(self, variables: int, rho: float, error: float) -> float:
        """Return the records at which the error to be expected is so large; the ranges are not looked at."""
        low, high = 0.0, 200.0  # logarithms; the error falls with the records
        while high - low > 1e-9:
            middle = (low + high) / 2
            too_few = self.error(variables, rho, math.exp(middle)) > error
            low, high = (middle, high) if too_few else (low, middle)
        return math.exp(high)


# From where to where the laws were fitted, and by which factor they may be carried beyond
RANGES = {
    "variables": (10.0, 200.0, 4.0),
    "records": (3_000.0, 100_000.0, 4.0),
    "rho": (0.01, 10.0, 4.0),
    "width": (0.9, 1.2, 1.5),
    "error": (0.008, 0.2, 2.0),
    "coupling": (0.3, 0.3, 1.5),
}

# fitted by benchmarks/learning_samples.py
LAWS = (
    FittedLaw(
        mechanism="SelectMeasure(degree), told one neighbour more than there are",
        sampling=2.873,
        private=69.18,
        variables_power=1.149,
        total_power=2.0,
        spread=0.127,
        single=1.328,
    ),
    FittedLaw(
        mechanism="PrivateFrankWolfe(width), told the true width",
        sampling=3.941,
        private=2.643,
        variables_power=0.775,
        total_power=0.988,
        spread=0.108,
        single=1.196,
    ),
)


def stretch(task: Task, rho: float, total: float, error: float) -> tuple[str, bool]:
    """Return what of a question lies outside where the laws were fitted, in words, and whether too far."""
    asked = {
        "variables": task.variables,
        "records": total,
        "rho": rho,
        "width": task.width,
        "error": error,
        "coupling": task.size if task.goal == "structure" else 0.3,
    }
    outside, is_far = [], False
    for name, (low, high, factor) in RANGES.items():
        ratio = max(low / asked[name], asked[name] / high)
        if ratio > 1:
            outside.append(f"{name} {asked[name]:.3g} (fitted {low:g} to {high:g})")
            is_far |= ratio > factor
    return ", ".join(outside), is_far
