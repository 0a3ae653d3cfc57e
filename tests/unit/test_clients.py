"""Kafka clients that no broker answers: closed whatever happens, and waited for by roles, which say so. And
brokers that cannot create topics."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.admin import NewTopic
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    ProducerFenced,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownError,
)
from structlog.testing import capture_logs

from stream.errors import AccessError, BrokerError, NeardupError, StaleError, TopicError
from stream.kafka import broker_watch, clients
from stream.kafka.topics import _request_creation
from stream.roles.judge.role import JudgeRole
from stream.roles.publisher import _Window
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings, load
from stream.sources.source import Message
from tests.kafka.worker_helpers import running
from tests.waiting import HANG_SECONDS, until

NOBODY = "127.0.0.1:1"


@pytest.fixture
def alone(tmp_path: Path) -> Settings:
    return load(bootstrap_servers=NOBODY, state_dir=tmp_path, dev=True)


@pytest.mark.parametrize("kind", [clients.consumer, clients.producer, clients.admin, clients.client])
async def test_client_that_cannot_start_is_closed(
    alone: Settings, kind: Callable[[Settings], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BrokerError, match=f"no broker answers at {NOBODY}"):
        async with clients.open_client(alone, kind(alone)):
            raise AssertionError("it has started")
    gc.collect()
    assert "Unclosed" not in caplog.text


@pytest.mark.parametrize("kind", [clients.consumer, clients.producer, clients.admin, clients.client])
async def test_a_client_that_is_cancelled_while_it_asks_for_metadata_leaves_no_connection_open(
    alone: Settings, kind: Callable[[Settings], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a role does that is stopped at its start, on a busy machine."""
    asked, opened = asyncio.Event(), set[AIOKafkaConnection]()

    async def connect(connection: AIOKafkaConnection) -> None:
        opened.add(connection)

    def send(connection: AIOKafkaConnection, *_: object, **__: object) -> asyncio.Future[None]:
        asked.set()
        return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(AIOKafkaConnection, "connect", connect)
    monkeypatch.setattr(AIOKafkaConnection, "send", send)
    monkeypatch.setattr(AIOKafkaConnection, "close", lambda self, *_, **__: opened.discard(self))
    starting = asyncio.create_task(clients.start(alone, made := kind(alone)))
    await asked.wait()
    assert opened
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await clients.end(made)
    assert not opened


async def test_cancellation_that_a_client_lets_out_of_its_end_ends_nobody_else(alone: Settings) -> None:
    class Cancelling:
        closed = False

        async def stop(self) -> None:
            raise asyncio.CancelledError

        async def close(self) -> None:
            self.closed = True

    client = Cancelling()
    client.client = client  # type: ignore[attr-defined]
    await clients.end(client)
    assert client.closed


async def test_client_that_is_never_done_with_ending_is_left(
    alone: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "CLOSE_SECONDS", 0.01)
    producer = clients.producer(alone)

    async def for_ever() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(producer, "stop", for_ever)
    await clients.end(producer)
    producer._closed = True


@pytest.mark.parametrize("kind", [JudgeRole, WorkerRole])
async def test_role_without_a_broker_waits_says_so_and_hears_a_stop(
    alone: Settings, kind: Callable[[Settings], JudgeRole | WorkerRole]
) -> None:
    role = kind(alone)
    with capture_logs() as logged:
        async with running(role):
            await until(lambda: any(each["event"] == "waiting" for each in logged))
            assert role.watch.health.live()[0]
            assert not (await role.watch.health.ready())[0]
    told, *_ = [each for each in logged if each["event"] == "waiting"]
    assert (told["wanted"], told["error"]) == (
        "a broker",
        f"bootstrap_servers: no broker answers at {NOBODY}",
    )


def test_stopped_role_without_a_broker_ends_in_order(alone: Settings, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        role = subprocess.Popen(
            [sys.executable, "-m", "stream.cli", "judge"],
            stderr=stderr,
            env=os.environ | alone.environment() | {"NEARDUP_LOG_FORMAT": "json"},
        )
        try:
            asyncio.run(until(lambda: '"waiting"' in log.read_text()))
            role.send_signal(signal.SIGTERM)
            assert role.wait(HANG_SECONDS) == 0
        finally:
            role.kill()
            role.wait()
    assert "Unclosed" not in log.read_text()
    assert "Traceback" not in log.read_text()


async def test_page_that_is_never_acknowledged_ends_the_publication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An idempotent producer would repeat it for as long as the brokers are away."""
    monkeypatch.setattr(clients, "ACKNOWLEDGED_SECONDS", 0.05)

    class Silent:
        async def send(self, *_: Any, **__: Any) -> asyncio.Future[object]:
            return asyncio.get_running_loop().create_future()

    window = _Window(cast("Any", Silent()), "ns.pages", None, [])
    await window.send(Message(b"page", None, "a.jsonl line 1"), None)
    with pytest.raises(
        BrokerError, match=r"a\.jsonl line 1, topic ns\.pages: not acknowledged within 0\.05 s"
    ):
        await window.drain(0)


@pytest.mark.parametrize(
    ("error", "explained"),
    [
        (ProducerFenced(), StaleError),
        (KafkaConnectionError("Unable to bootstrap"), BrokerError),
        (RequestTimedOutError(), BrokerError),
        (UnknownError(), BrokerError),
        (KafkaError(repr(UnknownError())), BrokerError),  # as aiokafka's group coordination raises it
        (TopicAuthorizationFailedError("ns.journal"), AccessError),
    ],
)
def test_what_kafka_says_is_told_in_one_line(error: KafkaError, explained: type[NeardupError]) -> None:
    with pytest.raises(explained), clients.translated_errors():
        raise error


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (BrokerError("no broker answers"), "no broker answers"),
        (NodeNotReadyError("node 1"), "NodeNotReadyError: node 1"),
        (None, "none has answered for 0.01 s"),
    ],
)
async def test_an_outage_is_told_once_and_so_is_its_end(
    error: Exception | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_watch, "ASK_SECONDS", 0.01)
    asked, is_away = 0, True

    async def ask() -> None:
        nonlocal asked
        asked += 1
        if is_away and error is None:
            await asyncio.Event().wait()
        elif is_away and error is not None:
            raise error

    with capture_logs() as logged:
        reporting = asyncio.create_task(broker_watch.report_outages(ask))
        await until(lambda: asked > 3)
        is_away = False
        await until(lambda: len(logged) > 1)
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
    assert [(each["event"], each["wanted"]) for each in logged] == [
        ("waiting", "a broker"), ("answers_again", "a broker"),
    ]  # fmt: skip
    assert logged[0]["error"] == why


@pytest.mark.parametrize("are_fenced", [True, False])
async def test_topics_are_created_once_brokers_are_not_fenced(are_fenced: bool) -> None:
    """Where all of them are fenced for a moment, they are asked again; fewer than replicas are refused."""
    why = (
        "All brokers are currently fenced." if are_fenced else "The target replication factor of 3 cannot be"
    )

    async def create_topics(topics: list[NewTopic]) -> Any:
        invalid_replication_factor = 38
        return SimpleNamespace(topic_errors=[(each.name, invalid_replication_factor, why) for each in topics])

    asked = _request_creation(
        cast(Any, SimpleNamespace(create_topics=create_topics)), [NewTopic("a.pages", 1, 3)]
    )
    if are_fenced:
        assert await asked == []
    else:
        with pytest.raises(TopicError, match=r"a\.pages: replication factor 3 was refused: .*--dev"):
            await asked
