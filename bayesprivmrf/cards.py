"""How results show themselves: a title, a mark that nobody overlooks, and a few facts, as text and as HTML."""

from __future__ import annotations

import html
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

__all__ = ["Card", "stated"]


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
        facts = self._facts()
        width = max((len(name) for name, _ in facts), default=0)
        lines = [f"  {name:<{width}}  {value}" for name, value in facts]
        return "\n".join([f"{type(self).__name__}{self._mark and f' ({self._mark})'}", *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
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
