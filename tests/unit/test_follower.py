"""A follower that is cancelled, without a broker."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stream.kafka import follower
from stream.settings import Settings


async def test_cancelled_follower_waits_for_the_thread_that_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state is closed next, and must have nobody in it."""
    begun, go_on, applied = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def apply(*_: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        applied.set()

    async def poll() -> list[Any]:
        return [SimpleNamespace(value=b"", offset=0)]

    async def up_to(_: int) -> list[Any]:
        return []

    monkeypatch.setattr(follower, "decode_decisions", lambda *_: SimpleNamespace(start=1, end=2))
    genesis: Any = None
    following: Any = follower.Follower(Settings(), genesis, tmp_path)
    following._decisions = SimpleNamespace(poll=poll)
    following.journal = SimpleNamespace(up_to=up_to)
    following.judge = SimpleNamespace(apply=apply, state=SimpleNamespace(meta=SimpleNamespace(applied=1)))
    task = asyncio.create_task(following.follow())
    try:
        await begun.wait()
        task.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
    finally:
        go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert applied.is_set()
