"""The elector on a real broker: what it tells survives kills, a lost state and a second process."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream.elector.elector import Due
from stream.errors import (
    EXIT_ERROR,
    RecordError,
    StaleError,
    StateError,
)
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.messages.best import ELECT_HEADER, WAS_HEADER, BestRecord, decode_best, encode_best
from stream.messages.decision import encode_decisions
from stream.messages.verdict import DIGEST_HEADER
from stream.roles.elector.best_topic import BestTopic
from stream.roles.elector.role import ElectorRole
from stream.settings import Settings
from tests.commands import neardup_process, succeeded
from tests.elected import decided_of
from tests.kafka.judge_helpers import append, refusal_of
from tests.kafka.worker_helpers import admin_of, create, error_of, read_all, running
from tests.kills import killed_command
from tests.property.best_oracle import Judged, crawl, kept, show, url_of
from tests.waiting import until

pytestmark = pytest.mark.broker
PAGES = 400


@pytest.fixture
def electing(settings: Settings) -> Settings:
    """Tells at once, and flushes often."""
    return settings.model_copy(update={"elect": "longest", "elect_seconds": 0.0, "flush_seconds": 0.05})


async def judge(settings: Settings, judged: list[Judged], part: range = range(1 << 30)) -> int:
    """Append pages to the journal, and decisions about them, as if they were judged: those that begin at an
    offset of this part. Returns the end of the journal."""
    names, genesis = TopicNames(settings.namespace), await topics.wait_for_genesis(settings)
    some = [each for each in decided_of(judged, 1, genesis) if each.decisions.start in part]
    entries = [entry for each in some for entry in each.entries]
    sent = await append(settings, *(each.rows.encode() for each in entries))
    assert [each.offset for each in sent] == [each.offset for each in entries]
    await append(settings, *(encode_decisions(each.decisions) for each in some), topic=names.decisions)
    return max((each.decisions.end for each in some), default=0)


async def told(settings: Settings) -> dict[str, list[BestRecord]]:
    """Cluster -> its records, in their order."""
    found = defaultdict(list)
    for record in await read_all(settings, TopicNames(settings.namespace).best(settings.elector_name)):
        best = decode_best(record.value, "best")
        headers = dict(record.headers)
        assert headers[ELECT_HEADER] == settings.elect.encode()
        assert (DIGEST_HEADER in headers) == (best.best is not None)
        assert (WAS_HEADER in headers) == (best.was is not None)
        assert record.key == best.cluster.encode()
        found[best.cluster].append(best)
    return found


async def kept_pages(settings: Settings, judged: list[Judged]) -> dict[str, Any]:
    """Cluster -> URL that is kept, by what was told and by all verdicts."""
    prefix = (await topics.wait_for_genesis(settings)).journal[:8]
    urls = {each.url: url_of(each) for each in judged}
    pages = {show(each.page, prefix): each for each in judged}
    records = await told(settings)
    found = {}
    for cluster, page in kept(judged, settings.elect).items():
        name = show(cluster, prefix)
        first = pages[name].url
        last = records[name][-1].best if name in records else None
        said = (urls[last.url] if last else None) if name in records else urls[first]
        found[name] = (said, url_of(page))
    return found


def all_agree(found: dict[str, Any]) -> bool:
    return bool(found) and all(said == wanted for said, wanted in found.values())


async def caught_up(role: ElectorRole, end: int = 0) -> None:
    """Wait until all is applied and told, the journal at least up to `end`: what was appended just now is not
    in the lag yet."""

    async def settled() -> bool:
        ready, _ = await role.watch.health.ready()
        metrics = role.watch.metrics
        come_so_far = value(metrics.journal_position) >= end
        return ready and come_so_far and not value(metrics.lag_records) and not value(metrics.due)

    await until(settled)


def value(gauge: Any) -> float:
    return float(gauge.collect()[0].samples[0].value)


async def test_killed_at_every_failpoint_the_topic_has_the_kept_pages(electing: Settings) -> None:
    await create(electing)
    judged = crawl(3, PAGES, offset=0)
    end = 0
    for failpoint in ("elector.sent", "elector.written", "elector.sent", "flush.ended", "flush"):
        end = await judge(electing, judged, range(end, end + 9))
        await killed_command(electing, failpoint, "elector")
    await judge(electing, judged, range(end, 1 << 30))
    async with running(ElectorRole(electing)) as role:
        await caught_up(role)
    assert all_agree(await kept_pages(electing, judged))
    for records in (await told(electing)).values():
        assert [each.place for each in records] == sorted({each.place for each in records})


async def test_a_cluster_is_told_at_most_once_in_elect_seconds_and_not_again_where_the_state_is_lost(
    electing: Settings,
) -> None:
    """All that a backlog left due is told at its end; later changes wait, and nothing of them is lost."""
    await create(electing)
    judged = crawl(8, PAGES, offset=0)
    end = await judge(electing, judged, range(30))
    settings = electing.model_copy(update={"elect_seconds": 3600.0})
    async with running(ElectorRole(settings)) as role:
        await caught_up(role)
    before = await told(electing)
    assert before
    shutil.rmtree(role._directory)
    async with running(ElectorRole(settings)) as slow:
        await caught_up(slow)
        journal_end = await judge(electing, judged, range(end, 1 << 30))
        await until(lambda: value(slow.watch.metrics.journal_position) == journal_end)
        assert value(slow.watch.metrics.due)
    assert await told(electing) == before
    async with running(ElectorRole(electing)) as role:
        await caught_up(role)
    assert all_agree(await kept_pages(electing, judged))


async def test_another_policy_is_refused_unless_it_has_a_name(electing: Settings, tmp_path: Path) -> None:
    await create(electing)
    judged = crawl(5, 200, offset=0)
    end = await judge(electing, judged, range(20))
    other = electing.model_copy(update={"elect": "newest"})
    async with running(ElectorRole(electing)) as role:
        await caught_up(role)
        said = await refusal_of(ElectorRole(other.model_copy(update={"state_dir": tmp_path / "new"})))
        assert "has elect=longest, but the setting is elect=newest" in said
        await caught_up(role, await judge(electing, judged, range(end, 1 << 30)))
    assert all_agree(await kept_pages(electing, judged)), "it was not disturbed"
    said = await refusal_of(ElectorRole(other))
    assert "elects by elect=longest, but the setting says elect=newest" in said
    named = other.model_copy(update={"elector_name": "fresh"})
    await create(named)
    async with running(ElectorRole(named)) as role:
        await caught_up(role)
    assert all_agree(await kept_pages(named, judged))
    assert all_agree(await kept_pages(electing, judged))


@pytest.mark.night
async def test_a_second_process_with_a_state_of_its_own_ends_the_first(
    electing: Settings, tmp_path: Path
) -> None:
    await create(electing)
    judged = crawl(6, 300, offset=0)
    end = await judge(electing, judged, range(20))
    first = ElectorRole(electing)
    running_first = asyncio.create_task(first.run())
    await caught_up(first)
    async with running(ElectorRole(electing.model_copy(update={"state_dir": tmp_path / "second"}))) as second:
        await caught_up(second)
        end = await judge(electing, judged, range(end, 1 << 30))
        with pytest.raises(StaleError, match=r"^fenced .*run one elector of a name, or give each an"):
            await running_first
        await caught_up(second, end)
    assert all_agree(await kept_pages(electing, judged))


async def publish(settings: Settings, record: BestRecord) -> None:
    """Write a record to the topic, as another elector of this name and policy would."""
    headers = [(ELECT_HEADER, settings.elect.encode())]
    headers += [
        (name, bytes(range(16)))
        for name, page in ((DIGEST_HEADER, record.best), (WAS_HEADER, record.was))
        if page is not None
    ]
    topic, key = TopicNames(settings.namespace).best(settings.elector_name), record.cluster.encode()
    await append(settings, encode_best(record), topic=topic, key=key, headers=headers)


@pytest.mark.night
async def test_a_topic_that_is_created_anew_under_an_elector_is_refused(electing: Settings) -> None:
    names = await create(electing)
    judged = crawl(10, PAGES, offset=0)
    end = await judge(electing, judged, range(40))
    role = ElectorRole(electing)
    running_role = asyncio.create_task(role.run())
    await caught_up(role)
    async with admin_of(electing) as admin:
        await admin.delete_topics([names.best()])
    await create(electing)
    await judge(electing, judged, range(end, 1 << 30))
    with pytest.raises(
        StateError, match=r"best partition \d: ends at \d+, but the state knows records up to"
    ):
        await running_role
    error = await error_of(ElectorRole(electing))
    assert "the topic was recreated, or lost records" in str(error)
    assert "Where journal or decisions were trimmed, it cannot" in str(error)
    assert not await told(electing), "the transaction was not committed"


async def test_records_that_cannot_be_are_refused_and_not_blamed_on_the_state(
    electing: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone put back older decisions: the elector would tell nothing for long, and then something wrong. A
    record of a cluster that there is not."""
    names = await create(electing)
    await judge(electing, crawl(11, 60, offset=0))
    settings = electing.model_copy(update={"rebuild_damaged": True})
    async with running(ElectorRole(settings)) as role:
        await caught_up(role)
    record = next(iter((await told(electing)).values()))[-1]
    prefix = record.cluster[:8]
    await publish(electing, msgspec.structs.replace(record, as_of=f"{prefix}.1000.0"))
    monkeypatch.setattr("stream.roles.elector.role.SHORT_SECONDS", 0.5)
    role = ElectorRole(settings)
    said = await refusal_of(role)
    assert f"knows pages up to {prefix}.1000.0, but topic {names.decisions} ends" in said
    assert not (await role.watch.health.ready())[0], "it is not ready before"

    none = {"cluster": f"{prefix}.0.9", "as_of": f"{prefix}.1.0", "because": "left"}
    await publish(electing, msgspec.structs.replace(record, best=None, members=0, **none))
    for _ in range(2):
        error = await error_of(ElectorRole(settings))
        assert isinstance(error, RecordError)
        where = rf"topic {names.best()} partition 0 offset \d+: of a cluster {prefix}.0.9, "
        assert re.match(where, str(error))
    assert not list(role._directory.parent.glob("*.damaged*"))


async def test_an_elector_that_is_to_stop_tells_nothing_more(
    electing: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(electing)
    judged = crawl(13, PAGES, offset=0)
    await judge(electing, judged)
    monkeypatch.setattr("stream.roles.elector.role.TOLD_AT_ONCE", 5)
    role, write, transactions = ElectorRole(electing), BestTopic.write, list[int]()

    async def stop(topic: BestTopic, due: Sequence[Due], *known: Any) -> dict[int, int]:
        transactions.append(len(due))
        role.stop()
        return await write(topic, due, *known)

    with monkeypatch.context() as patch:
        patch.setattr(BestTopic, "write", stop)
        await role.run()
    assert transactions == [5]
    async with running(ElectorRole(electing)) as role:
        await caught_up(role)
    assert all_agree(await kept_pages(electing, judged))


async def test_the_command_says_what_is_kept(electing: Settings) -> None:
    await create(electing)
    judged = crawl(7, 200, offset=0)
    await judge(electing, judged)
    async with running(ElectorRole(electing)) as role:
        await caught_up(role)
    prefix = (await topics.wait_for_genesis(electing)).journal[:8]
    kept_now = kept(judged, "longest")
    cluster, page = next((cluster, page) for cluster, page in kept_now.items() if page)
    empty = next(cluster for cluster, page in kept_now.items() if not page)
    code, output, error = await neardup_process(
        electing, "best", "--json", show(cluster, prefix), show(empty, prefix), "https://nowhere.example/"
    )
    assert code == 1, error
    answers = [json.loads(line) for line in output.splitlines()]
    assert answers[0]["best"]["id"] == show(page.page, prefix)
    assert answers[0]["elect"] == "longest"
    assert answers[1]["best"] is None
    assert answers[2] == {"asked": "https://nowhere.example/", "cluster": None}
    output, _ = await succeeded(electing, "best", show(cluster, prefix))
    assert f"kept: {page.url}  (id {show(page.page, prefix)}" in output
    for name in ("no-url", f"{prefix}.999999999999999.0", f"{prefix}.1.65536"):
        code, _, error = await neardup_process(electing, "best", name)
        assert code == EXIT_ERROR
        assert f"{name}: neither a URL nor the id of a cluster" in error
    code, _, error = await neardup_process(electing.model_copy(update={"elect": ""}), "elector")
    assert code
    assert "elect: name a policy" in error
