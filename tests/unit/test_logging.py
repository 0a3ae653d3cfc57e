"""Every line of a JSON log is JSON, whoever wrote it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

MAIN = """
import logging, warnings
import structlog
from stream.ops import logging as ours
ours.configure({format!r}, "worker", logging.INFO)
log = structlog.get_logger("stream.kafka.worker", role="worker")
log.info("reading", partitions=[0, 2], offsets={{0: 17}})
log.debug("nobody wants to know")
logging.getLogger("aiokafka.consumer").error("Heartbeat failed for %s", "t.workers")
logging.getLogger("aiokafka.producer").warning("NotEnoughReplicasError, retrying")
logging.getLogger("some.library").warning("careful")
logging.getLogger("some.library").info("nobody wants to know")
warnings.warn("old", DeprecationWarning, stacklevel=1)
try:
    1 / 0
except ZeroDivisionError:
    log.exception("crashed")
"""


def logged(form: str) -> str:
    code = MAIN.format(format=form)
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


def test_text_logs_are_readable() -> None:
    said = logged("text")
    assert "reading" in said
    assert "partitions=[0, 2]" in said
    assert "Heartbeat failed for t.workers" in said
    assert "ZeroDivisionError" in said
    assert "retrying" not in said
