"""Kept pages under kills: judges and electors die at every place while mirrored pages change and orphans are
judged again, and in the end the topic says of each cluster what all verdicts say."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stream.judge.ids import pack
from stream.kafka.names import TopicNames
from stream.messages.decision import JUDGED_AGAIN, decode_decisions
from stream.messages.journal import Rows, decode_journal
from stream.roles.auditor.audit import audit
from stream.roles.auditor.recompute import recompute
from stream.settings import Settings
from tests.chaos.deployment import WORDS, Crawler, Deployment
from tests.chaos.witness import bear_witness, read_all
from tests.kafka.test_elector import all_agree, kept_pages, told
from tests.property.best_oracle import Judged
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.chaos, pytest.mark.night, pytest.mark.timeout(3600)]

JUDGE_POINTS = ("judge.sent", "judge.committed", "flush", "freeze.meta")
ELECTOR_POINTS = (
    "elector.sent", "elector.written", "elector.flushed", "checkpoint.linked", "checkpoint.manifest",
)  # fmt: skip
TIMES = 2


class Mirrors(Crawler):
    """Groups of pages with the same text, of which each may change for a while. So clusters lose their
    anchors while other members go on saying the same."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._groups: dict[int, str] = {}
        self._own: dict[str, str] = {}

    def page(self) -> bytes:
        rng, group = self._random, self._random.randrange(60)
        url = f"http://mirror-{rng.randrange(5)}.example/{group}"
        if url in self._own and rng.random() < 0.3:
            del self._own[url]
        elif rng.random() < 0.15:
            self._own[url] = self._text()
        text = self._own.get(url) or self._groups.setdefault(group, self._text())
        return json.dumps({"url": url, "text": text + " end" * rng.randrange(3)}).encode()

    def _text(self) -> str:
        return " ".join(self._random.choice(WORDS) for _ in range(self._random.randrange(60, 200)))


async def test_kept_pages_are_right_after_kills_at_every_point(
    settings: Settings, tmp_path: Path, report: Callable[[str], None]
) -> None:
    rng, kills = random.Random(20070508), Counter[str]()
    chaos = settings.model_copy(
        update={
            "tables_generation": 48, "tables_memory": 0, "flush_seconds": 0.3, "session_seconds": 2.0,
            "shutdown_seconds": 3.0, "partitions": 4, "checkpoint_interval": 0.5, "elect": "longest",
            "elect_seconds": 0.2, "checkpoints": str(tmp_path / "objects"), "rebuild_damaged": True,
        }
    )  # fmt: skip
    crawler, done = Mirrors(1), asyncio.Event()

    async def die(deployment: Deployment, role: str, points: tuple[str, ...]) -> None:
        order = list(points) * TIMES
        rng.shuffle(order)
        for point in order:
            await deployment.start(role, f"{point}:{rng.choice([1, 1, 2])}")
            assert await deployment.wait_for_end(role) == -9, deployment.log(role)[-2000:]
            kills[point] += 1
        await deployment.start(role)

    async with Deployment(chaos, tmp_path) as deployment:
        crawling = asyncio.create_task(crawler.crawl(chaos, done, 0.1))
        await deployment.start("worker")
        await asyncio.gather(
            die(deployment, "judge", JUDGE_POINTS), die(deployment, "elector", ELECTOR_POINTS)
        )
        done.set()
        await crawling

        async def judged_all() -> bool:
            findings = await audit(chaos)
            return not (findings.missing or findings.waiting)

        await until(judged_all)
        verdicts = await judged(chaos)

        async def agree() -> bool:
            return all_agree(await kept_pages(chaos, verdicts))

        await until(agree)
        for name in ("judge", "elector", "worker"):
            assert await deployment.stop(name) == 0, deployment.log(name)[-2000:]
    said, orphans = await bear_witness(chaos.bootstrap_servers, chaos.namespace), await judged_again(chaos)
    report(f"kills per point {dict(sorted(kills.items()))}; {orphans} orphans; {said}")
    assert not said.missing
    assert not said.repeated
    assert not said.different, said.different[:3]
    assert (await audit(chaos)).clean
    assert await recompute(chaos) == []
    assert orphans > TIMES
    for records in (await told(chaos)).values():
        assert [each.place for each in records] == sorted({each.place for each in records})
    assert all_agree(await kept_pages(chaos, verdicts))


async def judged(settings: Settings) -> list[Judged]:
    """All verdicts, with the lengths that the journal says, in the order of judgement."""
    names, lengths = TopicNames(settings.namespace), {}
    for record in await read_all(settings.bootstrap_servers, names.journal):
        rows = decode_journal(record.value, record.offset)
        if isinstance(rows, Rows):
            lengths |= {pack(record.offset, row): int(each) for row, each in enumerate(rows.length)}
    found = []
    for record in await read_all(settings.bootstrap_servers, names.verdicts):
        verdict = json.loads(record.value)
        page, url = page_of(verdict["id"]), verdict["url"]
        cluster = None if verdict["cluster"] is None else page_of(verdict["cluster"])
        found.append(Judged(page, url, url, verdict["verdict"], cluster, lengths[page]))
    return sorted(found, key=lambda each: each.page)


def page_of(shown: str) -> int:
    """The packed form of an id."""
    _, offset, row = shown.split(".")
    return pack(int(offset), int(row))


async def judged_again(settings: Settings) -> int:
    """How many orphans the decisions have."""
    records = await read_all(settings.bootstrap_servers, TopicNames(settings.namespace).decisions)
    decided = [decode_decisions(each.value, each.offset) for each in records]
    return sum(code & JUDGED_AGAIN > 0 for each in decided for code in each.codes)
