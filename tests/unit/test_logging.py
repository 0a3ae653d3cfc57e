"""Every line of a JSON log is JSON, whoever wrote it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from stream.cli import ROLES
from stream.errors import SettingsError
from stream.ops import logging as ours
from stream.ops.repeats import FREE
from tests.commands import run_process
from tests.night import cases

MAIN = """
import logging, warnings
import structlog
from stream.ops import logging as ours
ours.configure({format!r}, {role!r}, logging.INFO, unattended={unattended})
log = structlog.get_logger("stream.roles.worker.role", role="worker")
log.info("reading", partitions=[0, 2], offsets={{0: 17}})
log.debug("nobody wants to know")
logging.getLogger("aiokafka.consumer").error("Heartbeat failed for %s", "t.workers")
logging.getLogger("aiokafka.producer").warning("NotEnoughReplicasError, retrying")
logging.getLogger("some.library").warning("careful")
logging.getLogger("aiokafka.cluster").error("Topic %s not found in cluster metadata", "t.dashboard-x")
logging.getLogger("stream.dashboard.counting.committed").info("[^-_Consumer]: Starting...")
logging.getLogger("some.library").info("nobody wants to know")
warnings.warn("old", DeprecationWarning, stacklevel=1)
try:
    1 / 0
except ZeroDivisionError:
    log.exception("crashed")
"""


def logged(form: str, role: str = "worker") -> str:
    code = MAIN.format(format=form, role=role, unattended=role in ROLES)
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    return done.stderr


def test_json_logs_are_all_json() -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in logged("json").splitlines()]
    assert [line["event"] for line in lines[:3]] == ["reading", "Heartbeat failed for t.workers", "careful"]
    assert all(line["role"] == "worker" and line["timestamp"] and line["level"] for line in lines)
    assert (lines[0]["partitions"], lines[0]["offsets"]) == ([0, 2], {"0": 17})
    assert (lines[1]["logger"], lines[1]["level"]) == ("aiokafka.consumer", "error")
    assert "DeprecationWarning: old" in lines[3]["event"]
    assert lines[4]["exception"][0]["exc_type"] == "ZeroDivisionError"
    assert len(lines) == 5


@pytest.mark.parametrize("role", cases(ROLES, by_day=["worker", "dashboard"]))
async def test_roles_log_json_where_stderr_is_no_terminal(role: str, tmp_path: Path) -> None:
    environment = {
        "NEARDUP_PAGE_BYTE": "1MiB", "NEARDUP_SECURITY_PROTOCOL": "SSL",
        "NEARDUP_SSL_CAFILE": str(tmp_path / "missing"), "NEARDUP_STATE_DIR": str(tmp_path / "state"),
        "NEARDUP_DASHBOARD_PORT": "0",
    }  # fmt: skip
    code, _, stderr = await run_process(sys.executable, "-m", "stream.cli", role, environment=environment)
    assert code == SettingsError.exit_code
    events = {json.loads(line)["event"] for line in stderr.splitlines()}
    assert {"unknown_variable", "ended"} <= events


def test_other_commands_log_readable_text_where_stderr_is_no_terminal() -> None:
    assert all(line.startswith("{") for line in logged("auto").splitlines())
    said = logged("auto", "scan")
    assert not said.startswith("{")
    for each in ("reading", "partitions=[0, 2]", "Heartbeat failed for t.workers", "ZeroDivisionError"):
        assert each in said
    assert "retrying" not in said


STORM = """
import logging, sys
import structlog
from stream.ops import logging as ours, repeats
ours.configure("json", "judge", logging.INFO)
now = 0.0
logging.getLogger().handlers[0].filters[0]._clock = lambda: now
log, library = structlog.get_logger("stream.roles.judge.role"), logging.getLogger("aiokafka")
for minute in range(3):
    for tenth in range(600):
        now = 60.0 * minute + tenth / 10
        library.error("Unable connect to node with id %s: %s", tenth % 3, "refused")
        library.error("Unable to update metadata from %s", [1])
        log.warning("waiting", wanted=f"topic {tenth % 3}", away_seconds=tenth)
        log.warning("no_room", partition=0)
        log.info("progress", pages=tenth)
        log.error("request_refused", message=f"topic n.requests offset {600 * minute + tenth}: is no request")
"""


def test_repeated_lines_are_left_out_and_counted() -> None:
    done = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True, check=True)
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stderr.splitlines()]
    storm = [line["event"] for line in lines if line.get("logger") == "aiokafka"]
    assert len(storm) == 3
    assert [said for said in storm if "left_out" in said] == [
        "Unable connect to node with id 0: refused (left_out: 599)"
    ] * 2
    waiting = [line for line in lines if line["event"] == "waiting"]
    assert [(each["wanted"], each.get("left_out")) for each in waiting] == [
        ("topic 0", None), ("topic 0", 599), ("topic 0", 599),
    ]  # fmt: skip
    ours = [line.get("left_out") for line in lines if line["event"] == "no_room"]
    assert ours == [None] * FREE + ([600 - FREE] + [None] * (FREE - 1)) * 2
    assert sum(line["event"] == "progress" for line in lines) == 3 * 600
    refused = [line for line in lines if line["event"] == "request_refused"]
    assert [each["message"].split()[3] for each in refused] == [
        f"{600 * minute + tenth}:" for minute in range(3) for tenth in range(FREE)
    ]
    assert [each.get("left_out") for each in refused] == ours


def test_a_logger_follows_a_later_configuration() -> None:
    """Several commands may run in one process, as in these tests."""
    log = structlog.get_logger("stream.roles.worker.role")
    ours.configure("json", "bench", logging.WARNING)
    log.info("nobody wants to know")
    ours.configure("json", "worker")
    with capture_logs() as entries:
        log.info("reading")
    assert [each["event"] for each in entries] == ["reading"]
