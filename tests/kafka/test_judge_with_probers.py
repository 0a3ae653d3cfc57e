"""A judge that has dropped tables, with probers on a real broker: it decides what one with all tables does,
whoever is killed."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer

from stream.errors import EXIT_REFUSED, AnswerError, SettingsError, StateError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.judge.ids import INDEX_BITS, parse
from stream.judge.segments import answering
from stream.judge.segments.answer import Answer, BucketCounts, ListedPairs, Run, Segment
from stream.judge.segments.answer_records import decode_answer, encode_answer
from stream.judge.segments.dead_file import decode_dead
from stream.kafka import topics
from stream.kafka.follower import open_follower
from stream.kafka.names import TopicNames
from stream.messages.decision import Decisions
from stream.messages.segments import decode_segment
from stream.messages.verdict_options import VerdictOptions
from stream.roles.auditor.recompute import recompute
from stream.roles.forgetter.request import names_of, request
from stream.roles.judge.role import JudgeRole
from stream.roles.prober import schedule
from stream.roles.prober.role import ProberRole
from stream.settings import Settings
from stream.tables import tables
from stream.tables.store.anchors import HELD as HELD_FROM
from stream.tables.store.rocks import DEFAULT, read_value
from tests.commands import neardup_process
from tests.judged_crawls import crowd, entries_of
from tests.kafka.judge_helpers import (
    append,
    decided,
    decision_records,
    decisions,
    error_of,
    places,
    verdicts,
)
from tests.kafka.worker_helpers import read_all, running, scrape
from tests.waiting import until

pytestmark = pytest.mark.broker

SIZE = 64
"""Anchors of a segment."""
HELD, DROPPED = (f"neardup_judge_segments{{tables={tables}}}" for tables in ("held", "dropped"))
REFUSED = "neardup_judge_answers_total{outcome=refused}"
AWAITED = "neardup_judge_awaited_answer_seconds"
CONTRADICTED = "neardup_judge_contradicting_answers"


@dataclasses.dataclass
class Deployment:
    """A deployment with a journal that grows, and directories of several machines."""

    settings: Settings
    records: Iterator[bytes]
    appended: int = 0
    last: list[Any] = dataclasses.field(default_factory=list)

    def prober(self, name: str, group: str = "") -> ProberRole:
        directory = self.settings.state_dir.with_name(name)
        return ProberRole(self.settings.model_copy(update={"state_dir": directory, "prober_group": group}))

    async def feed(self, records: int) -> None:
        """Append the next records."""
        self.last = await append(self.settings, *[next(self.records) for _ in range(records)])
        self.appended += records

    async def judge(self, records: int) -> None:
        """Append the next records, and wait until they are decided."""
        await self.feed(records)
        await decided(self.settings, self.last)

    async def judge_until(self, role: JudgeRole, series: str, least: int) -> None:
        """Have records judged one by one until a metric of the judge is large enough."""
        await self.judge(1)
        while (await scrape(role))[series] < least:
            await self.judge(1)

    async def answer_too_early(self) -> None:
        """Send an answer about records that are not in the journal yet."""
        sent = await read_all(self.settings, TopicNames(self.settings.namespace).candidates)
        last = decode_answer(sent[-1].value, "the last answer")
        beyond = dataclasses.replace(last.answer, run=Run(last.answer.run.start, self.appended + 1000))
        async with AIOKafkaProducer(bootstrap_servers=self.settings.bootstrap_servers) as producer:
            value = encode_answer(last._replace(answer=beyond))
            await producer.send_and_wait(sent[-1].topic, value, partition=sent[-1].partition)

    async def answer_differently(self) -> None:
        """Send two answers about the next record to decide that count anchors differently."""
        names = TopicNames(self.settings.namespace)
        decided = (await read_all(self.settings, names.decisions))[-1].offset + 1
        start = max(each.end for each in await decisions(self.settings))
        sent = await read_all(self.settings, names.candidates)
        last = decode_answer(sent[-1].value, "the last answer")
        async with AIOKafkaProducer(bootstrap_servers=self.settings.bootstrap_servers) as producer:
            for group, size in (("x", 1), ("y", 2)):
                answer = Answer(
                    last.answer.segment,
                    Run(start, start + 1),
                    decided,
                    last.answer.most,
                    ListedPairs._make(each[:0] for each in last.answer.pairs),
                    last.answer.cut[:0],
                    BucketCounts(*np.array([[start << INDEX_BITS], [0], [size]])),
                )
                other = last._replace(answer=answer, group=group, holder=f"holder-{group}")
                value = encode_answer(other)
                await producer.send_and_wait(sent[-1].topic, value, partition=sent[-1].partition)

    async def killed_at(self, failpoint: str, *arguments: str) -> None:
        """Run a judge in a process of its own, with records to judge, until it is killed there."""
        environment = os.environ | self.settings.environment() | {"NEARDUP_FAILPOINT": failpoint}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "stream.cli", "judge", *arguments, env=environment
        )
        ended = asyncio.create_task(process.wait())
        while not ended.done():
            if not arguments:
                await self.feed(1)
            deciding = asyncio.create_task(decided(self.settings, self.last))
            await asyncio.wait(
                [ended, *([] if arguments else [deciding])], return_when=asyncio.FIRST_COMPLETED
            )
            deciding.cancel()
        assert ended.result() == -signal.SIGKILL


@pytest.fixture
async def deployed(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setattr(schedule, "STILL_SECONDS", 1.0)
    # Some answers end within their runs.
    monkeypatch.setattr(answering, "MOST_ENTRIES", 200)
    monkeypatch.setattr(tables, "MOST_SEARCHED_ROWS", 16)
    settings = settings.model_copy(
        update={
            "checkpoints": str(tmp_path / "objects"),
            "checkpoint_interval": 0.2,
            "flush_seconds": 0.1,
            "prober_replicas": 2,
            "segment_anchors": SIZE,
            "session_seconds": 2.0,
            "tables_generation": 16,
            "tables_memory": 1 << 22,
        }
    )
    await topics.create(settings, Scheme(sketch_bins=192), VerdictOptions(compared=3), seed=PUBLIC_SEED)
    genesis = await topics.wait_for_genesis(settings)
    # Few URLs, so that anchors die, and many pages that are alike, so that lists are cut.
    pages = [
        dataclasses.replace(page, url=f"http://host/{at * 7 % 300}") for at, page in enumerate(crowd(5, 4800))
    ]
    rows = [entry.rows for entry in entries_of(pages, 1, sizes=(8, 12))]
    records = [
        dataclasses.replace(each, scheme=genesis.scheme_id, uncertain=each.uncertain[:, :0]).encode()
        for each in rows
    ]
    return Deployment(settings, iter(records))


async def held_after_restoring(settings: Settings) -> None:
    """A copy from a checkpoint of the judge has dropped the same tables, until somebody needs them."""
    code, _, error = await neardup_process(settings, "checkpoint", "now")
    assert code == 0, error
    directory = settings.state_dir.with_name("copy")
    genesis = await topics.wait_for_genesis(settings)
    async with open_follower(settings, genesis, directory, restore=True, take_back=None) as follower:
        assert follower.state.tables.held >= 3 * SIZE
    async with open_follower(settings, genesis, directory) as follower:
        assert follower.state.tables.held == 0


async def refuses_what_is_no_segment(settings: Settings) -> None:
    """A judge that is to take back a part of a segment ends before it has built any of it."""
    directory = settings.state_dir / settings.namespace / "judge"
    held = read_value(directory, DEFAULT, HELD_FROM)
    error = await error_of(JudgeRole(settings, take_back=SIZE + 1))
    assert isinstance(error, SettingsError), repr(error)
    assert f"the next ones begin with {SIZE} and {2 * SIZE}; `all` takes" in str(error)
    assert read_value(directory, DEFAULT, HELD_FROM) == held


async def ends_with_an_alarm(deployed: Deployment) -> None:
    """A judge that waits for answers gets two that differ: it serves a metric that says so before it ends."""
    judge = JudgeRole(deployed.settings)

    async def awaited() -> bool:
        return judge.ops_url is not None and (await scrape(judge))[AWAITED] > 0

    async def contradicted() -> bool:
        return (await scrape(judge))[CONTRADICTED] == 1

    ended = asyncio.create_task(error_of(judge))
    await until(awaited)
    await deployed.answer_differently()
    await until(contradicted)
    assert not ended.done()
    judge.stop()  # it would end by itself a minute later
    error = await ended
    assert isinstance(error, AnswerError), repr(error)
    assert error.exit_code == EXIT_REFUSED
    assert re.search(r"holder-. of group . counts anchors in buckets \[\(0, \d\)\], holder-", str(error))


async def forgets_what_probers_hold(deployed: Deployment) -> None:
    """Pages are forgotten whose tables the judge has dropped. From the decision on no verdict names them, and
    once probers have applied it, no answer does; lists of the dead beside the files of segments have them."""
    settings, names = deployed.settings, TopicNames(deployed.settings.namespace)
    genesis = await topics.wait_for_genesis(settings)
    urls = [f"http://host/{at}" for at in range(0, 300, 6)]
    await request(settings, genesis, names_of(urls, (), (), genesis.scheme.url_rules))

    async def forgettings() -> dict[int, Decisions]:
        return {at: each for at, each in (await decision_records(settings)).items() if each.forgotten}

    await until(forgettings)
    ((offset, decision),) = (await forgettings()).items()
    assert decision.forgotten is not None
    gone, pages = decision.forgotten.numbers[0], set(decision.forgotten.page_ids.tolist())
    assert np.sum(gone < 2 * SIZE) > 3, "the judge has dropped their tables"

    async def answered() -> list[Answer]:
        sent = await read_all(settings, names.candidates)
        found = [decode_answer(each.value, "an answer").answer for each in sent]
        return [each for each in found if each.decided > offset and len(each.pairs.anchor)]

    async def have_answered() -> bool:
        await deployed.judge(1)
        return len(await answered()) > 3

    await until(have_answered)
    assert not any(np.isin(each.pairs.anchor, gone).any() for each in await answered())
    named = list[int]()
    for each in await verdicts(settings):
        if page_of(each["id"]) >> INDEX_BITS >= decision.start:
            named += [page_of(page["id"]) for page in (each["duplicate_of"], each.get("nearest")) if page]
    assert named
    assert not pages & set(named)

    objects = Path(settings.checkpoints or "")

    async def are_listed() -> bool:
        last = {each.key: each.value for each in await read_all(settings, names.segments)}
        segments = [decode_segment(key, value, "a segment") for key, value in last.items()]
        for each in segments:
            assert not isinstance(each, int), "nothing expires"
            if each.decided <= offset:
                return False
            content, segment = (objects / each.dead_object).read_bytes(), Segment(each.first, each.end)
            dead = decode_dead(content, "its list", each.journal, segment)
            assert np.isin(gone[(gone >= each.first) & (gone < each.end)], dead).all()
        return True

    await until(are_listed)


def page_of(shown: str) -> int:
    """The packed form of a published id."""
    name = parse(shown)
    assert name is not None
    return name.page


async def test_rule_25_verdicts_are_those_of_a_judge_with_all_tables_whoever_is_killed(
    deployed: Deployment,
) -> None:
    settings = deployed.settings
    async with running(JudgeRole(settings)) as judge:
        await deployed.judge_until(judge, HELD, 2)
    probers = [deployed.prober("one"), deployed.prober("two")]
    async with running(probers[0]), running(deployed.prober("other", "b")):
        async with running(probers[1]):
            await deployed.killed_at("judge.dropped_segment")
            async with running(JudgeRole(settings)) as judge:
                await deployed.judge_until(judge, DROPPED, 2)
        async with running(
            JudgeRole(settings)
        ) as judge:  # one of three probers ends, and the judge began anew
            await deployed.judge(3)
            await deployed.judge_until(judge, DROPPED, 3)
    error = await error_of(JudgeRole(settings.model_copy(update={"prober_replicas": 0})))
    assert isinstance(error, StateError)
    assert "has no tables of anchors [0, " in str(error)
    assert "--take-back all" in str(error)
    async with running(JudgeRole(settings)) as judge:
        await deployed.feed(3)

        async def awaited() -> bool:
            return (await scrape(judge))[AWAITED] > 0.5

        async def refused() -> bool:
            return (await scrape(judge))[REFUSED] == 1

        await until(awaited)
        await deployed.answer_too_early()
        await until(refused)
        assert max(each.end for each in await decisions(settings)) <= deployed.last[0].offset
    await ends_with_an_alarm(deployed)
    async with (
        running(JudgeRole(settings)),
        running(deployed.prober("one")),
        running(deployed.prober("two")),
    ):
        await decided(settings, deployed.last)
        await forgets_what_probers_hold(deployed)
    await held_after_restoring(settings)
    await refuses_what_is_no_segment(settings)
    await deployed.killed_at("judge.took_back", "--take-back", "all")
    async with running(JudgeRole(settings.model_copy(update={"prober_replicas": 0}), take_back=0)):
        await deployed.judge(2)
    assert await recompute(settings) == []
    assert set(places(await verdicts(settings)).values()) == {1}
