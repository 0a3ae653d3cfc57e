"""Commands in the documentation, and a sandbox in which tests run them."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow
import pyarrow.parquet

from stream import Index
from tests.waiting import HANG_SECONDS

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

NOT_RUN: Final = {
    "neardup broker": "takes a fixed port: tests/kafka/test_broker_command.py has it started",
    "make ": "runs these very tests, or what has tests of its own; test_documentation.py has it parsed",
    "pip install ": "needs a package index",
    "python crawl_": "needs a site: tests/kafka/test_scrapy.py has one",
    "connect-standalone.sh ": "of a Kafka distribution; tests/kafka/test_scrapy.py runs what it does",
    "neardup fingerprint s3://": "needs an object store: tests/engines/test_s3_sources.py has one",
    "neardup scan s3://": "the same",
    "neardup dedup s3://": "the same",
    "neardup best ": "asks what an elector has flushed: tests/kafka/test_elector.py",
    "python stop_exploring.py": "never ends; tests/kafka/test_keep_index.py has it end",
    "curl -s http://127.0.0.1:8787/": "asks a dashboard: tests/kafka/test_dashboard.py has one",
    "PGPASSWORD=": "needs a PostgreSQL server; tests/kafka/test_export.py has one where it is installed",
}
"""Beginnings of commands that no test can run, and why."""
PAGES_NOT_RUN: Final = {
    "docs/operations.md": "TLS and SASL, which tests/kafka/test_security.py has, and Kafka's own tools",
    "docs/how-to/secure.md": "TLS and SASL: tests/kafka/test_security.py starts every role on such a broker",
    "docs/integrations/datasets.md": "the package datasets: tests/examples/test_dataset_examples.py",
    "docs/integrations/datatrove.md": "the package datatrove: tests/examples/test_dataset_examples.py",
    "docs/integrations/ray.md": "Ray: tests/engines/test_ray_example.py",
    "docs/integrations/spark.md": "Spark: tests/engines/test_spark_example.py",
    "docs/how-to/keep-checkpoints.md": "a bucket: tests/unit/test_judge_checkpoints.py has a directory",
    "docs/how-to/forget-pages.md": "a judge that decides: tests/kafka/test_forget.py runs the commands",
    "docs/how-to/trim-logs.md": "a bucket: tests/kafka/test_trim.py has a directory",
    "docs/how-to/rebuild-state.md": "a judge that was stopped: tests/kafka/test_checkpoints.py",
}
"""Pages whose commands cannot run in this sandbox, and why."""
NEEDS_KAFKA: Final = re.compile(
    r"^(\w+=\S+ )*(neardup (topics|run|worker|judge|elector|best|trim|forget|dashboard|publish|load"
    r"|tail|verdicts|query(?! --clusters)|audit)|python (publish_pages|read_verdicts|keep_index\w*))\b",
    re.MULTILINE,
)
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROLE: Final = re.compile(r"^(?:\w+=\S+ )*neardup (?:run|worker|judge|elector|dashboard)\b[^&]*$")
_GIVEN: Final = """
import pyarrow
text = other_text = "a text of some words " * 9
pages = pyarrow.RecordBatch.from_pylist([{"order": 1, "url": "https://example.com/", "text": text}])
"""
"""Names that blocks of Python use without defining them."""
_STOP: Final = """stop() {
    while left=$(jobs -pr) && [ -n "$left" ]; do
        kill $left || true  # again after 20 s: of a child that has not begun its program yet, bash loses it
        for _ in {1..200}; do [ -n "$(jobs -pr)" ] || break; sleep 0.1; done
    done
    wait
}
trap stop EXIT"""
_STILL_RUNNING: Final = """
for role in "${roles[@]}"; do
    kill -0 $role || { echo "a role has ended:"; cat roles.log; exit 1; }
done
"""
BROKERS: Final = "127.0.0.1:9092"
"""How the documentation names a broker."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of commands, and the output that the page shows below it."""

    line: int
    commands: str
    output: str | None


def fences(page: Path) -> Iterator[tuple[int, str, str]]:
    """Line, language and content of each fenced block."""
    text = page.read_text("utf-8")
    for found in _FENCE.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[1], found[2]


def blocks(page: Path) -> list[Block]:
    """The blocks of commands that are run, without the lines that NOT_RUN names."""
    if page.relative_to(ROOT).as_posix() in PAGES_NOT_RUN:
        return []
    listed = list(fences(page))
    found = []
    for place, (line, language, content) in enumerate(listed):
        if language != "sh":
            continue
        lines = content.splitlines()
        run = [each for each in lines if not each.startswith(tuple(NOT_RUN))]
        below = listed[place + 1] if place + 1 < len(listed) else (0, "", "")
        if run:
            found.append(Block(line, "\n".join(run), below[2] if below[1] == "text" else None))
    return found


def needs_kafka(page: Path) -> bool:
    """Whether a command of the page talks to a broker."""
    return any(NEEDS_KAFKA.search(block.commands) for block in blocks(page))


def furnish(directory: Path) -> None:
    """Write the files that guides speak of: pages in several formats, an index and the examples."""
    tutorial = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    pages = tutorial.split("<<'END'\n", 1)[1].split("END\n", 1)[0]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pages.jsonl").write_text(pages, "utf-8")
    messages = [json.loads(line) for line in pages.splitlines()]
    (directory / "saved-pages").mkdir()
    for number, message in enumerate(messages):
        saved = directory / "saved-pages" / f"{number}.html"
        saved.write_text(f"<html><body><p>{message['text']}</p></body></html>", "utf-8")
    (directory / "crawl.warc.gz").write_bytes(
        b"".join(_record(each["url"], each["text"]) for each in messages)
    )
    for name in ("more", "corpus"):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(messages), directory / f"{name}.parquet")
    with Index(directory / "pages.index") as index:
        list(index.add_all([(each["url"], each["text"]) for each in messages]))
    for example in (ROOT / "docs" / "examples").iterdir():
        (directory / example.name).write_bytes(example.read_bytes())


def _record(url: str, text: str) -> bytes:
    """A gzip member with a response of a web archive."""
    body = f"<html><body><p>{text}</p></body></html>".encode()
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n"
        f"WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-000000000000>\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(http + body)}\r\n\r\n"
    )
    return gzip.compress(head.encode() + http + body + b"\r\n\r\n")


def run_page(page: Path, directory: Path, environment: Mapping[str, str]) -> None:
    """Run the page's commands in one shell, in order, and compare what they print with what the page shows.

    A role that the page starts in the foreground, for a terminal of its own, is started in the background;
    all are told to stop at the end, and must have been running until then. What a page shows must
    be among what was printed, as warnings of this machine may be there too; `...` stands for anything.
    """
    brokers = environment.get("NEARDUP_BOOTSTRAP_SERVERS", BROKERS)
    script = ["set -eo pipefail", "roles=()", _STOP]
    found = blocks(page)
    for number, block in enumerate(found):
        script.append(f"exec > {_output(page, number)} 2>&1")
        for line in block.commands.splitlines():
            started = _ROLE.match(line)
            command = line.split(" #")[0] if started else line
            script.append(f"{command} >> roles.log 2>&1 & roles+=($!)" if started else command)
    script.append(_STILL_RUNNING)
    text = "\n".join(script).replace(BROKERS, brokers) + "\n"
    (directory / f"{page.stem}.sh").write_text(text, "utf-8")
    done = subprocess.run(
        ["bash", f"{page.stem}.sh"],
        stdin=subprocess.DEVNULL,
        cwd=directory,
        env=_environment(environment),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    printed = [directory / _output(page, number) for number in range(len(found))]
    said = [path.read_text("utf-8") if path.exists() else None for path in printed]
    reached = sum(text is not None for text in said)
    where = f"{page.name}:{found[max(reached - 1, 0)].line}"
    assert done.returncode == 0, f"{where}: exit code {done.returncode}\n{said[reached - 1]}\n{done.stderr}"
    for block, text in zip(found, said, strict=True):
        if block.output is not None:
            assert _like(block.output, text or ""), (
                f"{page.name}:{block.line} shows\n{block.output}\nbut it printed\n{text}"
            )


def run_python(page: Path, directory: Path) -> None:
    """Run the page's blocks of Python, in order, as one program."""
    program = _GIVEN + "\n".join(content for _, language, content in fences(page) if language == "python")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory, env=_environment({}), capture_output=True, text=True, check=False, timeout=HANG_SECONDS
    )  # fmt: skip
    assert done.returncode == 0, f"{page.name}: {done.stderr}"


_OF_TESTS: Final = ("NEARDUP_", "NUMBA_DISABLE_JIT")
"""Beginnings of names of variables that a reader does not have."""


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(_OF_TESTS)}
    kept = {name: value for name, value in os.environ.items() if name.startswith("NEARDUP_TEST_")}
    kept |= {"NEARDUP_DASHBOARD_PORT": "0", "NEARDUP_WORKER_PROCESSES": "1"}  # a free port, and a quick start
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return ours | kept | {"PATH": path, "PYTHONPATH": str(ROOT), **given}


def _output(page: Path, number: int) -> str:
    return f"{page.stem}-{number}.out"


def _like(shown: str, printed: str) -> bool:
    pattern = ".*".join(map(re.escape, shown.strip().split("...")))
    return re.search(f"^{pattern}$", printed, re.DOTALL | re.MULTILINE) is not None
