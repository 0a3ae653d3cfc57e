"""Journal records of the largest rows that pages can make: URLs of 8,192 characters outside ASCII."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from stream.fingerprint.scheme import Scheme
from stream.judge import batch
from stream.judge.batch import BATCH_BYTES
from stream.judge.decision.decide import Effort
from stream.judge.judge import Judge
from stream.judge.state.state import Prepared, State
from stream.kafka import reader as reader_module
from stream.kafka.reader import RECORDS_AT_ONCE, JournalReader
from stream.messages.decision import Decisions
from stream.messages.journal import Genesis, Rows, SourceRange, Strings
from stream.roles.judge.verdict_batches import VerdictBatches
from stream.text.url import MAX_URL
from tests.genesis import genesis_of
from tests.topic_in_memory import TopicInMemory
from tests.url_digests import digests_of_urls

TOPIC_ID = "cd" * 16
ROLES: Final = ("judge", "follower", "recompute")
_EMOJI: Final = 0x1F300, 0x1F600
"""The range of code points of emoji."""


def long_urls(count: int, seed: int = 0) -> list[str]:
    """Return distinct URLs of MAX_URL characters, each of four bytes in UTF-8, which compress badly."""
    rng = np.random.default_rng(seed)
    hosts = [f"http://h{number}.example/" for number in range(count)]
    return [host + _emoji(rng, MAX_URL - len(host)) for host in hosts]


def _emoji(rng: np.random.Generator, count: int) -> str:
    return rng.integers(*_EMOJI, count, dtype=np.uint32).astype("<u4").tobytes().decode("utf-32-le")


def records_of_long_urls(
    scheme: Scheme, rows: int, *, at_once: int = 2, cluster: str = "c", like: int = 0, seed: int = 0
) -> Iterator[Rows]:
    """Records of `at_once` rows each, which a worker's bound on bytes allows. The first rows are pages unlike
    each other; each of the last `like` has the text of one of the first, at another URL."""
    rng = np.random.default_rng(seed)
    prints = rng.integers(0, 1 << 64, rows, dtype=np.uint64)
    sketches = rng.integers(0, 1 << 64, (rows, scheme.sketch_bytes // 8), dtype=np.uint64)
    sketches[:, scheme.sketch_bins // 64] = 1000  # shingles
    if like:
        prints[-like:], sketches[-like:] = prints[:like], sketches[:like]
    for first in range(0, rows, at_once):
        end = min(rows, first + at_once)
        n, some = end - first, slice(first, end)
        urls = long_urls(n, seed + first)
        urls = [url.replace("http://h", f"http://h{first}-")[:MAX_URL] for url in urls]
        yield Rows(
            scheme=scheme.id,
            ranges=[SourceRange(cluster, "pages", TOPIC_ID, 0, first, end, n, opening=not first)],
            status=np.zeros(n, np.uint8),
            fingerprint=prints[some, None],
            sketch=sketches[some],
            text_hash=rng.integers(0, 256, (n, 16), dtype=np.uint8),
            url_digest=digests_of_urls(urls),
            length=np.full(n, 6_000, np.uint32),
            language=np.zeros(n, "S3"),
            offset=np.arange(first, end),
            fetched_at=np.full(n, 1_790_000_000_000),
            quality=np.full(n, np.nan),
            strings=Strings.of(urls, [url.encode() for url in urls]),
        )


class _Records(NamedTuple):
    """The records that a judge published, for followers."""

    decisions: list[Decisions]
    verdicts: list[bytes]


async def _judge(state: State, genesis: Genesis, reader: JournalReader) -> _Records:
    """Judge the journal as the role does, without a broker, with as much read ahead as is allowed."""
    judge, published = Judge(state, genesis), _Records([], [])
    batches = VerdictBatches(genesis.scheme_id, {"verdicts": None}, None)
    before: Prepared | None = None
    while entries := await reader.next_rows(32_768, seconds=0.5):
        for _ in range(1_000):
            await asyncio.sleep(0)
        decided = judge.decide(entries, Effort(url_bytes=BATCH_BYTES))
        reader.give_back(entries[len(decided.entries) :])
        if before is not None:
            state.write(before, len(published.decisions))
        await batches.of(decided, {"verdicts": 4})
        published.verdicts.extend(b"" for _ in range(len(decided.batch)))
        published.decisions.append(decided.record())
        prepared = judge.prepare(decided.entries, published.decisions[-1], decided.batch)
        state.advance(prepared)
        before = prepared
    batches.close()
    return published


async def _follow(
    state: State, genesis: Genesis, reader: JournalReader, decisions: Sequence[Decisions], again: bool
) -> _Records:
    """Apply decisions, as a standby or a rebuild does; or decide them again, as the audit does."""
    judge, found = Judge(state, genesis), _Records([], [])
    for place, logged in enumerate(decisions):
        entries = await reader.read_up_to(logged.end)
        if again:
            assert judge.decide(entries).record() == logged
        found.verdicts.extend(b"" for _ in judge.json(entries, logged))
        judge.apply(entries, logged, place)
        found.decisions.append(logged)
    return found


async def _run(role: str, rows: int, directory: Path) -> tuple[int, int, int]:
    genesis = genesis_of(Scheme())
    values = [each.encode() for each in records_of_long_urls(genesis.scheme, rows, like=rows // 3)]

    @asynccontextmanager
    async def opened(name: str, some: list[bytes]) -> AsyncIterator[tuple[State, Genesis, JournalReader]]:
        state = State(directory / name, genesis, "c", memory=1 << 24, generation=1 << 20, cache=1 << 20)
        try:
            async with JournalReader(TopicInMemory("journal", some, 1, RECORDS_AT_ONCE), genesis) as reader:
                yield state, genesis, reader
        finally:
            state.close()

    async with opened("compiled", values[:8]) as parts:
        few = await _judge(*parts)
    async with opened("compiled-too", values[:8]) as parts:
        await _follow(*parts, few.decisions, again=True)
    if role != "judge":
        async with opened("judged", values) as parts:
            before = await _judge(*parts)
    async with opened(role, values) as parts:
        start = memory("VmRSS", reset=True)
        found = (
            await _judge(*parts)
            if role == "judge"
            else await _follow(*parts, before.decisions, again=role == "recompute")
        )
        return memory("VmHWM") - start, len(found.verdicts), len(found.decisions)


def memory(field: str, *, reset: bool = False) -> int:
    """Memory of this process in bytes: `VmRSS` now, `VmHWM` at most since the last reset."""
    if reset:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) << 10


if __name__ == "__main__":
    batch.BATCH_BYTES = reader_module.BATCH_BYTES = BATCH_BYTES = int(sys.argv[3])
    sys.stdout.write(json.dumps(asyncio.run(_run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[4])))))
