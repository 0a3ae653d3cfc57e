"""Steps of programs that check a whole deployment, printed as they go."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


class StepError(Exception):
    """A required condition does not hold."""


def say(text: str) -> None:
    """Print a step."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)  # noqa: T201


def require(holds: object, what: str) -> None:
    """Print a condition that holds. Raises StepError if it does not hold."""
    if not holds:
        raise StepError(f"does not hold: {what}")
    say(f"  {what}")


def run_check(name: str, check: Callable[[Path], None]) -> bool:
    """Run a check in a temporary directory, and print its outcome. Returns whether it passed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that processes are ended
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"neardup-{name}-") as work:
        try:
            check(Path(work))
        except StepError as error:
            say(f"FAILED: {error}")
            return False
    say(f"passed in {time.monotonic() - begun:.0f} s")
    return True
