"""The broker that demo and tests run on: found or started, restarted, and never left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from stream.brokers import docker, embedded, embedded_jars
from stream.brokers.broker import start_broker
from stream.brokers.local_broker import LocalBroker
from stream.brokers.ping import ping
from stream.errors import BrokerError
from tests.waiting import HANG_SECONDS

needs_java = pytest.mark.skipif(
    embedded.missing() is not None, reason="the embedded broker needs Java 17 and Maven"
)

CHILD = """
import sys, time
from stream.brokers.broker import start_broker
broker = start_broker()
print(broker.pid, broker.log.parent, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _no_choice_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEARDUP_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("NEARDUP_BROKER", raising=False)


def gone(process: psutil.Process) -> bool:
    """Whether the process ended on its own. A zombie that is yet to be reaped has ended."""
    try:
        process.wait(timeout=HANG_SECONDS)
    except psutil.TimeoutExpired:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


@pytest.mark.broker
def test_a_started_broker_answers_and_says_what_it_is(broker: LocalBroker) -> None:
    host, port = broker.bootstrap_servers.split(",")[0].rsplit(":", 1)
    answer = ping(host, int(port), timeout=HANG_SECONDS)
    assert answer is not None
    assert answer.ports
    assert broker.bootstrap_servers in broker.description


@pytest.mark.night
@needs_java
@pytest.mark.broker
@pytest.mark.chaos
async def test_records_survive_a_kill_and_a_restart(tmp_path: Path) -> None:
    lines: list[str] = []
    with start_broker(tmp_path / "kafka", lines.append) as broker:
        assert lines[-1] == f"broker: {broker.description}"
        servers = broker.bootstrap_servers
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        await admin.create_topics([NewTopic("kept", 1, 1)])
        await admin.close()
        for restart in range(2):
            producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all")
            await producer.start()
            await producer.send_and_wait("kept", b"%d" % restart, partition=0)
            await producer.stop()
            if restart == 0:
                broker.kill()
                assert ping("127.0.0.1", int(servers.rsplit(":", 1)[1]), timeout=1) is None
            broker.restart()
            assert broker.bootstrap_servers == servers
        consumer = AIOKafkaConsumer("kept", bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        assert [(await consumer.getone()).value for _ in range(2)] == [b"0", b"1"]
        await consumer.stop()
    assert (tmp_path / "kafka" / "data").is_dir()


@needs_java
@pytest.mark.broker
@pytest.mark.chaos
def test_a_broker_dies_with_its_parent_even_when_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid, directory = parent.stdout.readline().split()
        java = psutil.Process(int(pid))
        assert java.name() == "java"
        guard = java.parent()
        os.kill(parent.pid, signal.SIGKILL)
    assert gone(java)
    assert gone(guard)
    assert not Path(directory.decode()).exists()


@pytest.mark.night
@needs_java
@pytest.mark.broker
@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
@pytest.mark.chaos
def test_a_broker_dies_with_its_guard() -> None:
    with start_broker() as broker:
        assert isinstance(broker, embedded.EmbeddedBroker)
        java = psutil.Process(broker.pid)
        java.parent().kill()
        assert gone(java)


@needs_java
@pytest.mark.broker
def test_a_taken_port_is_left_to_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = embedded.free_port
    with socket.create_server((embedded.HOST, 0)) as owner:
        offers = iter([owner.getsockname()[1]])
        monkeypatch.setattr(embedded, "free_port", lambda: next(offers, None) or choose())
        with start_broker() as broker:
            assert not broker.bootstrap_servers.endswith(f":{owner.getsockname()[1]}")


def test_a_named_cluster_is_used_and_never_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARDUP_BOOTSTRAP_SERVERS", "kafka.example:9092")
    with start_broker() as broker:
        assert broker.bootstrap_servers == "kafka.example:9092"
        with pytest.raises(BrokerError, match="not ours to kill"):
            broker.kill()
        with pytest.raises(BrokerError, match="not ours to restart"):
            broker.restart()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("", r"embedded Apache Kafka: no `java` found; Docker: no engine answers.*Install Java 17"),
        ("embedded", r"^no Kafka broker: embedded Apache Kafka: no `java` found\. Install"),
        ("docker", r"^no Kafka broker: Docker: no engine answers\. Install"),
        ("redpanda", r"NEARDUP_BROKER: 'redpanda' is neither"),
    ],
)
def test_without_a_broker_the_error_says_what_was_tried(
    monkeypatch: pytest.MonkeyPatch, asked: str, says: str
) -> None:
    monkeypatch.setattr(embedded, "missing", lambda: "no `java` found")
    monkeypatch.setattr(docker, "missing", lambda: "no engine answers")
    monkeypatch.setenv("NEARDUP_BROKER", asked)
    with pytest.raises(BrokerError, match=says):
        start_broker()


def test_a_failed_fetch_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / name))
    mvn = tmp_path / "bin" / "mvn"
    mvn.parent.mkdir()
    mvn.write_text("#!/bin/sh\necho '[ERROR] no route to the repository'\nexit 1\n")
    mvn.chmod(0o755)
    monkeypatch.setenv("PATH", f"{mvn.parent}:{os.environ['PATH']}")
    with pytest.raises(BrokerError, match="no route to the repository"):
        embedded_jars.jars(lambda line: None)
    assert [path.name for path in (tmp_path / "neardup").iterdir()] == ["kafka.lock"]


def test_jars_are_fetched_once_for_all_callers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / name))
    fetches = []

    def fetch(work: Path, progress: object) -> None:
        fetches.append(work)
        (work / "jars").mkdir()

    monkeypatch.setattr(embedded_jars, "_fetch", fetch)
    assert embedded_jars.jars(lambda line: None) == embedded_jars.jars(lambda line: None)
    assert len(fetches) == 1
