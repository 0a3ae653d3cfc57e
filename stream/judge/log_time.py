"""Log time: the running maximum of the journal's append times (rule 15).

With a lifetime, an append time counts at most as a *cap*, ten minutes ahead of the leader's clock. So one
broker whose clock is years ahead expires no page. A decision records the cap where it binds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stream.tables.arrays import I64

AHEAD_MS: Final = 600_000
"""How far an append time may be ahead of the leader's clock, in milliseconds."""


def log_times(before: int, appended: Sequence[int], cap: int | None) -> I64:
    """Return the log time (n,) after each of n records with these append times, in milliseconds since the
    epoch, after the log time `before`."""
    times = np.array([before, *appended], np.int64)
    if cap is not None:
        np.minimum(times[1:], cap, out=times[1:])
    running: I64 = np.maximum.accumulate(times)
    return running[1:]


def binding(before: int, appended: Sequence[int], cap: int | None) -> int | None:
    """Return the cap if log time would be another without it, else None."""
    return cap if cap is not None and max(appended, default=before) > max(before, cap) else None
