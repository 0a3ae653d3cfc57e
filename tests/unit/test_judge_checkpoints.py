"""Checkpoints beside a judge: when they are made, what is told of them, and what a failing store does."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from stream.checkpoints import uploads
from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.manifest import STORED, VERIFIED, Manifest
from stream.checkpoints.pruning import SPARED_SECONDS
from stream.checkpoints.requests import CheckpointRequests
from stream.checkpoints.restoring import verify
from stream.checkpoints.uploads import UPLOAD_NICE
from stream.errors import DiskError, SettingsError
from stream.judge.state.meta import Forgetting
from stream.roles.forgetter.status import Delay, _checkpoints, _Decided
from stream.roles.judge.watch import JudgeWatch
from stream.settings import Settings
from stream.states import checkpoint_maker
from stream.states.checkpoint_maker import CheckpointMaker
from stream.tables.store import scrub_child
from stream.tables.store.rocks import LOG, Store
from stream.tables.store.scrub_child import SLICE_SECONDS
from tests.checkpointed import OURS, digest_of, meta, open_store, write
from tests.commands import neardup
from tests.genesis import JOURNAL, genesis_of
from tests.waiting import HANG_SECONDS, until


class Judge:
    """As much of a judge as checkpoints need."""

    def __init__(self, path: Path, store: Store, **settings: Any) -> None:
        self.path, self.store, self.watch = path, store, JudgeWatch()
        self.objects, self.directory = path / "objects", path / "neardup" / "judge"
        self.catalogue = Catalogue(str(self.objects))
        self.state: Any = SimpleNamespace(store=store, meta=meta(0, last=b""))
        chosen = Settings(**{"checkpoints": str(self.objects), **settings})
        self.checkpoints = CheckpointMaker(chosen, JUDGE, self.directory, self.watch.metrics)

    def again(self, **settings: Any) -> Judge:
        return Judge(self.path, self.store, **settings)

    @property
    def kept(self) -> list[int]:
        return [self.catalogue.read(each).applied for each in self.catalogue.kept(JOURNAL, JUDGE)]

    def apply(self, applied: int, **fields: object) -> None:
        write(self.store, applied, **fields)
        self.state.meta = meta(applied, **fields)

    def metric(self, name: str) -> float:
        value = self.watch.metrics.registry.get_sample_value(f"neardup_judge_checkpoint_{name}")
        assert value is not None
        return value

    async def until(self, condition: Callable[[], object]) -> None:

        def turn() -> object:
            self.checkpoints.begin_if_due(self.state, self.checkpoints.request())
            return condition()

        await until(turn)

    async def idle(self) -> None:
        """Wait for the checkpoint that runs or is due."""
        self.checkpoints.begin_if_due(self.state, self.checkpoints.request())
        if self.checkpoints._running is not None:
            await self.checkpoints._running


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Judge]:
    """With a checkpoint an hour."""
    with open_store(tmp_path / "neardup" / "judge") as store:
        yield Judge(tmp_path, store)


@pytest.fixture
def often(judge: Judge) -> Judge:
    return judge.again(checkpoint_interval=0.01)


async def test_a_checkpoint_is_made_at_each_interval_if_anything_was_applied(often: Judge) -> None:
    async with often.checkpoints.beside(OURS):
        await often.idle()
        assert often.kept == []
        began = time.time()
        for applied in (1, 2):
            often.apply(applied)
            await often.until(partial(lambda end: end in often.kept, applied))
        await often.idle()
        told = often.metric("timestamp_seconds")
        assert began <= told <= time.time()
        assert often.metric("uploaded_bytes_total") > often.metric("uploading_bytes") == 0
        await often.until(lambda: often.metric("timestamp_seconds") > told)  # nothing new: still complete
        assert often.kept == [2, 1]
        newest = often.catalogue.kept(JOURNAL, JUDGE)[0]
        assert often.metric("bytes") == often.catalogue.read(newest).bytes


async def test_a_checkpoint_that_is_gone_is_made_anew_though_nothing_comes(often: Judge) -> None:
    often.apply(1)
    async with often.checkpoints.beside(OURS):
        await often.until(lambda: often.kept)
        await often.idle()
        shutil.rmtree(often.objects)
        await often.until(lambda: often.kept == [1])
        await often.idle()


async def test_uploads_leave_processors_to_the_judge(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, priorities = os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), list[int]()
    put = Catalogue.put_file

    def note_priority(self: Catalogue, *arguments: Any) -> None:
        priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        put(self, *arguments)

    monkeypatch.setattr(Catalogue, "put_file", note_priority)
    judge.apply(1)
    async with judge.checkpoints.beside(OURS):
        await judge.until(lambda: judge.kept)
        await judge.idle()
    assert set(priorities) == {UPLOAD_NICE}
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == ours


async def test_an_erasing_alone_makes_a_checkpoint_and_those_before_go(often: Judge) -> None:
    """Though nothing is judged any more, and there are less than are kept."""
    catalogue, home = often.catalogue, often.objects / JOURNAL

    def erased() -> list[int]:
        return [each.erased for each in catalogue.kept(JOURNAL, JUDGE)]

    def age() -> None:
        for each in home.rglob("*"):
            then = each.stat().st_mtime - SPARED_SECONDS - 60
            os.utime(each, (then, then))

    def left() -> list[Delay]:
        return _checkpoints(catalogue.url, genesis_of(), _Decided(pages={}, offset=1))

    often.apply(1)
    async with often.checkpoints.beside(OURS):
        await often.until(lambda: erased() == [0])
        assert "1 checkpoints were made before" in left()[0].why
        often.store.compact(LOG)
        often.apply(1, decided=3, forgetting=Forgetting(requests=1, decided=2, erased=2))
        await often.until(lambda: erased() == [2, 0])
        assert left()[0].until is not None
        await often.idle()
        assert erased() == [2, 0]
        age()
        await often.until(lambda: erased() == [2])
        assert "has files of checkpoints that were pruned" in left()[0].why
        age()
        await often.until(lambda: not left())
        await often.idle()
    (name,) = catalogue.kept(JOURNAL, JUDGE)
    verify(catalogue, catalogue.read(name))
    assert catalogue.contents(JOURNAL).pruned == {}


async def test_a_restarted_judge_goes_on_with_the_interval(judge: Judge) -> None:
    judge.apply(1)
    async with judge.checkpoints.beside(OURS):
        await judge.until(lambda: judge.kept)
        await judge.idle()
    again = judge.again()
    again.apply(2)
    async with again.checkpoints.beside(OURS):
        await again.idle()
        assert judge.kept == [1]
        assert again.metric("timestamp_seconds") == pytest.approx(judge.metric("timestamp_seconds"), abs=0.01)
        assert 3600 - HANG_SECONDS < again.checkpoints._due - time.monotonic() <= 3600


async def test_without_the_setting_none_is_made_and_a_request_is_answered(judge: Judge) -> None:
    judge = judge.again(checkpoints=None)
    judge.apply(1)
    requests = CheckpointRequests(judge.directory)
    async with judge.checkpoints.beside(OURS):
        judge.checkpoints.begin_if_due(judge.state, judge.checkpoints.request())
        request = requests.ask()
        judge.checkpoints.begin_if_due(judge.state, judge.checkpoints.request())
        answer = requests.answer_to(request)
        assert answer is not None
        assert answer.error == "the role has no setting checkpoints"
    assert judge.metric("interval_seconds") == 0
    assert not judge.objects.exists()


async def test_a_store_that_fails_is_told_and_tried_again(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_maker, "FIRST_PAUSE", 0.01)
    judge = judge.again()
    judge.objects.write_text("no directory")
    judge.apply(1)
    with capture_logs() as logs:
        async with judge.checkpoints.beside(OURS):
            await judge.until(lambda: judge.metric("failures_total") > 2)
            judge.objects.unlink()
            await judge.until(lambda: judge.kept == [1])
    failed = [each for each in logs if each["event"] == "checkpoint_failed"]
    assert len(failed) > 2
    assert all(f"checkpoints: {judge.objects}" in each["error"] for each in failed)


@pytest.mark.parametrize("error", [SettingsError("AWS_PROFILE: no such profile"), OSError(2, "gone")])
async def test_whatever_else_fails_beside_the_disk_does_not_end_the_judge(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    judge.apply(1)
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(Catalogue, "put_file", fail)
        async with judge.checkpoints.beside(OURS):
            await judge.until(lambda: judge.metric("failures_total") == 1)
    assert [each["error"] for each in logs if each["event"] == "checkpoint_failed"] == [str(error)]


async def test_a_full_disk_ends_the_judge(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise Exception("IO error: No space left on device: While link file")

    monkeypatch.setattr(judge.store, "checkpoint", refuse)
    judge.apply(1)
    async with judge.checkpoints.beside(OURS):
        with pytest.raises(DiskError, match="free some space"):
            await judge.until(lambda: False)


async def test_a_judge_that_ends_stops_the_upload(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()
    put = Catalogue.put_file

    def slow(self: Catalogue, journal: str, digest: str, path: Path, turn: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(reached.set)
        judge.checkpoints._stop.wait()
        put(self, journal, digest, path, turn)

    monkeypatch.setattr(Catalogue, "put_file", slow)
    judge.apply(1)
    async with judge.checkpoints.beside(OURS):
        judge.checkpoints.begin_if_due(judge.state, judge.checkpoints.request())
        await reached.wait()
        assert judge.metric("uploading_bytes") > 0
    assert judge.kept == []
    assert not list(judge.objects.glob("*/files/*"))


async def test_a_judge_that_ends_does_not_wait_for_the_throttle(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "FILE_SHARE", 1e-7)  # a pause of days
    monkeypatch.setattr(scrub_child, "LONGEST_PAUSE", float("inf"))
    pauses: list[float] = []
    put = Catalogue.put_file

    def work_long(self: Catalogue, journal: str, digest: str, path: Path, turn: Callable[[], None]) -> None:
        time.sleep(2 * SLICE_SECONDS)
        put(self, journal, digest, path, turn)

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return threading.Event.wait(judge.checkpoints._stop, seconds)

    monkeypatch.setattr(Catalogue, "put_file", work_long)
    monkeypatch.setattr(judge.checkpoints._stop, "wait", wait)
    judge.apply(1)
    async with judge.checkpoints.beside(OURS):
        await judge.until(lambda: any(each > 86_400 for each in pauses))
    assert pauses[-1] > 86_400
    assert judge.kept == []


async def test_a_request_is_answered_with_a_checkpoint_of_what_was_applied(judge: Judge) -> None:
    judge.apply(1)
    async with judge.checkpoints.beside(OURS):
        await judge.until(lambda: judge.kept)
        await judge.idle()
        judge.apply(2)
        command = asyncio.create_task(
            asyncio.to_thread(
                neardup, "checkpoint", "now", "--state-dir", judge.path, "--checkpoints", judge.objects
            )
        )
        await judge.until(command.done)
    assert command.result().stdout == f"{judge.catalogue.kept(JOURNAL, JUDGE)[0]}\n"
    assert judge.kept == [2, 1]
    assert not list(judge.directory.parent.glob("*request*"))
    assert not list(judge.directory.parent.glob("*answer*"))


def test_a_url_that_names_no_store_is_refused_at_once(judge: Judge) -> None:
    with pytest.raises(SettingsError, match=r"^file://\.\.\.: names a machine"):
        judge.again(checkpoints="file://key@host/directory")


def test_checkpoints_of_a_closed_state_are_made_listed_verified_and_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, objects = tmp_path / "neardup" / "judge", tmp_path / "objects"
    with open_store(directory) as store:
        write(store, 1)
    at = ("--checkpoints", objects)
    add = Catalogue.add

    def add_while_a_judge_begins(self: Catalogue, manifest: Manifest, part: str = STORED) -> None:
        with open_store(directory) as store:
            write(store, 1)
            add(self, manifest, part)

    monkeypatch.setattr(Catalogue, "add", add_while_a_judge_begins)
    made = neardup("checkpoint", "now", "--state-dir", tmp_path, *at)
    assert made.exit_code == 0, made.output
    name = made.stdout.strip()
    assert name.startswith("judge/2")
    listed = neardup("checkpoint", "list", *at)
    assert f"journal {JOURNAL}\n  {name}  made " in listed.stdout
    assert "  journal 1  decisions 2  format 8  no ledger record  " in listed.stdout
    assert listed.stdout.endswith(" bytes  not verified\n")
    catalogue = Catalogue(str(objects))
    manifest = catalogue.read(catalogue.kept(JOURNAL, JUDGE)[0])
    catalogue.add(manifest, VERIFIED)
    assert neardup("checkpoint", "list", *at).stdout.endswith(" bytes  verified\n")
    (line,) = neardup("checkpoint", "list", "--json", *at).stdout.splitlines()
    described = json.loads(line)
    told = {"checkpoint": name, "ledger": 0, "verified": True, "bytes": manifest.bytes, "kind": JUDGE}
    assert {key: described[key] for key in told} == told
    assert described["files"] == len(manifest.files)
    assert neardup("checkpoint", "verify", *at).exit_code == 0
    restored = neardup("checkpoint", "restore", tmp_path / "new", "--checkpoint", name, *at)
    assert restored.exit_code == 0
    assert digest_of(tmp_path / "new") == digest_of(directory)
    with pytest.raises(SettingsError, match="new: has files"):
        neardup("checkpoint", "restore", tmp_path / "new", *at)
    with pytest.raises(SettingsError, match=r"--journal: .* has checkpoints of abab.*, none of 00"):
        neardup("checkpoint", "verify", "--journal", "00", *at)
    with pytest.raises(SettingsError, match="--checkpoint: 'x' is no name of a checkpoint"):
        neardup("checkpoint", "verify", "--checkpoint", "x", *at)
    with pytest.raises(SettingsError, match="checkpoints: not set"):
        neardup("checkpoint", "list")
    empty = ("--checkpoints", tmp_path / "empty")
    assert "empty is empty: no checkpoint was made yet" in neardup("checkpoint", "list", *empty).stderr
    with pytest.raises(SettingsError, match="empty is empty: no checkpoint was made yet"):
        neardup("checkpoint", "verify", *empty)
    shutil.rmtree(objects / JOURNAL / "files")
    damaged = neardup("checkpoint", "verify", *at)
    assert damaged.exit_code == 1
    assert f"checkpoint {name}: " in damaged.stderr
    assert " is missing" in damaged.stderr
    (objects / manifest.name.object(VERIFIED)).unlink()
    (objects / manifest.name.object(STORED)).write_text("{")
    unreadable = neardup("checkpoint", "list", *at)
    assert unreadable.exit_code == 1
    assert f"checkpoint {name}: its manifest cannot be read" in unreadable.stderr
