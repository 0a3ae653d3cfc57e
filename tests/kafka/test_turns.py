"""Turns on the topic (rule 23): what a leader publishes, what a crash leaves, and who refuses what."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from stream.errors import StateError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.judge.ids import show
from stream.judge.state import window
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.messages import verdict_options
from stream.messages.decision import Turn, encode_decisions, turn_record
from stream.messages.journal import SourceRange
from stream.messages.verdict_options import VerdictOptions
from stream.pages.page import Page
from stream.roles.auditor.recompute import recompute
from stream.roles.judge import append_times
from stream.roles.judge.role import JudgeRole
from stream.settings import Settings
from stream.states.follower import open_follower
from tests.kafka.judge_helpers import (
    CLUSTER,
    FINGERPRINTER,
    TOPIC_ID,
    Part,
    append,
    decided,
    decision_records,
    record,
    refusal_of,
    text,
    verdicts,
)
from tests.kafka.judged_rounds import directory, follow
from tests.kafka.worker_helpers import read_all, running, scrape
from tests.kills import killed_command
from tests.night import cases
from tests.waiting import HANG_SECONDS, until

pytestmark = pytest.mark.broker

LIFETIME, SLOT_MS = 2, 100
"""Seconds, and milliseconds: both shorter than a deployment may have."""
SHORT: Final = {
    "stream.messages.verdict_options.LEAST_LIFETIME": LIFETIME,
    "stream.judge.state.window.LEAST_SLOT": SLOT_MS,
}
HOT, COLD = "named by every record", "named by none"


@pytest.fixture
async def deployed(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(verdict_options, "LEAST_LIFETIME", LIFETIME)
    monkeypatch.setattr(window, "LEAST_SLOT", SLOT_MS)
    settings = settings.model_copy(
        update={"session_seconds": 1.0, "flush_seconds": 0.1, "checkpoints": str(tmp_path / "objects")}
    )
    await topics.create(settings, Scheme(), VerdictOptions(lifetime=LIFETIME), seed=PUBLIC_SEED)
    return settings


def journal() -> Iterator[bytes]:
    """Journal records without end. The first has a page of two texts; then each has a page that is new, a
    copy of one of them at a URL of its own, and another text of a URL that never says the same."""
    yield _record(0, [("http://a/hot", HOT), ("http://a/cold", COLD)])
    for start in itertools.count(2, 3):
        changing = ("http://changing/", f"{start} at another URL")
        yield _record(start, [(f"http://a/{start}", start), (f"http://b/{start}", HOT), changing])


def _record(start: int, pages: list[tuple[str, object]]) -> bytes:
    rows = [FINGERPRINTER.page(Page(url=url, text=text(seed))) for url, seed in pages]
    end = start + len(rows)
    covered = SourceRange(CLUSTER, "pages", TOPIC_ID, 0, start, end, len(rows), not start, False)
    return record(Part(covered, rows, list(range(start, end))))


async def turns(settings: Settings) -> dict[int, Turn]:
    return {
        offset: each.turn
        for offset, each in (await decision_records(settings)).items()
        if each.turn is not None
    }


async def check_clusters(settings: Settings) -> None:
    """The topic `clusters` has records of those superseded anchors alone that the state still has."""
    records = await read_all(settings, TopicNames(settings.namespace).clusters)
    last = {each.key.decode(): each.value for each in records}
    named = {cluster for cluster, value in last.items() if value is not None}
    genesis = await topics.wait_for_genesis(settings)
    async with open_follower(settings, genesis, directory(settings)) as follower:
        state = follower.state
        anchors = np.arange(state.first.anchors, state.next.anchors)
        dead = state.anchors(anchors[~state.tables.is_alive(anchors)])
        assert named == {show(genesis.journal, page) for page in dead.page.tolist()}
    assert len(named) < len(last), "some have expired"


async def judge_until_carried(settings: Settings, records: Iterator[bytes], anchors: int) -> None:
    """Have records judged until turns have carried so many anchors more."""
    before = max(await turns(settings), default=-1)

    async def carried() -> bool:
        await decided(settings, await append(settings, next(records)))
        return (
            sum(len(each.anchors) for at, each in (await turns(settings)).items() if at > before)
            >= 8 * anchors
        )

    await until(carried)


async def test_what_is_named_is_carried_and_the_rest_is_new_again(
    deployed: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_times, "AHEAD_MS", -3_600_000)  # all clocks are ahead then
    records = journal()
    async with running(JudgeRole(deployed)) as judge:
        await judge_until_carried(deployed, records, 2)
        before, after = await turns(deployed), await scrape(judge)
        check_metrics(after, before)
        found = await verdicts(deployed)
        again = _record(len(found), [("http://c/cold", COLD)])
        await decided(deployed, await append(deployed, again))
    first = {each["url"]: each for each in found}
    assert first["http://a/hot"]["verdict"] == first["http://a/cold"]["verdict"] == "unique"
    copies = [each for each in found if each["url"].startswith("http://b/")]
    assert {(each["verdict"], each["duplicate_of"]["url"]) for each in copies} == {
        ("duplicate", "http://a/hot")
    }
    last = (await verdicts(deployed))[-1]
    assert (last["url"], last["verdict"]) == ("http://c/cold", "unique"), "it expired"
    assert await follow(deployed, tmp_path / "fresh") == await follow(deployed, directory(deployed))
    await check_clusters(deployed)
    assert await recompute(deployed) == []


def check_metrics(told: dict[str, float], turns: dict[int, Turn]) -> None:
    """What a judge tells of its window is what its turns say."""
    carried = sum(len(each.anchors) + len(each.duplicates) for each in turns.values()) // 8
    assert told["neardup_judge_lifetime_seconds"] == LIFETIME
    assert told["neardup_judge_expired_pages_total{outcome=carried}"] == carried
    assert carried + told["neardup_judge_expired_pages_total{outcome=gone}"] == sum(
        list(turns.values())[-1].oldest
    )
    oldest = told["neardup_judge_oldest_page_timestamp_seconds"]
    assert LIFETIME <= told["neardup_judge_log_timestamp_seconds"] - oldest < 2 * HANG_SECONDS
    assert told["neardup_judge_late_expiry_pages"] == told["neardup_judge_late_expiry_seconds"] == 0
    (ahead,) = (name for name in told if name.startswith("neardup_judge_append_time_ahead_seconds"))
    assert re.fullmatch(r".*{broker=\d+}", ahead)


@pytest.mark.parametrize(
    ("failpoint", "left"),
    cases(
        [("turn.decided", 29), ("turn.sent", 29), ("turn.committed", 30), ("turn.applied", 30)],
        by_day=[("turn.committed", 30)],
    ),
)
async def test_a_judge_that_is_killed_at_a_turn_repeats_nothing(
    deployed: Settings, failpoint: str, left: int, tmp_path: Path
) -> None:
    """At the thirtieth, when pages expire and are carried. Everything is delivered again."""
    judging = asyncio.create_task(killed_command(deployed, f"{failpoint}:30", "judge", constants=SHORT))
    records, sent = journal(), list[bytes]()

    async def killed() -> bool:
        sent.append(next(records))
        await append(deployed, sent[-1])
        return judging.done()

    await until(killed)
    await judging
    before = await turns(deployed)
    assert len(before) == left
    assert any(each.anchors for each in before.values()), "some were carried before"
    async with running(JudgeRole(deployed)):
        await decided(deployed, await append(deployed, *sent, next(records)))
    places = [each["source"]["offset"] for each in await verdicts(deployed)]
    assert places == list(range(3 * len(sent) + 2))
    await check_clusters(deployed)
    assert await follow(deployed, tmp_path / "fresh") == await follow(deployed, directory(deployed))
    assert await recompute(deployed) == []


@pytest.mark.night
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"next_": (9, 0)}, r"has next numbers \(9, 0\), but the state has \(2, 0\)"),
        ({"oldest": (1, 0)}, r"has oldest numbers \(1, 0\), which are not from \(0, 0\) to \(0, 0\)"),
        ({"slots": 0}, "is not due at log time"),
    ],
)
async def test_a_turn_that_does_not_fit_is_refused_by_name(
    deployed: Settings, change: dict[str, Any], why: str
) -> None:
    offset = await forge(deployed, **change)
    said = await refusal_of(JudgeRole(deployed))
    assert re.search(f"the turn at decisions offset {offset} {why}", said)
    with pytest.raises(StateError, match=f"the turn at decisions offset {offset} {why}"):
        await recompute(deployed)


@pytest.mark.night
async def test_a_turn_at_another_time_than_the_next_record_is_told(deployed: Settings) -> None:
    offset = await forge(deployed)
    async with running(JudgeRole(deployed)):
        await decided(deployed, await append(deployed, _record(2, [("http://d/", "another")])))
    (difference,) = await recompute(deployed)
    assert f"decisions offset {offset}: the turn has log time" in difference


async def forge(
    settings: Settings, *, next_: tuple[int, int] = (2, 0), oldest: tuple[int, int] = (0, 0), slots: int = 2
) -> int:
    """Have a record judged, and append a turn so many slots later, before there is a record. Returns where it
    stands."""
    async with running(JudgeRole(settings)):
        await decided(settings, await append(settings, _record(0, [("http://a/1", 1), ("http://a/2", 2)])))
    last = [each for each in (await decision_records(settings)).values() if each.has_rows][-1]
    turn = Turn(oldest=oldest, next=next_, anchors=b"", duplicates=b"")
    forged = turn_record(
        last.journal, last.options, last.end, last.last, last.time + slots * SLOT_MS, None, turn
    )
    topic = TopicNames(settings.namespace).decisions
    (stands,) = await append(settings, encode_decisions(forged), topic=topic)
    return int(stands.offset)
