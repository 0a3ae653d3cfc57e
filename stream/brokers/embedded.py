"""Apache Kafka (KRaft, one node) in a JVM that this process starts, on loopback."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from stream.brokers import embedded_guard, embedded_jars
from stream.brokers.local_broker import LocalBroker
from stream.brokers.ping import ping
from stream.brokers.ports import HOST, claim, free_port
from stream.errors import BrokerError
from stream.locks import try_lock
from stream.scratch import ScratchDirectory

ATTEMPTS: Final = 4
"""Attempts to start, each with other ports, in case another process takes a port first."""
START_SECONDS: Final = 90
STOP_SECONDS: Final = 30
JVM: Final = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")
TAKEN: Final = "Address already in use"
LOCK_SECONDS: Final = 15.0
"""How long a data directory that another broker uses is waited for."""
IDENTITY: Final = "cluster-id"
PART: Final = f"{IDENTITY}.part"
LOCK: Final = "lock"
OURS: Final = (LOCK, PART, "tmp", "server.properties")
"""What a broker that was killed in its first moments may have made in a data directory."""


def missing() -> str | None:
    """What this machine lacks for an embedded broker, or None."""
    java = _java_version()
    if java is None:
        return "no `java` found"
    if java < 17:
        return f"Java {java} is older than 17"
    if shutil.which("mvn") is None and not embedded_jars.ready().is_dir():
        return "no `mvn` found"
    return None


def _java_version() -> int | None:
    try:
        output = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout)
    return None if output.returncode or version is None else int(version[1])


@dataclass(frozen=True, slots=True)
class Secured:
    """Secured listeners and settings of a broker, besides its plaintext listener, which has full access."""

    listeners: Mapping[str, str] = field(default_factory=dict)
    """Name -> security protocol. Each listener gets its own port."""
    properties: Mapping[str, str] = field(default_factory=dict)
    scram: Sequence[str] = ()
    """Users in the format of StorageTool's `--add-scram`."""


class EmbeddedBroker(LocalBroker):
    """A broker in a child process, which ends with this process even if that is killed."""

    def __init__(
        self,
        data_dir: Path | None,
        progress: Callable[[str], None],
        secured: Secured | None = None,
        *,
        port: int | None = None,
    ) -> None:
        """Start a broker and wait until it answers. Raises BrokerError.

        `data_dir` keeps its data; a directory that another broker uses is waited for, but not for long.
        Without `port`, it listens on a free one.
        """
        self._secured = secured or Secured()
        self._wanted_port = port
        self.ports: dict[str, int] = {}
        """Ports of the secured listeners by name."""
        self._scratch = ScratchDirectory("kafka") if data_dir is None else None
        self._dir = Path(self._scratch.name) if self._scratch else Path(os.path.abspath(str(data_dir)))
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._lock: int | None = None
        try:
            if not self._scratch:
                self._lock = _lock(self._dir, progress)
            claim(port)  # before anything is fetched
            self._jars = embedded_jars.jars(progress)
            self._start_on_free_ports()
        except BaseException:
            self.stop()
            raise
        self.bootstrap_servers = f"{HOST}:{self._port}"
        self.description = f"embedded Apache Kafka {embedded_jars.version()} on {self.bootstrap_servers}"

    def alive(self) -> bool:
        """Return whether the JVM runs."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the JVM, even after it ended."""
        return self._pid

    @property
    def log(self) -> Path:
        """Path of the broker's log."""
        return self._dir / "kafka.log"

    def stop(self) -> None:
        """Stop the broker: gracefully if its data are kept, else at once."""
        self._end(graceful=self._scratch is None)
        if self._scratch:
            self._scratch.cleanup()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def kill(self) -> None:
        """Send SIGKILL to the JVM."""
        self._end(graceful=False)

    def restart(self) -> None:
        """Restart the broker with the same port and data. Raises BrokerError."""
        if not self._dir.is_dir():
            raise BrokerError("a stopped broker cannot be restarted: its data are gone")
        self._end(graceful=True)
        for _ in range(ATTEMPTS):
            if self._start():
                return
        raise BrokerError(f"{self.bootstrap_servers} was taken while the broker was down")

    def _start_on_free_ports(self) -> None:
        for _ in range(ATTEMPTS):
            self._port, self._controller_port = claim(self._wanted_port), free_port()
            self.ports = {name: free_port() for name in self._secured.listeners}
            self._configure()
            if self._start():
                return
        raise BrokerError(f"no free port on {HOST}: {ATTEMPTS} attempts, the last with {self._port}")

    def _configure(self) -> None:
        """Write the broker's properties, and format its storage the first time."""
        storage = self._dir / "data"
        # The JVM unpacks libraries, and leaves them behind when it is killed.
        self._temporary = self._dir / "tmp"
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary.mkdir()
        self._properties = self._dir / "server.properties"
        template = (embedded_jars.deployment() / "server.properties").read_text()
        protocols = {"PLAINTEXT": "PLAINTEXT", **self._secured.listeners}
        ports = {"PLAINTEXT": self._port, **self.ports}
        advertised = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
        own = {
            "listeners": f"{advertised},CONTROLLER://{HOST}:{self._controller_port}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in {**protocols, "CONTROLLER": "PLAINTEXT"}.items()
            ),
            "controller.quorum.voters": f"1@{HOST}:{self._controller_port}",
            "log.dirs": storage.name,
            **self._secured.properties,
        }
        self._properties.write_text("\n".join([template, *(f"{k}={v}" for k, v in own.items()), ""]))
        identity = self._dir / IDENTITY
        if not identity.is_file():
            # Kafka's Uuid: 16 bytes in URL-safe base64. A leading dash would be taken for an option.
            cluster_id = "N" + base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")[1:]
            part = identity.with_name(PART)
            part.write_text(cluster_id)
            part.replace(identity)
        self._cluster_id = identity.read_text()
        if not (storage / "meta.properties").is_file():
            tool = ["kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", self._properties.name]
            for user in self._secured.scram:
                tool += ["--add-scram", user]
            done = subprocess.run(
                self._java("-XX:TieredStopAtLevel=1", main=tool),
                cwd=self._dir,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=START_SECONDS,
                check=False,
            )
            if done.returncode:
                raise BrokerError(
                    f"Kafka cannot format {storage}: {(done.stderr or done.stdout).strip()[-500:]}"
                )

    def _java(self, *options: str, main: list[str]) -> list[str]:
        logging = embedded_jars.deployment() / "log4j2.properties"
        return [
            *(
                "java",
                *JVM,
                *options,
                f"-Djava.io.tmpdir={self._temporary}",
                f"-Dneardup.log={self.log.name}",
                f"-Dlog4j2.configurationFile={logging}",
            ),
            *("-cp", f"{self._jars}{os.sep}*", *main),
        ]

    def _start(self) -> bool:
        """Start the JVM and wait for an answer. Returns False if a port was taken."""
        command = self._java(main=["kafka.Kafka", self._properties.name])
        guard = [sys.executable, "-I", "-S", embedded_guard.__file__]
        begun = self.log.stat().st_size if self.log.exists() else 0
        with (self._dir / "kafka.out").open("ab") as output:
            # A session of its own, so that Ctrl-C does not end the broker before our roles, which need it.
            self._guard = subprocess.Popen(
                [*guard, str(os.getpid()), str(self._dir) if self._scratch else "", *command],
                cwd=self._dir,
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                pass_fds=() if self._lock is None else (self._lock,),  # until the JVM has ended
            )
        self._pid = int(_open(self._guard.stdout).readline() or 0)
        deadline = time.monotonic() + START_SECONDS
        while self._guard.poll() is None:
            answer = ping(HOST, self._port, timeout=1)
            if answer is not None and answer.cluster_id == self._cluster_id and self._port in answer.ports:
                return True
            if time.monotonic() > deadline:
                self._end(graceful=False)
                raise BrokerError(f"Kafka did not answer within {START_SECONDS} s: {self._last_words(begun)}")
            time.sleep(0.05)
        self._end(graceful=False)
        words = self._last_words(begun)
        if TAKEN in words:
            return False
        raise BrokerError(f"Kafka exited during its start: {words}")

    def _last_words(self, begun: int) -> str:
        """The end of the log since this start."""
        output = self.log.read_bytes()[begun:] if self.log.exists() else b""
        return (output or (self._dir / "kafka.out").read_bytes()).decode(errors="replace")[-4000:].strip()

    def _end(self, *, graceful: bool) -> None:
        guard, self._guard = self._guard, None
        if guard is None:
            return
        if graceful:
            with contextlib.suppress(ProcessLookupError):
                guard.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                guard.wait(STOP_SECONDS)
        elif self._pid and guard.poll() is None:
            # Do not close the guard's standard input, as it would then remove temporary data.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                guard.wait(STOP_SECONDS)
        _open(guard.stdin).close()
        _open(guard.stdout).close()
        guard.wait()


def _environment() -> dict[str, str]:
    """The environment of a JVM that works in its directory, by relative names.

    Kafka takes a comma for the end of a directory's name and reads its properties as Latin-1; Java opens no
    file whose name is not in the encoding of the locale.
    """
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def _lock(directory: Path, progress: Callable[[str], None]) -> int:
    """Make a data directory, and lock it for this process and its broker. Returns the open file.

    The broker of a process that was killed has it for a moment more. Raises BrokerError.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        strange = [each.name for each in directory.iterdir() if each.name not in OURS]
        if strange and not (directory / IDENTITY).is_file():
            raise BrokerError(f"data directory {directory}: has other files, such as {min(strange)}")
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BrokerError(f"data directory {directory}: {error.strerror}") from error
    deadline, waits = time.monotonic() + LOCK_SECONDS, False
    try:
        while not try_lock(lock):
            if time.monotonic() > deadline:
                raise BrokerError(f"data directory {directory}: another broker uses it")
            if not waits:
                waits = True
                progress(f"waiting for {directory}, which another broker uses")
            time.sleep(0.1)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    """The pipe, which exists because Popen was called with PIPE."""
    if pipe is None:
        raise TypeError("not a pipe")
    return pipe
