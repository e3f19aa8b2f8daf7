"""Escapes for control characters in text that is shown.

Names and states may come from a file that somebody forged, and a terminal obeys control characters. `printable`
escapes them wherever text is shown: in cards, frames (`bayesprivmrf.cards.escaped`), the dimensions of tables and
trees, errors, warnings, and the output of the command line. Labels themselves are never changed.
"""

from __future__ import annotations

import re

# Control characters, surrogates, line and paragraph separators, and marks that turn the direction of writing
CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str, *, keeps_lines: bool = False) -> str:
    r"""Return text with escapes for characters that would move a terminal's cursor or imitate a line.

    Parameters
    ----------
    text
        The text.
    keeps_lines
        Whether to keep line feeds, for a text of several lines whose names are escaped already.

    Examples
    --------
    >>> printable("record\n\x1b[2J") == r"record\n\x1b[2J"
    True
    """
    if keeps_lines:
        return "\n".join(map(printable, text.split("\n")))
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def has_controls(value: object) -> bool:
    """Return True if a label has control characters that pandas would print, in a tuple or a set as well."""
    if isinstance(value, tuple | frozenset):
        return any(map(has_controls, value))
    return bool(CONTROLS.search(str(value)))
