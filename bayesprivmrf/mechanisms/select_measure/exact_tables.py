"""Exact tables of the records, and their misfits to a model: sensitive.

The adaptive rounds see the records in this module alone. Whatever leaves it is an exact number: a table, to which
`rounds` adds noise, or a misfit, on which noisy numbers and private choices depend. `rounds` proves how far a
neighbor moves each of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.learning.select_measure.measured_tables import Merging
from bayesprivmrf.mechanisms.reading.coded import CodedRecords
from bayesprivmrf.mechanisms.select_measure.misfits import (
    independent_misfits,
    misfit,
    pair_misfits,
)
from bayesprivmrf.model.tables import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class ExactTables:
    """Exact tables of coded records, each counted once: sensitive, and printed as such.

    Parameters
    ----------
    records
        The records, of declared states or of merged ones.
    cardinalities
        Number of states of each variable in these records.
    known
        Tables that were counted, flat, by their scopes. Those of single variables are always of declared states.
    """

    records: CodedRecords
    cardinalities: tuple[int, ...]
    known: dict[Scope, IntArray] = field(default_factory=dict)

    @classmethod
    def of(
        cls, records: CodedRecords, declared: tuple[int, ...], variables: Sequence[int]
    ) -> ExactTables:
        """Return tables of declared states, after a count of some single variables."""
        tables = cls(records=records, cardinalities=declared)
        for v in variables:
            tables.table((v,))
        return tables

    def merged(self, merging: Merging) -> ExactTables:
        """Return tables of merged states; single variables keep their counts of declared states."""
        codes = merging.codes(self.records.sensitive_codes)
        return replace(
            self,
            records=replace(self.records, sensitive_codes=codes),
            cardinalities=merging.cardinalities,
        )

    def table(self, scope: Scope) -> IntArray:
        """Return the exact table of a scope, flat."""
        if scope not in self.known:
            shape = [self.cardinalities[v] for v in scope]
            codes = self.records.sensitive_codes
            flat = np.ravel_multi_index(tuple(codes[:, v] for v in scope), shape)
            counts = self.records.sensitive_counts
            table = np.bincount(flat, weights=counts, minlength=math.prod(shape))
            self.known[scope] = table.astype(np.int64)
        return self.known[scope]

    def misfits(self, scopes: Sequence[Scope], expected: Sequence[IntArray]) -> IntArray:
        """Return the misfits of tables to mean counts, from the table of each scope, shape (scopes,)."""
        found = [misfit(self.table(c), e) for c, e in zip(scopes, expected, strict=True)]
        return np.array(found, dtype=np.int64)

    def pair_misfits(
        self, pairs: Sequence[tuple[int, int]], expected: Sequence[IntArray]
    ) -> IntArray:
        """Return the misfits of many pairs to mean counts, without keeping their tables, shape (pairs,)."""
        codes = self.records.sensitive_codes
        counts = self.records.sensitive_counts
        return pair_misfits(codes, counts, self.cardinalities, pairs, expected)

    def independent_misfits(self, shares: Sequence[FloatArray], total: float) -> IntArray:
        """Return the misfits of all pairs to independence, shape (p, p), above the diagonal."""
        codes = self.records.sensitive_codes
        counts = self.records.sensitive_counts
        return independent_misfits(codes, counts, shares, total)

    def __repr__(self) -> str:
        return "ExactTables(sensitive)"
