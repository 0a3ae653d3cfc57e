"""Supervises roles as child processes: starts them together, restarts those that end or hang, stops all.

Roles are crash-only: on any failure they end, and a restart is the recovery. A role that ends with exit code
78 refused to start and would do so again, so it ends the supervisor with all roles.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import structlog

from stream.errors import EXIT_REFUSED, PortTakenError, RoleRefusedError
from stream.ops.http import port_error
from stream.settings import SUPERVISOR, Settings

log = structlog.get_logger(__name__)

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0
STEADY_SECONDS = 30.0
"""A process that ran this long is restarted after the shortest pause."""
ASK_SECONDS = 10.0
"""Interval between liveness probes of a role, and the time-out of one probe."""
PORT_SECONDS = 5.0
"""How long a port that is taken is waited for, beyond `shutdown_seconds`, before anything is started."""
PORT_POLL_SECONDS = 0.2
HANGS_AFTER = 12
"""Consecutive failed liveness probes after which a role is killed. That is two minutes, in addition to the
minute that `/livez` itself allows a loop to stall. Probes are counted rather than seconds, so that a machine
that was suspended does not kill its roles."""


@dataclass(slots=True)
class RoleProcess:
    """One supervised process: `neardup NAME` with extra environment."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Includes secrets, so it is not shown."""
    output: Path | None = None
    """File for its stderr; None inherits ours."""
    ops_url: str | None = None
    """Base URL of its metrics and health endpoints."""
    process: asyncio.subprocess.Process | None = None


def deployment(settings: Settings, workers: int, logs: Path | None = None) -> list[RoleProcess]:
    """Return a judge, `workers` workers and, with the setting `elect`, an elector on this machine, which log
    to files in `logs` or to our stderr.

    Each serves its metrics on its own port: `ops_port` and the following ports, or free ports.
    """
    names = ["judge", *(f"worker-{i}" for i in range(1, workers + 1))]
    if settings.elect:
        names.append("elector")
    roles = []
    for name, port in zip(names, _ports(settings, len(names)), strict=True):
        environment = settings.model_copy(update={"ops_port": port}).environment()
        roles.append(
            RoleProcess(
                name.split("-")[0],
                environment=environment,
                output=logs and logs / f"{name}.log",
                ops_url=None if port < 0 else f"http://{settings.ops_host}:{port}",
            )
        )
    return roles


def dashboard(settings: Settings, roles: Sequence[RoleProcess], logs: Path | None = None) -> RoleProcess:
    """Return the dashboard of a deployment, which shows the health of `roles`. Its `ops_url` is its page."""
    port = settings.dashboard_port or _free_ports(1)[0]
    urls = ",".join(f"{role.name}={role.ops_url}" for role in roles if role.ops_url)
    own = settings.model_copy(update={"dashboard_port": port, "dashboard_roles": urls})
    return RoleProcess(
        "dashboard",
        environment=own.environment(),
        output=logs and logs / "dashboard.log",
        ops_url=f"http://{settings.dashboard_host}:{port}",
    )


async def claim_ports(settings: Settings, roles: Sequence[RoleProcess]) -> None:
    """Check that the ports of roles are free. A role whose port is taken would be restarted for ever.

    Roles of a supervisor that was killed end within seconds, so taken ports are waited for. Raises
    PortTakenError, which names the options.
    """
    patience, waits = settings.shutdown_seconds + PORT_SECONDS, False
    deadline = time.monotonic() + patience
    while True:
        try:
            with ExitStack() as listening:  # all at once: two roles may have been given one port
                for role in roles:
                    _listen(listening, settings, role)
            return
        except PortTakenError as error:
            if time.monotonic() > deadline:
                raise
            if not waits:
                waits = True
                log.warning("port_taken", message=str(error), waiting_seconds=patience)
        await asyncio.sleep(PORT_POLL_SECONDS)


def _listen(listening: ExitStack, settings: Settings, role: RoleProcess) -> None:
    if role.ops_url is None:
        return
    options = "dashboard" if role.name == "dashboard" else "ops"
    host, port = getattr(settings, f"{options}_host"), int(role.ops_url.rsplit(":", 1)[1])
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            probe = listening.enter_context(socket.socket(family, kind, protocol))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
            probe.listen()  # or a later bind to the same port would succeed
    except OSError as error:
        if error.errno == errno.EADDRINUSE:  # of any other error the role has to judge
            raise port_error(error, host, port, options) from None


def _ports(settings: Settings, count: int) -> list[int]:
    """Return a port for each role, which it keeps across restarts."""
    if settings.ops_port > 0:
        return list(range(settings.ops_port, settings.ops_port + count))
    if settings.ops_port < 0:
        return [settings.ops_port] * count
    return _free_ports(count)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:  # keep all open, or the kernel may return a port twice
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


class Supervisor:
    """Context manager that keeps roles running, then ends them by SIGTERM, and by SIGKILL after
    `stop_seconds`."""

    def __init__(self, roles: Sequence[RoleProcess], stop_seconds: float) -> None:
        self.roles = roles
        self._stop_seconds = stop_seconds
        self._keepers: list[asyncio.Task[None]] = []
        self._stopping = False
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def attend(self, stop: asyncio.Event) -> None:
        """Wait for `stop`. Raises RoleRefusedError as soon as a role refuses to start."""
        stopping = asyncio.create_task(stop.wait())
        try:
            both: set[asyncio.Future[Any]] = {stopping, self._refused}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            self.check()
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)

    def check(self) -> None:
        """Raise RoleRefusedError if a role refused to start."""
        if self._refused.done():
            self._refused.result()

    async def __aenter__(self) -> Supervisor:
        self._keepers = [asyncio.create_task(self._keep(role)) for role in self.roles]
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(self._end(role) for role in self.roles))
        if self._refused.done():
            self._refused.exception()  # retrieved, or asyncio would log it; `attend` has raised it

    async def _keep(self, role: RoleProcess) -> None:
        pause = FIRST_PAUSE
        log.info("role", name=role.name, ops_url=role.ops_url)
        while not self._stopping:
            started = time.monotonic()
            try:
                role.process = await _start(role)
                code: int | None = await _ended(role, role.process)
            except OSError as error:  # out of processes or files: retry later
                log.error("role_not_started", name=role.name, error=str(error))
                code = None
            if code == EXIT_REFUSED:
                log.critical("role_refused", name=role.name, code=code, log=str(role.output or "above"))
                if not self._refused.done():
                    self._refused.set_exception(RoleRefusedError(_refusal(role)))
                return
            if time.monotonic() - started > STEADY_SECONDS:
                pause = FIRST_PAUSE
            log.warning("role_ended", name=role.name, code=code, restart_seconds=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _end(self, role: RoleProcess) -> None:
        process = role.process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), self._stop_seconds)
        except TimeoutError:
            log.warning("role_killed", name=role.name, seconds=self._stop_seconds)
            process.kill()
            await process.wait()


async def _ended(role: RoleProcess, process: asyncio.subprocess.Process) -> int:
    """Wait for the process to end, and return its exit code. A role that hangs is killed."""
    watching = asyncio.create_task(_kill_when_it_hangs(role, process))
    try:
        return await process.wait()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _kill_when_it_hangs(role: RoleProcess, process: asyncio.subprocess.Process) -> None:
    """Probe `/livez` periodically. A role that never answered is not killed: its address may be wrong."""
    if role.ops_url is None:
        return
    timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        answered, missed = False, 0
        while missed < HANGS_AFTER:
            await asyncio.sleep(ASK_SECONDS)
            if await _alive(session, role.ops_url):
                answered, missed = True, 0
            elif answered:
                missed += 1
    log.error("role_hangs", name=role.name, pid=process.pid, url=role.ops_url, unanswered=missed)
    with suppress(ProcessLookupError):
        process.kill()


async def _alive(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/livez") as answer:
            return answer.status == HTTPStatus.OK
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


def _refusal(role: RoleProcess) -> str:
    where = f"its log {role.output}" if role.output else "its log above"
    return (
        f"neardup {role.name} refused to start and would do so again (exit code {EXIT_REFUSED}): see {where}"
    )


async def _start(role: RoleProcess) -> asyncio.subprocess.Process:
    output = role.output.open("ab") if role.output else None
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "stream.cli",
            role.name,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=output,
            env={**os.environ, **role.environment, SUPERVISOR: str(os.getpid())},
            start_new_session=True,  # Ctrl-C must reach only us: roles get one SIGTERM
        )
    finally:
        if output:
            output.close()
