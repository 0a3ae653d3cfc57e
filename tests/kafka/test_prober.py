"""Probers on a real broker: who holds what, what they answer, and what they refuse."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer

from stream.checkpoints.digests import digest_of_file, new_hash
from stream.dashboard.deployment import holders as holders_module
from stream.dashboard.deployment.holders import Holders
from stream.dashboard.lookup.reading import keep_reading
from stream.errors import EXIT_REFUSED, DamagedCheckpointError, StateError
from stream.failpoints import VARIABLE
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.judge.batch import Entry, digest_of
from stream.judge.judge import Judge
from stream.judge.segments.answer import Answer, Run, Segment
from stream.judge.segments.answer_records import SentAnswer, decode_answer
from stream.judge.segments.answering import Answerer
from stream.judge.segments.dead_file import encode_dead
from stream.judge.segments.file import AnchorColumns, Origin, write_segment_file
from stream.judge.segments.held_segment import HeldSegment
from stream.judge.state.state import State
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.messages.decision import encode_decisions
from stream.messages.journal import Genesis, decode_journal
from stream.messages.segments import SegmentRecord, encode_segment, object_of
from stream.messages.verdict_options import VerdictOptions
from stream.ops.metrics import DashboardMetrics
from stream.roles.prober import schedule
from stream.roles.prober.role import ProberRole
from stream.roles.prober.undecided_pages import RecordPages
from stream.settings import Settings
from stream.stores.open import store_of
from tests.commands import run_process
from tests.documented import ROOT
from tests.judged_crawls import crowd, entries_of
from tests.kafka.judge_helpers import append, error_of
from tests.kafka.worker_helpers import read_all, running
from tests.oracle import OraclePage
from tests.waiting import until

pytestmark = pytest.mark.broker

SIZE = 128
"""Anchors of a segment."""


@dataclass
class Deployment:
    """A deployment whose judge is this test: it decides the records of a journal when it is told to."""

    settings: Settings
    genesis: Genesis
    state: State
    entries: list[Entry]
    """All records, in the topic."""
    judge: Judge = field(init=False)
    decided: int = 0
    """Number of records that are decided."""
    position: int = 0
    """The position in the decisions."""

    def __post_init__(self) -> None:
        self.judge = Judge(self.state, self.genesis)

    async def decide(self, records: int) -> None:
        """Decide the next records, one by one."""
        topic = TopicNames(self.settings.namespace).decisions
        for entry in self.entries[self.decided : self.decided + records]:
            record = self.judge.decide([entry]).record()
            (sent,) = await append(self.settings, encode_decisions(record), topic=topic)
            self.position = sent.offset + 1
            self.judge.apply([entry], record, self.position)
        self.decided += records

    def segments(self) -> list[Segment]:
        """The segments that are full."""
        return [Segment(end - SIZE, end) for end in range(SIZE, self.state.tables.count + 1, SIZE)]

    async def announce(self, segment: Segment, **changes: object) -> SegmentRecord:
        """Export a segment as it is now, and announce it."""
        state, directory = self.state, self.settings.state_dir
        numbers = np.arange(*segment)
        anchors, store = state.anchors(numbers), store_of(self.settings.checkpoints or "")
        columns = AnchorColumns(anchors.fingerprint, anchors.skipped, anchors.sketch)
        path = directory / f"{segment.first}"
        path.unlink(missing_ok=True)
        write_segment_file(path, Origin.of(self.genesis), segment, [columns])
        dead = encode_dead(self.genesis.journal, segment, numbers[~state.tables.is_alive(numbers)])
        fields = {
            "journal": self.genesis.journal,
            "scheme": self.genesis.scheme_id,
            "first": segment.first,
            "end": segment.end,
            "oldest": segment.first,
            "digest": digest_of_file(path),
            "size": path.stat().st_size,
            "dead": new_hash(dead).hexdigest(),
            "dead_size": len(dead),
            "decided": self.position,
            "exported_at": "2026-11-26T00:00:00Z",
        }
        record = SegmentRecord(**fields | changes)  # type: ignore[arg-type]
        store.put(object_of(self.genesis.journal, record.digest), path)
        store.put(object_of(self.genesis.journal, record.dead), dead)
        servers = self.settings.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
            topic = TopicNames(self.settings.namespace).segments
            await producer.send_and_wait(topic, encode_segment(record), record.key, record.partition)
        return record

    async def sent(self) -> list[SentAnswer]:
        """All answers so far, in each partition in order."""
        topic = TopicNames(self.settings.namespace).candidates
        return [decode_answer(each.value, topic) for each in await read_all(self.settings, topic)]

    async def answers(self, group: str = "", most: int = 0) -> dict[tuple[int, Segment], Answer]:
        """The newest answers as of the present position that list at least `most` pairs, by record and
        segment."""
        return {
            (entry.offset, each.answer.segment): each.answer
            for each in await self.sent()
            if each.group == group and each.answer.decided == self.position and each.answer.most >= most
            for entry in self.undecided
            if each.answer.run.start <= entry.offset < each.answer.run.end
        }

    async def compare(self, segments: Sequence[Segment], group: str = "", most: int = 0) -> int:
        """Wait for answers about all records that are not decided, and compare them with the tables of the
        whole. Returns the number of lists that are cut."""
        want = {(entry.offset, segment) for entry in self.undecided for segment in segments}
        answers = dict[tuple[int, Segment], Answer]()

        async def all_answered() -> bool:
            answers.update(await self.answers(group, most))
            return answers.keys() >= want

        await until(all_answered)
        rule, whole, cut = self.judge.rule, Segment(0, self.state.tables.count), 0
        answerer = Answerer(whole, self.state.tables, self.state, rule, 500)
        for entry in self.undecided:
            record = RecordPages.of(entry)
            run = Run(entry.offset, entry.offset + 1)
            reference = answerer.answer(run, record.ids, record.pages, self.position)
            assert not len(reference.cut)
            for segment in segments:
                answer = answers[entry.offset, segment]
                for page in record.ids.tolist():
                    found, wanted = _rows(answer, page), _rows(reference, page)
                    wanted = [each for each in wanted if segment.first <= each[0] < segment.end]
                    best = sorted(wanted, key=lambda each: (each[2], each[0]))[: answer.most]
                    assert sorted(best) == found
                    assert (page in answer.cut) == (len(wanted) > answer.most)
                    cut += page in answer.cut
        return cut

    @property
    def undecided(self) -> list[Entry]:
        """The records that are not decided."""
        return self.entries[self.decided :]

    def prober(self, name: str, group: str = "") -> ProberRole:
        directory = self.settings.state_dir.with_name(name)
        return ProberRole(self.settings.model_copy(update={"state_dir": directory, "prober_group": group}))


def pages_of_test() -> list[OraclePage]:
    """Pages of few URLs, so that anchors die, and lists are cut."""
    pages = crowd(5, 900)
    return [dataclasses.replace(page, url=f"http://host/{at * 7 % 300}") for at, page in enumerate(pages)]


@pytest.fixture
async def deployed(settings: Settings, tmp_path: Path) -> AsyncIterator[Deployment]:
    settings = settings.model_copy(
        update={
            "checkpoints": str(tmp_path / "objects"),
            "segment_anchors": SIZE,
            "session_seconds": 4.0,
            "tables_generation": 64,
            "tables_memory": 1 << 22,
        }
    )
    settings.state_dir.mkdir()
    options = VerdictOptions(compared=3)
    await topics.create(settings, Scheme(sketch_bins=192), options, seed=PUBLIC_SEED)
    genesis = await topics.wait_for_genesis(settings)
    values = []
    for entry in entries_of(pages_of_test(), 1, sizes=(12, 20)):
        uncertain = entry.rows.uncertain[:, :0]
        values.append(dataclasses.replace(entry.rows, scheme=genesis.scheme_id, uncertain=uncertain).encode())
    sent = await append(settings, *values)
    entries = []
    for value, at in zip(values, sent, strict=True):
        entries.append(Entry(at.offset, at.timestamp, digest_of(value), decode_journal(value, at.offset)))  # type: ignore[arg-type]
    state = State(tmp_path / "judge", genesis, "cluster", memory=1 << 20, generation=64, cache=1 << 20)
    yield Deployment(settings, genesis, state, entries)
    state.close()


def _rows(answer: Answer, page: int) -> list[tuple[int, ...]]:
    """The pairs of a page, from the anchor on."""
    some = answer.pairs.page == page
    return list(zip(*(column[some].tolist() for column in answer.pairs[1:]), strict=True))


async def share(segments: Sequence[Segment], *probers: ProberRole) -> bool:
    """Whether all of these are ready, hold something, and have these segments among them."""
    ready = [await each.watch.health.ready() for each in probers]
    held = sorted(segment for each in probers for segment in each.held)
    return all(is_ready for is_ready, _ in ready) and all(each.held for each in probers) and held == segments


@asynccontextmanager
async def looking(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Holders]:
    """What a dashboard knows of holders, kept up to date while this is entered."""
    monkeypatch.setattr(holders_module, "LOOK_SECONDS", 0.5)
    settings = deployed.settings.model_copy(update={"segment_anchors": SIZE})
    holders = Holders(settings, deployed.genesis, DashboardMetrics().uncovered)
    task = asyncio.create_task(keep_reading(holders.look_on, "segments_unavailable"))  # as a dashboard does
    try:
        yield holders
    finally:
        task.cancel()
        error, *_ = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(error, asyncio.CancelledError), error


def shows(holders: Holders, *of_group: ProberRole, further: ProberRole) -> bool:
    """Whether all members are shown with what they hold, and as answering up to the last record."""
    found = holders.segments(slice(0, 50), (None, 1 << 40), 1)
    held = defaultdict[str, list[int]](list)
    for segment in found.segments:
        for place, each in enumerate(segment.holdings):
            if each.state != "answers" or not each.answered or each.behind != (1 << 40) - each.answered:
                return False
            assert each.holder == each.answered_by
            held[f"{place} {each.holder}"].append(segment.first)
    if len(found.groups) < 2 or not held:
        return False
    assert [each.uncovered for each in found.groups] == [0, 0]
    assert [len(each.members) for each in found.groups] == [2, 1]
    assert [each.tables for each in found.segments] == ["dropped", *["held"] * (found.total - 1)]
    expected = [[each.first for each in role.held] for role in (*of_group, further)]
    assert sorted(held.values()) == sorted(expected)
    part = holders.segments(slice(1, 2), (None, None), None)
    decided = holders.segments(slice(0, 50), (1 << 40, 1 << 40), None)
    assert {of.behind for each in decided.segments for of in each.holdings} == {0}
    assert (part.next, part.segments[0].first, part.segments[0].tables) == (2, found.segments[1].first, None)
    return True


def shows_nobody(holders: Holders) -> bool:
    """Whether both groups are shown without members, as Kafka sees it once their sessions have ended. They
    are known by their answers if it has forgotten them."""
    found = holders.segments(slice(0, 50), (None, None), None)
    states = {each.state for segment in found.segments for each in segment.holdings}
    of_gauge = {sample.value for family in holders._uncovered.collect() for sample in family.samples}
    return states == {"uncovered"} and [*of_gauge] == [found.total]


async def test_answers_are_those_of_one_who_has_all(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "STILL_SECONDS", 1.0)
    await deployed.decide(40)
    segments = deployed.segments()
    assert len(segments) >= 3
    for segment in segments:
        await deployed.announce(segment)
    await deployed.decide(2)  # some anchors die after the announcement
    one, two, further = deployed.prober("one"), deployed.prober("two"), deployed.prober("three", "b")
    async with AsyncExitStack() as stack:
        holders = await stack.enter_async_context(looking(deployed, monkeypatch))
        await stack.enter_async_context(running(one))
        await stack.enter_async_context(running(further))
        async with running(two):
            await until(lambda: share(segments, one, two))
            await until(lambda: share(segments, further))
            assert await deployed.compare(segments) > 20
            # Of those that are sent again while decisions stand still, lists are longer: of a segment that
            # was loaded later, from the first answer on.
            await deployed.compare(segments, "b", most=16)
            # Lists that are cut come again after deaths, or the comparison would wait for ever.
            await deployed.decide(1)
            assert await deployed.compare(segments) > 20
            kept = {each: one.holding(each) for each in one.held}
            await until(lambda: shows(holders, one, two, further=further))
        # What it held before the rebalance is still the same, and it answers for the rest as well.
        await until(lambda: share(segments, one))
        assert all(one.holding(each) is held for each, held in kept.items())
        await deployed.decide(1)
        await deployed.compare(segments)
        async with running(deployed.prober("two")) as again:
            await until(lambda: share(segments, one, again))
            await deployed.decide(1)
            await deployed.compare(segments)
    async with looking(deployed, monkeypatch) as later:
        await until(lambda: shows_nobody(later))


async def test_killed_at_every_failpoint_the_next_one_answers_all(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await deployed.decide(40)
    segments = deployed.segments()[:2]
    for segment in segments:
        await deployed.announce(segment)
    prober = deployed.prober("one")
    environment = prober.settings.environment() | {"PYTHONPATH": str(ROOT)}
    for failpoint in ("prober.loaded", "prober.answered:3"):
        code, _, error = await run_process(
            sys.executable, "-m", "stream.cli", "prober", environment=environment | {VARIABLE: failpoint}
        )
        assert code == -signal.SIGKILL, error
        await deployed.decide(1)
    monkeypatch.setattr(HeldSegment, "build", None)  # tables are opened
    async with running(prober):
        await until(lambda: share(segments, prober))
        await deployed.compare(segments)


async def test_a_damaged_file_is_fetched_again_and_then_refused(deployed: Deployment) -> None:
    await deployed.decide(20)
    segment = deployed.segments()[0]
    record = await deployed.announce(segment)
    prober = deployed.prober("one")
    directory = prober.directory
    async with running(prober):
        await until(lambda: share([segment], prober))
    assert {each.name for each in directory.iterdir()} == {record.digest, f"{record.digest}.tables"}
    whole = (directory / record.digest).read_bytes()
    (directory / record.digest).write_bytes(b"x" + whole[1:])
    (directory / f"{record.digest}.tables" / "CURRENT").write_bytes(b"x")
    prober = deployed.prober("one")
    async with running(prober):
        await until(lambda: share([segment], prober))
        await deployed.compare([segment])
    assert (directory / record.digest).read_bytes() == whole
    (directory / record.digest).unlink()
    store_of(deployed.settings.checkpoints or "").put(record.object, whole[:-1] + b"x")
    error = await error_of(deployed.prober("one"))
    assert isinstance(error, DamagedCheckpointError)
    assert record.object in str(error)


async def test_segments_of_others_are_refused(deployed: Deployment) -> None:
    await deployed.decide(20)
    segment = deployed.segments()[0]
    await deployed.announce(segment, journal="ab" * 16)
    error = await error_of(deployed.prober("one"))
    assert isinstance(error, StateError)
    assert f"is of journal {'ab' * 16}, not {deployed.genesis.journal}" in str(error)
    assert error.exit_code == EXIT_REFUSED
    await deployed.announce(segment, scheme="cd" * 8)
    error = await error_of(deployed.prober("one"))
    assert isinstance(error, StateError)
    assert f"is of scheme {'cd' * 8}, not {deployed.genesis.scheme_id}" in str(error)
