"""Rate limit for repeated log lines, which clients write while brokers are unreachable, and for those about
records of others that are refused."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

SECONDS: Final = 60.0
FREE: Final = 5
"""Our own lines of one kind that are logged per period of SECONDS; one of a library, and of AWAITED."""
MOST: Final = 500
"""Kinds of lines that are tracked; the least recently seen is dropped."""
AWAITED: Final = "waiting"
"""Event that says what a role waits for: one a minute, whatever that is, until something answers again."""
ANSWERED: Final = "answers_again"
UNREACHABLE: Final = frozenset(
    {
        "Unable to update metadata from %s",
        "Failed fetch messages from %s: %s",
        "Failed fetch offsets from %s: %s",
        "Error sending %s to node %s [%s] -- marking coordinator dead",
        "Group Coordinator Request failed: %s",
        "FindCoordinator Request failed: %s",
        "Heartbeat send request failed: %s. Will retry.",
        "Heartbeat session expired - marking coordinator dead",
        "LeaveGroup request failed: %s",
    }
)
"""Lines of Kafka's client while a broker is away, beside `Unable connect to`, which says why. Left out."""
REFUSALS: Final = frozenset({"cluster_refused", "request_refused"})
"""Events of ours of which each names another record that somebody wrote, who may write any number."""
LEFT_OUT: Final = "left_out"
"""Log field: number of suppressed lines of the same kind before this line."""


@dataclass(slots=True)
class _Kind:
    since: float
    written: int = 0
    left_out: int = 0


class Repeats(logging.Filter):
    """Passes FREE lines of a kind per SECONDS, of a library one. The first line after that reports how
    many were suppressed.

    The kind of a line is its logger, level, exception type and message. For libraries, the message is taken
    before its arguments are filled in, so lines about different nodes or offsets are of one kind. For our own
    lines, all fields count, but of REFUSALS and AWAITED none.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._turn = threading.Lock()
        self._kinds: OrderedDict[tuple[object, ...], _Kind] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the line."""
        event = record.msg.get("event") if isinstance(record.msg, dict) else None
        if event is None and record.msg in UNREACHABLE:
            return False
        with self._turn:
            if event == ANSWERED:
                self._kinds = OrderedDict(each for each in self._kinds.items() if each[0][-1] != AWAITED)
            now, name, left_out = self._clock(), _kind_of(record), 0
            kind = self._kinds.pop(name, None)
            if kind is None or now - kind.since >= SECONDS:
                left_out = kind.left_out if kind else 0
                kind = _Kind(now)
            self._kinds[name] = kind  # most recently seen
            if len(self._kinds) > MOST:
                self._kinds.popitem(last=False)
            if kind.written >= (1 if event in (None, AWAITED) else FREE):
                kind.left_out += 1
                return False
            kind.written += 1
        if left_out:
            _add_left_out(record, left_out)
        return True


def _kind_of(record: logging.LogRecord) -> tuple[object, ...]:
    if isinstance(record.msg, dict) and record.msg.get("event") in (*REFUSALS, AWAITED):
        content: tuple[str, ...] = (record.msg["event"],)
    elif isinstance(record.msg, dict):
        content = tuple(
            f"{name}={value}" for name, value in sorted(record.msg.items()) if name != "timestamp"
        )
    else:
        content = (str(record.msg),)
    raised = record.exc_info[0] if record.exc_info else None
    return record.name, record.levelno, raised, *content


def _add_left_out(record: logging.LogRecord, left_out: int) -> None:
    if isinstance(record.msg, dict):
        record.msg = {**record.msg, LEFT_OUT: left_out}
    else:
        record.msg, record.args = f"{record.getMessage()} ({LEFT_OUT}: {left_out})", ()
