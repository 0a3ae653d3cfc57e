"""Whether a role is alive, and whether it is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

LIVE_SECONDS: Final = 60.0
"""A loop that did not turn for so long hangs. The longest honest turn, spam, takes some seconds."""
ANSWER_SECONDS: Final = 2.0
"""How long a check of readiness may take."""

Check = Callable[[], bool | Awaitable[object]]
"""A condition; or a question, which is answered yes unless it fails."""


class Health:
    """Filled in by a role as it goes along."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turned = clock()
        self._excuses: list[str] = []
        self.checks: dict[str, Check] = {}
        """By name, what must hold before the role is ready."""
        self.trouble: str | None = None
        """What a person should mend, for whoever asks whether the role is ready."""

    def turn(self) -> None:
        """The loop has come round."""
        self._turned = self._clock()

    @contextmanager
    def excused(self, why: str) -> Iterator[None]:
        """No turns are expected meanwhile: waiting for topics, opening a large state."""
        self._excuses.append(why)
        try:
            yield
        finally:
            self._excuses.remove(why)
            self.turn()

    def live(self) -> tuple[bool, dict[str, object]]:
        """Whether the loop turned lately, and how long ago that was."""
        seconds = self._clock() - self._turned
        if self._excuses:
            return True, {"excused": self._excuses[-1]}
        return seconds <= LIVE_SECONDS, {"turned_seconds_ago": round(seconds, 3)}

    async def ready(self) -> tuple[bool, dict[str, object]]:
        """Whether every check holds, and each by its name. False before there are any."""
        names = list(self.checks)
        answers = await asyncio.gather(*(_answer(self.checks[name]) for name in names))
        return bool(names) and all(answers), dict(zip(names, answers, strict=True))


async def _answer(check: Check) -> bool:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            said = check()
            if isinstance(said, bool):
                return said
            await said
            return True
    except Exception:
        return False  # whatever a check dies of, the answer is no
