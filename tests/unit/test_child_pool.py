"""Rule 5: a poison page costs one rejected row, never a worker, a neighbour or a process that stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from stream.children.child import Configuration
from stream.children.pool import ChildPool
from stream.errors import ChildError
from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme

PAGES: list[bytes | None] = [b"page %d" % n for n in range(20)]


def configuration(fingerprinter: str = "Scripted", deadline: float = 20.0) -> Configuration:
    return Configuration(
        scheme=Scheme(),
        page_bytes=1 << 20,
        memory=512 << 20,
        deadline=deadline,
        fingerprinter=f"tests.kafka.fingerprinters.{fingerprinter}",
    )


@pytest.fixture(autouse=True)
def _children_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.fixture(autouse=True)
async def _no_child_stays(_children_find_the_tests: None) -> AsyncIterator[None]:
    before = set(psutil.Process().children())
    yield
    assert set(psutil.Process().children()) <= before


def urls(rows: list[Row]) -> list[bytes | None]:
    return [row.url.encode() if row.url is not None else None for row in rows]


async def test_rows_come_in_the_order_of_the_pages() -> None:
    async with asyncio.timeout(60), ChildPool(2, configuration()) as pool:
        chunks = [[b"page %d %d" % (c, n) for n in range(50)] for c in range(10)]
        answers = await asyncio.gather(*(pool.fingerprint(list(chunk)) for chunk in chunks))
    assert [urls(rows) for rows in answers] == chunks


@pytest.mark.parametrize(
    ("poison", "detail"),
    [
        (b"hang", "page_deadline"),
        (b"die", "exit code 3"),
        (b"segfault", "SIGSEGV"),
        (b"hoard", "child_memory"),
    ],
)
@pytest.mark.parametrize("place", [0, 7, 20])
async def test_poison_page_is_the_only_one_rejected(poison: bytes, detail: str, place: int) -> None:
    pages = [*PAGES[:place], poison, *PAGES[place:]]
    async with asyncio.timeout(60), ChildPool(1, configuration(deadline=2.0)) as pool:
        rows = await pool.fingerprint(list(pages))
        assert pool.crashes == 2
        assert urls(await pool.fingerprint(list(PAGES))) == PAGES, "the place has a new process"
    crashed = rows.pop(place)
    assert (crashed.status, crashed.reason) == (Status.REJECTED, "crash")
    assert detail in (crashed.detail or "")
    assert urls(rows) == PAGES


async def test_two_poison_pages_in_a_chunk_are_both_found() -> None:
    async with asyncio.timeout(60), ChildPool(1, configuration()) as pool:
        rows = await pool.fingerprint([b"a", b"die", b"b", b"segfault", b"c"])
    assert [row.reason for row in rows] == [None, "crash", None, "crash", None]


async def test_pages_done_together_are_all_answered_beside_those_that_hang_or_kill() -> None:
    def message(word: str, number: int) -> bytes:
        text = f"{word} " + " ".join(f"word{number}x{place}" for place in range(30))
        return json.dumps({"url": f"http://e.com/{number}", "text": text}).encode()

    words = ["fine"] * 60
    words[7], words[20] = "LATE", "HANG"
    pages: list[bytes | None] = [message(word, number) for number, word in enumerate(words)]
    async with asyncio.timeout(60), ChildPool(1, configuration("Treacherous", deadline=2.0)) as pool:
        rows = await pool.fingerprint(list(pages))
    assert [row.reason for row in rows] == [None if word == "fine" else "crash" for word in words]
    alone = Fingerprinter()
    fine = [number for number, word in enumerate(words) if word == "fine"]
    assert [rows[number] for number in fine] == [alone.message(pages[number], 1 << 20) for number in fine]


async def test_a_bug_in_the_fingerprinter_rejects_the_page_alone() -> None:
    async with asyncio.timeout(60), ChildPool(1, configuration()) as pool:
        rows = await pool.fingerprint([b"a", b"raise", None])
        assert pool.crashes == 0
    assert [(row.status, row.reason) for row in rows] == [
        (Status.READY, None),
        (Status.REJECTED, "failed"),
        (Status.READY, None),
    ]


async def test_what_a_library_prints_garbles_no_frame() -> None:
    async with asyncio.timeout(60), ChildPool(1, configuration()) as pool:
        assert urls(await pool.fingerprint([b"noise", b"a"])) == [b"noise", b"a"]


async def test_finished_rows_are_answered_while_a_later_page_is_slow(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    answered: list[Row] = []
    first_answer = asyncio.Event()

    def note(rows: list[Row]) -> None:
        answered.extend(rows)
        first_answer.set()

    async with asyncio.timeout(60), ChildPool(1, configuration()) as pool:
        chunk: list[bytes | None] = [b"a", b"wait %s" % os.fsencode(gate), b"c"]
        work = asyncio.create_task(pool.fingerprint(chunk, note))
        await first_answer.wait()
        assert len(answered) == 1
        gate.touch()
        assert await work == answered


async def test_cancelled_caller_leaves_a_child_that_answers_the_next_one(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with asyncio.timeout(60), ChildPool(1, configuration()) as pool:
        started = asyncio.Event()
        chunk: list[bytes | None] = [b"a", b"wait %s" % os.fsencode(gate)]
        work = asyncio.create_task(pool.fingerprint(chunk, lambda _: started.set()))
        await started.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        gate.touch()
        assert urls(await pool.fingerprint([b"next"])) == [b"next"]
        assert pool.crashes == 0


async def test_leaving_ends_a_child_in_the_middle_of_a_page() -> None:
    async with asyncio.timeout(20):
        async with ChildPool(1, configuration()) as pool:
            started = asyncio.Event()
            work = asyncio.create_task(pool.fingerprint([b"a", b"hang"], lambda _: started.set()))
            await started.wait()
        with pytest.raises(asyncio.CancelledError):
            await work


@pytest.mark.parametrize("fingerprinter", ["Unusable", "Stillborn", "Missing"])
async def test_child_that_cannot_start_is_an_error_not_a_rejected_page(fingerprinter: str) -> None:
    with pytest.raises(ChildError):
        async with asyncio.timeout(60), ChildPool(2, configuration(fingerprinter)):
            pytest.fail("the pool started")


async def test_children_ignore_the_signals_meant_for_the_worker() -> None:
    async with asyncio.timeout(60), ChildPool(1, configuration()) as pool:
        (child,) = (
            process for process in psutil.Process().children() if "stream.children.child" in process.cmdline()
        )
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGINT)
        assert urls(await pool.fingerprint([b"still here"])) == [b"still here"]
        assert pool.crashes == 0


PARENT = """
import asyncio
from tests.unit.test_child_pool import ChildPool, configuration

async def main():
    async with ChildPool(2, configuration(deadline=600.0)) as pool:
        await pool.fingerprint([b"a", b"hang"], lambda _: print("up", flush=True))

asyncio.run(main())
"""


def test_killed_parent_leaves_no_orphan() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    try:
        assert parent.stdout
        assert parent.stdout.readline() == b"up\n"
        children = psutil.Process(parent.pid).children()
        assert len(children) == 2
    finally:
        parent.kill()
        parent.communicate()
    started = time.monotonic()
    _, alive = psutil.wait_procs(children, timeout=15)
    assert not alive, f"alive {time.monotonic() - started:.1f} s after the parent"
