"""Data frames that print names and states with escapes, so that a forged file cannot write to a terminal.

Only frames with such text have these classes (`bayesprivmrf.cards.escaped`); all others are plain data frames. The
labels themselves stay as they were declared.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from bayesprivmrf.escapes import printable


def as_escaped(table: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with the same content and attributes that prints escapes."""
    made = _EscapedFrame(table)
    made.attrs |= table.attrs
    return made


def text_of(write: Any, settings: dict[str, Any]) -> str | None:
    """Return the text that a method of pandas writes, escaped, or write it to the buffer in the settings."""
    buffer = settings.pop("buf", None)
    text = printable(write(**settings), keeps_lines=True)
    if buffer is None:
        return text
    if hasattr(buffer, "write"):
        buffer.write(text)
    else:
        with open(buffer, "w", encoding=settings.get("encoding") or "utf-8") as file:
            file.write(text)
    return None


class _EscapedFrame(pd.DataFrame):
    """Data frame whose text and HTML have escapes in place of control characters."""

    @property
    def _constructor(self) -> Any:
        return _EscapedFrame

    @property
    def _constructor_sliced(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _EscapedSeries

    def __repr__(self) -> str:
        return printable(super().__repr__(), keeps_lines=True)

    def _repr_html_(self) -> str | None:
        found = super()._repr_html_()
        if found is None:
            return None
        return printable(found, keeps_lines=True)

    def to_string(self, buf: Any = None, **settings: Any) -> Any:
        """Return the frame as text, or write it to `buf`; settings are those of pandas."""
        return text_of(super().to_string, {"buf": buf, **settings})

    def to_html(self, buf: Any = None, **settings: Any) -> Any:
        """Return the frame as HTML, or write it to `buf`; settings are those of pandas."""
        return text_of(super().to_html, {"buf": buf, **settings})


class _EscapedSeries(pd.Series):
    """Column of an `_EscapedFrame`."""

    @property
    def _constructor(self) -> Any:
        return _EscapedSeries

    @property
    def _constructor_expanddim(self) -> Any:
        return _EscapedFrame

    def __repr__(self) -> str:
        return printable(super().__repr__(), keeps_lines=True)

    def to_string(self, buf: Any = None, **settings: Any) -> Any:
        """Return the series as text, or write it to `buf`; settings are those of pandas."""
        return text_of(super().to_string, {"buf": buf, **settings})
