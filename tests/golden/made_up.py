"""Made-up records and networks of the golden tests, by arithmetic alone: no generator's stream can change them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

BINARY = {name: ["no", "yes"] for name in ("smokes", "coughs", "ill", "old")}
CHAIN = [("smokes", "coughs"), ("coughs", "ill"), ("ill", "old")]

SURVEY = {"sex": ["f", "m"], "pregnant": ["no", "yes"], "age": ["young", "middle", "old"]}
SURVEY_CLIQUES = [("sex", "pregnant"), ("pregnant", "age")]
NO_PREGNANT_MEN = [{"sex": "m", "pregnant": "yes"}]

NODES = tuple(("wave", number) if number % 3 == 0 else f"n{number}" for number in range(60))


def pattern(rows: int, factor: int, modulus: int) -> np.ndarray:
    """Numbers in [0, 1), shape (rows,), without an order that one sees."""
    return (np.arange(rows) * factor % modulus) / modulus


def binary_codes(rows: int) -> np.ndarray:
    """Codes of `BINARY`, each variable mostly as the one before, shape (rows, 4)."""
    columns = [pattern(rows, 389, 1009) < 0.4]
    for factor, modulus in ((211, 997), (577, 991), (101, 983)):
        columns.append(columns[-1] ^ (pattern(rows, factor, modulus) < 0.25))
    return np.stack(columns, axis=1).astype(int)


def survey_codes(rows: int) -> np.ndarray:
    """Codes of `SURVEY`, no man being pregnant, shape (rows, 3)."""
    sex = (pattern(rows, 389, 1009) < 0.5).astype(int)
    pregnant = ((pattern(rows, 211, 997) < 0.2) & (sex == 0)).astype(int)
    age = np.where(pregnant == 1, 0, (3 * pattern(rows, 577, 991)).astype(int))
    return np.stack([sex, pregnant, age], axis=1)


def labelled(states: dict[Any, list[Any]], codes: np.ndarray) -> pd.DataFrame:
    """Records with the labels of the states."""
    return pd.DataFrame(
        {
            name: [labels[code] for code in codes[:, j]]
            for j, (name, labels) in enumerate(states.items())
        }
    )


def binary_records(rows: int = 600) -> pd.DataFrame:
    return labelled(BINARY, binary_codes(rows))


def survey_records(rows: int = 600) -> pd.DataFrame:
    return labelled(SURVEY, survey_codes(rows))


def network_edges() -> list[tuple[Any, Any]]:
    """A ring of `NODES` with a few chords."""
    count = len(NODES)
    ring = [(NODES[i], NODES[(i + 1) % count]) for i in range(count)]
    return ring + [(NODES[i], NODES[i + count // 2]) for i in range(0, count // 2, 5)]


def outcomes() -> np.ndarray:
    """Outcomes of `NODES`, in stretches of one sign."""
    return np.where(np.arange(len(NODES)) % 12 < 7, 1, -1)
