"""Rule 5: a poison page is one rejected row. It takes down no worker or other page, and leaves no process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest
from structlog.testing import capture_logs

from stream.children.child import ChildConfiguration
from stream.children.deadline import MAX_HOSTS, CrashedHosts, seconds
from stream.children.pool import ChildPool
from stream.errors import ChildError
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.page_rows.page_fingerprinter import PageFingerprinter
from tests.kafka.fingerprinters import SLOW_GATE
from tests.night import cases
from tests.waiting import until

HANG = 600.0
"""Seconds that only end a test that hangs."""
PAGES: list[bytes | None] = [b"page %d" % n for n in range(20)]


def configuration(fingerprinter: str = "Scripted", deadline: float = 20.0) -> ChildConfiguration:
    return ChildConfiguration(
        scheme=Scheme(),
        seed=PUBLIC_SEED,
        page_bytes=1 << 20,
        memory=512 << 20,
        deadline=deadline,
        fingerprinter=f"tests.kafka.fingerprinters.{fingerprinter}",
    )


@pytest.fixture(autouse=True)
async def _no_child_stays(children_find_the_tests: None) -> AsyncIterator[None]:
    before = set(psutil.Process().children())
    yield
    assert set(psutil.Process().children()) <= before


def message(text: str, url: str = "http://a/") -> bytes:
    return json.dumps({"url": url, "text": text}).encode()


def urls(rows: list[Row]) -> list[bytes | None]:
    return [row.url.encode() if row.url is not None else None for row in rows]


@pytest.mark.night
async def test_a_store_that_hangs_is_asked_again_and_costs_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blocked read cannot be interrupted, so its process exits. No page is rejected, however often."""
    monkeypatch.setenv(SLOW_GATE, str(tmp_path))
    patient = msgspec.structs.replace(configuration("Stalling"), store_seconds=0.5, memory=2 << 30)
    pages = [message(text, f"http://a/{n}") for n, text in enumerate(("page", "stall", "page"))]
    async with asyncio.timeout(HANG), ChildPool(1, patient) as pool:
        with capture_logs() as logs:
            work = asyncio.create_task(pool.fingerprint(list(pages)))
            await until(lambda: sum(each["event"] == "page_waits" for each in logs) >= 3)
            (tmp_path / "gate").touch()
            rows = await work
    assert [row.url for row in rows] == ["http://a/0", "http://a/1", "http://a/2"]
    assert {row.reason for row in rows} == {None}
    assert pool.crashes == 0
    assert all("archive at byte 7: not read in 0.5 s" in each["error"] for each in logs)


async def test_rows_come_in_the_order_of_the_pages() -> None:
    async with asyncio.timeout(HANG), ChildPool(2, configuration()) as pool:
        chunks = [[b"page %d %d" % (c, n) for n in range(50)] for c in range(10)]
        answers = await asyncio.gather(*(pool.fingerprint(list(chunk)) for chunk in chunks))
    assert [urls(rows) for rows in answers] == chunks


async def test_process_that_nobody_needs_is_not_started() -> None:
    async with asyncio.timeout(HANG), ChildPool(2, configuration(), at_once=False) as pool:
        assert urls(await pool.fingerprint([b"page"])) == [b"page"]
        slots = [pool._free.get_nowait() for _ in range(2)]
        assert [slot is None for slot in slots] == [True, False]
        for slot in slots:
            pool._free.put_nowait(slot)


@pytest.mark.parametrize(
    ("poison", "detail", "deaths"),
    [
        (b"profile", "processor time", 1),
        (b"die", "exit code 3", 1),
        (b"segfault", "SIGSEGV", 1),
        (b"hoard", "child_memory", 1),
        # Somebody else may have done these: once more, alone.
        (b"alarm", "took longer than page_deadline", 2),
        (b"kill", "SIGKILL", 2),
    ],
)
@pytest.mark.parametrize("place", cases([0, 7, 20], by_day=[20]))
async def test_poison_page_is_the_only_one_rejected(
    poison: bytes, detail: str, deaths: int, place: int
) -> None:
    pages = [*PAGES[:place], poison, *PAGES[place:]]
    async with asyncio.timeout(HANG), ChildPool(1, configuration()) as pool:
        rows = await pool.fingerprint(list(pages))
        assert pool.crashes == deaths
        assert urls(await pool.fingerprint(list(PAGES))) == PAGES, "the place has a new process"
    crashed = rows.pop(place)
    assert (crashed.status, crashed.reason) == (Status.REJECTED, "crash")
    assert detail in (crashed.detail or "")
    assert urls(rows) == PAGES


async def test_page_that_waits_for_ever_is_ended_by_the_clock() -> None:
    """It is the only page, so a slow machine cannot delay others past the limit."""
    async with asyncio.timeout(HANG), ChildPool(1, configuration(deadline=0.5)) as pool:
        (row,) = await pool.fingerprint([b"hang"])
        assert pool.crashes == 2
    assert (row.reason, row.detail) == ("crash", "took longer than page_deadline (0.5 s)")


async def test_a_page_at_hand_has_timers_by_its_size() -> None:
    async with asyncio.timeout(HANG), ChildPool(1, configuration()) as pool:
        small, large = await pool.fingerprint([b"timers", b"timers " + b"x" * (1 << 19)])
    (small_processor, clock), (large_processor, _) = (json.loads(row.url or "") for row in (small, large))
    tick = 0.1
    assert 0 < small_processor <= seconds(20, 6, 1 << 20) + tick
    assert small_processor < large_processor <= seconds(20, 7 + (1 << 19), 1 << 20) + tick
    assert 0 < clock <= 22 + tick


async def test_poison_pages_in_a_chunk_are_all_found() -> None:
    pages: list[bytes | None] = [b"a", b"kill", b"b", b"die", b"kill", b"segfault", b"c", b"kill"]
    async with asyncio.timeout(HANG), ChildPool(1, configuration()) as pool:
        rows = await pool.fingerprint(list(pages))
        assert pool.crashes == 8
    crashed = [None if len(page or b"") == 1 else "crash" for page in pages]
    assert [row.reason for row in rows] == crashed


async def test_page_that_was_killed_for_what_others_did_is_tried_once_more(tmp_path: Path) -> None:
    page = b"kill %s" % os.fsencode(tmp_path / "killed")
    async with asyncio.timeout(HANG), ChildPool(1, configuration()) as pool:
        assert urls(await pool.fingerprint([b"a", page, b"b"])) == [b"a", page, b"b"]
        assert pool.crashes == 1


@pytest.mark.night
async def test_host_whose_pages_crash_gets_less_time() -> None:
    async with asyncio.timeout(HANG), ChildPool(1, configuration("Treacherous", deadline=20.0)) as pool:
        both = [message("TIMERS", f"http://{host}.example/") for host in ("bad", "good")]

        async def processor_time() -> list[float]:
            return [json.loads(row.url or "")[0] for row in await pool.fingerprint(list(both))]

        bad, good = await processor_time()
        assert (bad, good) == (pytest.approx(2, abs=0.5), pytest.approx(2, abs=0.5))
        for left in (1.0, 0.5, 0.5):
            (died,) = await pool.fingerprint([message("DIE", "http://BAD.example:80/")])
            assert died.reason == "crash"
            bad, good = await processor_time()
            assert (bad, good) == (pytest.approx(left, abs=0.2), pytest.approx(2, abs=0.5))


def test_crashed_hosts_are_bounded() -> None:
    hosts = CrashedHosts()
    for number in range(MAX_HOSTS + 9):
        hosts.note(f"host{number}")
        hosts.note("worst")
    hosts.note("")
    assert len(hosts.crashes) == MAX_HOSTS
    assert hosts.crashes["worst"] == MAX_HOSTS + 9
    assert "host0" not in hosts.crashes


def test_deadline_grows_with_the_page_and_shrinks_with_crashes() -> None:
    page_bytes = 16 << 20
    assert seconds(10, 0, page_bytes) == pytest.approx(1)
    assert seconds(10, page_bytes, page_bytes) == seconds(10, 9 * page_bytes, page_bytes) == pytest.approx(10)
    assert seconds(10, 0, page_bytes, 1) == pytest.approx(0.5)
    assert seconds(10, 0, page_bytes, 2) == seconds(10, 0, page_bytes, 99) == pytest.approx(0.25)


@pytest.mark.night
async def test_pages_done_together_are_all_answered_beside_those_that_end_the_process() -> None:
    words = ["fine"] * 60
    words[7], words[20], words[40] = "LATE", "ALARM", "SPIN 1e9"
    pages = [
        message(" ".join([word, *(f"word{number}x{place}" for place in range(30))]), f"http://e.com/{number}")
        for number, word in enumerate(words)
    ]
    async with asyncio.timeout(HANG), ChildPool(1, configuration("Treacherous")) as pool:
        rows = await pool.fingerprint(list(pages))
    assert [row.reason for row in rows] == [None if word == "fine" else "crash" for word in words]
    alone = PageFingerprinter()
    fine = [number for number, word in enumerate(words) if word == "fine"]
    assert [rows[number] for number in fine] == [alone.message(pages[number], 1 << 20) for number in fine]


async def test_a_bug_in_the_fingerprinter_rejects_the_page_alone() -> None:
    async with asyncio.timeout(HANG), ChildPool(1, configuration()) as pool:
        rows = await pool.fingerprint([b"a", b"raise", None])
        assert pool.crashes == 0
    assert [row.reason for row in rows] == [None, "failed", None]


async def test_what_a_library_prints_garbles_no_frame() -> None:
    async with asyncio.timeout(HANG), ChildPool(1, configuration()) as pool:
        assert urls(await pool.fingerprint([b"noise", b"a"])) == [b"noise", b"a"]


async def test_finished_rows_are_answered_while_a_later_page_is_slow(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    answered: list[Row] = []
    first_answer = asyncio.Event()

    def note(rows: list[Row]) -> None:
        answered.extend(rows)
        first_answer.set()

    async with asyncio.timeout(HANG), ChildPool(1, configuration()) as pool:
        chunk: list[bytes | None] = [b"a", b"wait %s" % os.fsencode(gate), b"c"]
        work = asyncio.create_task(pool.fingerprint(chunk, note))
        await first_answer.wait()
        assert len(answered) == 1
        gate.touch()
        assert await work == answered


async def test_cancelled_caller_leaves_a_child_that_answers_the_next_one(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with asyncio.timeout(HANG), ChildPool(1, configuration()) as pool:
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


class Around:
    """What is asked before and told after a page that is done alone."""

    def __init__(self, may_be_tried: bool = True) -> None:
        self.may_be_tried, self.said, self.over = may_be_tried, list[str](), asyncio.Event()

    async def before(self) -> bool:
        self.said.append("before")
        return self.may_be_tried

    async def after(self) -> None:
        self.said.append("after")
        self.over.set()


async def test_a_page_alone_waits_for_all_others_and_holds_them_back(tmp_path: Path) -> None:
    """Holds for a page whose caller was cancelled, too."""
    gates = [tmp_path / "first", tmp_path / "alone"]
    waits = [b"wait %s" % os.fsencode(gate) for gate in gates]
    around = Around()
    said = around.said
    async with asyncio.timeout(HANG), ChildPool(2, configuration()) as pool:
        started = asyncio.Event()
        first = asyncio.create_task(pool.fingerprint([b"a", waits[0]], lambda _: started.set()))
        await started.wait()
        first.cancel()
        alone = asyncio.create_task(pool.fingerprint_alone(waits[1], around.before, around.after))
        assert urls(await pool.fingerprint([b"b"])) == [b"b"] or not said
        assert said == [], "another page is at hand"
        gates[0].touch()
        await until(lambda: said)
        other = asyncio.create_task(pool.fingerprint([b"c"], lambda _: said.append("other")))
        assert said == ["before"]
        gates[1].touch()
        row = await alone
        await other
        assert row is not None
        assert row.url == waits[1].decode()
        assert said == ["before", "after", "other"]


@pytest.mark.parametrize("may_be_tried", [False, True])
async def test_a_page_alone_is_handed_out_if_it_may_be_and_rejected_if_it_ends_its_child(
    may_be_tried: bool,
) -> None:
    around = Around(may_be_tried)
    async with asyncio.timeout(HANG), ChildPool(2, configuration()) as pool:
        row = await pool.fingerprint_alone(b"die", around.before, around.after)
        assert (row.reason if row else None, around.said, pool.crashes) == (
            ("crash", ["before", "after"], 1) if may_be_tried else (None, ["before"], 0)
        )
        assert urls(await pool.fingerprint([b"a"])) == [b"a"]


async def test_a_page_alone_that_waits_for_a_store_lets_others_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SLOW_GATE, str(tmp_path))
    patient = msgspec.structs.replace(configuration("Stalling"), store_seconds=0.5, memory=2 << 30)
    around = Around()

    async with asyncio.timeout(HANG), ChildPool(2, patient) as pool:
        alone = asyncio.create_task(pool.fingerprint_alone(message("stall"), around.before, around.after))
        await around.over.wait()
        assert not alone.done()
        assert len(await pool.fingerprint([message("other")])) == 1
        (tmp_path / "gate").touch()
        row = await alone
        assert row is not None
        assert row.reason is None


async def test_leaving_ends_a_child_in_the_middle_of_a_page() -> None:
    async with asyncio.timeout(HANG):
        async with ChildPool(1, configuration()) as pool:
            started = asyncio.Event()
            work = asyncio.create_task(pool.fingerprint([b"a", b"hang"], lambda _: started.set()))
            await started.wait()
        with pytest.raises(asyncio.CancelledError):
            await work


async def test_child_that_starts_slowly_is_waited_for_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SLOW_GATE, str(tmp_path))
    monkeypatch.setattr("stream.children.pool.SLOW_START_SECONDS", 0.01)
    async with asyncio.timeout(HANG), AsyncExitStack() as stack:
        with capture_logs() as lines:
            starting = asyncio.create_task(stack.enter_async_context(ChildPool(1, configuration("Slow"))))

            async def is_named() -> bool:
                return any(line["event"] == "child_starts_slowly" and line["pid"] for line in lines)

            await until(is_named)
        assert not starting.done()
        (tmp_path / "gate").touch()
        pool = await starting
        assert urls(await pool.fingerprint(list(PAGES))) == PAGES
    assert caplog.messages == ["compiling inner loops: 7 so far"]  # in the parent's log, with its format


async def test_pool_that_is_cancelled_while_it_starts_leaves_no_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SLOW_GATE, str(tmp_path))

    async def has_child() -> bool:
        return any("stream.children.child" in child.cmdline() for child in psutil.Process().children())

    starting = asyncio.create_task(ChildPool(1, configuration("Slow")).__aenter__())
    await until(has_child)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not await has_child()


@pytest.mark.parametrize("fingerprinter", ["Unusable", "Stillborn", "Missing"])
async def test_child_that_cannot_start_is_an_error_not_a_rejected_page(fingerprinter: str) -> None:
    with pytest.raises(ChildError):
        async with asyncio.timeout(HANG), ChildPool(2, configuration(fingerprinter)):
            pytest.fail("the pool started")


async def test_children_ignore_the_signals_meant_for_the_worker() -> None:
    async with asyncio.timeout(HANG), ChildPool(1, configuration()) as pool:
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
    _, alive = psutil.wait_procs(children, timeout=HANG)
    assert not alive
