r"""Engine for the exact posterior over whole records, given a prior and, if there are any, exact sums.

No count is relaxed and nothing is approximated. The chain moves each of the N records given all others and the noisy
numbers (`moves`), and changes their number by births and deaths (`births`). The prior moves its own
parameters given the records: rows of a decomposable model (`rows`), potentials and scales (`effects`), or the rows
that the steps of a chain share (`transitions`). If sums of counts are known exactly or within bounds, `held_moves`
move the records and keep these sums, so exact numbers are not approximated by narrow noise.

The cost is time: a sweep visits a few thousand records, and sums over all cells of the model once for every few
dozen of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.effort import CellSpread, sweeps_of_records
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.measured import log_likelihoods
from bayesprivmrf.inference.posterior.records.births import move_held
from bayesprivmrf.inference.posterior.records.chains import MOVES, Kept, RecordChain, sample_chains
from bayesprivmrf.inference.posterior.records.prior import RecordPrior
from bayesprivmrf.inference.posterior.records.tape import ChainState
from bayesprivmrf.inference.posterior.sampled import Sampled
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pymc as pm

# Effective draws of a chain over which the work of its initial records is spread
_ENOUGH = 100
# Operations of a visit for each cell that it reads, and for each table (benchmark *Choice of the engine*)
_A_CELL, _A_TABLE = 2.2, 90.0


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordEngine:
    """The posterior over whole records given a prior; a `Formulation`.

    Parameters
    ----------
    prior
        The prior, which has the evidence.
    """

    prior: RecordPrior

    @property
    def name(self) -> str:
        """Name of the formulation."""
        return "exact"

    @property
    def evidence(self) -> Evidence:
        """The releases."""
        return self.prior.evidence

    @property
    def total(self) -> float | None:
        """The public number of records; None where it is private."""
        return self.prior.total

    @property
    def first_total(self) -> int:
        """The number of records that chains start with."""
        return self.prior.first_total

    @property
    def judged(self) -> tuple[str, ...]:
        """Variables on which convergence is judged."""
        return self.prior.judged

    @property
    def hidden(self) -> tuple[str, ...]:
        """Variables that are stored for `finish` alone."""
        return self.prior.hidden

    @property
    def settings(self) -> Mapping[str, Any]:
        """The prior's settings, by name."""
        return self.prior.settings

    @property
    def sparsity(self) -> float:
        """Always 0, because nothing is approximated."""
        return 0.0

    @property
    def other(self) -> str | None:
        """Formulation with the same prior and relaxed counts, as `LatentCounts` names it; None if there is none."""
        if self.prior.keeps_sums or self.prior.no_relaxed is not None:
            return None
        return self.prior.relaxed.name.lower()

    def model(self) -> pm.Model:
        """Return the PyMC model of the same posterior with relaxed counts.

        Raises
        ------
        ModelError
            Relaxed counts cannot stand for what was measured, or for this prior.
        """
        if self.prior.keeps_sums:
            raise ModelError(
                "a model of PyMC relaxes the counts, which those known within bounds or without noise do not allow; "
                "leave it out, or leave out the bounds and the exact numbers."
            )
        if self.prior.no_relaxed is not None:
            raise ModelError(self.prior.no_relaxed)
        return self.prior.relaxed.model()

    # what it costs

    @property
    def bytes_a_record(self) -> int:
        """Memory of one record of one chain: its cell of each table of rows."""
        if not self._is_listed:
            return 0
        return len(self.prior.forest.tables) * np.dtype(self._kind).itemsize

    @property
    def _is_listed(self) -> bool:
        return self.prior.is_listed or self.prior.keeps_sums

    @property
    def _kind(self) -> type[np.integer]:
        """Type of the records' cells."""
        return np.int64 if self.prior.keeps_sums else np.int32

    @property
    def operations_a_visit(self) -> float:
        """Operations of one move of a record, or of one proposed birth or death."""
        forest = self.prior.forest
        return _A_CELL * (forest.cells.size + forest.sources.size) + _A_TABLE * len(forest.tables)

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
        sweeps = sweeps_of_records(
            spread, prior.first_total, MOVES, prior.births, error, len(prior.forest.order)
        )
        return self.operations_a_sweep * sweeps + self.operations_a_visit * prior.first_total / _ENOUGH

    # draws

    def chain(self, rng: np.random.Generator) -> RecordChain:
        """Return a new chain, which has no records yet."""
        prior = self.prior
        start, sets = prior.start(rng), prior.sums_tape.lowest.size if prior.keeps_sums else 0
        rows = prior.first_total if self._is_listed else prior.moves
        parts = start.parts
        if prior.keeps_sums:
            parts = {**parts, "wanted": prior.sums.start(prior.first_total, prior.near, rng)}
        return RecordChain(
            sweep=self._sweep,
            kept=start.kept,
            rng=rng,
            total=prior.first_total,
            latent=np.zeros((rows, len(prior.forest.tables)), self._kind),
            state=ChainState.empty(prior.tape, start.shapes, sets),
            births=prior.most_births if self._is_listed else 0,
            parts=parts,
        )

    def _sweep(self, chain: RecordChain, out: Kept, thin: int) -> int:
        prior = self.prior
        if not prior.keeps_sums:
            return prior.sweep(chain, prior.moves, prior.births, chain.latent, out, thin)
        # with exact sums: records by moves that keep them, then the parameters given the records
        nothing = np.zeros((1, chain.latent.shape[1]), np.int32)
        for draw in range(len(out["total"])):
            one = {name: values[draw : draw + 1] for name, values in out.items()}
            for _ in range(thin):
                chain.total = move_held(
                    chain.total, MOVES, prior.births, prior.total_bounds, chain.latent, chain.parts["wanted"],
                    chain.state, prior.tape, prior.sums_tape, chain.rng,
                )  # fmt: skip
                chain.parts = {**chain.parts, "wanted": chain.parts["wanted"][:0]}
                prior.sweep(chain, 0, 0, nothing, one, 1)
        return chain.total

    def sample(
        self,
        *,
        draws: int,
        tune: int,
        chains: int,
        seed: int,
        time_limit: float = math.inf,
        cores: int | None = None,
        progress_bar: bool | None = None,
    ) -> Sampled:
        """Sweep until the smallest effective sample size is enough, or the work reaches `WORK` (`sample_chains`)."""
        values, found = sample_chains(
            [self.chain(np.random.default_rng(child)) for child in np.random.SeedSequence(seed).spawn(chains)],
            self.prior.judged_of, draws=draws, tune=tune, operations=chains * self.operations_a_sweep,
            time_limit=time_limit, cores=cores, progress_bar=progress_bar,
        )  # fmt: skip
        values["counts"] = self.prior.in_order(values["counts"])
        densities = log_likelihoods(self.evidence, self.prior.all_cells(values["counts"])).values()
        return Sampled(
            draws=self.prior.with_more(values),
            statistics={"lp": sum(densities, np.zeros(values["total"].shape))},
            **found,
        )

    def in_order(self, counts: FloatArray) -> FloatArray:
        """Return the model's possible cells of kept counts, in their order."""
        return self.prior.in_order(counts)

    def finish(self, draws: Mapping[str, np.ndarray], rng: np.random.Generator) -> Finished:
        """Return marginals, counts and effects of the draws; nothing is left to be drawn."""
        return self.prior.finish(draws)

    def prior_draws(self, size: int, rng: np.random.Generator) -> Finished:
        """Draw from the prior, shape (1, size, ...), with the integer tables of N records each."""
        return self.prior.prior_draws(size, rng)
