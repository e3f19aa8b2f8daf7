r"""mbi's estimator by this library's exact marginals, which need no compiler: for `rivals_theirs.py --solver here`.

mbi minimises :math:`L(\mu) = \sum_C \tfrac12 \|w_C (\mu_C - y_C) / \sigma_C\|^2` over the tables of models by mirror
descent with a line search. In orthonormal coordinates t of all effects
(`bayesprivmrf.learning.select_measure.round_fit`) L is a quadratic form, diagonal but for merged single variables,
whose states have different noise. The same steps are taken here, of the same sizes, until as many are done or the
loss falls by less than 1e-9 of it in a hundred.
"""

from __future__ import annotations

import math
from itertools import combinations
from types import SimpleNamespace

import mbi
import numpy as np

from bayesprivmrf.inference.loglinear_fit.moments import moments_of
from bayesprivmrf.learning.select_measure.round_fit import maximal
from bayesprivmrf.model.effects import Effects, contrasts


class Table:
    """As mbi's `Factor`, of what is asked of it."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def datavector(self, flatten: bool = True) -> np.ndarray:
        if flatten:
            return self.values.ravel()
        return self.values


class Here(mbi.MarkovRandomField):
    """As mbi's model, of what is asked of it."""

    def __init__(
        self, domain: mbi.Domain, effects: Effects, beta: np.ndarray, total: float
    ) -> None:
        names = list(domain)
        cliques = [tuple(names[v] for v in scope) for scope in effects.scopes]
        held = {
            "effects": effects,
            "beta": beta,
            "total": total,
            "names": names,
            "engine": moments_of(effects),
        }
        held["potentials"] = SimpleNamespace(domain=domain, cliques=cliques, model=self)
        for name, value in held.items():
            object.__setattr__(self, name, value)

    domain = property(lambda self: self.potentials.domain)
    cliques = property(lambda self: self.potentials.cliques)

    def tables(self, queries) -> dict:
        """Mean counts of any tables, axes as asked."""
        places = [[self.names.index(v) for v in query] for query in queries]
        found = self.engine.tables(self.beta, [tuple(sorted(p)) for p in places])
        order = [np.argsort(np.argsort(p)) for p in places]
        return {
            q: Table(self.total * t.transpose(o))
            for q, t, o in zip(queries, found, order, strict=True)
        }

    def project(self, attrs) -> Table:
        if isinstance(attrs, str):
            query = (attrs,)
        else:
            query = tuple(attrs)
        return self.tables([query])[query]


class Loss:
    """The quadratic form of all tables."""

    def __init__(self, effects: Effects, names: list[str], measured, total: float) -> None:
        cards = effects.cardinalities
        place = dict(zip(effects.subsets, effects.offsets, strict=False))
        self.diagonal, self.linear, self.blocks = np.zeros(effects.size), np.zeros(effects.size), []
        for one in measured:
            positions = [names.index(v) for v in one.clique]
            weights = np.asarray(getattr(one.query, "weights", np.ones(1)))
            values = np.asarray(one.noisy_measurement, dtype=float) / weights
            if len(positions) == 1:
                (v,) = positions
                basis = contrasts(cards[v])
                held = slice(place[(v,)], place[(v,)] + cards[v] - 1)
                weighted = basis.T * np.broadcast_to((weights * total / one.stddev) ** 2, cards[v])
                self.blocks.append((held, weighted @ basis))
                self.linear[held] += weighted @ (values / total - 1 / cards[v])
                continue
            order = np.argsort(positions)
            sums = values.reshape([cards[v] for v in positions]).transpose(order)
            scope = [positions[k] for k in order]
            for v in scope:  # each contraction moves the first axis to the end
                sums = np.tensordot(
                    sums, np.column_stack([np.ones(cards[v]), contrasts(cards[v])]), axes=(0, 0)
                )
            for subset in (
                s for size in range(1, len(scope) + 1) for s in combinations(scope, size)
            ):
                if any(cards[v] == 1 for v in subset):
                    continue
                told = sums[tuple(slice(1, None) if v in subset else 0 for v in scope)].ravel()
                held = slice(place[subset], place[subset] + told.size)
                others = math.prod(cards[v] for v in scope if v not in subset)
                precision = total**2 / (one.stddev**2 * others)
                self.diagonal[held] += precision
                self.linear[held] += precision * told / total

    def __call__(self, means: np.ndarray) -> tuple[float, np.ndarray]:
        curved = self.diagonal * means
        for held, block in self.blocks:
            curved[held] += block @ means[held]
        return float(0.5 * curved @ means - self.linear @ means), curved - self.linear


def estimate(self, domain, measured, *, iters=1000, warm_start=None, **_) -> Here:
    """In place of `mbi.estimation.MirrorDescent.estimate`."""
    names = list(domain)
    cards = tuple(int(domain[v]) for v in domain)
    scopes = [tuple(sorted(names.index(v) for v in one.clique)) for one in measured]
    effects = Effects.of(cards, maximal([*scopes, *((v,) for v in range(len(names)))]))
    total = mbi.estimation.minimum_variance_unbiased_total(measured)
    loss = Loss(effects, names, measured, total)
    engine = moments_of(effects)
    beta = np.zeros(effects.size)
    if warm_start is not None:
        place = dict(zip(effects.subsets, effects.offsets, strict=False))
        last = warm_start.effects
        for subset, start, stop in zip(last.subsets, last.offsets, last.offsets[1:], strict=False):
            beta[place[subset] : place[subset] + stop - start] = warm_start.beta[start:stop]
    means = engine.means(beta)[1]
    value, slope = loss(means)
    step = 2 / max(
        loss.diagonal.max(initial=0), *(b.diagonal().max(initial=0) for _, b in loss.blocks)
    )
    kept = value
    for number in range(1, iters + 1):
        there = beta - step * slope
        means_there = engine.means(there)[1]
        value_there, slope_there = loss(means_there)
        if value - value_there >= 0.5 * step * slope @ (means - means_there):
            beta = there
            means = means_there
            value = value_there
            slope = slope_there
            step = 1.01 * step
        else:
            step *= 0.5
        if number % 100 == 0:
            if kept - value < 1e-9 * abs(value):
                break
            kept = value
    print(
        f"{len(measured)} tables, {effects.size} effects, {number} steps, loss {value:.6g}",
        flush=True,
    )
    return Here(domain, effects, beta, total)


def install() -> None:
    """Put the estimator in the place of mbi's."""
    mbi.estimation.MirrorDescent.estimate = estimate
    mbi.estimation.MirrorDescent.precompile = lambda *_, **__: SimpleNamespace(result=lambda: None)
    mbi.marginal_oracles.bulk_variable_elimination = lambda potentials, queries, *_, **__: (
        potentials.model.tables([tuple(q) for q in queries])
    )
