"""Clock of the samplers: it stops them and reports how long they took. No draw depends on it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Clock:
    """Clock that counts the seconds since it was made, with a limit.

    Parameters
    ----------
    limit
        Seconds; infinite where there is none.
    """

    limit: float = math.inf
    _begin: float = field(default_factory=time.perf_counter, init=False)

    @property
    def seconds(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self._begin

    @property
    def is_over(self) -> bool:
        """Return True if the limit has passed."""
        return self.seconds > self.limit
