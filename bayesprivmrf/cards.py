"""How results show themselves: a title, a mark that nobody overlooks, and a few facts, as text and as HTML."""

from __future__ import annotations

import html
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

# Mark of everything made from a release whose noise was drawn from a seeded generator
SIMULATED = "from SIMULATED noise: protects nobody"

# Control characters, surrogates, line and paragraph separators, and marks that turn the direction of writing.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return text on one line, with escapes for characters that would move a terminal's cursor or imitate a line.

    Examples
    --------
    >>> printable("record\n\x1b[2J") == r"record\n\x1b[2J"
    True
    """
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def marked[T](made: T, is_simulated: bool) -> T:
    """Return a table, frame or network made from a release, marked in its attributes if the noise was seeded."""
    if is_simulated:
        held: Any = made
        attributes = held.graph if hasattr(made, "add_edge") else held.attrs
        attributes.update(simulated=1, privacy=SIMULATED)
    return made


class Card:
    """Mixin of a result that is shown as a list of facts."""

    @abstractmethod
    def _facts(self) -> list[tuple[str, str]]:
        """Return names and values, in order."""

    @property
    def _mark(self) -> str:
        """Words behind the title: nothing, or a warning."""
        return ""

    def __repr__(self) -> str:
        facts = [(printable(name), printable(value)) for name, value in self._facts()]
        width = max((len(name) for name, _ in facts), default=0)
        lines = [f"  {name:<{width}}  {value}" for name, value in facts]
        return "\n".join([f"{type(self).__name__}{self._mark and f' ({self._mark})'}", *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(printable(name))}</th>"
            f"<td style='text-align:left'>{html.escape(printable(value))}</td></tr>"
            for name, value in self._facts()
        )
        mark = self._mark and f" <strong>({html.escape(self._mark)})</strong>"
        return f"<div><strong>{type(self).__name__}</strong>{mark}<table>{rows}</table></div>"


def stated(stats: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the numbers of a fit as facts."""
    return [
        (name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value))
        for name, value in stats.items()
    ]
