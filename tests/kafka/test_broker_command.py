"""`neardup broker`: a broker for as long as the command runs, whatever ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from stream.brokers import docker, embedded
from stream.brokers.broker import start_own_broker
from stream.brokers.ping import ping
from stream.brokers.ports import HOST, free_port
from stream.errors import BrokerError
from tests.commands import run_process
from tests.waiting import HANG_SECONDS, until

needs_java = pytest.mark.skipif(
    embedded.missing() is not None, reason="the embedded broker needs Java 17 and Maven"
)


class Started:
    """A running command, which has said that its broker is ready."""

    def __init__(self, *arguments: str | Path) -> None:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("NEARDUP_BROKER")}
        # A Kafka cluster that is named is another one.
        environment = ours | {"NEARDUP_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stream.cli", "broker", *map(str, arguments)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().strip()
        self.java = next(
            each
            for each in psutil.Process(self.process.pid).children(recursive=True)
            if each.name() == "java"
        )

    @property
    def servers(self) -> str:
        assert self.line.startswith("export NEARDUP_BOOTSTRAP_SERVERS=")
        assert self.line.endswith(" NEARDUP_DEV=1")
        return self.line.split("=")[1].split()[0]

    def end(self, number: int) -> tuple[int, str]:
        """Send a signal; the exit code, and what was said on stderr."""
        self.process.send_signal(number)
        _, error = self.process.communicate(timeout=HANG_SECONDS)
        return self.process.returncode, error


@contextmanager
def command(*arguments: str | Path) -> Iterator[Started]:
    started = Started(*arguments)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def answers(servers: str) -> bool:
    host, port = servers.split(":")
    return ping(host, int(port), timeout=1) is not None


@pytest.mark.night
@needs_java
@pytest.mark.broker
@pytest.mark.chaos
async def test_data_are_kept_over_a_kill_of_the_command_and_a_stop(tmp_path: Path) -> None:
    data, port = tmp_path / "new" / "kafka", free_port()
    arguments = ("--data", data, "--port", str(port))
    with command(*arguments) as broker:
        assert broker.servers == f"{HOST}:{port}"
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.servers)
        await admin.start()
        await admin.create_topics([NewTopic("kept", 1, 1)])
        await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=broker.servers, acks="all") as producer:
            await producer.send_and_wait("kept", b"0", partition=0)
        code, _ = broker.end(signal.SIGKILL)
        assert code == -signal.SIGKILL
        # The next one does not wait until the broker of the killed command has ended: it finds out.
        with command(*arguments) as again:
            assert not broker.java.is_running()
            async with AIOKafkaProducer(bootstrap_servers=again.servers, acks="all") as producer:
                await producer.send_and_wait("kept", b"1", partition=0)
            code, error = again.end(signal.SIGINT)
            assert code == 0
            assert f"its data are kept in {data}" in error
            assert not again.java.is_running()
    with command(*arguments) as broker:
        consumer = AIOKafkaConsumer("kept", bootstrap_servers=broker.servers, auto_offset_reset="earliest")
        await consumer.start()
        assert [(await consumer.getone()).value for _ in range(2)] == [b"0", b"1"]
        await consumer.stop()
        code, error = broker.end(signal.SIGTERM)
        assert code == 0


@pytest.mark.night
@needs_java
@pytest.mark.broker
async def test_a_broker_that_ends_by_itself_ends_the_command(tmp_path: Path) -> None:
    with command("--port", "0", "--data", tmp_path) as broker:
        broker.java.kill()
        _, error = broker.process.communicate(timeout=HANG_SECONDS)
        assert broker.process.returncode == 2
        assert f"has ended: see {tmp_path}/kafka.log" in error


@pytest.mark.night
@needs_java
@pytest.mark.broker
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
async def test_a_directory_may_have_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locale: str
) -> None:
    """Kafka ends a directory at a comma and reads Latin-1; Java uses the encoding of the locale."""
    monkeypatch.setenv("LC_ALL", locale)
    data = tmp_path / "caf\u00e9 \u6570\u636e \\n a,b #!"
    with command("--port", "0", "--data", data) as broker:
        assert answers(broker.servers)
        assert (data / "data" / "meta.properties").is_file()
        assert (data / "kafka.log").is_file()
        broker.end(signal.SIGTERM)
    assert os.listdir(tmp_path) == [data.name]


@pytest.mark.night
@needs_java
@pytest.mark.broker
async def test_temporary_data_go_with_a_killed_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with command("--port", "0") as broker:
        assert os.listdir(tmp_path)
        broker.end(signal.SIGKILL)
        await until(lambda: not broker.java.is_running())
        assert not answers(broker.servers)
        await until(lambda: not os.listdir(tmp_path))


@needs_java
@pytest.mark.broker
def test_data_that_another_broker_uses_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "LOCK_SECONDS", 0.5)
    lines: list[str] = []
    with start_own_broker(tmp_path, lines.append) as broker:
        with pytest.raises(BrokerError, match=rf"data directory {tmp_path}: another broker uses it"):
            start_own_broker(tmp_path, lines.append)
        assert broker.alive()
        assert lines[-1] == f"waiting for {tmp_path}, which another broker uses"


async def refusal(*arguments: str | Path, **environment: str) -> str:
    """What a command says that ends at once."""
    code, out, error = await run_process(
        sys.executable, "-m", "stream.cli", "broker", *map(str, arguments), environment=environment
    )
    assert (code, out) == (2, "")
    assert len(error.splitlines()) == 1
    return error


@needs_java
async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as owner:
        port = owner.getsockname()[1]
        error = await refusal("--port", str(port), "--data", tmp_path / "data", NEARDUP_BROKER="embedded")
    assert error == (
        f"neardup: port {port} of 127.0.0.1 is taken by another process;"
        " --port chooses another, 0 a free one\n"
    )


@needs_java
async def test_a_directory_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    error = await refusal("--port", "0", "--data", tmp_path, NEARDUP_BROKER="embedded")
    assert f"data directory {tmp_path}: has other files, such as thesis.tex" in error
    assert os.listdir(tmp_path) == ["thesis.tex"]
    error = await refusal("--port", "0", "--data", "/dev/null/x", NEARDUP_BROKER="embedded")
    assert "data directory /dev/null/x: Not a directory" in error


async def test_without_java_and_docker_it_says_what_to_install(tmp_path: Path) -> None:
    error = await refusal(PATH=str(tmp_path), DOCKER_HOST="tcp://127.0.0.1:1")
    assert error.startswith(
        "neardup: no Kafka broker: embedded Apache Kafka: no `java` found; Docker: no engine"
    )
    assert "Install Java 17 or newer and Maven, or a Docker engine" in error


def test_docker_keeps_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "missing", lambda: None)
    monkeypatch.setattr(embedded, "missing", lambda: "no `java` found")
    monkeypatch.delenv("NEARDUP_BROKER", raising=False)
    with pytest.raises(BrokerError, match=r"a broker in Docker keeps no data.*\(embedded.*no `java` found\)"):
        start_own_broker(tmp_path, lambda _: None)
