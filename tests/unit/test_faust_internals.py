"""The private parts of Faust that we use or override are there: a version without one fails here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faust
import pytest
from faust.transport.consumer import ThreadDelegateConsumer
from faust.transport.drivers.aiokafka import Consumer, Transport

from stream.dashboard.counting import committed

SOURCES = [file.read_text("utf-8") for file in Path(faust.__file__).parent.rglob("*.py")]


@pytest.mark.parametrize(
    ("ours", "name"),
    [
        (committed._Thread, "_create_worker_consumer"),
        (committed._Thread, "_fetch_records"),
        (committed._Consumer, "_new_consumer_thread"),
        (committed._Consumer, "perform_seek"),
        (committed._Consumer, "_to_message"),
        (committed._Consumer, "_filter_tps_with_pending_acks"),
        (committed._Consumer, "_new_offset"),
        (committed._Consumer, "_add_gap"),
    ],
)
def test_what_we_override_is_there(ours: type, name: str) -> None:
    theirs = getattr(super(ours, ours), name)
    overriding = vars(ours)[name]
    assert inspect.iscoroutinefunction(theirs) == inspect.iscoroutinefunction(overriding)
    assert takes(overriding) <= takes(theirs)
    assert any(f".{name}" in source for source in SOURCES)


def takes(function: Callable[..., Any]) -> int:
    """How many arguments it needs."""
    empty = inspect.Parameter.empty
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = inspect.signature(function).parameters.values()
    return sum(each.default is empty and each.kind not in kinds for each in given)


def test_what_our_subclasses_call_is_there() -> None:
    assert Transport.Consumer is Consumer
    assert issubclass(Consumer, ThreadDelegateConsumer)
    assert callable(Consumer.stop_flow)
    assert inspect.iscoroutinefunction(ThreadDelegateConsumer.seek_wait)
    assert "self._thread = self._new_consumer_thread()" in inspect.getsource(ThreadDelegateConsumer)
