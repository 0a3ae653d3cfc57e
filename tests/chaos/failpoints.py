"""Where roles are killed by themselves (see `stream/failpoints.py`), and in which order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle
from typing import Final

FAILPOINTS: Final = {
    "judge": (
        "judge.sent", "judge.committed", "judge.ahead", "judge.ledger_sent", "judge.ledger_committed",
        "judge.ledger_applied", "turn.decided", "turn.sent", "turn.committed", "turn.applied", "drop.run",
        "drop.pages", "sweep.urls", "forget.requested", "forget.sent", "forget.decided", "erase.blanked",
        "erase.compacted", "flush",
        "freeze.build", "freeze.ingest", "freeze.meta", "checkpoint.linked", "checkpoint.file",
        "checkpoint.manifest", "checkpoint.pruned", "restore.file", "restore.renamed",
    ),
    "worker": ("worker.before_append", "worker.append"),
    "trim": ("trim.decisions", "trim.journal", "restore.file"),
    "elector": (
        "elector.sent", "elector.written", "flush.ended", "erase.blanked", "erase.compacted", "flush",
        "checkpoint.linked", "checkpoint.file", "checkpoint.manifest", "checkpoint.pruned", "restore.file",
        "restore.renamed",
    ),
}  # fmt: skip
"""Failpoints by kind of role."""
OPENING: Final = ("restore.file", "restore.renamed")
"""Those that a role reaches before it works, or not at all."""
LANES: Final = {"judge": 2, "worker": 2}
"""Number of roles of a kind; of others there is one."""
EPOCH_STEP: Final = 3
"""Places by which each epoch begins later than the one before: about as many as a lane comes to."""


def places(seed: int, epoch: int, lane: str) -> Iterator[str]:
    """The failpoints of a role, without end, dealt from a shuffled deck, so that each has its turn. All roles
    of a kind have the same deck, and begin at different cards; so do epochs."""
    kind, _, number = lane.partition("-")
    deck = FAILPOINTS[kind]
    order = random.Random(f"{seed}/{kind}/failpoints").sample(deck, len(deck))
    first = ((int(number or 1) - 1) * len(deck) // LANES.get(kind, 1) + EPOCH_STEP * epoch) % len(deck)
    yield from cycle(order[first:] + order[:first])
