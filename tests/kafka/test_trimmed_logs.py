"""Whoever reads journal or decisions works where their beginning was deleted, or refuses by name: nobody
waits for what is gone, and nobody passes over it."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from stream.checkpoints.kinds import meta_of
from stream.checkpoints.manifest import Manifest
from stream.dashboard.counting.rows import ClusterRow
from stream.dashboard.lookup.lookup import Finder
from stream.errors import EXIT_ERROR, SettingsError, StaleError, StateError
from stream.judge.state.meta import Meta
from stream.kafka import broker_metadata, topics
from stream.kafka.names import TopicNames
from stream.messages.decision import encode_decisions
from stream.messages.journal import Genesis
from stream.roles.auditor.audit import audit
from stream.roles.auditor.recompute import recompute
from stream.roles.elector.role import ElectorRole
from stream.roles.judge.role import JudgeRole
from stream.roles.loader.load import load
from stream.roles.worker.role import WorkerRole
from stream.rows.fingerprint import fingerprint_batch
from stream.settings import Settings
from stream.sources.rows import RowsSource
from stream.states.follower import open_follower
from tests.commands import neardup_process, succeeded
from tests.kafka.judge_helpers import (
    append,
    audited,
    decided,
    delete_records,
    ledgers,
    page,
    part,
    record,
    refusal_of,
)
from tests.kafka.judged_rounds import (
    ROUND,
    all_once,
    directory,
    has_checkpoint,
    judge_rounds,
    kept,
    restored,
    with_checkpoints,
)
from tests.kafka.worker_helpers import create, publish, running
from tests.unit.test_rows import directory as rows_directory
from tests.unit.test_rows import table
from tests.waiting import HANG_SECONDS, until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]

ROUNDS = 3
PAGES = ROUNDS * ROUND


@pytest.fixture
async def judged(settings: Settings, tmp_path: Path) -> Settings:
    """A deployment with checkpoints after 20, 40 and 60 pages, and a copy of its state after 20. It is
    stopped. Nothing was trimmed. A page of another partition was judged first, and none after it."""
    settings = with_checkpoints(settings, tmp_path / "objects")
    await create(settings)
    await judge_rounds(settings, 0, 1, record(part(1, 0, 1, opening=True)), ledger=True)
    shutil.copytree(directory(settings), outdated(settings))
    for number in range(1, ROUNDS):
        await judge_rounds(settings, number, number + 1, ledger=True)
    return settings


def meta(path: Path) -> Meta:
    found = meta_of(path, "judge")
    assert found is not None
    return found


def outdated(settings: Settings) -> Path:
    """A copy of an earlier state."""
    return directory(settings).with_name("earlier")


def put_back(settings: Settings, role: str = "judge") -> Path:
    """Put the copy of an earlier state in place of a role's."""
    path = directory(settings).with_name(role)
    if path.exists():
        shutil.rmtree(path)
    shutil.copytree(outdated(settings), path)
    return path


async def trim(settings: Settings, manifest: Manifest) -> None:
    """Trim both logs as far as a checkpoint allows."""
    names = TopicNames(settings.namespace)
    ledger = (await ledgers(settings))[manifest.ledger]
    await delete_records(settings, names.decisions, manifest.ledger)
    await delete_records(settings, names.journal, ledger.end - 1)


async def end_of(settings: Settings, topic: str) -> int:
    async with broker_metadata.connect(settings) as client:
        (bounds,) = (await broker_metadata.log_bounds(client, [topic])).values()
    return bounds.end


async def goes_on(settings: Settings) -> list[str]:
    """Have a judge drop a page that is delivered again, and judge one more. Returns what it restored."""
    with capture_logs() as logs:
        async with running(JudgeRole(settings)):
            again = [record(part(1, 0, 1, opening=True)), record(part(0, PAGES - 20, PAGES + 1))]
            await decided(settings, await append(settings, *again))
    return restored(logs)


async def test_a_lost_state_is_restored_where_the_logs_were_trimmed(judged: Settings) -> None:
    newest, middle, _ = kept(judged)
    await trim(judged, middle)
    shutil.rmtree(directory(judged))
    assert await goes_on(judged) == [str(newest.name)]
    await all_once(judged, ROUNDS, part(1, 0, 1))


@pytest.mark.night
async def test_a_state_that_the_logs_still_reach_goes_on(judged: Settings) -> None:
    await trim(judged, kept(judged)[0])
    assert await goes_on(judged) == []
    await all_once(judged, ROUNDS, part(1, 0, 1))


async def test_a_state_before_the_logs_is_refused_and_the_checkpoint_that_will_do_is_named(
    judged: Settings,
) -> None:
    newest, middle, _ = kept(judged)
    topic = TopicNames(judged.namespace).decisions
    await delete_records(judged, topic, middle.ledger)
    path = put_back(judged)
    text = await refusal_of(JudgeRole(judged))
    assert text.startswith(f"state directory {path}: topic {topic}: needed from ")
    assert f"but it starts at {middle.ledger}; checkpoint {newest.name} in " in text
    assert path.exists()
    rebuilding = judged.model_copy(update={"rebuild_damaged": True})
    assert await goes_on(rebuilding) == [str(newest.name)]
    assert len(list(path.parent.glob("judge.outdated-*"))) == 1
    await all_once(judged, ROUNDS, part(1, 0, 1))


@pytest.mark.night
@pytest.mark.parametrize("rebuild", [False, True])
async def test_a_follower_that_slept_through_a_trim_is_refused_or_restored(
    judged: Settings, rebuild: bool
) -> None:
    """It has read up to the first ledger record, and is asleep."""
    newest, genesis = kept(judged)[0], await topics.wait_for_genesis(judged)
    path = put_back(judged, "query")
    settings = judged.model_copy(update={"rebuild_damaged": rebuild})
    error = await error_after(settings, path, lambda: trim(judged, newest))
    assert isinstance(error, StaleError if rebuild else StateError), repr(error)
    topic = TopicNames(judged.namespace).decisions
    assert f"topic {topic}: offset {meta(outdated(judged)).decided} is needed" in str(error)
    if rebuild:
        assert "the next start restores it" in str(error)
        assert not path.exists()
        async with open_follower(settings, genesis, path, restore=True) as follower:
            await follower.follow_to_end()
            assert follower.state.meta.applied == newest.applied
    else:
        assert f"checkpoint {newest.name} in " in str(error)
        assert path.exists()


async def error_after(
    settings: Settings, path: Path, act: Callable[[], Coroutine[Any, Any, None]]
) -> Exception:
    """The error of a follower that does something else before it follows, and has fetched nothing before."""
    try:
        async with open_follower(
            settings, await topics.wait_for_genesis(settings), path, restore=True
        ) as follower:
            await act()
            for reader in (follower.decisions, follower.journal._topic):
                reader.seek(reader.position)
            async with asyncio.timeout(HANG_SECONDS):
                await follower.follow_to_end()
    except Exception as error:
        return error
    raise AssertionError("the follower came to the end")


@pytest.mark.night
async def test_a_follower_whose_journal_is_gone_does_not_wait_for_it(judged: Settings) -> None:
    """Decisions are there, but not the journal records that they are about."""
    newest, topic = kept(judged)[0], TopicNames(judged.namespace).journal
    path = put_back(judged, "query")
    error = await error_after(judged, path, lambda: delete_records(judged, topic, newest.applied - 1))
    assert isinstance(error, StateError), repr(error)
    assert f"topic {topic}: offset {meta(outdated(judged)).applied} is needed" in str(error)
    assert f"checkpoint {newest.name} in " in str(error)


@pytest.mark.night
async def test_a_query_is_refused_or_restored(judged: Settings, tmp_path: Path) -> None:
    newest = kept(judged)[0]
    await trim(judged, newest)
    put_back(judged, "query")
    pages = tmp_path / "pages.jsonl"
    pages.write_text(json.dumps({"url": "http://a/x", "text": "nothing of the sort"}) + "\n")
    status, _, errors = await neardup_process(judged, "query", str(pages))
    assert status == EXIT_ERROR, errors
    assert f"checkpoint {newest.name} in " in errors
    _, errors = await succeeded(judged, "query", "--rebuild-damaged", str(pages))
    assert "restored" in errors


@pytest.mark.night
async def test_the_look_up_says_why_it_is_unavailable_and_is_restored(judged: Settings) -> None:
    newest, genesis = kept(judged)[0], await topics.wait_for_genesis(judged)
    await trim(judged, newest)
    path = directory(judged).with_name("dashboard") / "anchors"
    shutil.copytree(outdated(judged), path)
    with capture_logs() as logs:
        async with finding(judged, genesis):
            await until(lambda: [each for each in logs if each["event"] == "lookup_unavailable"])
    assert f"checkpoint {newest.name} in " in logs[-1]["error"]
    async with finding(judged.model_copy(update={"rebuild_damaged": True}), genesis) as finder:
        await until(lambda: finder.anchors is not None)
        assert finder.anchors == PAGES + 1


@asynccontextmanager
async def finding(settings: Settings, genesis: Genesis) -> AsyncIterator[Finder]:
    """Run the dashboard's look-up."""
    finder = Finder(settings, genesis, lambda _: [], lambda _: ClusterRow())
    task = asyncio.create_task(finder.run())
    try:
        yield finder
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_audit_and_recomputation_of_trimmed_logs(judged: Settings, tmp_path: Path) -> None:
    """Decided again is what follows the oldest checkpoint that fits; ledger records are compared, too."""
    _, middle, _ = kept(judged)
    await trim(judged, middle)
    with pytest.raises(SettingsError, match=r"checkpoints: not set, but topic .*\.decisions starts at"):
        await recompute(judged.model_copy(update={"checkpoints": None}))
    elsewhere = judged.model_copy(update={"checkpoints": str(tmp_path / "none")})
    with pytest.raises(StateError, match=r"no checkpoint in .* can be used: there is none of this"):
        await recompute(elsewhere)
    begun: list[Manifest] = []
    another_generation = judged.model_copy(update={"tables_generation": 64})
    assert await recompute(another_generation, report_checkpoint=begun.append) == []
    assert begun == [middle]
    out, _ = await succeeded(judged, "audit", "--recompute", "--json")
    assert json.loads(out)["different"] == 0
    assert json.loads(out)["recomputed_from"] == middle.applied
    # A ledger record that says something else is found.
    ledger = list((await ledgers(judged)).values())[-1]
    first, *others = ledger.sources
    wrong = msgspec.structs.replace(first, expected=first.expected + 1)
    forged = msgspec.structs.replace(ledger, sources=[wrong, *others])
    await append(judged, encode_decisions(forged), topic=TopicNames(judged.namespace).decisions)
    (difference,) = await recompute(judged)
    assert re.match(r"decisions offset \d+: the ledger record has ", difference)


@pytest.mark.night
async def test_an_elector_that_begins_behind_a_trim_is_refused_by_name(settings: Settings) -> None:
    """It has no checkpoint that it could go on from."""
    settings = settings.model_copy(update={"elect": "longest"})
    names = await create(settings)
    await append(settings, record(part(0, 0, 3, opening=True)))
    await delete_records(settings, names.journal, 1)
    said = await refusal_of(ElectorRole(settings))
    assert f"empty, but topic {names.journal} starts at 1, and the setting checkpoints names no" in said


@pytest.fixture
async def crawled(settings: Settings, tmp_path: Path) -> tuple[Settings, RowsSource]:
    """A deployment of which pages and rows were judged, before a last page and a checkpoint, and the rows."""
    settings = with_checkpoints(settings, tmp_path / "objects")
    await create(settings)
    rows = RowsSource(str(rows_directory(tmp_path / "rows", fingerprint_batch(table(700)))))
    await publish(settings, [page(f"http://a/{n}", n) for n in range(20)])
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        await audited(settings, 20)
        assert (await load(settings, rows)).judged == 700
        await publish(settings, [page("http://a/last", "last")], partition=1)
        await audited(settings, 21)
        end = await end_of(settings, TopicNames(settings.namespace).journal)
        await until(partial(has_checkpoint, settings, end, ledger=True))
    return settings, rows


@pytest.mark.night
async def test_pages_and_rows_judged_before_a_trim_are_audited_and_not_loaded_again(
    crawled: tuple[Settings, RowsSource],
) -> None:
    settings, rows = crawled
    before = await audit(settings, rows={rows.digest: rows.count})
    assert before.clean, before
    await trim(settings, kept(settings)[0])
    assert await audit(settings, rows={rows.digest: rows.count}) == before
    assert await recompute(settings) == []
    loading = await load(settings, rows)  # no judge is there to wait for
    assert loading.judged_before == loading.judged == 700
