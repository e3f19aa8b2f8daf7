r"""Engine for the exact posterior over whole records, given a prior and, if there are any, exact sums.

No count is relaxed and nothing is approximated. A chain moves each of the N records given all others and the noisy
numbers (`moves`), and changes their number by births and deaths (`births`). The prior moves its own parameters given
the records: shapes of the rows of a decomposable model (`prior`), potentials and scales (`effects`), or the rows that
the steps of a chain share (`transitions`). If sums of counts are known exactly or within bounds, the moves keep
them, so exact numbers are not approximated by narrow noise.

The price is time: a sweep visits up to a few thousand records, and sums over all cells of the model once for every
few dozen records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.formulation import CellSpread, Finished, Sampled, sweeps_of_records
from bayesprivmrf.inference.posterior.measured import log_likelihoods
from bayesprivmrf.inference.posterior.records.chains import (
    MOVES,
    ChainState,
    Kept,
    RecordChain,
    sample_chains,
)
from bayesprivmrf.inference.posterior.records.prior import RecordPrior

if TYPE_CHECKING:
    import pymc as pm


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordEngine:
    """Formulation of the posterior over whole records, given a prior.

    Parameters
    ----------
    prior
        The prior, which has the evidence.
    """

    prior: RecordPrior

    name: ClassVar[str] = "exact"
    """Name of the formulation."""
    sparsity: ClassVar[float] = 0.0
    """Half-counts per record: always 0, because nothing is approximated."""

    @property
    def evidence(self) -> Evidence:
        """Evidence of the releases."""
        return self.prior.evidence

    @property
    def first_total(self) -> int:
        """Number of records with which chains start."""
        return self.prior.first_total

    @property
    def judged(self) -> tuple[str, ...]:
        """Variables on which convergence is judged."""
        return self.prior.judged

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the prior, by name."""
        return self.prior.settings

    @property
    def other(self) -> str | None:
        """Name of the formulation with the same prior and relaxed counts; None if there is none."""
        if self.prior.keeps_sums or self.prior.no_relaxed is not None:
            return None
        return self.prior.relaxed.name.lower()

    def model(self) -> pm.Model:
        """Return the PyMC model of the same posterior with relaxed counts.

        Raises
        ------
        ModelError
            Relaxed counts cannot represent the measurements, or this prior.
        """
        if self.prior.keeps_sums:
            raise ModelError(
                "this posterior has no PyMC model: PyMC relaxes the counts, and exact or bounded counts cannot be "
                "relaxed. Read its draws in `tree`, or fit a release without bounds and exact numbers."
            )
        if self.prior.no_relaxed is not None:
            raise ModelError(self.prior.no_relaxed)
        return self.prior.relaxed.model()

    # memory and work
    @property
    def bytes_a_record(self) -> int:
        """Memory of one record of one chain: its cell in each table of rows."""
        return 4 * len(self.prior.forest.tables) if self.prior.is_listed else 0

    @property
    def operations_a_visit(self) -> float:
        """Operations of one move of a record, or of one proposed birth or death."""
        forest = self.prior.forest
        # for each cell that a visit reads, and for each table (benchmark `engine_choice`)
        return 2.2 * (forest.cells.size + forest.sources.size) + 90.0 * len(forest.tables)

    @property
    def operations_a_sweep(self) -> float:
        """Operations of one sweep of one chain (`effort`)."""
        prior = self.prior
        visits = min(prior.first_total, prior.moves) + prior.births
        return self.operations_a_visit * visits + prior.parameter_operations

    @property
    def work(self) -> float:
        """Operations per effective draw, including those of the initial records (`effort`)."""
        prior = self.prior
        error = 0.0 if prior.total is not None else prior.evidence.total_standard_error
        spread = CellSpread.of(prior.evidence, prior.measured, prior.first_total)
        cliques = len(prior.forest.order)
        sweeps = sweeps_of_records(spread, prior.first_total, MOVES, prior.births, error, cliques)
        # the work of the initial records is spread over 100 effective draws
        return self.operations_a_sweep * sweeps + self.operations_a_visit * prior.first_total / 100

    # draws

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """Return a new chain without records."""
        prior, total = self.prior, self.prior.first_total
        start, wanted = prior.start(rng), np.zeros((total, 0), np.int64)
        if prior.keeps_sums:
            wanted = prior.sums.start(total, prior.near, rng)
        return RecordChain(
            sweep=prior.sweep,
            kept=start.kept,
            rng=rng,
            total=total,
            latent=np.zeros((total if prior.is_listed else prior.moves, len(prior.forest.tables)), np.int32),
            state=ChainState.empty(prior.data, start.shapes),
            births=prior.most_births if prior.is_listed else 0,
            parts=start.parts,
            wanted=wanted,
        )

    def sample(self, *, chains: int, seed: int, **how: Any) -> Sampled:
        """Sweep until the chains have mixed; the other arguments are those of `sample_chains`."""
        seeds = np.random.SeedSequence(seed).spawn(chains)
        states = [self.chain(np.random.default_rng(child)) for child in seeds]
        operations = chains * self.operations_a_sweep
        values, found = sample_chains(states, self._judged_of, operations=operations, **how)
        values = self._in_order(values)
        densities = log_likelihoods(self.evidence, self.prior.all_cells(values["counts"])).values()
        lp = sum(densities, np.zeros(values["total"].shape))
        return Sampled(draws=values, statistics={"lp": lp}, **found)

    def _in_order(self, kept: Kept) -> Kept:
        """Return draws with counts in the model's order, and the functions of them by which mixing is judged."""
        return self.prior.with_more({**kept, "counts": self.prior.in_order(kept["counts"])})

    def _judged_of(self, kept: Kept) -> list[np.ndarray]:
        draws = self._in_order(kept)
        return [draws[name] for name in self.judged]

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Return marginals, counts and effects of the draws."""
        return self.prior.finish(draws)

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the tables of N whole records."""
        return self.prior.prior_draws(size, rng)
