"""A transaction of another program stays open on one of our topics (rule 9): there is one history even so.

Whoever leads, deletes or says that something is complete waits for its end, and names it. Whoever reads goes
on, and says what is hidden.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import CommitFailedError, UnknownMemberIdError
from structlog.testing import capture_logs

from stream.cli.audit import EXIT_HIDDEN
from stream.errors import StateError
from stream.fingerprint.scheme import Scheme
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.kafka.open_transactions import GRACE_SECONDS
from stream.messages.best import decode_best
from stream.messages.verdict_options import VerdictOptions
from stream.roles.auditor import audit
from stream.roles.auditor.recompute import recompute
from stream.roles.elector.role import ElectorRole
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.commands import neardup_process
from tests.kafka.judge_helpers import audited, make, page, text, verdicts
from tests.kafka.worker_helpers import commit, create, error_of, get, publish, read_all, running, scrape
from tests.waiting import until, until_answer

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]
HALF = 20
"""Pages published at once."""


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(
        update={
            "session_seconds": 1.0, "tables_generation": 16, "tables_memory": 0, "flush_seconds": 0.1,
            "elect": "longest", "elect_seconds": 0.1,
        }
    )  # fmt: skip


@asynccontextmanager
async def foreign_transaction(settings: Settings, topic: str) -> AsyncIterator[None]:
    """A transaction of another program, which is open on partition 0 of a topic, and aborted on exit."""
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers, transactional_id="some-other-program",
        transaction_timeout_ms=600_000,
    )  # fmt: skip
    async with producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"never committed", key=b"key", partition=0)
        yield
        await producer.abort_transaction()


async def publish_half(settings: Settings, first: int) -> None:
    """Publish pages, of which each second one is a longer copy of the one before."""
    texts = [f"{text(n // 2)}{' and a word more' * (n % 2)}" for n in range(first, first + HALF)]
    pages = [{"url": f"http://a/{n}", "text": each} for n, each in enumerate(texts, first)]
    await publish(settings, [json.dumps(each).encode() for each in pages])


async def told(settings: Settings) -> Counter[str]:
    records = await read_all(settings, TopicNames(settings.namespace).best())
    return Counter(decode_best(each.value, "").cluster for each in records)


async def until_judged(settings: Settings, pages: int) -> None:
    await until_answer(lambda: verdicts(settings), lambda found: len(found) >= pages)


async def waits(role: JudgeRole | ElectorRole, topic: str) -> dict[str, Any]:
    """Wait until a role is not ready because of a transaction on a topic, and return what it answers."""
    await until(lambda: role.ops_url)
    _, answer = await until_answer(
        lambda: get(role, "/readyz"),
        lambda found: found[0] == 503 and f"{topic}-0" in found[1].get("trouble", ""),
    )
    return dict(answer)


def judge(settings: Settings, directory: Path) -> JudgeRole:
    return JudgeRole(settings.model_copy(update={"state_dir": directory}))


def elector(settings: Settings, directory: Path) -> ElectorRole:
    return ElectorRole(settings.model_copy(update={"state_dir": directory}))


async def refuse_repeated(settings: Settings, pages: int) -> None:
    """Check that each page has one verdict, and that decisions and verdicts follow from the journal."""
    assert (await audited(settings, pages)).clean
    assert set(Counter(each["id"] for each in await verdicts(settings)).values()) == {1}
    assert await recompute(settings) == []


async def test_rule_9_a_judge_leads_once_no_transaction_hides_decisions(
    quick: Settings, tmp_path: Path
) -> None:
    names = await create(quick)
    await publish_half(quick, 0)
    async with running(WorkerRole(quick)), AsyncExitStack() as stack:
        async with running(judge(quick, tmp_path / "first")):
            assert (await audited(quick, HALF)).clean
            await stack.enter_async_context(foreign_transaction(quick, names.decisions))
            await publish_half(quick, HALF)
            await until_judged(quick, 2 * HALF)  # verdicts are on a topic of their own, and visible
        async with running(judge(quick, tmp_path / "second")) as second:
            answer = await waits(second, names.decisions)
            assert re.search(r"open on \S+ since offset \d+ \(producer id \d+\)", answer["trouble"])
            series = f"neardup_judge_awaited_transaction_seconds{{partition=0,topic={names.decisions}}}"
            assert (await scrape(second))[series] >= GRACE_SECONDS
            assert len(await verdicts(quick)) == 2 * HALF
            await stack.aclose()
            await publish_half(quick, 2 * HALF)
            await until_judged(quick, 3 * HALF)
            assert series not in await scrape(second)
        async with running(judge(quick, tmp_path / "third")):  # from the logs alone
            await publish_half(quick, 3 * HALF)
            await until_judged(quick, 4 * HALF)
    await refuse_repeated(quick, 4 * HALF)


@pytest.mark.parametrize("topic", ["pages", "journal", "verdicts", "clusters", "requests", "best"])
async def test_rule_9_judges_and_electors_change_beside_a_transaction(
    quick: Settings, tmp_path: Path, topic: str
) -> None:
    names = await create(quick)
    await publish_half(quick, 0)
    async with running(WorkerRole(quick)), AsyncExitStack() as stack:
        async with running(judge(quick, tmp_path / "first")), running(elector(quick, tmp_path / "first")):
            assert (await audited(quick, HALF)).clean
            await stack.enter_async_context(foreign_transaction(quick, f"{names.namespace}.{topic}"))
            await publish_half(quick, HALF)
            if topic not in ("pages", "journal", "verdicts"):
                await until_judged(quick, 2 * HALF)
        second = elector(quick, tmp_path / "second")
        if topic == "best":
            async with running(elector(quick, tmp_path / "stopped")) as stopped:
                await waits(stopped, names.best())
        async with running(judge(quick, tmp_path / "second")), running(second):
            if topic == "best":
                await waits(second, names.best())
            await stack.aclose()
            await until_judged(quick, 2 * HALF)
            await until_answer(lambda: told(quick), lambda found: len(found) == HALF)  # one of two pages
    await refuse_repeated(quick, 2 * HALF)
    assert set((await told(quick)).values()) == {1}


async def test_an_audit_calls_verdicts_hidden_and_not_missing(quick: Settings, tmp_path: Path) -> None:
    names = await create(quick)
    await publish_half(quick, 0)
    async with running(WorkerRole(quick)), running(judge(quick, tmp_path)):
        assert (await audited(quick, HALF)).clean
        async with foreign_transaction(quick, names.verdicts):
            await publish_half(quick, HALF)
            await until_answer(lambda: audit.audit(quick), lambda found: found.hidden == HALF)
            code, out, _ = await neardup_process(quick, "audit", "--json")
            found = json.loads(out)
            assert code == EXIT_HIDDEN
            counts = [found[each] for each in ("hidden", "missing", "waiting", "pages")]
            assert counts == [HALF, 0, 0, 2 * HALF]
            assert re.match(
                rf"\d+ records from offset \d+ of {names.verdicts}-0 are hidden", found["hidden_by"][0]
            )
            _, _, error = await neardup_process(quick, "verdicts", "export", str(tmp_path / "out.duckdb"))
            assert f"of {names.verdicts}-0 are hidden by an open transaction" in error
        assert (await audited(quick, 2 * HALF)).clean


async def test_a_query_reads_on_and_says_what_is_hidden(quick: Settings, tmp_path: Path) -> None:
    names = await create(quick)
    await publish_half(quick, 0)
    async with running(WorkerRole(quick)), running(judge(quick, tmp_path / "judge")):
        assert (await audited(quick, HALF)).clean
    source = tmp_path / "pages.jsonl"
    source.write_bytes(page("http://b/", 0))
    async with foreign_transaction(quick, names.decisions):
        code, out, error = await neardup_process(quick, "query", "--json", str(source))
        assert (code, [each["url"] for each in json.loads(out)["anchors"]]) == (0, ["http://a/0"])
        assert f"of {names.decisions}-0 are hidden by an open transaction" in error


async def test_rule_6_a_genesis_is_written_once_no_transaction_hides_another(quick: Settings) -> None:
    """Two creators, of which one has written it behind the transaction, would both write one."""
    names = TopicNames(quick.namespace)
    await make(quick, names.genesis)
    with capture_logs() as logged:
        async with foreign_transaction(quick, names.genesis):
            creating = asyncio.create_task(topics.create(quick, Scheme(), VerdictOptions()))
            await until(lambda: any(f"{names.genesis}-0" in each.get("error", "") for each in logged))
        written = await creating
    assert len(await read_all(quick, names.genesis)) == 1
    assert (await topics.wait_for_genesis(quick)).journal == written.journal


async def test_rule_9_a_leader_refuses_decisions_that_lost_what_its_group_has_judged(
    quick: Settings, tmp_path: Path
) -> None:
    names = await create(quick)
    await publish_half(quick, 0)
    async with running(WorkerRole(quick)), running(judge(quick, tmp_path)):
        assert (await audited(quick, HALF)).clean

    async def committed() -> bool:
        with suppress(CommitFailedError, UnknownMemberIdError):  # until the judge counts as gone
            await commit(quick, 99, group=names.judge, topic=names.journal)
            return True
        return False

    await until(committed)
    error = await error_of(judge(quick, tmp_path))
    assert isinstance(error, StateError)
    assert f"group {names.judge} has judged it up to 99" in str(error)
    assert len(await verdicts(quick)) == HALF
