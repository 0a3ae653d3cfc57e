"""Shared fixtures: one real broker per session, and a namespace and settings per test."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import hypothesis
import psutil  # type: ignore[import-untyped]
import pytest
import structlog
from aiokafka.admin import AIOKafkaAdminClient

from stream.brokers.broker import start_broker
from stream.brokers.local_broker import LocalBroker
from stream.settings import Settings, load
from tests.kills import stop_server
from tests.seconds import order_of_files
from tests.slowest_files import SlowestFiles
from tests.waiting import HANG_SECONDS

# A busy machine is slow, not wrong: no example fails on time.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options by which a test is made larger."""
    group = parser.getgroup("neardup")
    group.addoption(
        "--forgotten-of", type=int, default=1500, help="Pages of tests/kafka/test_forgotten_everywhere.py."
    )
    group.addoption("--seconds-to", type=Path, help="File that takes the seconds of each test file.")


# A shell's background jobs ignore Ctrl-C, and so would every process that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Sources of tests are small, and commands would interpret the loops that most tests are about.
os.environ.setdefault("NUMBA_DISABLE_JIT", "0")

MARK = "NEARDUP_TEST_SESSION"
"""Environment variable by which processes that outlive their parents are still known as ours."""


@pytest.fixture(scope="session", autouse=True)
def _no_process_outlives_the_session() -> Iterator[None]:
    """At the end, no process that the tests started may be left, including children of killed children."""
    session = secrets.token_hex(8)
    os.environ[MARK] = session
    yield
    stop_server()
    _, alive = psutil.wait_procs(_ours(session), timeout=HANG_SECONDS)
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
def _commands_configure_logging_for_their_own_test() -> Iterator[None]:
    """Restore logging, so that a command run by a test does not silence loggers that later tests inspect."""
    root, ours = logging.getLogger(), logging.getLogger("stream")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        logging.captureWarnings(capture=False)
        root.handlers = handlers
        root.setLevel(levels[0])
        ours.setLevel(levels[1])


@pytest.fixture(autouse=True)
def _what_a_test_forgot_shows_in_that_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect the garbage of each broker test after it, to report its unclosed clients and errors that were
    never retrieved.

    Otherwise they would be reported during another test, and before Python 3.11.8 with a SystemError if that
    happens while pytest parses a module (gh-106905). What was there before is not looked at: it would take
    most of the time.
    """
    if "broker" not in request.fixturenames:
        yield
        return
    gc.freeze()
    yield
    gc.collect()
    gc.unfreeze()


@pytest.fixture
def children_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let child processes import fingerprinters from `tests`."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))


@pytest.fixture
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fingerprint the pages of scans and workers in this process, where children are not what is tested."""
    from tests.in_process_pool import InProcessPool

    for who in ("local.scan", "roles.worker.role"):
        monkeypatch.setattr(f"stream.{who}.ChildPool", InProcessPool)


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A real Kafka broker, started for the first test that needs it. A test that kills it must restart it."""
    reporter = request.config.pluginmanager.getplugin("terminalreporter")

    def say(line: str) -> None:
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line)

    with start_broker(progress=say) as running:
        yield running


@pytest.fixture
async def admin(broker: LocalBroker) -> AsyncIterator[AIOKafkaAdminClient]:
    """A client that administers the test broker."""
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await client.start()
    yield client
    await client.close()


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"t{secrets.token_hex(5)}"


@pytest.fixture
def settings(broker: LocalBroker, namespace: str, tmp_path: Path) -> Settings:
    """Settings of a separate deployment on the test broker."""
    return load(
        bootstrap_servers=broker.bootstrap_servers,
        namespace=namespace,
        dev=True,
        partitions=3,
        state_dir=tmp_path / "state",
        worker_processes=1,
        dashboard_port=0,
    )


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`report(line)` adds a line to the summary of the test run."""
    properties = request.node.user_properties
    return lambda line: properties.append((_REPORTED, f"{request.node.name}: {line}"))


_REPORTED = "reported"


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: compressed ones hold the time at which a process collected the tests, and
    all processes must find the same."""
    return argname if isinstance(val, bytes) and (len(val) > 64 or val.startswith(b"\x1f\x8b")) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than processors, as tests wait half of the time; more than four help little."""
    return min(4, len(os.sched_getaffinity(0)) + 1)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order files for processes that run tests side by side, as the Makefile lets them."""
    if hasattr(config, "workerinput"):
        of_file = [item.nodeid.partition("::")[0] for item in items]
        place = {file: number for number, file in enumerate(order_of_files(dict.fromkeys(of_file)))}
        items.sort(key=lambda item: place[item.nodeid.partition("::")[0]])


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Report failures at once with their duration, because an aborted run has no summary."""
    if reporter := config.pluginmanager.getplugin("terminalreporter"):
        config.pluginmanager.register(_FailuresAtOnce(reporter))
    config.pluginmanager.register(SlowestFiles(config.getoption("seconds_to")))


class _FailuresAtOnce:
    """Reports failures in the process that reports the run, which with parallel tests is not the one that
    runs them."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._reporter.ensure_newline()
            self._reporter.write_line(
                f"FAILED {report.nodeid} ({report.when}, after {report.duration:.0f} s)"
            )
            self._reporter.write_line(report.longreprtext[-4000:])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the reported lines below the results."""
    for reports in terminalreporter.stats.values():
        for each in reports:
            if isinstance(each, pytest.TestReport) and each.when == "teardown":
                for name, line in each.user_properties:
                    if name == _REPORTED:
                        terminalreporter.write_line(str(line))
