"""Sequences for a time-homogeneous chain: simulated, or read from the user's files; wide, all of one length."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import DataError

from .registry import DataName

if TYPE_CHECKING:
    import pandas as pd

MSNBC_LENGTH = 16
"""The first events of each visitor that are kept; shorter visits are left out."""

_STATES = {
    "msnbc": [str(state) for state in range(1, 18)],
    "biofam": [str(state) for state in range(8)],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPanel:
    """People who stay where they are or move, by one matrix at all times; from the first law on, stationary or not.

    The probability of staying is 0.6 to 0.95 by state; moves and the first distribution are Dirichlet(1) draws.

    Parameters
    ----------
    people, length, states
        The size of the panel.
    seed
        Seed of matrix and people.
    """

    people: int
    length: int
    states: int
    seed: int

    @property
    def name(self) -> str:
        """Short name, as in tables."""
        return "simulated"

    def settings(self) -> dict[str, Any]:
        """Return what the panel depends on."""
        return {"panel": self.name} | asdict(self)

    def read(self) -> tuple[list[str], pd.DataFrame]:
        """Return the states and the people, one a row."""
        rng = np.random.default_rng([self.seed, self.people, self.length, self.states])
        stay = rng.uniform(0.6, 0.95, self.states)
        matrix = np.diag(stay)
        for state in range(self.states):
            others = np.arange(self.states) != state
            matrix[state, others] = (1 - stay[state]) * rng.dirichlet(np.ones(self.states - 1))
        codes = np.empty((self.people, self.length), dtype=np.int64)
        codes[:, 0] = rng.choice(self.states, self.people, p=rng.dirichlet(np.ones(self.states)))
        bounds = np.cumsum(matrix, axis=1)[:, :-1]
        for t in range(1, self.length):
            codes[:, t] = (rng.random(self.people)[:, np.newaxis] > bounds[codes[:, t - 1]]).sum(
                axis=1
            )
        states = [f"s{state}" for state in range(self.states)]
        return states, _wide(np.array(states)[codes])


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelFile:
    """Sequences from the user's file.

    Parameters
    ----------
    name
        ``"msnbc"`` or ``"biofam"``.
    path
        Its file.
    digest
        Digest of the file's bytes: results are kept for these bytes, wherever the file lies.
    """

    name: DataName
    path: str
    digest: str

    def settings(self) -> dict[str, Any]:
        """Return what the panel depends on."""
        return {"panel": self.name, "digest": self.digest}

    def read(self) -> tuple[list[str], pd.DataFrame]:
        """Return the states and the people, one a row, unprotected.

        Raises
        ------
        DataError
            The file is not what it should be.
        """
        states = _STATES[self.name]
        try:
            if self.name == "msnbc":
                table = _visits(self.path)
            else:
                table = _courses(self.path)
        except (OSError, ValueError):
            raise DataError(
                f"{self.name}'s file must be text of sequences, and it cannot be read so."
            ) from None
        if table.size == 0 or not np.isin(table, states).all():
            raise DataError(
                f"{self.name}'s file must hold sequences of the states {states[0]} to {states[-1]}, and it "
                "holds none or others; name the file as its source gives it."
            )
        return states, _wide(table)


type Panel = SimulatedPanel | PanelFile


def _wide(table: np.ndarray) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(table, columns=[f"x{t + 1}" for t in range(table.shape[1])])


def _visits(path: str) -> np.ndarray:
    """Return the first events of every visit that is long enough."""
    with open(path, encoding="utf-8") as lines:
        visits = [
            line.split(maxsplit=MSNBC_LENGTH)[:MSNBC_LENGTH] for line in lines if line[:1].isdigit()
        ]
    return np.array([visit for visit in visits if len(visit) == MSNBC_LENGTH], dtype=str)


def _courses(path: str) -> np.ndarray:
    import pandas as pd

    return pd.read_csv(path).astype(int).astype(str).to_numpy(dtype=str)
