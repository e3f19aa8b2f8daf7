"""Printed form of results, as text and as HTML: a title, a mark on simulated or unprotected results, and facts."""

from __future__ import annotations

import html
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bayesprivmrf.escapes import has_controls, printable

# Mark of everything made from a release whose noise was drawn from a seeded generator
SIMULATED = "from SIMULATED noise: protects nobody"

# Mark of everything made from the data without noise
UNPROTECTED = "exact, unprotected"


def escaped(table: Any, texts: Iterable[object]) -> Any:
    """Return a data frame as it is, or, if a text in it has control characters, as one that prints their escapes.

    Parameters
    ----------
    table
        The data frame.
    texts
        Names, states and other text that the frame shows.
    """
    if not any(map(has_controls, texts)):
        return table
    from bayesprivmrf.escaped_frames import as_escaped

    return as_escaped(table)


def marked[T](made: T, is_simulated: bool) -> T:
    """Return a table, frame or network made from a release, marked in its attributes if the noise was seeded."""
    if is_simulated:
        labeled: Any = made
        attributes = labeled.graph if hasattr(made, "add_edge") else labeled.attrs
        attributes.update(simulated=1, privacy=SIMULATED)
    return made


class Card:
    """Mixin of a result that is printed as a list of facts.

    The HTML of a notebook shows the headline and the problems. The assumptions and the other facts fold away below
    them.
    """

    @abstractmethod
    def _facts(self) -> list[tuple[str, str]]:
        """Return names and values, in order."""

    @property
    def _mark(self) -> str:
        """Warning beside the title, or an empty text."""
        return ""

    def _headline(self) -> list[tuple[str, str]]:
        """Return the facts that the HTML shows at first sight."""
        return self._facts()

    def _folded(self) -> dict[str, list[tuple[str, str]]]:
        """Return further facts by the heading under which the HTML folds them away."""
        return {}

    def __repr__(self) -> str:
        facts = [(printable(name), printable(value)) for name, value in self._facts()]
        width = max((len(name) for name, _ in facts), default=0)
        lines = [f"  {name:<{width}}  {value}" for name, value in facts]
        return "\n".join([f"{type(self).__name__}{self._mark and f' ({self._mark})'}", *lines])

    def _repr_html_(self) -> str:
        problems, assumptions = (getattr(self, name, ()) for name in ("problems", "assumptions"))
        facts = [fact for fact in self._headline() if fact[0] != "problems"]
        folded = "".join(_details(title, _table(own)) for title, own in self._folded().items() if own)
        return card_html(type(self).__name__, self._mark, facts, problems, assumptions, folded)


def card_html(
    title: str,
    mark: str,
    facts: Sequence[tuple[str, str]],
    problems: Sequence[str] = (),
    assumptions: Sequence[str] = (),
    folded: str = "",
) -> str:
    """Return the HTML of a card. Only `folded` is HTML already; all other text is escaped here.

    The colors are those of the page, so that the card can be read on light and on dark ones.

    Examples
    --------
    >>> "a &lt; b" in card_html("Release", "", [("variables", "a < b")])
    True
    """
    badge = "display:inline-block;border:1px solid;border-radius:3px;padding:0 4px;margin-left:6px"
    label = mark and f"<strong style='{badge}'>{_escaped(mark)}</strong>"
    warned = f"<strong>Problems</strong>{_list(problems)}" if problems else ""
    assumed = _details(f"Assumptions ({len(assumptions)})", _list(assumptions)) if assumptions else ""
    return f"<div><strong>{_escaped(title)}</strong>{label}{_table(facts)}{warned}{assumed}{folded}</div>"


def _escaped(text: str) -> str:
    return html.escape(printable(text))


def _table(facts: Sequence[tuple[str, str]]) -> str:
    """Return a table of facts; a value of more than 240 letters folds away behind its beginning."""
    rows = []
    for name, value in facts:
        text = _escaped(value)
        if len(value) > 240:
            text = _details(f"{value[:80]} …", text)
        left = "style='text-align:left'"
        rows.append(f"<tr><th {left}>{_escaped(name)}</th><td {left}>{text}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _list(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_escaped(sentence)}</li>' for sentence in sentences)}</ul>"


def _details(title: str, content: str) -> str:
    return f"<details><summary>{_escaped(title)}</summary>{content}</details>"


def stated(stats: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the numbers of a fit as facts."""
    return [
        (name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value))
        for name, value in stats.items()
    ]


def fit_headline(facts: Sequence[tuple[str, str]], stats: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts of a fit without its numbers, and with the number of records."""
    numbers = {name for name, _ in stated(stats)}
    found = [fact for fact in facts if fact[0] not in numbers]
    total, error = stats.get("estimated_total"), stats.get("total_standard_error")
    if total is not None and error is not None:
        found.append(("records", f"about {total:,.0f} ± {error:,.0f}" if error else f"{total:,.0f}"))
    return found
