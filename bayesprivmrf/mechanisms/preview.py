"""Previews of releases: data frames that a notebook shows together with the promise."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bayesprivmrf.cards import card_html
from bayesprivmrf.escaped_frames import text_of
from bayesprivmrf.escapes import printable
from bayesprivmrf.privacy import PrivacyGuarantee


class Preview(pd.DataFrame):
    """Tables or steps of a release that has not been made, one a row; the HTML states the promise as well.

    Whatever is computed from a preview is a plain data frame.
    """

    # pandas keeps the attributes named here when the frame is pickled
    _metadata = ["_mechanism", "_promise"]  # noqa: RUF012

    @classmethod
    def of(
        cls, frame: pd.DataFrame, mechanism: object, guarantee: PrivacyGuarantee | None
    ) -> Preview:
        """Return the preview of a mechanism's release with this guarantee, with the attributes of the frame."""
        made = cls(frame)
        made.attrs |= frame.attrs
        made._mechanism = type(mechanism).__name__
        if guarantee is None:
            made._promise = "No privacy is promised."
        else:
            made._promise = guarantee.sentence()
        return made

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def __repr__(self) -> str:
        return printable(super().__repr__(), keeps_lines=True)

    def to_string(self, buf: Any = None, **settings: Any) -> Any:
        """Return the frame as text, or write it to `buf`; settings are those of pandas."""
        return text_of(super().to_string, {"buf": buf, **settings})

    def _repr_html_(self) -> str:
        facts = [("status", "nothing read, no budget spent"), ("promise", self._promise)]
        facts += [(str(name).replace("_", " "), _text(value)) for name, value in self.attrs.items()]
        rows = printable(super()._repr_html_() or "", keeps_lines=True)
        if "step" in self:
            unit = "steps"
        else:
            unit = "measurements"
        table = f"<details open><summary>{len(self)} {unit}</summary>{rows}</details>"
        return card_html(f"Preview of {self._mechanism}", "", facts, folded=table)


def _text(value: Any) -> str:
    """Return an attribute of a preview as text, with at most four digits of a number."""
    if isinstance(value, tuple | list):
        return " × ".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return printable(str(value))
