"""The judge on a real broker, rule by rule (docs/architecture/rules.md has the rules)."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from stream.errors import StaleError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.judge.judge import Judge
from stream.kafka import topics
from stream.kafka.election import Election
from stream.kafka.names import TopicNames
from stream.kafka.topic_plan import plan
from stream.messages.decision import CHANGE_SHIFT, JUDGED_AGAIN, NOT_ADMITTED, encode_decisions
from stream.messages.verdict import Change, Verdict
from stream.messages.verdict_options import VerdictOptions
from stream.roles.auditor import audit
from stream.roles.auditor.recompute import recompute
from stream.roles.judge import verdict_batches
from stream.roles.judge.role import JudgeRole
from stream.roles.judge.transaction import VerdictPublisher
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from stream.states.follower import JudgeFollower
from tests.commands import neardup_process
from tests.kafka.judge_helpers import (
    append,
    audited,
    decided,
    decisions,
    once,
    page,
    part,
    places,
    record,
    recreate,
    text,
    verdicts,
)
from tests.kafka.judged_rounds import directory, follow
from tests.kafka.worker_helpers import (
    admin_of,
    create,
    error_of,
    get,
    members,
    publish,
    read_all,
    running,
    scrape,
)
from tests.waiting import HANG_SECONDS, until, until_answer

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]


@pytest.fixture
def quick(settings: Settings) -> Settings:
    """Dead members of a group are noticed soon; tables freeze."""
    return settings.model_copy(
        update={"session_seconds": 1.0, "tables_generation": 16, "tables_memory": 0, "flush_seconds": 0.1}
    )


def crawl(count: int, seed: str = "") -> list[bytes]:
    """Pages of which some are mirrored, edited, crawled again, empty or malformed."""
    pages = []
    for n in range(count):
        url, words = f"http://a/{seed}{n}", text(f"{seed}{n}")
        match n % 10:
            case 3:
                words = text(f"{seed}{n - 3}")
            case 5:
                words = text(f"{seed}{n - 5}") + " more"
            case 7:
                url = f"http://a/{seed}{n - 7}"
            case 8:
                url, words = f"http://a/{seed}{n - 7}", text(f"{seed}{n - 7}")
            case 9:
                words = "" if n % 20 == 9 else "\x00" * 3
        pages.append(json.dumps({"url": url, "text": words}).encode() if n % 30 != 29 else b"{")
    return pages


async def test_rule_8_state_built_from_the_decision_log_equals_the_leaders(
    quick: Settings, tmp_path: Path
) -> None:
    """And decisions, verdicts and their headers say the same."""
    names = await create(quick)
    for partition in range(3):
        await publish(quick, crawl(70, f"{partition}/"), partition)
    async with running(WorkerRole(quick)), running(JudgeRole(quick)):
        assert (await audited(quick, 210)).clean
    given = Counter(Verdict[each["verdict"].upper()] for each in await verdicts(quick))
    assert given.keys() == {*Verdict}
    assert given == Counter(code for each in await decisions(quick) for code in each.verdict.tolist())
    heads = [dict(each.headers) for each in await read_all(quick, names.verdicts)]
    assert Counter(Verdict[each["verdict"].decode().upper()] for each in heads) == given
    genesis = await topics.wait_for_genesis(quick)
    assert {each["scheme"] for each in heads} == {genesis.scheme_id.encode()}
    own = await follow(quick, directory(quick))
    assert await follow(quick, tmp_path / "fresh") == own
    in_memory = quick.model_copy(update={"tables_memory": 1 << 28})
    assert await follow(in_memory, tmp_path / "in memory") == own
    assert await recompute(quick) == []


async def test_rule_8_superseded_anchor_is_decided_and_told_in_one_transaction(settings: Settings) -> None:
    names = await create(settings)
    await publish(settings, [page("http://a/", 1), page("http://a/", 2), page("http://b/", 1)])
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        await audited(settings, 3)
    first, second, third = await verdicts(settings)
    assert [(each["verdict"], each["change"]) for each in (first, second, third)] == [
        ("unique", "new"),
        ("unique", "changed"),
        ("unique", "new"),  # the anchor that it is like was superseded
    ]
    (change,) = [json.loads(each.value) for each in await read_all(settings, names.clusters)]
    assert (change["cluster"], change["state"], change["by"]) == (first["id"], "superseded", second["id"])
    assert [len(each.superseded) for each in await decisions(settings) if each.superseded] == [1]


async def test_rule_22_an_orphan_is_judged_again_and_its_cluster_goes_on(
    quick: Settings, tmp_path: Path
) -> None:
    await create(quick)
    old, new = 1, 2
    pages = [("a", old), ("b", old), ("c", old), ("a", new), ("b", old), ("d", old), ("c", old)]
    await publish(quick, [page(f"http://{name}/", text) for name, text in pages])
    async with running(WorkerRole(quick)), running(JudgeRole(quick)):
        await audited(quick, len(pages))
    given = await verdicts(quick)
    number = {each["id"]: place for place, each in enumerate(given)}
    assert [(each["verdict"], each["change"], number[each["cluster"]]) for each in given] == [
        ("unique", "new", 0),
        ("duplicate", "new", 0),
        ("duplicate", "new", 0),
        ("unique", "changed", 3),
        ("recrawl", "unchanged", 4),
        ("duplicate", "new", 4),
        ("recrawl", "unchanged", 4),
    ]
    assert [number[given[place]["duplicate_of"]["id"]] for place in (4, 5, 6)] == [1, 4, 2]
    assert sum(code & JUDGED_AGAIN > 0 for each in await decisions(quick) for code in each.codes) == 2
    own = await follow(quick, directory(quick))
    assert await follow(quick, tmp_path / "fresh") == own
    assert await recompute(quick) == []


async def test_rule_9_old_state_applies_what_was_decided_and_decides_nothing_twice(
    quick: Settings, tmp_path: Path
) -> None:
    """As after a crash before a flush, RocksDB is behind the published decisions."""
    await create(quick)
    state, old = directory(quick), tmp_path / "old"
    parts = [part(0, 0, 20, opening=True), part(0, 20, 40), part(0, 40, 60)]
    async with running(JudgeRole(quick)):
        await decided(quick, await append(quick, record(parts[0])))
    shutil.copytree(state, old)
    async with running(JudgeRole(quick)):
        await decided(quick, await append(quick, record(parts[1])))
    before = await follow(quick, state)
    shutil.rmtree(state)
    old.rename(state)
    async with running(JudgeRole(quick)):
        await decided(quick, await append(quick, record(parts[2])))
    assert places(await verdicts(quick)) == once(*parts)
    assert await follow(quick, state) == await follow(quick, tmp_path / "fresh") != before
    found = await decisions(quick)
    assert [each.start for each in found[1:]] == [each.end for each in found[:-1]]


@pytest.mark.night
async def test_rule_9_group_offset_of_a_judge_that_takes_over_says_what_was_judged(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds even if the previous judge did not commit it and there is nothing new to judge."""
    names = await create(settings)
    journal = TopicPartition(names.journal, 0)

    async def not_at_all(_: Election) -> None:
        return

    with monkeypatch.context() as patched:
        patched.setattr(Election, "_commit", not_at_all)
        async with running(JudgeRole(settings)):
            (appended,) = await append(settings, record(part(0, 0, 5, opening=True)))
            await decided(settings, [appended])
    async with admin_of(settings) as admin, running(JudgeRole(settings)):
        await until_answer(
            lambda: admin.list_consumer_group_offsets(names.judge),
            lambda offsets: journal in offsets and offsets[journal].offset == appended.offset + 1,
        )


async def test_rule_9_open_transaction_of_a_dead_judge_is_ended_not_followed(quick: Settings) -> None:
    """The judge died between its sends and its commit. Its decision is invisible, and its pages are judged
    again."""
    names = await create(quick)
    first, second = part(0, 0, 5, opening=True), part(0, 5, 9)
    async with running(JudgeRole(quick)):
        await decided(quick, await append(quick, record(first)))
    dead = AIOKafkaProducer(bootstrap_servers=quick.bootstrap_servers, transactional_id=names.judge)
    await dead.start()
    await dead.begin_transaction()
    await dead.send_and_wait(names.decisions, b"never committed", partition=0)
    await dead.send_and_wait(names.verdicts, b"never committed", partition=0)
    try:
        async with running(JudgeRole(quick)):
            await decided(quick, await append(quick, record(second)))
        with pytest.raises(Exception, match=r"(?i)fenced|epoch|newer"):
            await dead.commit_transaction()
    finally:
        await asyncio.wait({asyncio.ensure_future(dead.stop())}, timeout=10)
    assert places(await verdicts(quick)) == once(first, second)


@pytest.mark.night
async def test_what_would_take_too_long_is_judged_in_the_next_transaction(
    quick: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(quick)
    parts = [part(0, first, first + 2, opening=first == 0) for first in range(0, 40, 2)]
    await append(quick, *map(record, parts))
    monkeypatch.setattr("stream.roles.judge.batch_in_flight.MOST", -1)
    monkeypatch.setattr("stream.judge.decision.decide.SEARCH_ROWS", 2)
    async with running(JudgeRole(quick)):
        await until(lambda: _all_have(quick, parts))
    assert places(await verdicts(quick)) == once(*parts)
    assert {each.end - each.start for each in await decisions(quick)} == {1}
    state = directory(quick)
    assert await follow(quick, state) == await follow(quick, tmp_path / "fresh")


@pytest.mark.parametrize("few", [256, 0])
async def test_rule_10_refused_transaction_takes_the_batch_decided_ahead_of_it_along(
    quick: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    few: int,
) -> None:
    """A judge is fenced when the next batch is already decided, with verdicts encoded by the event loop or by
    threads.

    Its state contains committed batches only.
    """
    monkeypatch.setattr(verdict_batches, "FEW", few)
    monkeypatch.setattr("stream.roles.judge.role.AHEAD", 0.0)  # decide ahead however few rows are queued
    names = await create(quick)
    busy = quick.model_copy(update={"judge_rows": 4})
    parts = [part(0, first, first + 2, opening=first == 0) for first in range(0, 60, 2)]
    await append(quick, *map(record, parts))
    publish_one, decide, batches, judged, ahead = (
        VerdictPublisher.publish,
        Judge.decide,
        0,
        0,
        asyncio.Event(),
    )
    loop = asyncio.get_running_loop()

    def seen(self: Judge, *asked: Any) -> Any:
        nonlocal judged
        found = decide(self, *asked)
        judged += 1
        if judged == 5:  # which may be before the fourth is handed over to be published
            loop.call_soon_threadsafe(ahead.set)
        return found

    async def fenced(self: VerdictPublisher, *batch: Any) -> int:
        nonlocal batches
        batches += 1
        if batches == 4:
            await ahead.wait()
            successor = AIOKafkaProducer(
                bootstrap_servers=quick.bootstrap_servers, transactional_id=names.judge
            )
            await successor.start()
            await successor.stop()
        return await publish_one(self, *batch)

    monkeypatch.setattr(Judge, "decide", seen)
    monkeypatch.setattr(VerdictPublisher, "publish", fenced)
    error = await error_of(JudgeRole(busy))
    assert isinstance(error, StaleError)
    assert re.search(r"(?i)fenced|epoch|newer", str(error)), error
    assert batches == 4
    assert asyncio.all_tasks() == {asyncio.current_task()}
    del error
    gc.collect()
    assert "never retrieved" not in caplog.text
    monkeypatch.undo()
    assert sum(len(each.verdict) for each in await decisions(quick)) == 12
    state = directory(quick)
    assert await follow(quick, state) == await follow(quick, tmp_path / "fresh")
    async with running(JudgeRole(busy)):
        await until(lambda: _all_have(quick, parts))
    assert places(await verdicts(quick)) == once(*parts)
    assert await follow(quick, state) == await follow(quick, tmp_path / "fresh")
    assert await recompute(quick) == []


async def _all_have(settings: Settings, parts: list[Any]) -> bool:
    return places(await verdicts(settings)) == once(*parts)


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        (VerdictOptions(), "duplicate"),
        (VerdictOptions(similarity="1"), "unique"),
        (VerdictOptions.paper(), None),
    ],
    ids=["default", "identical only", "strict"],
)
async def test_rule_11_options_come_from_the_journal_alone(
    settings: Settings, options: VerdictOptions, verdict: str | None
) -> None:
    await topics.create(settings, Scheme(), options, seed=PUBLIC_SEED)
    edited = {"url": "http://b/", "text": text("one") + " and a little more"}
    await publish(settings, [page("http://a/", "one"), json.dumps(edited).encode()])
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        await audited(settings, 2)
    _, second = await verdicts(settings)
    assert verdict in (None, second["verdict"])
    if options.strict:
        assert second["similarity"] is None
    assert {each.options for each in await decisions(settings)} == {options.id}


async def test_rule_12_standby_applies_decisions_before_it_joins_and_takes_over(
    quick: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    logged: list[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await create(quick)
    parts = [part(0, 0, 20, opening=True), part(0, 20, 40), part(0, 40, 60)]
    following, go_on = asyncio.Event(), asyncio.Event()
    to_stable = JudgeFollower.follow_to_stable

    async def gated(follower: JudgeFollower) -> None:
        if follower.state.store.path.is_relative_to(tmp_path / "second"):
            following.set()
            await go_on.wait()
        await to_stable(follower)

    monkeypatch.setattr(JudgeFollower, "follow_to_stable", gated)
    second = JudgeRole(quick.model_copy(update={"state_dir": tmp_path / "second"}))
    async with running(JudgeRole(quick)) as first:
        await decided(quick, await append(quick, record(parts[0])))
        async with running(second):
            async with asyncio.timeout(HANG_SECONDS):
                await following.wait()
            assert await members(quick, TopicNames(quick.namespace).judge) == 1
            go_on.set()
            await until_answer(
                lambda: members(quick, TopicNames(quick.namespace).judge), lambda count: count == 2
            )
            stood_by = [each["applied"] for each in logged if each["event"] == "standby"]
            assert stood_by == [0, 1]
            leading = [(await scrape(each))["neardup_judge_leading"] for each in (first, second)]
            assert leading == [1, 0]
            await until_answer(lambda: get(second, "/readyz"), lambda answer: answer[0] == 200)
            await decided(quick, await append(quick, record(parts[1])))
            assert second.stats.transactions == 0
            assert "assigned to multiple consumers" not in caplog.text  # only the leader claims the journal
            first.stop()
            await until(lambda: "stopped" in [each["event"] for each in logged])
            await decided(quick, await append(quick, record(parts[2])))
            await until(lambda: second.stats.transactions == 1)
    assert places(await verdicts(quick)) == once(*parts)
    own = await follow(quick, tmp_path / "second" / quick.namespace / "judge")
    assert await follow(quick, directory(quick)) == own


@pytest.mark.night
async def test_rule_14_deployments_on_one_broker_do_not_fence_each_other(quick: Settings) -> None:
    """They run concurrently with a common state directory, and one namespace is a prefix of the other."""
    other = quick.model_copy(update={"namespace": f"{quick.namespace}-b"})
    both = (quick, other)
    for each in both:
        await create(each)
    async with (
        running(JudgeRole(quick)) as judge,
        running(JudgeRole(other)) as other_judge,
        running(WorkerRole(quick)),
        running(WorkerRole(other)),
    ):
        for n in range(3):
            for each in both:
                await publish(each, crawl(20, f"{n}/"), partition=n)
            for each in both:
                assert (await audited(each, 20 * (n + 1))).clean
        assert judge.stats.transactions > 0 < other_judge.stats.transactions
    for each in both:
        given = await verdicts(each)
        assert len(given) == 60
        assert {verdict["source"]["topic"] for verdict in given} == {TopicNames(each.namespace).pages}


def milliseconds(rfc3339: str) -> int:
    moment = datetime.fromisoformat(rfc3339)
    return int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000


async def test_rule_15_decided_at_is_the_running_maximum_of_append_times(settings: Settings) -> None:
    """A topic with producer timestamps simulates a broker's clock that is set back while the judge runs."""
    names = await create(settings)
    (planned,) = [each for each in plan(settings) if each.name == names.journal]
    async with running(JudgeRole(settings)):
        (opened,) = await append(settings, record(part(0, 0, 2, opening=True)))
        await decided(settings, [opened])
        config = planned.create_config(dev=True) | {"message.timestamp.type": "CreateTime"}
        journal = ConfigResource(ConfigResourceType.TOPIC, names.journal, configs=config)
        async with admin_of(settings) as admin:
            await admin.alter_configs([journal])

        async def takes_our_times() -> bool:
            (stands,) = await append(settings, record(), timestamp_ms=opened.timestamp)
            return bool(stands.timestamp_type == 0)

        await until(takes_our_times)
        stands = []
        for n, change in enumerate((5000, -3_600_000, 4999, 9000, 9000, -1)):
            after = record(part(0, 2 + 2 * n, 4 + 2 * n))
            stands += await append(settings, after, timestamp_ms=opened.timestamp + change)
        await decided(settings, stands)
    times = {each.offset: each.timestamp for each in await read_all(settings, names.journal)}
    running_maximum, latest = {}, 0
    for offset, time in sorted(times.items()):
        latest = running_maximum[offset] = max(latest, time)
    given = await verdicts(settings)
    assert len(given) == 14
    assert [milliseconds(each["decided_at"]) for each in given] == [
        running_maximum[int(each["id"].split(".")[1])] for each in given
    ]
    assert running_maximum != times
    assert latest - opened.timestamp == 9000


async def test_rule_7_rows_dropped_are_in_the_decisions_and_have_no_verdict(settings: Settings) -> None:
    await create(settings)
    parts = part(0, 0, 4, opening=True), part(0, 2, 6), part(0, 9, 10)
    async with running(JudgeRole(settings)) as judge:
        await decided(settings, await append(settings, *(record(each) for each in parts)))
        await until(lambda: judge.stats.redelivered == 2)
    codes = b"".join(each.verdict for each in await decisions(settings))
    assert [code == NOT_ADMITTED for code in codes] == [False] * 4 + [True] * 2 + [False] * 2 + [True]
    given = await verdicts(settings)
    assert places(given) == once(part(0, 0, 6))
    # Trimmed rows keep their untrimmed index.
    assert [int(each["id"].split(".")[2]) for each in given] == [0, 1, 2, 3, 2, 3]


async def audit_command(settings: Settings) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON line of `neardup audit`."""
    code, out, _ = await neardup_process(settings, "audit", "--json", "--recompute")
    return code, json.loads(out)


async def test_rule_17_audit_finds_missing_repeated_and_unexplained_verdicts(settings: Settings) -> None:
    """Aborted pages and transaction markers take offsets, but are not pages."""
    names = await create(settings)
    for partition in range(2):
        await publish(settings, crawl(10, f"{partition}/"), partition)
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (clean := await audited(settings, 20)).clean
    code, said = await audit_command(settings)
    assert (code, said.pop("seconds") > 0) == (0, True)
    assert said == {
        "pages": 20, "verdicts": dict(clean.verdicts), "rows": 0, "missing": 0, "waiting": 0,
        "waiting_since": None, "repeated": 0, "unexplained": 0, "superseded": 0, "trimmed": 0, "earlier": 0,
        "compacted": 0, "loaded": 0, "lost": 0, "different": 0, "recomputed_from": 0, "hidden": 0,
        "hidden_by": [],
    }  # fmt: skip
    stored = {
        (each.partition, json.loads(each.value)["source"]["offset"]): each.value
        for each in await read_all(settings, names.verdicts)
    }
    # A producer of its own that publishes what no judge did: two more of one page, one more of another.
    await append(settings, stored[0, 3], stored[0, 3], stored[1, 4], topic=names.verdicts)
    # Pages that nobody has read; an aborted one between them has an offset, and a verdict nobody can explain.
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, transactional_id=f"{names.namespace}.crawler"
    )
    await producer.start()
    for n in range(3):
        await producer.begin_transaction()
        stands = await producer.send_and_wait(names.pages, page("http://b/", n), partition=0)
        if n == 1:
            await producer.abort_transaction()
            invented = json.loads(stored[0, 3])
            invented["source"]["offset"] = stands.offset
            await append(settings, json.dumps(invented).encode(), topic=names.verdicts)
        else:
            await producer.commit_transaction()
    await producer.stop()
    other = json.loads(stored[0, 3])
    other["source"]["topic_id"] = "0" * 32
    await append(settings, json.dumps(other).encode(), topic=names.verdicts)

    found = await audit.audit(settings)
    assert (found.pages, found.missing, found.repeated, found.unexplained, found.earlier) == (22, 0, 3, 1, 1)
    assert found.waiting == 2
    assert sorted(found.examples) == [
        "repeated: partition 0 offset 3",
        "repeated: partition 1 offset 4",
        "unexplained: partition 0 offset 12",
    ]
    code, said = await audit_command(settings)
    assert code == 1
    assert (said["missing"], said["repeated"], said["unexplained"], said["different"]) == (0, 3, 1, 0)


@pytest.mark.night
async def test_rule_17_recomputing_finds_what_was_decided_otherwise(settings: Settings) -> None:
    """A decision log that says `new` where the journal gives `changed`."""
    names = await create(settings)
    await publish(settings, [page("http://a/", 1), page("http://a/", 2), page("http://b/", 3)])
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        await audited(settings, 3)
    assert await recompute(settings) == []
    log = await decisions(settings)
    forged = [
        msgspec.structs.replace(
            each, codes=(each.verdict | Change.NEW << CHANGE_SHIFT).astype("u1").tobytes()
        )
        for each in log
    ]
    await recreate(settings, names.decisions)
    await append(settings, *map(encode_decisions, forged), topic=names.decisions)
    place = next(n for n, each in enumerate(log) if Change.CHANGED in each.change)
    (changed,) = [each["id"] for each in await verdicts(settings) if each["change"] == "changed"]
    assert await recompute(settings) == [
        f"decisions offset {place}: change",
        f"verdict {changed}: is not what journal and decisions say",
    ]
