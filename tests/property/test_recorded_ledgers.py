"""Ledger records: wherever batches end and whatever comes again, they say how far every source was judged."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from stream.errors import StateError
from stream.fingerprint.row import Row, Status
from stream.judge.batch import Entry, digest_of
from stream.judge.judge import Judge
from stream.judge.ledger_records import ledger_records
from stream.judge.state.ledger import SourceKey
from stream.messages.decision import Decisions, LedgerPart, decode_decisions, encode_decisions
from stream.messages.journal import Rows, SourceRange, decode_journal
from stream.messages.verdict_options import VerdictOptions
from tests.judged_crawls import SCHEME, judging, open_state
from tests.night import by_night

SOURCES = 40
PLAIN_LIMIT = 4 << 20


def ranges_of(seed: int, count: int) -> list[SourceRange]:
    """Ranges of many partitions, some of which come once and never again: openings, losses, gaps that close
    later, and ranges that come again."""
    rng, ends, found = random.Random(seed), dict[int, int](), list[SourceRange]()

    def add(partition: int, start: int, end: int, *, opening: bool = False, lost: bool = False) -> None:
        rows = 0 if lost else end - start
        cluster, topic_id = f"c{partition % 3}", f"{partition % 7:032x}"
        found.append(
            SourceRange(cluster, "pages", topic_id, partition, start, end, rows, opening=opening, lost=lost)
        )

    for _ in range(count):
        partition = rng.randrange(SOURCES) if rng.random() < 0.5 else rng.randrange(3)
        end, kind = ends.get(partition), rng.random()
        if end is None or kind < 0.05:
            start = (end or 0) + rng.randrange(4)
            lost = rng.random() < 0.5
            ends[partition] = start + rng.randrange(3)
            add(partition, start, ends[partition], opening=True, lost=lost)
        elif kind < 0.2:
            found.append(rng.choice(found))
        elif kind < 0.3:
            add(partition, end + 2, end + 3)  # behind a gap
        else:
            ends[partition] = end + rng.randrange(4)
            add(partition, end - rng.randrange(min(end, 2) + 1), ends[partition])
    return found


def entries_of(ranges: list[SourceRange]) -> list[Entry]:
    """A journal record of each range."""
    entries, offset = list[Entry](), 3
    for each in ranges:
        offsets = [] if each.lost else list(range(each.start, each.end))
        rows = [Row(Status.REJECTED, f"http://a/{at}", None, reason="test") for at in offsets]
        data = Rows.of(SCHEME, [each], rows, offsets, [None] * len(rows)).encode()
        decoded = decode_journal(data, offset)
        assert isinstance(decoded, Rows)
        entries.append(Entry(offset, 1000 + offset, digest_of(data), decoded))
        offset += 1 + offset % 3
    return entries


def oracle(ranges: list[SourceRange]) -> dict[SourceKey, tuple[int, int]]:
    """Source -> the next offset to judge, and how many were lost, offset by offset."""
    known: dict[SourceKey, tuple[int, int]] = {}
    for each in ranges:
        key = each.cluster, each.topic_id, each.partition
        if key not in known and each.opening:
            known[key] = each.start, 0
        if key not in known or (known[key][0] < each.start and not each.opening):
            continue
        expected, lost = known[key]
        while expected < each.end or (each.opening and expected < each.start):
            lost += each.lost or expected < each.start
            expected += 1
        known[key] = expected, lost
    return known


def written(judge: Judge, limit: int) -> list[Decisions]:
    """The ledger records of a judge, as they are read from the topic."""
    values = [encode_decisions(each) for each in ledger_records(judge.state, judge.genesis, limit)]
    assert all(len(value) <= limit for value in values)
    return [decode_decisions(value, 0) for value in values]


@pytest.mark.parametrize(
    ("options", "seed"),
    [
        (VerdictOptions(), 0),
        (VerdictOptions.paper(), 1),
        *by_night(
            (each, seed) for each in (VerdictOptions(), VerdictOptions.paper()) for seed in range(2, 6)
        ),
    ],
)
def test_a_ledger_record_says_how_far_every_source_was_judged(
    tmp_path: Path, options: VerdictOptions, seed: int
) -> None:
    """A second judge applies what the first one publishes; a third judges in other batches, without any."""
    rng, ranges = random.Random(seed), ranges_of(seed, 300)
    entries = entries_of(ranges)
    opened = [
        open_state(tmp_path / name, options, memory=1 << 20, generation=64)
        for name in ("leader", "follower", "other")
    ]
    leader, follower, other = (Judge(*each) for each in opened)
    at, position, verdicts, sizes = 0, 0, list[bytes](), set[int]()
    try:
        while at < len(entries):
            part = entries[at : at + rng.choice([1, 2, 9])]
            at += len(part)
            decided = leader.decide(part)
            verdicts += decided.json()
            for judge in (leader, follower):
                judge.apply(part, decided.record(), position + 1)
            position += 1 + rng.randrange(3)
            if rng.random() < 0.4:
                continue
            records = written(leader, rng.choice([PLAIN_LIMIT, 1200, 700]))
            sizes.add(len(records))
            sources = [each for record in records for each in record.sources]
            said = {(s.cluster, s.topic_id, s.partition): (s.expected, s.lost) for s in sources}
            assert said == oracle(ranges[:at])
            assert list(said) == sorted(said)
            for judge in (leader, follower):
                for number, record in enumerate(records):
                    assert record.ledger is not None
                    judge.apply_apart(record, position + number)
                assert (judge.state.meta.ledger, judge.state.meta.decided) == (
                    position,
                    position + len(records),
                )
            position += len(records)
        assert {1} < sizes
        assert leader.state.digest() == follower.state.digest()
        at_once = other.decide(entries)
        assert at_once.json() == verdicts
        other.apply(entries, at_once.record(), position)
        assert written(other, PLAIN_LIMIT) == written(leader, PLAIN_LIMIT)
        assert other.state.meta.ledger == 0
    finally:
        for state, _ in opened:
            state.close()


def test_an_empty_ledger_is_one_record(tmp_path: Path) -> None:
    gap = SourceRange("c", "pages", "0" * 32, 0, 5, 6, 1)
    entries = entries_of([gap])
    with judging(tmp_path / "state") as judge:
        judge.apply(entries, judge.decide(entries).record(), 1)
        (record,) = written(judge, PLAIN_LIMIT)
        assert (record.sources, record.ledger) == ([], LedgerPart(0, 0))


def moved(record: Decisions) -> Decisions:
    """One whose last source was judged one page further."""
    last = structs.replace(record.sources[-1], expected=record.sources[-1].expected + 1)
    return structs.replace(record, sources=[*record.sources[:-1], last])


def shortened(record: Decisions) -> Decisions:
    """One that leaves out the last source."""
    return structs.replace(record, sources=record.sources[:-1], ledger=LedgerPart(0, len(record.sources) - 1))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (moved, r"has SourceProgress\(cluster='c2', .* but the state has SourceProgress"),
        (shortened, "has number of sources 39, but the state has 40"),
        (lambda r: structs.replace(r, journal="0" * 32), "has journal 0{32}, but"),
        (lambda r: structs.replace(r, options="other"), "has verdict options other, but"),
        (lambda r: structs.replace(r, start=r.start + 1, end=r.end + 1), "has journal offset .*, but"),
        (lambda r: structs.replace(r, last=bytes(16)), "has last journal record 0{32}, but"),
        (lambda r: structs.replace(r, time=0), "has log time 0, but"),
    ],
)
def test_a_ledger_record_that_differs_from_the_state_is_refused_by_name(
    tmp_path: Path, spoil: Callable[[Decisions], Decisions], said: str
) -> None:
    openings = [
        SourceRange(f"c{partition % 3}", "pages", "0" * 32, partition, 0, 1, 1, opening=True)
        for partition in range(SOURCES)
    ]
    entries = entries_of(openings)
    with judging(tmp_path / "state") as judge:
        judge.apply(entries, judge.decide(entries).record(), 1)
        before = judge.state.meta
        (record,) = written(judge, PLAIN_LIMIT)
        wrong = spoil(record)
        assert wrong.ledger is not None
        where = f"state directory {judge.state.store.path}: the ledger record at decisions offset 7 "
        with pytest.raises(StateError, match=where + said):
            judge.apply_apart(wrong, 7)
        assert judge.state.meta == before
