"""Crawls of made pages, as journal records, judged by a judge and by the oracle."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from stream.fingerprint.minima import MINIMUM_BITS, unpacked
from stream.fingerprint.parity import parity_sketch
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Entry
from stream.judge.decision import decide
from stream.judge.explain.explain import ExplainedPage
from stream.judge.ids import INDEX_BITS, pack
from stream.judge.judge import Judge
from stream.judge.judged_batch import JudgedBatch
from stream.judge.state.state import State
from stream.messages.decision import Decisions, decode_decisions, encode_decisions
from stream.messages.journal import Genesis, Rows, SourceRange, decode_journal
from stream.messages.verdict import Change, Verdict
from stream.messages.verdict_options import VerdictOptions
from stream.tables import tables
from tests.first_numbers import LATE, LATE_DUPLICATE, begin_late
from tests.genesis import genesis_of
from tests.oracle import WITHOUT_A_KEY, Oracle, OraclePage
from tests.url_digests import digest_of_url

SCHEME = Scheme(sketch_bins=192)
NAMES = {v.value: v.name.lower() for v in Verdict}
CHANGES = {c.value: None if c is Change.NONE else c.name.lower() for c in Change}


def crawl(seed: int, n: int, *, dense: bool, skew: float = 0.0, width: int = 64) -> list[OraclePage]:
    """Pages with planted neighbours, re-crawled URLs, shells and rejects; (id is filled in later)."""
    rng = random.Random(seed)
    urls = max(4, n // (6 if dense else 2))
    pages: list[OraclePage] = []
    small: dict[int, list[int]] = {}  # place of a page -> its shingles, of one that has few
    for _ in range(n):
        kind = rng.random()
        url = _url(rng.randrange(urls))
        if kind < 0.03:
            pages.append(OraclePage(None, url, status=2))
            continue
        if kind < 0.06:
            pages.append(OraclePage(None, url, status=1))
            continue
        ready = [p for p in pages if p.status == 0]
        near = ready and kind < (0.75 if dense else 0.4)
        base = rng.choice(ready[-40:] if rng.random() < 0.5 else ready) if near else None
        url = base.url if base and rng.random() < 0.25 else url
        fingerprint = base.fingerprint if base else rng.getrandbits(width)
        size = rng.choice([198, 200, 390, 500, 900, 2000])
        minima = [rng.getrandbits(19) for _ in range(30)]
        sketch = rng.getrandbits(192) | size << 192 | packed_minima(minima) << 256
        if base:
            sketch = int.from_bytes(base.sketch, "little")
            for place in rng.sample(range(30), rng.choice([0, 6, 12, 18, 20, 24, 30])):
                sketch ^= packed_minima([0] * place + [rng.getrandbits(19)]) << 256
        for _ in range(rng.choice([0, 0, 1, 2, 3, 4, 6, 9, 12, 14]) if base else 0):
            fingerprint ^= 1 << rng.randrange(width)
        own = _few(rng, small.get(pages.index(base)) if base else None)
        whole = bool(own) and (base is None or pages.index(base) in small)
        if whole:
            small[len(pages)] = own
            content = parity_sketch(np.array(own, np.uint32), SCHEME.sketch_bins)
            sketch = sketch >> 256 << 256 | int.from_bytes(content, "little")
        else:
            for _ in range(rng.choice([0, 0, 3, 12, 15, 16, 34, 36, 37, 60]) if base else 0):
                sketch ^= 1 << rng.randrange(194)
        if rng.random() < skew:
            fingerprint = fingerprint & (1 << width - 26) - 1 | 0x1234567 << width - 26
            first_two = (1 << 2 * MINIMUM_BITS) - 1 << 256
            sketch = sketch & ~first_two | packed_minima([0x12345, 0x6789]) << 256
        apart = [b for b in range(width) if base and (base.fingerprint ^ fingerprint) >> b & 1]
        for bits in (apart, [b for b in range(width) if b not in apart]):
            rng.shuffle(bits)  # like the next number, drawn so that seeds keep their pages
        rng.random()
        page = OraclePage(None, url, fingerprint, sketch.to_bytes(96, "little"))
        pages.append(dataclasses.replace(page, shingles=frozenset(own) if whole else None))
    return pages


def _few(rng: random.Random, base: list[int] | None) -> list[int] | None:
    """The shingles of a page that has few, about as many as a sketch lists at most, or those of an edited
    copy; now and then None."""
    if base is None:
        return (
            sorted(rng.getrandbits(32) for _ in range(rng.choice([1, 5, 16, 18, 30, 38])))
            if rng.random() < 0.4
            else None
        )
    some = rng.sample(base, len(base) - min(len(base) - 1, rng.choice([0, 0, 1, 2, 3, 4])))
    return sorted(set(some) | {rng.getrandbits(32) for _ in range(rng.choice([0, 0, 1, 2, 4]))})


def packed_minima(minima: list[int]) -> int:
    """The end of a sketch, as an integer, with the lowest bits of these minima; further ones are 0."""
    every = [*minima, *[0] * (30 - len(minima))]
    first = sum((each & 0x7FFFF) << 64 * (at // 3) + 19 * (at % 3) for at, each in enumerate(every[:9]))
    further = sum((each & 0xFFFF) << 192 + 16 * at for at, each in enumerate(every[9:29]))
    last = sum((every[29] >> 7 * word & (127, 127, 3)[word]) << 64 * word + 57 for word in range(3))
    return first | further | last


def _url(number: int) -> str:
    """Every other URL takes more memory than the rest of a page's record, and is read apart."""
    return f"http://host/{number}" + "/long" * (number % 2 * 200)


def crowd(seed: int, n: int, *, width: int = 64) -> list[OraclePage]:
    """Pages that share buckets and are near each other, some of them alike, at URLs whose pages change."""
    rng = random.Random(seed)
    texts = [rng.getrandbits(192) for _ in range(12)]
    minima = [rng.getrandbits(19) for _ in range(30)]
    pages = []
    for _ in range(n):
        fingerprint = 0
        for _ in range(rng.randrange(7)):
            fingerprint ^= 1 << rng.randrange(width)
        sketch = rng.choice(texts) ^ sum(
            1 << bit for bit in rng.sample(range(192), rng.choice([0, 8, 16, 24]))
        )
        own = [each if rng.random() < 0.9 else rng.getrandbits(19) for each in minima]
        sketch |= 900 << 192 | packed_minima(own) << 256
        url = f"http://host/{rng.randrange(n // 3)}"
        rng.sample(range(width), 32)  # drawn so that seeds keep their pages
        pages.append(OraclePage(None, url, fingerprint, sketch.to_bytes(96, "little")))
    return pages


def flips(seed: int, n: int, bodies: int, *, width: int = 64) -> list[OraclePage]:
    """URLs that answer each time with one of their own `bodies`, of which some are those of other URLs."""
    pages, rng = crowd(seed, 40, width=width), random.Random(seed)
    own = [rng.sample(pages, bodies) for _ in range(n // 20)]
    found = []
    for _ in range(n):
        which = rng.randrange(len(own))
        found.append(dataclasses.replace(rng.choice(own[which]), url=f"http://host/{which}"))
    return found


def mirrors(seed: int, n: int, *, width: int = 64) -> list[OraclePage]:
    """URLs that share few bodies, a little edited at each fetch, and now and then show another one: their
    copies at other URLs lose the anchor of their cluster, and are met again."""
    rng = random.Random(seed)
    bodies = crowd(seed, max(12, n // 20), width=width)
    shown = [[rng.randrange(len(bodies))] for _ in range(n // 12)]
    found = []
    for _ in range(n):
        which = rng.randrange(len(shown))
        if rng.random() < 0.25:
            # Another body, one that it showed before, or the one that it shows, edited for good.
            shown[which] = [rng.choice([rng.randrange(len(bodies)), *shown[which]]), *shown[which]][:3]
            if rng.random() < 0.3:
                bodies[shown[which][0]] = _edited(rng, bodies[shown[which][0]], [16, 48])
        page = _edited(rng, bodies[shown[which][0]], [0, 0, 0, 4, 32])
        url = None if which == 0 else f"http://host/{which}"
        found.append(dataclasses.replace(page, url=url, status=3 if rng.random() < 0.1 else 0))
    return found


def _edited(rng: random.Random, page: OraclePage, bins: list[int]) -> OraclePage:
    """The page with so many bins of its sketch changed, and a bit of its fingerprint for every eighth."""
    count = rng.choice(bins)
    sketch = int.from_bytes(page.sketch, "little") ^ sum(1 << bit for bit in rng.sample(range(192), count))
    fingerprint = page.fingerprint ^ sum(1 << bit for bit in rng.sample(range(32), count // 8))
    return dataclasses.replace(page, fingerprint=fingerprint, sketch=sketch.to_bytes(96, "little"))


def entries_of(
    pages: list[OraclePage], seed: int, scheme: Scheme = SCHEME, sizes: Sequence[int] = (1, 3, 20, 60)
) -> list[Entry]:
    """Journal records of random sizes; gives every page its packed id."""
    rng = random.Random(seed)
    opening = SourceRange("c", "pages", "0" * 32, 0, 0, 0, 0, opening=True)
    entries, i, offset = [_entry(scheme, 1, [opening], [], 0)], 0, 2
    while i < len(pages):
        part = pages[i : i + rng.choice(sizes)]
        rows = rows_of(part)
        for index, page in enumerate(part):
            page.id = pack(offset, index)
        source = SourceRange("c", "pages", "0" * 32, 0, i, i + len(part), len(part))
        entries.append(_entry(scheme, offset, [source], rows, i))
        i, offset = i + len(part), offset + rng.choice([1, 1, 2])
    return entries


def rows_of(pages: Sequence[OraclePage]) -> list[Row]:
    return [
        Row(
            page.status,
            page.url or WITHOUT_A_KEY,
            None,
            digest_of_url(page.url),
            page.fingerprint % 2**64,
            page.sketch,
            high=page.fingerprint >> 64,
        )
        for page in pages
    ]


def _entry(scheme: Scheme, offset: int, ranges: list[SourceRange], rows: list[Row], first: int) -> Entry:
    """A journal record as the judge gets it, from the wire."""
    offsets = range(first, first + len(rows))
    columns = Rows.of(scheme, ranges, rows, offsets, [None] * len(rows))
    decoded = decode_journal(columns.encode(), offset)
    assert isinstance(decoded, Rows)
    return Entry(offset, 1000 + offset, offset.to_bytes(16, "big"), decoded)


def redelivered(entries: list[Entry], pages: list[OraclePage], seed: int) -> list[Entry]:
    """With records that come again; the pages' ids follow their records' offsets."""
    rng, found = random.Random(seed), []
    for entry in entries:
        found.append(dataclasses.replace(entry, offset=2 * entry.offset))
        if rng.random() < 0.3:
            found.append(dataclasses.replace(entry, offset=2 * entry.offset + 1))
    for page in pages:
        offset, index = divmod(page.id, 1 << INDEX_BITS)
        page.id = pack(2 * offset, index)
    return found


def timed(entries: list[Entry], seed: int) -> list[Entry]:
    """The records, appended over some lifetimes, with outages and clocks that are late now and then."""
    rng, time, found = random.Random(seed), 10**12, []
    steps = max(1, 250 // len(entries))
    for entry in entries:
        time += sum(rng.choice([0, 1, 300, 900, 5_000, 60_000]) for _ in range(steps))
        time += rng.choice([0] * 60 + [200_000, 700_000])
        found.append(dataclasses.replace(entry, time=time - rng.choice([0, 0, 0, 5_000])))
    return found


def open_state(
    path: Path,
    options: VerdictOptions,
    *,
    memory: int,
    generation: int,
    scheme: Scheme = SCHEME,
    late: bool = False,
) -> tuple[State, Genesis]:
    """`late`: a new state numbers its pages from just below 2**32 on."""
    genesis, is_new = genesis_of(scheme, options), not path.exists()
    state = State(path, genesis, "cluster", memory=memory, generation=generation, cache=8 << 20)
    if late and is_new:
        begin_late(state.store)
        state.close()
        return open_state(path, options, memory=memory, generation=generation, scheme=scheme)
    return state, genesis


@contextmanager
def judging(
    path: Path,
    options: VerdictOptions = VerdictOptions(),  # noqa: B008 (immutable)
    *,
    memory: int = 1 << 20,
    generation: int = 64,
    scheme: Scheme = SCHEME,
    late: bool = False,
) -> Iterator[Judge]:
    """Context manager of a judge with such a state."""
    state, genesis = open_state(path, options, memory=memory, generation=generation, scheme=scheme, late=late)
    with closing(state):
        yield Judge(state, genesis)


def side(page: OraclePage) -> ExplainedPage:
    """The page as `explain` reads it from a file."""
    return ExplainedPage(
        str(page.id),
        page.fingerprint,
        page.url,
        digest_of_url(page.url),
        page.sketch,
        status=Status(page.status),
    )


def number_late(oracle: Oracle) -> Oracle:
    """Let an oracle number pages as such a state does."""
    for counts in (oracle.counts, oracle.oldest):
        counts.update(unique=LATE, duplicate=LATE_DUPLICATE)
    return oracle


Clock = Callable[[Entry], int | None]
"""What append times count at most when a record is the next one to judge, from the clock of its judge."""


def judge_all(judge: Judge, entries: list[Entry], seed: int) -> list[tuple[object, ...]]:
    rng, found, i = random.Random(seed), [], 0
    while i < len(entries):
        part = entries[i : i + rng.choice([1, 2, 7])]
        turn_if_due(judge, part[0], None, i)
        decided = judge.decide(part)
        part = list(decided.entries)
        found += verdicts_of(decided)
        recorded = decode_decisions(encode_decisions(decided.record()), i)
        assert recorded == decided.record()
        assert judge.json(part, recorded) == decided.json(), "journal and decisions say every verdict"
        judge.apply(part, recorded, i)
        judge.state.maintain(wait=rng.random() < 0.3)
        i += len(part)
    return found


def verdicts_of(decided: JudgedBatch) -> list[tuple[object, ...]]:
    """The verdicts of a batch, as an oracle has them."""
    j = decided.verdicts.columns
    gone = {s.row: s.page for s in decided.verdicts.superseded}
    nearest = j.verdict == Verdict.UNIQUE
    others = [j.other, j.distance, j.similarity, j.number]
    columns = [
        j.cluster,
        *(np.where(nearest, -1, each) for each in others),
        j.anchor,
        *(np.where(nearest, each, -1) for each in (j.other, j.number, j.similarity)),
    ]
    assert (j.distance[nearest] == -1).all()
    return [
        (page, NAMES[verdict], CHANGES[change], *(int(c[row]) for c in columns), gone.get(row))
        for row, (page, verdict, change) in enumerate(
            zip(decided.batch.page.tolist(), j.verdict.tolist(), j.change.tolist(), strict=True)
        )
    ]


def turn_if_due(judge: Judge, entry: Entry, cap: int | None, decided: int) -> Decisions | None:
    """Apply the turn that is due before a record, as recorded, and return the record; None if none is due."""
    record = judge.decide_turn(entry, cap)
    if record is None:
        return None
    recorded = decode_decisions(encode_decisions(record), decided)
    assert recorded == record
    judge.apply_apart(recorded, decided)
    assert judge.decide_turn(entry, cap) is None, "one turn is enough"
    return recorded


def search_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search few rows at a time, by several threads."""
    monkeypatch.setattr(decide, "FEW", 8)
    monkeypatch.setattr(decide, "SEARCH_ROWS", 16)


def search_as_for_spam(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search few rows at a time, by several threads, and have few pairs be too many."""
    search_few_rows(monkeypatch)
    monkeypatch.setattr(tables, "PAIRS_AT_ONCE", 64)


def oracle_of(options: VerdictOptions, width: int = 64) -> Oracle:
    return Oracle(
        strict=options.strict, distance=options.distance, short_distance=options.short_distance,
        blocks=options.blocks, choose=options.choose,
        bucket_cap=options.bucket_cap, compared=options.compared, baselines=options.baselines,
        evidence=options.evidence, bins=192, width=width,
        lifetime=options.lifetime and 1000 * options.lifetime,
    )  # fmt: skip


def expected_in_turns(
    oracle: Oracle, pages: list[OraclePage], entries: Sequence[Entry]
) -> list[tuple[object, ...]]:
    """The verdicts on the pages of these records, between which turns are due."""
    of_record: dict[int, list[OraclePage]] = {}
    for page in pages:
        of_record.setdefault(page.id >> INDEX_BITS, []).append(page)
    found = []
    for entry in entries:
        oracle.begin(entry.time)
        found += expected(oracle, of_record.get(entry.offset, []))
    return found


def expected(oracle: Oracle, pages: list[OraclePage]) -> list[tuple[object, ...]]:
    def number(value: object) -> object:
        return -1 if value is None else value

    return [
        (
            v.id, v.verdict, v.change, number(v.cluster), number(v.other), number(v.distance),
            number(v.similarity), number(v.number), number(v.cluster_number), number(v.nearest),
            number(v.nearest_number), number(v.nearest_similarity), v.superseded,
        )
        for v in map(oracle.judge, pages)
    ]  # fmt: skip


def templates(seed: int, n: int, *, width: int = 64) -> list[OraclePage]:
    """Pages of a few templates, each with most minima of its template: strangers, edited copies of earlier
    pages, and new versions of these at their URLs."""
    rng = random.Random(seed)
    minima = [[rng.getrandbits(19) for _ in range(30)] for _ in range(3)]
    pages: list[OraclePage] = []
    for _ in range(n):
        fingerprint, text = 0, rng.getrandbits(192)
        url, own = f"http://host/{rng.randrange(n)}", rng.choice(minima)
        if pages and rng.random() < 0.4:
            base = rng.choice(pages)
            text = int.from_bytes(base.sketch[:24], "little")
            own = minima_of(base)
            fingerprint = base.fingerprint
            url = base.url if rng.random() < 0.5 else url
        for bit in rng.sample(range(192), rng.choice([0, 4, 12, 60])):
            text ^= 1 << bit
        for _ in range(rng.randrange(5)):
            fingerprint ^= 1 << rng.randrange(width)
        own = [each if rng.random() < 0.85 else rng.getrandbits(2) for each in own]
        sketch = text | 900 << 192 | packed_minima(own) << 256
        rng.sample(range(width), 32)  # drawn so that seeds keep their pages
        pages.append(OraclePage(None, url, fingerprint, sketch.to_bytes(96, "little")))
    return pages


def minima_of(page: OraclePage) -> list[int]:
    """The thirty minima of a page's sketch."""
    return unpacked(np.frombuffer(page.sketch[-64:], "<u8"))
