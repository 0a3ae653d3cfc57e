"""The private parts of Faust that we use or override are there: a version without one fails here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import faust
import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.subscription_state import Subscription
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.types import TP

from stream.dashboard.counting import committed

SOURCES = [file.read_text("utf-8") for file in Path(faust.__file__).parent.rglob("*.py")]


OVERRIDING = [
    (ours, name)
    for ours in (committed._Thread, committed._Consumer)
    for name, each in vars(ours).items()
    if inspect.isfunction(each) and name != "__init__"
]


@pytest.mark.parametrize(("ours", "name"), OVERRIDING)
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


async def test_a_dashboard_does_not_crash_before_a_position_is_known() -> None:
    subscription = Subscription({"verdicts"}, MagicMock())
    subscription._assign({TopicPartition("verdicts", 0)})
    state = subscription.assignment.state_value(TopicPartition("verdicts", 0))
    state.timestamp = 1 << 60
    thread = object.__new__(committed._Thread)
    fetcher = SimpleNamespace(_subscriptions=SimpleNamespace(subscription=subscription))
    thread._consumer = SimpleNamespace(_fetcher=fetcher)
    thread.consumer, thread.time_started, thread.tp_fetch_request_timeout_secs = MagicMock(), monotonic(), 100
    with pytest.raises(AssertionError):
        AIOKafkaConsumerThread.verify_event_path(thread, monotonic(), TP("verdicts", 0))
    thread.verify_event_path(monotonic(), TP("verdicts", 0))
