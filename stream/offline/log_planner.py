"""What brokers and a store of checkpoints hold for a number of pages, with and without trimming.

Bytes a page are measured (docs/operations.md, Sizing). What they take depends on the time in which the pages
come: a trimmed log has those of the time to keep, and of the interval between trims.
"""

from __future__ import annotations

from typing import Final

import msgspec

JOURNAL_BYTES, DECISIONS_BYTES = 466, 3
"""Of a page, on one replica."""
REPLICAS: Final = 3
"""Of journal and decisions, as roles require."""
DAY: Final = 86_400.0
STORED: Final = 2.0
"""Bytes in the store, to those of the state: checkpoints share their files, but for what is merged between
them, and what was merged stays for a day."""


class LogPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes outside the judges, for all pages."""

    replicas: int
    brokers: float
    """Bytes of journal and decisions on all replicas, without trimming."""
    trimmed: float
    """The same with trimming, at its largest."""
    store: float
    """Bytes of checkpoints at most."""


def plan_logs(pages: int, state: float, days: float, keep: float) -> LogPlan:
    """Compute what brokers and store hold for pages that come within `days`, of which the logs keep those of
    `keep` seconds and a day. `state` is the disk of all judges, in bytes."""
    each = REPLICAS * (JOURNAL_BYTES + DECISIONS_BYTES)
    share = min(1.0, (keep / DAY + 1) / days)
    return LogPlan(
        replicas=REPLICAS, brokers=each * pages, trimmed=each * pages * share, store=STORED * state
    )
