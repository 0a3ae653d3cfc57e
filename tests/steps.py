"""Steps of programs that check a whole deployment, printed as they go."""

from __future__ import annotations

import time


class StepError(Exception):
    """Something that has to hold does not."""


def say(text: str) -> None:
    """Print a step."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)  # noqa: T201


def require(holds: object, what: str) -> None:
    """Print that something holds. Raises StepError if it does not."""
    if not holds:
        raise StepError(f"does not hold: {what}")
    say(f"  {what}")
