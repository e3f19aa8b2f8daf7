"""Documents of headings, paragraphs, tables and pictures, written as one HTML file or as Markdown.

All text is escaped here: names and states may come from a file that somebody forged.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bayesprivmrf.escapes import printable

# ASCII characters that have a meaning in Markdown, in pandoc's and Quarto's dialects as well
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|$@~^&!]")
# beginnings of a text that would make a list, a block or a rule of it
_BEGINNINGS = re.compile(r"^(\d*)([.)]|[-+:=])(?=\s|[:=]|$)")

# A color that a page may set, with the color that it has elsewhere
_VARIABLE = re.compile(r"var\(--[a-z]+, (#[0-9a-f]{6})\)")

# Style of the page: the reader's own font, light or dark as the reader's system, and black on white in print
_STYLE = """
:root { color-scheme: light dark; --text: #1a1a1a; --page: #ffffff; --faint: #595959; --line: #d0d0d0;
  --mark: #8a3200; --shade: #f4f4f4; --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e6e6; --page: #16181c; --faint: #a8a8a8;
  --line: #44484f; --mark: #ffb787; --shade: #23262c; --accent: #56b4e9; } }
body { color: var(--text); background: var(--page); font: 16px/1.5 system-ui, sans-serif; max-width: 52rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.25; }
h2 { font-size: 1.25rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0.4rem 0; }
th, td { padding: 0.2rem 0.8rem 0.2rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
.number { text-align: right; white-space: nowrap; }
.mark { color: var(--mark); font-weight: 600; }
.badge { border: 2px solid var(--mark); color: var(--mark); padding: 0.4rem 0.8rem; font-weight: 600; }
figure { margin: 1rem 0; }
figure svg { max-width: 100%; height: auto; }
figure.small svg { max-width: 26rem; }
figure svg text { font-family: inherit !important; }
figcaption, .faint { color: var(--faint); font-size: 0.875rem; }
pre { background: var(--shade); padding: 0.8rem; font-size: 0.8rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
@media print { :root { color-scheme: light; --text: #000000; --page: #ffffff; --faint: #333333;
  --line: #999999; --mark: #000000; --shade: #ffffff; --accent: #0072b2; }
  body { font-size: 10pt; max-width: none; margin: 0; padding: 0; }
  .wide { overflow: visible; } table { font-size: 8.5pt; }
  h2, caption { break-after: avoid; } tr, figure { break-inside: avoid; } thead { display: table-header-group; } }
"""


class Block(Protocol):
    """A part of a section."""

    def html(self) -> str:
        """Return the part as HTML."""
        ...

    def markdown(self) -> str:
        """Return the part as Markdown, without empty lines around it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    """A paragraph; a marked one is a warning."""

    text: str
    is_marked: bool = False

    def html(self) -> str:
        """Return the paragraph as HTML."""
        kind = ' class="badge"' if self.is_marked else ""
        return f"<p{kind}>{in_html(self.text)}</p>"

    def markdown(self) -> str:
        """Return the paragraph as Markdown."""
        text = in_markdown(self.text)
        if self.is_marked:
            return f"**{text}**"
        return text


@dataclass(frozen=True, kw_only=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]

    def html(self) -> str:
        """Return the list as HTML."""
        return f"<ul>{''.join(f'<li>{in_html(item)}</li>' for item in self.items)}</ul>"

    def markdown(self) -> str:
        """Return the list as Markdown."""
        return "\n".join(f"- {in_markdown(item)}" for item in self.items)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of text.

    Parameters
    ----------
    caption
        Heading of the table.
    header
        Names of the columns.
    rows
        Text of the cells.
    numbers
        Columns of numbers, by position, which are flush right.
    marked
        Rows of which the reader must beware, by position.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()

    def html(self) -> str:
        """Return the table as HTML."""
        head = "".join(self._cell("th", place, text) for place, text in enumerate(self.header))
        body = "".join(self._row(place) for place in range(len(self.rows)))
        caption = f"<caption>{in_html(self.caption)}</caption>"
        return (
            f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def _row(self, place: int) -> str:
        """Return one row as HTML."""
        kind = ' class="mark"' if place in self.marked else ""
        cells = "".join(
            self._cell("td", column, text) for column, text in enumerate(self.rows[place])
        )
        return f"<tr{kind}>{cells}</tr>"

    def _cell(self, tag: str, column: int, text: str) -> str:
        """Return one cell as HTML."""
        kind = ' class="number"' if column in self.numbers else ""
        return f"<{tag}{kind}>{in_html(text)}</{tag}>"

    def markdown(self) -> str:
        """Return the table as a pipe table, with its caption above it."""
        rules = ["---:" if place in self.numbers else ":---" for place in range(len(self.header))]
        lines = [list(map(in_markdown, self.header)), rules]
        lines += [list(map(in_markdown, row)) for row in self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"**{in_markdown(self.caption)}**\n\n{table}"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture.

    Parameters
    ----------
    svg
        An SVG element, made by this library.
    caption
        Sentence below the picture.
    is_small
        Whether half the width of the page suffices.
    """

    svg: str
    caption: str
    is_small: bool = False

    def html(self) -> str:
        """Return the picture as HTML."""
        kind = ' class="small"' if self.is_small else ""
        caption = f"<figcaption>{in_html(self.caption)}</figcaption>"
        return f"<figure{kind}>{self.svg}{caption}</figure>"

    def markdown(self) -> str:
        """Return the picture as a Markdown image that holds its own data."""
        # outside a page, nothing else gives the picture its colors
        drawn = _VARIABLE.sub(r"\1", self.svg).replace("currentColor", "#000000")
        data = base64.b64encode(drawn.encode()).decode()
        return f"![{in_markdown(self.caption)}](data:image/svg+xml;base64,{data})"


@dataclass(frozen=True, kw_only=True)
class Code:
    """Text that is copied as it is, such as a BibTeX entry."""

    text: str

    def html(self) -> str:
        """Return the text as HTML."""
        return f"<pre>{html.escape(printable(self.text, keeps_lines=True))}</pre>"

    def markdown(self) -> str:
        """Return the text as an indented block, which nothing in the text can end."""
        lines = printable(self.text, keeps_lines=True).split("\n")
        return "\n".join(f"    {line}".rstrip() for line in lines)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with its parts."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document.

    Parameters
    ----------
    title
        Title of the document.
    sections
        Its sections, in order.
    """

    title: str
    sections: Sequence[Section] = field(default_factory=list)

    def html(self) -> str:
        """Return one HTML page that needs no other file and runs no script."""
        parts = []
        for section in self.sections:
            parts.append(f"<h2>{in_html(section.title)}</h2>")
            parts += [block.html() for block in section.blocks]
        title = in_html(self.title)
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return "\n".join(
            [
                '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>",
                *parts,
                "</body>\n</html>\n",
            ]
        )

    def markdown(self) -> str:
        """Return Markdown with a title block, for Quarto and pandoc."""
        parts = [f"---\ntitle: {_quoted(self.title)}\n---"]
        for section in self.sections:
            parts.append(f"## {in_markdown(section.title)}")
            parts += [block.markdown() for block in section.blocks]
        return "\n\n".join(parts) + "\n"


def in_html(text: str) -> str:
    """Return text escaped for HTML."""
    return html.escape(printable(text))


def in_markdown(text: str) -> str:
    """Return text escaped for Markdown, as one line."""
    escaped = _MARKDOWN.sub(r"\\\g<0>", printable(text))
    return _BEGINNINGS.sub(r"\1\\\2", escaped)


def _quoted(text: str) -> str:
    """Return text as a quoted string of YAML."""
    inside = printable(text).replace("'", "''")
    return f"'{inside}'"
