"""One sparse logistic regression: the map from records to its coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from bayesprivmrf.learning.frank_wolfe.node_regressions import Design, LogisticRegressions
from bayesprivmrf.learning.frank_wolfe.search import frank_wolfe
from bayesprivmrf.learning.frank_wolfe.settings import default_steps
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import Adjacency
from bayesprivmrf.privacy.frank_wolfe import Exposure, step_scale


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SparseLogistic:
    r"""Log-odds of one two-state variable given the others, :math:`c + \sum_j w_j(x_j)`, each w adding to 0.

    Parameters
    ----------
    cardinalities
        States of each variable, the target's among them.
    target
        Position of the variable to explain, of two states.
    radius
        R, of the ball :math:`|c| + \sum_j \max_b |w_j(b)| \le R` that is searched.
    rho
        Budget, nats.
    adjacency
        The neighbouring relation.
    steps
        T, or ``None`` for `default_steps` of the number of records.
    """

    cardinalities: tuple[int, ...]
    target: int
    radius: float
    rho: float
    adjacency: Adjacency
    steps: int | None = None

    @property
    def exposure(self) -> Exposure:
        """One regression."""
        return Exposure.of_logistic(1)

    @property
    def atoms(self) -> int:
        """Number of atoms of a choice: the signs of each group of features, the constant's among them."""
        others = (k for place, k in enumerate(self.cardinalities) if place != self.target)
        return 2 + sum(2 if k == 2 else 2**k for k in others if k > 1)

    @property
    def reference(self) -> float:
        """2: the first score of an effect w on the log-odds is n w / 2 times the largest residual."""
        return 2.0

    def steps_for(self, total: float | None) -> int:
        """Return T for a public or noisy number of records, which is unused where T is a setting."""
        if self.steps is not None:
            return self.steps
        assert total is not None
        return default_steps(total, self.radius, self.exposure, self.rho, self.adjacency)

    def multiple(self, steps: int) -> float:
        """Return the noise multiple of T steps."""
        return step_scale(self.exposure, self.rho, steps, self.adjacency)

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float | None, source: NoiseSource
    ) -> tuple[FloatArray, float]:
        """Return w, states of all variables after another (0 for the target's), and c.

        Parameters
        ----------
        codes, counts
            Records as codes, shape (rows, p), and how many each row stands for.
        total
            Their number as far as it may be used: public or noisy; unused where T is a setting.
        source
            Source of the random choices.
        """
        steps = self.steps_for(total)
        design = Design.with_constant(codes, self.cardinalities)
        eligible = np.array([k > 1 for k in design.cardinalities])
        eligible[self.target] = False
        coefficients = frank_wolfe(
            LogisticRegressions(design, codes, counts, self.radius, np.array([self.target])),
            steps=steps,
            multiple=self.multiple(steps),
            source=source,
            eligible=eligible[None],
        )[0]
        return self._centred(design, coefficients)

    def _centred(self, design: Design, coefficients: FloatArray) -> tuple[FloatArray, float]:
        effects, constant = [], float(coefficients[-1])
        for k, start in zip(self.cardinalities, design.starts, strict=False):
            values = (
                coefficients[start] * np.array([-1.0, 1.0]) if k == 2 else coefficients[start : start + k]
            )
            effects.append(values - values.mean())
            constant += float(values.mean())
        return np.concatenate(effects), constant
