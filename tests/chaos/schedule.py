"""Which fault comes next: the same ones in the same order for the same seed, whatever the machine does.

A lane takes one fault after the other, such as those of the first judge; lanes run beside each other. Each
deals its kinds like a deck of cards, shuffled anew when it is empty, so a short run has most kinds and a long
one the shares below. Only how far each lane comes depends on the machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tests.chaos import failpoints

JUDGES: Final = ("judge-1", "judge-2")
WORKERS: Final = ("worker-1", "worker-2")
TRIMMER: Final = "trim"
ELECTOR: Final = "elector"
DASHBOARD: Final = "dashboard"
ROLES: Final = (*JUDGES, *WORKERS, TRIMMER, ELECTOR, DASHBOARD)

STATE: Final = {
    "state-deleted": 1,
    "older-state": 2,
    "bit-flips": 4,
    "cut-file": 3,
    "power-loss": 4,
    "disk-full": 1,
}
PROCESS: Final = {"kill": 4, "kill-while-starting": 1, "failpoint": 3, "stop": 2, "terminate": 1}
DECKS: Final[Mapping[str, Mapping[str, int]]] = {
    **{judge: PROCESS | STATE | {"failpoint": 6} for judge in JUDGES},
    ELECTOR: PROCESS | STATE,
    **{worker: PROCESS | {"kill-child": 3} for worker in WORKERS},
    TRIMMER: {"kill": 2, "failpoint": 3, "stop": 1, "terminate": 1},
    DASHBOARD: {"kill": 3, "kill-while-starting": 1, "stop": 1, "terminate": 1},
    "brokers": {
        "broker-kill": 3, "broker-stop": 2, "broker-terminate": 1, "coordinator-kill": 2, "leader-kill": 2,
        "all-brokers-stop": 1,
    },
    "network": {
        "network-cut": 3, "answers-cut": 1, "requests-cut": 1, "network-refused": 2, "network-delay": 2,
        "replication-cut": 1,
    },
    "requests": {"forget": 1},
    "topics": {"retention": 2, "topic-recreated": 1},
    "transactions": {"foreign-transaction": 1},
}  # fmt: skip
"""Number of cards of each kind, by lane."""
KINDS: Final = frozenset(kind for deck in DECKS.values() for kind in deck)
PAUSES: Final = {
    "brokers": 6.0,
    "network": 3.0,
    "topics": 12.0,
    "requests": 8.0,
    "transactions": 15.0,
    TRIMMER: 8.0,
    DASHBOARD: 20.0,
}
"""Seconds between two faults of a lane, on average."""
PAUSE: Final = 4.0
"""Average seconds between two faults of the other lanes."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A planned fault."""

    lane: str
    kind: str
    pause: float
    """Seconds before it."""
    hold: float
    """Duration in seconds, of faults that have one; at most LONGEST."""
    dice: int
    """Seed of its other choices."""
    place: str = ""
    """The name of a failpoint."""

    @property
    def rng(self) -> random.Random:
        """Return a generator for its choices, the same each time."""
        return random.Random(self.dice)


LONGEST: Final = 12.0
"""Seconds a fault is held: longer than the sessions of groups, which are 3 s here."""


def listener(role: str) -> str:
    """The listener of the brokers that a role connects to."""
    return role.upper().replace("-", "")


def lane(
    seed: int,
    epoch: int,
    name: str,
    without: frozenset[str] = frozenset(),
) -> Iterator[PlannedFault]:
    """The faults of one lane, without end; kinds that cannot be had here are dealt and left out."""
    rng = random.Random(f"{seed}/{epoch}/{name}")
    places = failpoints.places(seed, epoch, name)
    cards = [kind for kind, count in DECKS[name].items() for _ in range(count)]
    while True:
        rng.shuffle(cards)
        for kind in cards:
            pause = rng.uniform(0, 2 * PAUSES.get(name, PAUSE))
            plan = PlannedFault(
                name, kind, pause, min(LONGEST, 0.5 + rng.expovariate(1 / 3)), rng.getrandbits(32)
            )
            if kind == "failpoint":
                plan = replace(plan, place=next(places))
            if kind not in without:
                yield plan
