"""What every release has, whatever it holds: how it was made, what to say of its privacy, and a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayesprivmrf.cards import Card
from bayesprivmrf.privacy import PrivacyGuarantee

__all__ = ["Provenance", "Released"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How a release was made.

    Parameters
    ----------
    mechanism
        Name of the mechanism's class.
    settings
        Its settings, as text and numbers.
    simulated
        True where the noise came from a seeded generator: such a release protects nobody.
    versions
        Versions of the libraries that drew the noise.
    """

    mechanism: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    simulated: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)


class Released(Card):
    """Mixin of a frozen dataclass with a `guarantee` and a `provenance`."""

    guarantee: Any  # a PrivacyGuarantee; None where nothing is promised, which few kinds allow
    provenance: Provenance

    @property
    def is_exact(self) -> bool:
        """Whether it holds something that no noise protects."""
        return False

    def privacy_statement(self) -> str:
        """Sentence about privacy that can be pasted into a paper."""
        if self.provenance.simulated:
            return (
                "The noise of this release was drawn from a seeded generator for a simulation: "
                "it protects nobody and must not be published as a private release."
            )
        return self._promise(self.guarantee)

    def _promise(self, guarantee: PrivacyGuarantee) -> str:
        return guarantee.sentence()

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the release to one file, which `bayesprivmrf.load_release` reads.

        Raises
        ------
        ReleaseFileError
            The path cannot be written, or holds another release and `overwrite` is False.
        """
        from bayesprivmrf.release.file import write_release

        write_release(self, path, overwrite=overwrite)

    @property
    def _mark(self) -> str:
        return "SIMULATED: protects nobody" if self.provenance.simulated else ""
