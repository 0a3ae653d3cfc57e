"""The broker that demo and tests run on, and `neardup broker`: found or started, kept while it is used, and
never left behind."""

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

from stream.brokers import docker, embedded, embedded_jars
from stream.brokers.broker import start_broker, start_own_broker
from stream.brokers.ping import ping
from stream.brokers.ports import HOST, free_port
from stream.errors import BrokerError
from tests.commands import run_process
from tests.waiting import HANG_SECONDS

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


async def create_kept(servers: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic("kept", 1, 1)])
    await admin.close()


async def records_of_kept(servers: str) -> list[bytes | None]:
    consumer = AIOKafkaConsumer("kept", bootstrap_servers=servers, auto_offset_reset="earliest")
    async with consumer:
        return [(await consumer.getone()).value for _ in range(2)]


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
        await create_kept(broker.servers)
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
        assert await records_of_kept(broker.servers) == [b"0", b"1"]
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


def test_docker_keeps_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "missing", lambda: None)
    monkeypatch.setattr(embedded, "missing", lambda: "no `java` found")
    monkeypatch.delenv("NEARDUP_BROKER", raising=False)
    with pytest.raises(BrokerError, match=r"a broker in Docker keeps no data.*\(embedded.*no `java` found\)"):
        start_own_broker(tmp_path, lambda _: None)


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


@pytest.mark.night
@needs_java
@pytest.mark.broker
@pytest.mark.chaos
async def test_records_survive_a_kill_and_a_restart(tmp_path: Path) -> None:
    lines: list[str] = []
    with start_broker(tmp_path / "kafka", lines.append) as broker:
        assert lines[-1] == f"broker: {broker.description}"
        servers = broker.bootstrap_servers
        await create_kept(servers)
        for restart in range(2):
            async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
                await producer.send_and_wait("kept", b"%d" % restart, partition=0)
            if restart == 0:
                broker.kill()
                assert ping("127.0.0.1", int(servers.rsplit(":", 1)[1]), timeout=1) is None
            broker.restart()
            assert broker.bootstrap_servers == servers
        assert await records_of_kept(servers) == [b"0", b"1"]
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
