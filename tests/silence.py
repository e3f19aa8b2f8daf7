"""Whether a release says nothing of its noise."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from bayesprivmrf.errors import NoiseWarning


@contextmanager
def no_noise_warning() -> Iterator[None]:
    """Fail if there is one; making them errors would not show it, for a release that was paid for is never lost."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert [str(one.message) for one in caught if issubclass(one.category, NoiseWarning)] == []
