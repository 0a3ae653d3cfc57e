"""Lines that are written again and again, as clients do while brokers are away: left out, and counted."""

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
"""So many lines of a kind are written in so long: a few are news."""
MOST: Final = 500
"""Kinds of lines that are remembered."""
LEFT_OUT: Final = "left_out"
"""Field of a line: how many like it were left out before it."""


@dataclass(slots=True)
class _Kind:
    since: float
    written: int = 0
    left_out: int = 0


class Repeats(logging.Filter):
    """Lets FREE lines of a kind through in SECONDS; the first one after that says how many were left out.

    A kind is who says it, how loudly, and what: of libraries the message before it is filled in, so that
    another node or offset makes no other kind; of ours all fields, since each is written on purpose.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._turn = threading.Lock()
        self._kinds: OrderedDict[tuple[object, ...], _Kind] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        with self._turn:
            now, name, left_out = self._clock(), _kind_of(record), 0
            kind = self._kinds.pop(name, None)
            if kind is None or now - kind.since >= SECONDS:
                left_out = kind.left_out if kind else 0
                kind = _Kind(now)
            self._kinds[name] = kind  # the last to be forgotten
            if len(self._kinds) > MOST:
                self._kinds.popitem(last=False)
            if kind.written >= FREE:
                kind.left_out += 1
                return False
            kind.written += 1
        if left_out:
            _tell(record, left_out)
        return True


def _kind_of(record: logging.LogRecord) -> tuple[object, ...]:
    if isinstance(record.msg, dict):
        said = tuple(f"{name}={value}" for name, value in sorted(record.msg.items()) if name != "timestamp")
    else:
        said = (str(record.msg),)
    raised = record.exc_info[0] if record.exc_info else None
    return record.name, record.levelno, raised, *said


def _tell(record: logging.LogRecord, left_out: int) -> None:
    if isinstance(record.msg, dict):
        record.msg = {**record.msg, LEFT_OUT: left_out}
    else:
        record.msg, record.args = f"{record.getMessage()} ({LEFT_OUT}: {left_out})", ()
