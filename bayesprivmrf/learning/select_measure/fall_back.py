r"""Smaller models that replace a failed fit of chosen pairs, from the same noisy numbers.

The numbers of a search that does not converge are no estimate, and may be further from the records than independent
variables. Three smaller models are therefore tried in turn, and the first one with a trusted fit is released. All use
noisy numbers only.

1. **Rare states merged**, if tables are measured. Most cells of a large table are nearly empty. Noise makes them
   negative, no model has such means, and the likelihood is flat in these directions. The states of a variable whose
   noisy counts are below three standard deviations are merged by the declared rules, as in rounds
   (`bayesprivmrf.learning.rounds.tables`): only neighbors of an order, and never the state for missing values.
   With :math:`M_i` the map from states to groups, :math:`g_i = M_i 1` the groups' sizes and :math:`\tilde Q_i` the
   contrasts of groups, a pair's table :math:`y_{ij}`, rebuilt from its means, has the mean effect :math:`\tilde
   t_{ij} = \tilde Q_i^\top M_i y_{ij} M_j^\top \tilde Q_j / N`. A pair's own means have noise of one variance v on
   all coordinates, hence :math:`v\, (I - 1 1^\top / K_i) \otimes (I - 1 1^\top / K_j)` on its table, so that entry
   (s, u) of :math:`\tilde t_{ij}` has the variance

   .. math:: v\, a_{is}\, a_{ju}, \qquad a_{is} = \tilde q_{is}^\top \bigl(\operatorname{diag} g_i - g_i g_i^\top /
       K_i\bigr) \tilde q_{is} .

   The mean of a single variable has :math:`v_i a_{is}`. What the margins' noise adds to a pair is left out: it is
   small, because a margin is divided among the states of the other variable. The fit is that of
   `bayesprivmrf.inference.effects_fit.fit`, with half its prior deviation: noise makes some cells of groups
   negative as well, and the search ends sooner, with couplings a third as large and tables as good
   (docs/explanation/select-measure.md). The states of a group share its potentials, and divide its probability in
   proportion to their noisy counts.
2. **Fewer pairs**: the stronger half of the pairs that stood out, then the stronger half of these, and so on. Pairs
   are ranked by the mean square of their covariances relative to noise and sampling, which is 1 under independence.
3. **Single variables alone.**

The status is then ``"stopped early"``, and the details name the model. If no fit is trusted, the first one is
released with its status. The errors of couplings are derived for the fit of all pairs that stand out, so a smaller
model has no linearized intervals of couplings. Calibrated intervals are of no use if states were merged, because
couplings that hardly a record depends on do not respond to steps. The measurements give intervals of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.effects_fit.fit import PRIOR_DEVIATION, PairFit, fit_means
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.learning.models.advice import FALLBACK
from bayesprivmrf.learning.rounds import Merging
from bayesprivmrf.model.cliques import split_tables
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    from bayesprivmrf.learning.models.pairs import LearnedPairs
    from bayesprivmrf.learning.select_measure.targets import PairTargets

# Smallest variance of a contrast in one record; that of an empty state would be 0
_LEAST_SPREAD = 1e-9

type Fit = Callable[[np.ndarray], PairFit]


def fall_back(targets: PairTargets, failed: PairFit, fit_of: Fit, generator: np.random.Generator) -> PairFit:
    """Return the first smaller model with a trusted fit, or the failed fit if there is none.

    Parameters
    ----------
    targets
        The noisy means.
    failed
        The fit of all pairs that stand out.
    fit_of
        Fits a part of the pairs, bool of shape (m,).
    generator
        Generator of the Gibbs sampler.
    """
    for said, fit in _smaller(targets, failed, fit_of, generator):
        if fit.status != Status.NOT_TRUSTED:
            details = {**fit.details, FALLBACK: said}
            return replace(fit, status=str(Status.STOPPED_EARLY.value), details=details)
    return failed


def _smaller(
    targets: PairTargets, failed: PairFit, fit_of: Fit, generator: np.random.Generator
) -> Iterator[tuple[str, PairFit]]:
    """Yield fits of smaller and smaller models."""
    standing = targets.standing_out()
    merged = MergedTargets.of(targets)
    if merged.is_smaller and standing.any():
        kept = [tuple(pair) for pair in targets.pairs[standing].tolist()]
        yield f"{merged.fewer} rare states merged", merged.fit(kept, generator)
    ranked = np.flatnonzero(standing)
    ranked = ranked[np.argsort(-targets.statistics()[ranked], kind="stable")]
    count = ranked.size // 2
    while count:
        part = np.zeros(standing.size, dtype=bool)
        part[ranked[:count]] = True
        yield f"{count} of {ranked.size} pairs", fit_of(part)
        count //= 2
    if ranked.size:
        yield "single variables alone", fit_of(np.zeros(standing.size, dtype=bool))
    if merged.is_smaller:
        yield f"single variables alone, {merged.fewer} rare states merged", merged.fit([], generator)


def require_own_fit(learned: LearnedPairs) -> None:
    """Raise an error if a smaller model replaces a failed fit, because its couplings have no limits.

    Raises
    ------
    ModelError
        A smaller model replaces the fit; the message has the remedy.
    """
    if (said := learned.details.get(FALLBACK)) is not None:
        raise ModelError(
            f"`couplings_interval` needs a model of all chosen pairs, got a smaller one, because the fit fell back "
            f"({said}); take `learned.interval(variables)` for tables, or learn by SelectMeasure(rho)."
        )


@dataclass(frozen=True, kw_only=True)
class MergedTargets:
    """Noisy means of a model of merged states; see the module.

    Parameters
    ----------
    targets
        Noisy means of declared states.
    merging
        Groups of states that are merged.
    """

    targets: PairTargets
    merging: Merging

    @classmethod
    def of(cls, targets: PairTargets) -> MergedTargets:
        """Return the means with rare states merged."""
        return cls(targets=targets, merging=Merging.of(*targets.counts(), targets.rules))

    @property
    def cards(self) -> tuple[int, ...]:
        """Number of groups of each variable."""
        return self.merging.cardinalities

    @property
    def fewer(self) -> int:
        """Number of states that merging removes."""
        return sum(self.targets.cardinalities) - sum(self.cards)

    @property
    def is_smaller(self) -> bool:
        """True if merging leaves fewer coordinates and a table to fit."""
        return self.fewer > 0 and max(self.targets.cardinalities) > 2

    @cached_property
    def noise(self) -> list[FloatArray]:
        """Noise factor a of each variable's contrasts."""
        found = []
        for states, group, groups in zip(
            self.targets.cardinalities, self.merging.groups, self.cards, strict=True
        ):
            sizes, basis = np.bincount(group).astype(float), contrasts(groups)
            found.append(sizes @ basis**2 - (sizes @ basis) ** 2 / states)
        return found

    @cached_property
    def _spreads(self) -> list[FloatArray]:
        """Return the variance of each variable's contrasts in one record."""
        found = []
        for share, group, groups in zip(self.targets.shares(), self.merging.groups, self.cards, strict=True):
            merged, basis = np.bincount(group, weights=share), contrasts(groups)
            found.append(np.maximum(merged @ basis**2 - (merged @ basis) ** 2, _LEAST_SPREAD))
        return found

    def fit(self, pairs: list[tuple[int, ...]], generator: np.random.Generator) -> PairFit:
        """Fit some pairs and all variables; the result has the declared states."""
        targets, cards = self.targets, self.cards
        kept = [pair for pair in pairs if min(cards[v] for v in pair) > 1]
        alone = [(v,) for v in range(len(cards))]
        effects = Effects.of(cards, (*kept, *alone))
        place = {tuple(pair): k for k, pair in enumerate(targets.pairs.tolist())}
        means, ridges = [np.zeros(0)], [np.zeros(0)]
        for subset in effects.subsets:
            if len(subset) == 1:
                (i,) = subset
                mean, spread = self._single(i), self._spreads[i]
                noise = targets.single_noise[i] * self.noise[i]
            else:
                i, j = subset
                mean = self.pair_mean(i, j, targets.pair[place[subset]])
                spread = np.multiply.outer(self._spreads[i], self._spreads[j])
                noise = targets.pair_noise * np.multiply.outer(self.noise[i], self.noise[j])
            means.append(mean.ravel())
            # merged states have half the prior deviation; see the module
            ridges.append((noise / spread + 1 / targets.total).ravel() / (PRIOR_DEVIATION / 2) ** 2)
        # more steps than usual, because this model replaces one whose search failed
        found = fit_means(
            effects,
            np.concatenate(means),
            np.concatenate(ridges),
            targets.total,
            generator,
            iterations=3000,
        )
        tables = split_tables(cards, effects.scopes, effects.potentials(found.coordinates))
        flat = np.concatenate([table.ravel() for table in self.merging.expanded(effects.scopes, tables)])
        declared = Effects.of(targets.cardinalities, effects.scopes)
        return replace(found, effects=declared, coordinates=declared.coordinates(flat), means=None)

    def _single(self, i: int) -> FloatArray:
        return contrasts(self.cards[i]).T @ np.bincount(self.merging.groups[i], weights=self._margin(i))

    def _margin(self, i: int) -> FloatArray:
        """Return the noisy shares of a variable's states."""
        states = self.targets.cardinalities[i]
        return 1 / states + contrasts(states) @ self.targets.single[i]

    def pair_mean(self, i: int, j: int, t: FloatArray) -> FloatArray:
        """Return the mean effect of a pair of grouped variables from its mean effect t of the declared states."""
        (k, m), groups = (self.targets.cardinalities[v] for v in (i, j)), self.merging.groups
        inner = contrasts(k) @ t @ contrasts(m).T
        table = inner + self._margin(i)[:, None] / m + self._margin(j) / k - 1 / (k * m)
        merged = np.zeros((self.cards[i], self.cards[j]))
        np.add.at(merged, (groups[i][:, None], groups[j]), table)
        return contrasts(self.cards[i]).T @ merged @ contrasts(self.cards[j])
