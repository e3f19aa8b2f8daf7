"""Decomposable models of which every integer table can be listed."""

from inference.conftest import specification

BINARY = specification({v: [0, 1] for v in "abc"}, [("a", "b"), ("b", "c")])
UNEQUAL = specification(
    {"a": [0, 1], "b": [0, 1], "c": [0, 1], "d": [0, 1, 2]}, [("a", "b", "c"), ("c", "d")]
)
ZEROS = specification(
    {"a": [0, 1, 2], "b": [0, 1], "c": [0, 1, 2]},
    [("a", "b"), ("b", "c")],
    [(("a", 2), ("b", 0)), (("b", 1), ("c", 0))],
)
