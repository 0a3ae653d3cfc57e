"""The supervisor restarts roles that end, and ends itself when a role refuses to start."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stream import supervisor
from stream.errors import EXIT_REFUSED, PortTakenError, RoleRefusedError
from stream.settings import load
from stream.supervisor import RoleProcess, Supervisor, claim_ports, dashboard, deployment
from tests.waiting import HANG_SECONDS, until


def test_supervised_roles_have_a_port_each() -> None:
    urls = [role.ops_url for role in deployment(load(), 3)]
    assert len(set(urls)) == 4
    fixed = deployment(load(ops_port=9500, ops_host="0.0.0.0"), 2)  # noqa: S104
    assert [role.ops_url for role in fixed] == [f"http://0.0.0.0:{port}" for port in (9500, 9501, 9502)]
    assert [role.environment["NEARDUP_OPS_PORT"] for role in fixed] == ["9500", "9501", "9502"]
    assert {role.ops_url for role in deployment(load(ops_port=-1), 2)} == {None}


def test_a_policy_adds_an_elector() -> None:
    *others, elector = deployment(load(elect="longest", ops_port=9500), 1)
    assert [role.name for role in others] == ["judge", "worker"]
    assert elector.name == "elector"
    assert elector.environment["NEARDUP_ELECT"] == "longest"
    assert elector.ops_url == "http://127.0.0.1:9502"


def _free_pair() -> int:
    """The first of two adjacent ports that are free."""
    while True:
        (port,) = supervisor._free_ports(1)
        with suppress(OSError, OverflowError), socket.create_server(("127.0.0.1", port + 1)):
            return port


async def test_ports_that_are_taken_are_named_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "PORT_SECONDS", -1000.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = load(dashboard_port=port)
        with pytest.raises(
            PortTakenError, match=rf"dashboard_port {port}: another .*--dashboard-port .*0 a free"
        ):
            await claim_ports(settings, [dashboard(settings, [])])
        settings = load(ops_port=port)
        with pytest.raises(PortTakenError, match=rf"ops_port {port}: another process"):
            await claim_ports(settings, deployment(settings, 1))
    free = _free_pair()
    settings = load(ops_port=free, dashboard_port=free + 1)
    roles = deployment(settings, 1)
    with pytest.raises(PortTakenError, match=rf"dashboard_port {free + 1}"):
        await claim_ports(settings, [*roles, dashboard(settings, roles)])
    # What only the role can tell does not hold it up.
    settings = load(ops_port=1, ops_host="no-such-host.invalid")
    await claim_ports(settings, deployment(settings, 1))
    settings = load(ops_port=-1, dashboard_port=0, dashboard_host="::1")
    await claim_ports(settings, [*deployment(settings, 3), dashboard(settings, [])])


async def test_ports_of_a_supervisor_that_was_killed_are_waited_for() -> None:
    settings = load()
    roles = deployment(settings, 1)
    port = int(str(roles[0].ops_url).rsplit(":", 1)[1])
    with socket.create_server(("127.0.0.1", port)):
        claiming = asyncio.create_task(claim_ports(settings, roles))
        await asyncio.sleep(0)
        assert not claiming.done()
    await claiming


class Starts:
    """A process that ends with the code it is told, or stays; and how often it was started."""

    def __init__(self, directory: Path) -> None:
        self._noted, self.script = directory / "starts", directory / "role.sh"
        self.script.write_text(
            f'#!/bin/sh\nshift 2; echo "$1" >> {self._noted}; [ "$1" = steady ] && exec sleep 60; exit "$1"\n'
        )
        self.script.chmod(0o755)

    def count(self, role: str) -> int:
        return self._noted.read_text().split().count(role) if self._noted.exists() else 0


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Starts:
    made = Starts(tmp_path)
    monkeypatch.setattr(sys, "executable", os.fspath(made.script))
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.01)
    return made


async def test_a_refused_role_ends_the_supervisor(starts: Starts) -> None:
    with pytest.raises(RoleRefusedError, match=f"exit code {EXIT_REFUSED}"):
        async with (
            asyncio.timeout(HANG_SECONDS),
            Supervisor([RoleProcess("steady"), RoleProcess(str(EXIT_REFUSED))], 5) as roles,
        ):
            await roles.attend(asyncio.Event())
    assert starts.count(str(EXIT_REFUSED)) == 1


async def test_a_role_that_died_is_started_again(starts: Starts) -> None:
    stop = asyncio.Event()

    async def started_thrice() -> None:
        await until(lambda: starts.count("2") >= 3)
        stop.set()

    async with asyncio.timeout(HANG_SECONDS), Supervisor([RoleProcess("2")], 5) as roles:
        await asyncio.gather(started_thrice(), roles.attend(stop))


HANGS = """
import http.server, os, pathlib, sys
notes = pathlib.Path(sys.argv[3])
with notes.open("a") as noted:
    noted.write("started\\n")
asked = 0

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global asked
        asked += 1
        self.send_response(200 if asked < 4 or sys.argv[4] == "lives" else 503)
        self.end_headers()

    def log_message(self, *what):
        with notes.open("a") as noted:
            noted.write("asked\\n")

http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Answers).serve_forever()
"""


@pytest.mark.parametrize("kind", ["hangs", "lives"])
async def test_role_that_hangs_is_killed_and_started_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    run = tmp_path / "run"
    code = tmp_path / "hangs.py"
    code.write_text(HANGS)
    run.write_text(f"#!/bin/sh\nexec {sys.executable} {code} -m stream {notes} {kind}\n")
    run.chmod(0o755)
    monkeypatch.setattr(sys, "executable", os.fspath(run))
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(supervisor, "ASK_SECONDS", 0.05)
    (port,) = supervisor._free_ports(1)
    role = RoleProcess("judge", environment={"PORT": str(port)}, ops_url=f"http://127.0.0.1:{port}")

    def noted(what: str) -> int:
        return notes.read_text().splitlines().count(what) if notes.exists() else 0

    with capture_logs() as logged:
        async with asyncio.timeout(HANG_SECONDS), Supervisor([role], 5):
            await until(lambda: noted("asked") > 5 * supervisor.HANGS_AFTER)
    assert (noted("started") > 1) == (kind == "hangs")
    assert {each["name"] for each in logged if each["event"] == "role_hangs"} == (
        {"judge"} if kind == "hangs" else set()
    )


STOPPED_BEFORE_IT_BEGAN = """
import os, signal, sys, time
from stream.cli import cli
cli.get_command(None, sys.argv[1])
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(600)
except BaseException:  # as of a library that takes any exception for an error of its own
    sys.exit(78)
"""


@pytest.mark.parametrize(("command", "code"), [("worker", 0), ("judge", 0), ("publish", -signal.SIGTERM)])
def test_a_role_stopped_before_it_began_ends_in_order(command: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_BEFORE_IT_BEGAN, command], timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == code
