"""What several tests with a broker need beside it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream.settings import Settings
from tests.kafka.proxy import Proxy, open_proxy
from tests.unit.test_schema_registry import Served


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as entries:
        yield entries


@pytest.fixture
async def proxy(settings: Settings) -> AsyncIterator[Proxy]:
    async with open_proxy(settings.bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def registry() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


@pytest.fixture
def postgres() -> Iterator[str]:
    """A PostgreSQL of one's own on a free port of the loopback."""
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra `export`)")
    found = [shutil.which("initdb"), *map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    initdb = next((each for each in found if each), None)
    if initdb is None:
        pytest.skip("PostgreSQL's server is not installed")
    pg_ctl = str(Path(initdb).resolve().parent / "pg_ctl")
    user: dict[str, Any] = {}
    folder = tempfile.mkdtemp(prefix="neardup-postgres-")
    if os.getuid() == 0:  # which PostgreSQL refuses
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    data, log = f"{folder}/data", f"{folder}/log"
    told = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder} -c fsync=off"
    quietly: dict[str, Any] = {"check": True, "capture_output": True, "cwd": folder, **user}
    try:
        subprocess.run([initdb, "-D", data, "-U", "postgres", "-A", "trust", "-N"], **quietly)
        subprocess.run(
            [pg_ctl, "-D", data, "-l", log, "-w", "-o", told, "start"],
            check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user,
        )  # fmt: skip
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([pg_ctl, "-D", data, "-m", "immediate", "-w", "stop"], **quietly)
    finally:
        shutil.rmtree(folder)
