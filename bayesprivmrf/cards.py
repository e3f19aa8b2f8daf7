"""Printed form of results, as text and as HTML: a title, a mark on simulated or unprotected results, and facts."""

from __future__ import annotations

import html
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bayesprivmrf.escapes import has_controls, printable

# Mark of everything made from a release whose noise was drawn from a seeded generator
SIMULATED = "from SIMULATED noise: protects nobody"

# Mark of everything made from the data without noise
UNPROTECTED = "exact, unprotected"


# Remedies for methods that users look for on another kind of result
_POSTERIOR = "the posterior of LatentCounts().fit(release) has it"
# the same for methods of every fit with a network
_FIT = "the result of NoiseAwareMAP().fit(release) has it"
# the same for methods of learned models
_LEARNED = "a model that SelectMeasure(rho=...).release(network, data) learned has it"
# the remedy by the name of a method
_ELSEWHERE = {
    **dict.fromkeys(("quantity", "edge_presence", "predictive_check", "synthetic"), _POSTERIOR),
    **dict.fromkeys(("network_at", "solution_at", "pymc_model", "summary", "save"), _POSTERIOR),
    **dict.fromkeys(("interval", "marginal", "marginals", "probability", "sample"), _FIT),
    **dict.fromkeys(("network", "potentials", "log_partition", "assumptions"), _FIT),
    **dict.fromkeys(("association", "graph", "couplings_interval", "unsupported_states"), _LEARNED),
}


def escaped(table: Any, texts: Iterable[object]) -> Any:
    """Return a data frame that prints escapes for control characters; the frame itself if no text has any.

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
        if hasattr(made, "add_edge"):
            attributes = labeled.graph
        else:
            attributes = labeled.attrs
        attributes.update(simulated=1, privacy=SIMULATED)
    return made


class Card:
    """Mixin of a result that is printed as a list of facts.

    Text and HTML show the headline and the problems. In the HTML of a notebook, the assumptions and the other facts
    fold away below them; the text of a fit says where they are.
    """

    @abstractmethod
    def _facts(self) -> list[tuple[str, str]]:
        """Return names and values, in order."""

    @property
    def _mark(self) -> str:
        """Warning beside the title, or an empty text."""
        return ""

    def _headline(self) -> list[tuple[str, str]]:
        """Return the facts that are shown at first sight."""
        return self._facts()

    def _folded(self) -> dict[str, list[tuple[str, str]]]:
        """Return further facts by the heading under which the HTML folds them away."""
        return {}

    if not TYPE_CHECKING:  # for a type checker, a result has its own attributes alone

        def __getattr__(self, name: str) -> Any:
            """Raise an error for a missing attribute; it names the result that has the attribute, if any."""
            # Python also calls this after a property raised an AttributeError; the property raises it again
            own = next(
                (vars(base)[name] for base in type(self).__mro__ if name in vars(base)), None
            )
            if own is not None:
                return own.__get__(self, type(self))
            kind = type(self).__name__
            if name not in _ELSEWHERE:
                raise AttributeError(
                    f"{kind!r} object has no attribute {name!r}", name=name, obj=self
                )
            has_solution = _ELSEWHERE[name] is _FIT and hasattr(type(self), "solution")
            if has_solution:
                remedy = "its `solution` has it"
            else:
                remedy = _ELSEWHERE[name]
            raise AttributeError(f"a {kind} has no `{name}`; {remedy}.")

    def __repr__(self) -> str:
        facts = self._headline()
        problems = getattr(self, "problems", ())
        if problems and "problems" not in dict(facts):
            facts = [*facts, ("problems", "; ".join(problems))]
        if hasattr(self, "stats"):
            facts = [*facts, ("see also", "`assumptions`, and `stats` for the numbers of the fit")]
        facts = [(printable(name), printable(value)) for name, value in facts]
        width = max((len(name) for name, _ in facts), default=0)
        lines = [f"  {name:<{width}}  {value}" for name, value in facts]
        return "\n".join([f"{type(self).__name__}{self._mark and f' ({self._mark})'}", *lines])

    def _repr_html_(self) -> str:
        problems, assumptions = (getattr(self, name, ()) for name in ("problems", "assumptions"))
        facts = [fact for fact in self._headline() if fact[0] != "problems"]
        folded = "".join(
            _details(title, _table(own)) for title, own in self._folded().items() if own
        )
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
    if problems:
        warned = f"<strong>Problems</strong>{_list(problems)}"
    else:
        warned = ""
    if assumptions:
        assumed = _details(f"Assumptions ({len(assumptions)})", _list(assumptions))
    else:
        assumed = ""
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


def fit_headline(
    facts: Sequence[tuple[str, str]], stats: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Return the facts of a fit without its numbers, and with the number of records."""
    # a sentence about guarantees that do not add up is no number of the fit
    numbers = {fact for fact in stated(stats) if fact[0] != "guarantees"}
    found = [fact for fact in facts if fact not in numbers]
    total = stats.get("estimated_total")
    error = stats.get("total_standard_error")
    if total is not None and error is not None:
        found.append(
            ("records", f"about {total:,.0f} ± {error:,.0f}" if error else f"{total:,.0f}")
        )
    return found
