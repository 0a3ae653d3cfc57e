"""What every test may ask for: one real broker a session, a namespace and settings of one's own."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import hypothesis
import psutil  # type: ignore[import-untyped]
import pytest

from stream.brokers.broker import LocalBroker, start_broker
from stream.settings import Settings, load

# A busy machine is slow, not wrong: no example fails on time.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

Eventually = Callable[..., Awaitable[None]]
MARK = "NEARDUP_TEST_SESSION"
"""Environment variable by which processes that outlive their parents are still known as ours."""


@pytest.fixture(scope="session", autouse=True)
def _no_process_outlives_the_session() -> Iterator[None]:
    """Everything that the tests started, children of killed children too, must be gone at the end."""
    session = secrets.token_hex(8)
    os.environ[MARK] = session
    yield
    _, alive = psutil.wait_procs(_ours(session), timeout=5)
    names = [f"{process.pid} {' '.join(process.cmdline())[:200]}" for process in alive]
    for process in alive:
        process.kill()
    assert not names, f"processes outlive the test session: {names}"


def _ours(session: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.environ().get(MARK) != session:
                continue
            # multiprocessing's own helper ends with the interpreter.
            if "multiprocessing.resource_tracker" not in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture(autouse=True)
def _what_a_test_forgot_shows_in_that_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect what a test of the broker left: unclosed clients, and errors of futures that nobody awaited.

    Not later, in the middle of another test; before Python 3.11.8 even with a SystemError, when such an error
    is logged while pytest parses a module (gh-106905).
    """
    yield
    if "broker" in request.fixturenames:
        gc.collect()


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A real Kafka, started when the first test asks for it. One that kills it must restart it."""
    reporter = request.config.pluginmanager.getplugin("terminalreporter")

    def say(line: str) -> None:
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line)

    with start_broker(progress=say) as running:
        yield running


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test has."""
    return f"t{secrets.token_hex(5)}"


async def _eventually(condition: Callable[[], Awaitable[object]], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 (what is awaited happens in another process)
            await asyncio.sleep(0.05)


@pytest.fixture
def eventually() -> Eventually:
    """`await eventually(condition)`: until the coroutine function says so; TimeoutError if it never does."""
    return _eventually


@pytest.fixture
def settings(broker: LocalBroker, namespace: str, tmp_path: Path) -> Settings:
    """Settings of a deployment of one's own on the test broker."""
    return load(
        bootstrap_servers=broker.bootstrap_servers,
        namespace=namespace,
        dev=True,
        partitions=3,
        state_dir=tmp_path / "state",
        worker_processes=1,
    )


_REPORTED = pytest.StashKey[list[str]]()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`report(line)`: a line of the test run's closing summary."""
    lines = request.config.stash.setdefault(_REPORTED, [])
    return lambda line: lines.append(f"{request.node.name}: {line}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what tests reported, below the results."""
    for line in config.stash.get(_REPORTED, []):
        terminalreporter.write_line(line)
