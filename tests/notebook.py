"""What a notebook shows of a value."""

from __future__ import annotations

from typing import Any

from IPython.core.formatters import HTMLFormatter, PNGFormatter

__all__ = ["html_of", "png_of"]


def html_of(value: Any) -> str:
    """The HTML that a notebook shows; there must be one."""
    shown = HTMLFormatter()(value)  # None where making it fails
    assert shown is not None
    return shown


def png_of(value: Any) -> bytes:
    """The picture that a notebook shows; there must be one."""
    shown = PNGFormatter()(value)
    assert shown is not None
    return shown
