"""Faust's look at partitions that do not advance."""

from __future__ import annotations

from time import monotonic
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.subscription_state import Subscription
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.types import TP

from stream.dashboard.counting.committed import _Thread


async def test_a_dashboard_does_not_crash_before_a_position_is_known() -> None:
    subscription = Subscription({"verdicts"}, MagicMock())
    subscription._assign({TopicPartition("verdicts", 0)})
    state = subscription.assignment.state_value(TopicPartition("verdicts", 0))
    state.timestamp = 1 << 60
    thread = object.__new__(_Thread)
    fetcher = SimpleNamespace(_subscriptions=SimpleNamespace(subscription=subscription))
    thread._consumer = SimpleNamespace(_fetcher=fetcher)
    thread.consumer, thread.time_started, thread.tp_fetch_request_timeout_secs = MagicMock(), monotonic(), 100
    with pytest.raises(AssertionError):
        AIOKafkaConsumerThread.verify_event_path(thread, monotonic(), TP("verdicts", 0))
    thread.verify_event_path(monotonic(), TP("verdicts", 0))
