"""The environment and the reach of a child, reported by a page that runs code in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stream.children.confine import environment
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[2]
SECRETS = {
    "NEARDUP_SASL_PASSWORD": "brokers secret",
    "NEARDUP_SCHEMA_REGISTRY_PASSWORD": "registrys secret",
    "NEARDUP_SCHEMA_REGISTRY_URL": "http://user:secret@registry",
    "NEARDUP_DASHBOARD_TOKEN": "dashboards secret token",
    "AWS_SECRET_ACCESS_KEY": "clouds secret",
}
PARENT = """
import asyncio, os
from stream.children.confine import hide_memory
from tests.unit.test_child_pool import ChildPool, configuration

hide_memory()
leak = os.open("/etc/hostname", os.O_RDONLY)
os.set_inheritable(leak, True)

async def main():
    async with ChildPool(1, configuration(deadline=60.0)) as pool:
        (row,) = await pool.fingerprint([b"look"])
        print(row.url or row.detail)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def reached() -> dict[str, Any]:
    """What a page finds in a child whose parent has secrets."""
    own = os.environ | SECRETS | {"PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-c", PARENT],
        env=own,
        check=True,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert "children_not_confined" not in done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_child_has_no_secret_in_its_environment(reached: dict[str, Any]) -> None:
    variables = reached["environment"]
    assert {"PATH", "PYTHONPATH", "LC_ALL", "OMP_NUM_THREADS"} <= set(variables)
    assert not set(variables) & set(SECRETS)
    assert not any("secret" in value for value in variables.values())


def test_a_child_inherits_no_file_but_what_it_shares_with_its_parent(reached: dict[str, Any]) -> None:
    others = {to for number, to in reached["files"].items() if int(number) > 2 and not to.startswith("pipe:")}
    assert {to for to in others if not to.startswith("/proc/")} == {"/memfd:position (deleted)"}


def test_a_child_has_no_network_and_starts_no_program(reached: dict[str, Any]) -> None:
    assert {reached[way] for way in ("socket", "unix")} == {"EPERM"}
    assert reached["exec"] in ("EPERM", "EAGAIN"), "no program, or for others than root no process"


def test_a_child_cannot_look_into_its_parent(reached: dict[str, Any]) -> None:
    ways = ("parents environment", "parents memory", "parents files", "ptrace")
    assert {reached[way] for way in ways} <= {"EPERM", "EACCES"}


def test_a_child_has_no_new_privileges_no_core_and_few_files(reached: dict[str, Any]) -> None:
    assert reached["no_new_privs"] == "1"
    assert reached["limits"] == {"RLIMIT_CORE": 0, "RLIMIT_NOFILE": 256, "RLIMIT_NPROC": 0}


def test_nothing_but_what_interpreters_need_is_handed_on() -> None:
    given = {
        "PATH": "/bin",
        "NUMBA_CACHE_DIR": "/c",
        "PYTHONPATH": "/p",
        "LC_ALL": "C",
        "HTTPS_PROXY": "http://u:p@x",
    }
    assert set(environment(given | SECRETS)) - set(environment({})) == {
        "PATH",
        "NUMBA_CACHE_DIR",
        "PYTHONPATH",
        "LC_ALL",
    }
