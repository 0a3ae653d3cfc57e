"""The judge, batch by batch with tables, against the oracle, page by page without."""

from __future__ import annotations

import dataclasses
import random
import zlib
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from stream.fingerprint.parity import parity_sketch
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import Scheme
from stream.judge import decide, page_log
from stream.judge.batch import Entry
from stream.judge.decide import Effort
from stream.judge.ids import INDEX_BITS, pack
from stream.judge.judge import Judge
from stream.judge.state import Prepared, State
from stream.messages.decision import decode_decisions, encode_decisions
from stream.messages.journal import Genesis, Rows, SourceRange, decode_journal
from stream.messages.verdict import Change, Verdict
from stream.messages.verdict_options import VerdictOptions
from stream.tables import tables
from tests.genesis import genesis_of
from tests.oracle import Oracle, OraclePage

SCHEME = Scheme(sketch_bins=192)
NAMES = {v.value: v.name.lower() for v in Verdict}
CHANGES = {c.value: None if c is Change.NONE else c.name.lower() for c in Change}


def crawl(
    seed: int, n: int, *, dense: bool, skew: float = 0.0, width: int = 64
) -> list[tuple[int, OraclePage]]:
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
        minima = [rng.getrandbits(13) for _ in range(5)]
        sketch = rng.getrandbits(192) | size << 192 | _word(minima) << 256
        if base:
            sketch = int.from_bytes(base.sketch, "little")
            for place in rng.sample(range(5), rng.choice([0, 1, 2, 3, 3, 4, 5])):
                sketch ^= (rng.getrandbits(12) << 13 * place) << 256
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
            sketch = sketch & (1 << 256 + 38) - 1 | 0x1234567 << 256 + 38
        flipped = [b for b in range(width) if base and (base.fingerprint ^ fingerprint) >> b & 1]
        rng.shuffle(flipped)
        rest = [b for b in range(width) if b not in flipped]
        rng.shuffle(rest)
        order = (flipped + rest if rng.random() < 0.7 else rest + flipped)[:32]
        page = OraclePage(None, url, fingerprint, bytes(order), sketch.to_bytes(40, "little"))
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


def _word(minima: list[int]) -> int:
    return sum(minimum << max(0, 51 - 13 * place) for place, minimum in enumerate(minima)) % (1 << 64)


def _url(number: int) -> str:
    """Every other URL takes more memory than the rest of a page's record, and is read apart."""
    return f"http://host/{number}" + "/long" * (number % 2 * 200)


def entries_of(pages: list[OraclePage], seed: int, scheme: Scheme = SCHEME) -> list[Entry]:
    """Journal records of random sizes; gives every page its packed id."""
    rng = random.Random(seed)
    opening = SourceRange("c", "pages", "0" * 32, 0, 0, 0, 0, opening=True)
    entries, i, offset = [_entry(scheme, 1, [opening], [], 0)], 0, 2
    while i < len(pages):
        part = pages[i : i + rng.choice([1, 3, 20, 60])]
        rows = [
            Row(
                p.status,
                p.url,
                p.url,
                None,
                p.fingerprint % 2**64,
                p.uncertain or bytes(32),
                p.sketch,
                high=p.fingerprint >> 64,
            )
            for p in part
        ]
        for index, page in enumerate(part):
            page.id = pack(offset, index)
        source = SourceRange("c", "pages", "0" * 32, 0, i, i + len(part), len(part))
        entries.append(_entry(scheme, offset, [source], rows, i))
        i, offset = i + len(part), offset + rng.choice([1, 1, 2])
    return entries


def _entry(scheme: Scheme, offset: int, ranges: list[SourceRange], rows: list[Row], first: int) -> Entry:
    """A journal record as the judge gets it, from the wire."""
    offsets = range(first, first + len(rows))
    columns = Rows.of(scheme, ranges, rows, offsets, [None] * len(rows), uncertain=True)
    decoded = decode_journal(columns.encode(), offset)
    assert isinstance(decoded, Rows)
    return Entry(offset, 1000 + offset, offset.to_bytes(16, "big"), decoded)


def open_state(
    path: Path, options: VerdictOptions, *, memory: int, generation: int, scheme: Scheme = SCHEME
) -> tuple[State, Genesis]:
    genesis = genesis_of(scheme, options)
    state = State(path, genesis, "cluster", memory=memory, generation=generation, cache=8 << 20)
    return state, genesis


def judge_all(judge: Judge, entries: list[Entry], seed: int) -> list[tuple[object, ...]]:
    rng, found, i = random.Random(seed), [], 0
    while i < len(entries):
        part = entries[i : i + rng.choice([1, 2, 7])]
        decided = judge.decide(part)
        j = decided.verdicts.columns
        gone = {s.row: s.page for s in decided.verdicts.superseded}
        columns = (j.cluster, j.other, j.distance, j.similarity)
        found += [
            (page, NAMES[verdict], CHANGES[change], *(int(c[row]) for c in columns), gone.get(row))
            for row, (page, verdict, change) in enumerate(
                zip(decided.batch.page.tolist(), j.verdict.tolist(), j.change.tolist(), strict=True)
            )
        ]
        recorded = decode_decisions(encode_decisions(decided.record()), i)
        assert recorded == decided.record()
        assert judge.json(part, recorded) == decided.json(), "journal and decisions say every verdict"
        judge.apply(part, recorded, i)
        judge.state.tables.maintain(wait=rng.random() < 0.3)
        i += len(part)
    return found


def judge_ahead(judge: Judge, entries: list[Entry], seed: int) -> list[list[bytes]]:
    """Judge batches, each while the previous one is in RAM only, with random flushes in between."""
    rng, found, i, state = random.Random(seed), [], 0, judge.state
    unwritten: tuple[Prepared, int] | None = None
    while i < len(entries):
        part = entries[i : i + rng.choice([1, 2, 7])]
        decided = judge.decide(part)
        found.append(decided.json())
        prepared = judge.prepare(part, decided.record(), decided.batch)
        if rng.random() < 0.3:
            state.flush()
        if unwritten:
            state.write(*unwritten)
            state.tables.maintain(wait=rng.random() < 0.3)
        state.advance(prepared)
        i += len(part)
        unwritten = prepared, i
    if unwritten:
        state.write(*unwritten)
    return found


def expected(oracle: Oracle, pages: list[OraclePage]) -> list[tuple[object, ...]]:
    def number(value: object) -> object:
        return -1 if value is None else value

    return [
        (
            v.id, v.verdict, v.change, number(v.cluster), number(v.other), number(v.distance),
            number(v.similarity), v.superseded,
        )
        for v in map(oracle.judge, pages)
    ]  # fmt: skip


def oracle_of(options: VerdictOptions) -> Oracle:
    return Oracle(
        strict=options.strict, distance=options.distance, keys=options.keys,
        blocks=options.blocks, choose=options.choose, flip_bits=options.flip_bits, flips=options.flips,
        bucket_cap=options.bucket_cap, compared=options.compared, baselines=options.baselines, bins=192,
    )  # fmt: skip


OPTIONS = [
    pytest.param(VerdictOptions(), id="default"),
    pytest.param(VerdictOptions(bucket_cap=2), id="small-cap"),
    pytest.param(VerdictOptions(choose=3, distance=9), id="three-minima"),
    pytest.param(VerdictOptions(keys="fingerprint", flip_bits=5, flips=3), id="probed"),
    pytest.param(
        VerdictOptions(keys="fingerprint", bucket_cap=2, flip_bits=4, flips=2), id="probed-small-cap"
    ),
    pytest.param(VerdictOptions(keys="fingerprint", blocks=4, choose=1, distance=6), id="4-choose-1"),
    pytest.param(
        VerdictOptions(keys="fingerprint", blocks=6, choose=3, flip_bits=2, flips=1), id="6-choose-3"
    ),
    pytest.param(VerdictOptions.paper(), id="strict"),
    pytest.param(VerdictOptions.paper(k=3, blocks=6), id="strict-6-choose-3"),
    pytest.param(VerdictOptions(baselines=1), id="one-baseline"),
    pytest.param(VerdictOptions(baselines=3, bucket_cap=2), id="three-baselines"),
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", ["sparse", "dense", "skewed"])
@pytest.mark.parametrize(
    ("memory", "generation"),
    [(64 << 20, 1 << 20), (64 << 20, 50), (0, 16)],
    ids=["hot", "frozen-midway", "rocksdb-only"],
)
def test_verdicts_equal_the_oracles(
    tmp_path: Path, options: VerdictOptions, shape: str, memory: int, generation: int
) -> None:
    seed = zlib.crc32(f"{options.id} {memory} {generation}".encode())
    pages = crawl(seed, 600, dense=shape != "sparse", skew=0.4 if shape == "skewed" else 0.0)
    entries = entries_of(pages, seed)
    oracle = oracle_of(options)
    state, genesis = open_state(tmp_path / "state", options, memory=memory, generation=generation)
    try:
        found = judge_all(Judge(state, genesis), entries, seed)
    finally:
        state.close()
    want = expected(oracle, pages)
    different = [(f, w) for f, w in zip(found, want, strict=True) if f != w]
    assert not different, different[:3]
    counts = {v: sum(w[1] == v for w in want) for v in NAMES.values()}
    assert all(counts.values()), f"the crawl exercises every verdict: {counts}"
    if options.bucket_cap == 2 and shape == "skewed":
        assert any(load >= 2 for load in oracle.load.values())


@pytest.mark.parametrize(
    ("width", "options"),
    [
        (128, VerdictOptions()),
        (128, VerdictOptions(distance=28, bucket_cap=2)),
        (128, VerdictOptions(distance=28, compared=2)),
        (32, VerdictOptions(distance=7)),
        (32, VerdictOptions(keys="fingerprint", flip_bits=5, flips=3, distance=7)),
        (32, VerdictOptions.paper()),
    ],
)
@pytest.mark.parametrize("memory", [64 << 20, 0])
def test_fingerprints_of_every_width_are_judged_as_the_oracle_does(
    tmp_path: Path, width: int, options: VerdictOptions, memory: int
) -> None:
    scheme = Scheme(sketch_bins=192, width=width)  # type: ignore[arg-type]
    pages = crawl(width, 600, dense=True, skew=0.2, width=width)
    entries = entries_of(pages, width, scheme)
    oracle = Oracle(
        strict=options.strict, distance=options.distance, keys=options.keys,
        blocks=options.blocks, choose=options.choose, flip_bits=options.flip_bits, flips=options.flips,
        bucket_cap=options.bucket_cap, compared=options.compared, baselines=options.baselines,
        bins=192, width=width,
    )  # fmt: skip
    state, genesis = open_state(tmp_path / "one", options, memory=memory, generation=64, scheme=scheme)
    again, _ = open_state(tmp_path / "two", options, memory=memory, generation=64, scheme=scheme)
    try:
        judge = Judge(state, genesis)
        found = judge_all(judge, entries, width)
        whole = Judge(again, genesis)
        whole.apply(entries, whole.decide(entries).record(), state.meta.decided)
        assert state.digest() == again.digest()
    finally:
        state.close()
        again.close()
    want = expected(oracle, pages)
    assert [(f, w) for f, w in zip(found, want, strict=True) if f != w] == []
    assert {w[1] for w in want} == set(NAMES.values())


def crowd(seed: int, n: int, *, width: int = 64) -> list[OraclePage]:
    """Pages that share buckets and are near each other, some of them alike, at URLs whose pages change."""
    rng = random.Random(seed)
    texts = [rng.getrandbits(192) for _ in range(12)]
    minima = [rng.getrandbits(12) for _ in range(5)]
    pages = []
    for _ in range(n):
        fingerprint = 0
        for _ in range(rng.randrange(7)):
            fingerprint ^= 1 << rng.randrange(width)
        sketch = rng.choice(texts) ^ sum(
            1 << bit for bit in rng.sample(range(192), rng.choice([0, 8, 16, 24]))
        )
        own = [each if rng.random() < 0.9 else rng.getrandbits(12) for each in minima]
        sketch |= 900 << 192 | _word(own) << 256
        url = f"http://host/{rng.randrange(n // 3)}"
        order = bytes(rng.sample(range(width), 32))
        pages.append(OraclePage(None, url, fingerprint, order, sketch.to_bytes(40, "little")))
    return pages


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


@pytest.mark.parametrize("compared", [1, 2, 3, 12])
@pytest.mark.parametrize(
    ("width", "options"),
    [
        (64, VerdictOptions()),
        (64, VerdictOptions(bucket_cap=2)),
        (64, VerdictOptions(keys="fingerprint", flip_bits=3, flips=2, bucket_cap=4)),
        (128, VerdictOptions()),
        (64, VerdictOptions.paper()),
    ],
)
@pytest.mark.parametrize("memory", [64 << 20, 0])
def test_rule_18_pages_are_compared_with_the_nearest_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compared: int,
    width: int,
    options: VerdictOptions,
    memory: int,
) -> None:
    options = structs.replace(options, compared=compared)
    scheme = Scheme(sketch_bins=192, width=width)  # type: ignore[arg-type]
    pages = crowd(compared, 300, width=width)
    entries = redelivered(entries_of(pages, compared, scheme), pages, compared)
    want = expected(oracle_of(options), pages)
    found = []
    for cut in (1, 2):
        if cut == 2:  # as spam is searched for
            monkeypatch.setattr(decide, "FEW", 8)
            monkeypatch.setattr(decide, "SEARCH_ROWS", 16)
            monkeypatch.setattr(tables, "PAIRS_AT_ONCE", 64)
        state, genesis = open_state(tmp_path / str(cut), options, memory=memory, generation=64, scheme=scheme)
        try:
            found.append(judge_all(Judge(state, genesis), entries, cut))
        finally:
            state.close()
    assert found[0] == found[1] == want
    limitless = expected(oracle_of(structs.replace(options, compared=0)), pages)
    if compared < 12:
        assert (want != limitless) == (not options.strict)


def flips(seed: int, n: int, bodies: int) -> list[OraclePage]:
    """URLs that answer each time with one of their own `bodies`, of which some are those of other URLs."""
    pages, rng = crowd(seed, 40), random.Random(seed)
    own = [rng.sample(pages, bodies) for _ in range(n // 20)]
    found = []
    for _ in range(n):
        which = rng.randrange(len(own))
        found.append(dataclasses.replace(rng.choice(own[which]), url=f"http://host/{which}"))
    return found


def masks_of_skipped(judge: Judge, entries: list[Entry], seed: int) -> list[int | None]:
    """Judge batches. Return which tables the anchor of each page did not enter, None if it became none."""
    rng, masks, i = random.Random(seed), [], 0
    while i < len(entries):
        part = entries[i : i + rng.choice([1, 2, 7])]
        decided = judge.decide(part)
        verdicts = decided.verdicts
        masks += [
            verdicts.skipped.get(row, 0) if verdict == Verdict.UNIQUE else None
            for row, verdict in enumerate(verdicts.columns.verdict.tolist())
        ]
        judge.apply(part, decode_decisions(encode_decisions(decided.record()), i), i)
        judge.state.tables.maintain(wait=rng.random() < 0.3)
        i += len(part)
    return masks


def masks_of_oracle(oracle: Oracle, pages: list[OraclePage]) -> list[int | None]:
    masks: list[int | None] = []
    for page in pages:
        if oracle.judge(page).verdict == "unique":
            entered = {table for table, _ in oracle.anchors[-1].entered}
            masks.append(sum(1 << table for table in range(len(oracle.tables)) if table not in entered))
        else:
            masks.append(None)
    return masks


def template(n: int) -> list[OraclePage]:
    """Pages that share all buckets, at `n` URLs, none of which is like another."""
    rng, word = random.Random(n), _word([7, 77, 777, 1777, 3777])
    order = bytes(range(32))
    return [
        OraclePage(
            None,
            f"http://host/{number}",
            rng.getrandbits(16),
            order,
            (rng.getrandbits(192) | 900 << 192 | word << 256).to_bytes(40, "little"),
        )
        for number in range(n)
    ]


@pytest.mark.parametrize("memory", [64 << 20, 0])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_rule_16_full_buckets_are_skipped_but_for_the_emptiest_up_to_eight_times_the_cap(
    tmp_path: Path, memory: int, cut: int
) -> None:
    cap, tables_of_pages = 2, 10
    pages = template(200)
    entries = redelivered(entries_of(pages, cut), pages, cut)
    state, genesis = open_state(
        tmp_path / "state", VerdictOptions(bucket_cap=cap), memory=memory, generation=64
    )
    try:
        masks = masks_of_skipped(Judge(state, genesis), entries, cut)
    finally:
        state.close()
    every = (1 << tables_of_pages) - 1
    # All buckets fill in journal order; then the pages that follow enter one each, in turn, until all have
    # eight times as many.
    one_each = [every ^ 1 << turn % tables_of_pages for turn in range((8 * cap - cap) * tables_of_pages)]
    want = [0] * cap + one_each
    assert masks == want + [every] * (len(pages) - len(want))


@pytest.mark.parametrize("options", [OPTIONS[1], OPTIONS[4], OPTIONS[10]])
@pytest.mark.parametrize("memory", [64 << 20, 0])
def test_rule_16_skipped_buckets_depend_on_neither_batches_nor_redelivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: VerdictOptions, memory: int
) -> None:
    pages = [
        each
        for pair in zip(crawl(16, 300, dense=True, skew=0.5), crowd(16, 300), strict=True)
        for each in pair
    ]
    entries = redelivered(entries_of(pages, 16), pages, 16)
    want = masks_of_oracle(oracle_of(options), pages)
    for cut in (1, 2):
        if cut == 2:
            monkeypatch.setattr(decide, "FEW", 8)
            monkeypatch.setattr(decide, "SEARCH_ROWS", 16)
        state, genesis = open_state(tmp_path / str(cut), options, memory=memory, generation=64)
        try:
            assert masks_of_skipped(Judge(state, genesis), entries, cut) == want
        finally:
            state.close()
    assert {bool(mask) for mask in want if mask is not None} == {False, True}


def test_rule_16_strict_mode_has_no_cap(tmp_path: Path) -> None:
    rng = random.Random(16)
    options = structs.replace(VerdictOptions.paper(), bucket_cap=2)
    # All share the bucket of the first two blocks.
    pages = [
        OraclePage(None, f"http://host/{number}", rng.getrandbits(38), bytes(range(32)), bytes(40))
        for number in range(100)
    ]
    state, genesis = open_state(tmp_path / "state", options, memory=64 << 20, generation=64)
    try:
        masks = masks_of_skipped(Judge(state, genesis), entries_of(pages, 16), 16)
    finally:
        state.close()
    assert set(masks) == {0}


@pytest.mark.parametrize(
    ("size", "counted", "listed"),
    [(9, True, True), (141, True, True), (142, False, True), (336, False, True), (337, False, False)],
)
def test_rule_19_short_pages_are_counted_up_to_141_shingles_and_listed_up_to_336(
    tmp_path: Path, size: int, *, counted: bool, listed: bool
) -> None:
    scheme, rng, cases = Scheme(), random.Random(size), 40
    pages, exact = [], []
    for case in range(cases):
        own = rng.sample(range(1 << 32), size)
        # Around J = 0.8, where a ninth of each set is not in the other.
        other = own[rng.choice([size // 9 - 1, size // 9, size // 9 + 1]) :]
        other += rng.sample(range(1 << 32), size - len(other))
        exact.append(len({*own} & {*other}) * 10_000 // len({*own} | {*other}))
        for name, shingles in (("first", own), ("second", other)):
            content = parity_sketch(np.array(sorted(shingles), np.uint32), scheme.sketch_bins)
            sketch = content + (case << 40 | 1).to_bytes(8, "little")
            page = OraclePage(None, f"http://{name}/{case}", case << 40, bytes(range(32)), sketch)
            pages.append(page)
    state, genesis = open_state(
        tmp_path / "state", VerdictOptions(), memory=1 << 20, generation=64, scheme=scheme
    )
    try:
        judge = Judge(state, genesis)
        verdicts = judge_all(judge, entries_of(pages, size, scheme), size)
        sketches = np.array([np.frombuffer(page.sketch, "<u8") for page in pages], np.uint64)
        of_first, of_second = np.arange(0, 2 * cases, 2), np.arange(1, 2 * cases, 2)
        pair = sketches, of_first, sketches, of_second
        assert set(judge.rule.counted(*pair).tolist()) == {counted}
        assert set(judge.rule.least(*pair).tolist()) == {8000 if listed else 7980}
        similarities = judge.rule.similarities_at(*pair).tolist()
    finally:
        state.close()
    if counted:
        assert similarities == exact
    elif listed:
        # Two shingles that differ may have one code, which makes a similarity too high only.
        assert all(similarity >= least for similarity, least in zip(similarities, exact, strict=True))
    least = 8000 if listed else 7980
    assert [verdict for _, verdict, *_ in verdicts[1::2]] == [
        "duplicate" if similarity >= least else "unique" for similarity in similarities
    ]
    assert {verdict for _, verdict, *_ in verdicts[1::2]} == {"duplicate", "unique"}


@pytest.mark.parametrize("baselines", [1, 2, 3])
@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[1], OPTIONS[7]])
@pytest.mark.parametrize("memory", [64 << 20, 0])
def test_rule_20_a_page_like_one_of_its_urls_last_baselines_is_a_recrawl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: VerdictOptions, baselines: int, memory: int
) -> None:
    options = structs.replace(options, baselines=baselines)
    pages = flips(baselines, 400, 5)
    entries = redelivered(entries_of(pages, baselines), pages, baselines)
    want = expected(oracle_of(options), pages)
    found = []
    for cut in (1, 2):
        if cut == 2:
            monkeypatch.setattr(decide, "FEW", 8)
            monkeypatch.setattr(decide, "SEARCH_ROWS", 16)
        state, genesis = open_state(tmp_path / str(cut), options, memory=memory, generation=64)
        try:
            found.append(judge_all(Judge(state, genesis), entries, cut))
        finally:
            state.close()
    assert found[0] == found[1] == want
    whole, genesis = open_state(tmp_path / "whole", options, memory=memory, generation=64)
    ahead, _ = open_state(tmp_path / "ahead", options, memory=memory, generation=64)
    try:
        said = [each for part in judge_ahead(Judge(ahead, genesis), entries, 5) for each in part]
        judge = Judge(whole, genesis)
        decided = judge.decide(entries)
        judge.apply(entries, decided.record(), ahead.meta.decided)
        assert said == decided.json()
        assert whole.digest() == ahead.digest()
    finally:
        whole.close()
        ahead.close()
    changed = sum(change == "changed" for _, _, change, *_ in want)
    fewer = expected(oracle_of(structs.replace(options, baselines=baselines + 1)), pages)
    assert sum(change == "changed" for _, _, change, *_ in fewer) < changed


def test_rule_20_a_url_that_flips_between_two_pages_adds_no_anchor(tmp_path: Path) -> None:
    pages = flips(3, 300, 2)
    state, genesis = open_state(tmp_path / "state", VerdictOptions(), memory=1 << 20, generation=64)
    try:
        found = judge_all(Judge(state, genesis), entries_of(pages, 3), 3)
    finally:
        state.close()
    urls = {page.url for page in pages}
    assert sum(verdict != "recrawl" for _, verdict, *_ in found) <= 2 * len(urls)


def test_applying_decisions_rebuilds_an_equal_state(tmp_path: Path) -> None:
    options = VerdictOptions(bucket_cap=3)
    entries = entries_of(crawl(5, 1200, dense=True, skew=0.3), 5)
    first, genesis = open_state(tmp_path / "first", options, memory=1 << 20, generation=50)
    second, _ = open_state(tmp_path / "second", options, memory=1 << 20, generation=50)
    third, _ = open_state(tmp_path / "third", options, memory=0, generation=50)
    try:
        judge, rebuild = Judge(first, genesis), Judge(second, genesis)
        for i in range(0, len(entries), 3):
            part = entries[i : i + 3]
            decisions = judge.decide(part).record()
            judge.apply(part, decisions, i + 3)
            rebuild.apply(part, decisions, i + 3)
        whole = Judge(third, genesis)
        whole.apply(entries, whole.decide(entries).record(), first.meta.decided)
        assert first.digest() == second.digest() == third.digest()
        assert first.tables.count == second.tables.count == third.tables.count > 200
    finally:
        for state in (first, second, third):
            state.close()


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[1], OPTIONS[4], OPTIONS[7]])
@pytest.mark.parametrize("memory", [1 << 20, 0])
def test_deciding_ahead_of_the_store_changes_nothing(
    tmp_path: Path, options: VerdictOptions, memory: int
) -> None:
    entries = entries_of(crawl(7, 900, dense=True, skew=0.3), 7)
    first, genesis = open_state(tmp_path / "first", options, memory=memory, generation=50)
    second, _ = open_state(tmp_path / "second", options, memory=memory, generation=50)
    try:
        found = [each for part in judge_ahead(Judge(first, genesis), entries, 7) for each in part]
        whole = Judge(second, genesis)
        decided = whole.decide(entries)
        whole.apply(entries, decided.record(), first.meta.decided)
        assert found == decided.json()
        assert first.digest() == second.digest()
    finally:
        first.close()
        second.close()


def test_what_is_ahead_of_the_store_ends_with_the_judge(tmp_path: Path) -> None:
    """As after a refused transaction, nothing of the batch is in RocksDB, whatever was flushed meanwhile."""
    entries = entries_of(crawl(4, 600, dense=True), 4)
    half = len(entries) // 2
    states = [
        open_state(tmp_path / name, VerdictOptions(), memory=1 << 20, generation=64)
        for name in ("with", "without")
    ]
    for state, genesis in states:
        judge = Judge(state, genesis)
        judge.apply(entries[:half], judge.decide(entries[:half]).record(), 1)
    judge = Judge(*states[0])
    ahead = judge.decide(entries[half : half + 9])
    assert (ahead.verdicts.columns.verdict == Verdict.UNIQUE).any()
    judge.state.advance(judge.prepare(ahead.entries, ahead.record(), ahead.batch))
    judge.decide(entries[half + 9 :])
    judge.state.flush()
    for state, _ in states:
        state.close()
    again, plain = (
        open_state(tmp_path / name, VerdictOptions(), memory=1 << 20, generation=64)[0]
        for name in ("with", "without")
    )
    try:
        assert again.meta == plain.meta
        assert again.digest() == plain.digest()
    finally:
        again.close()
        plain.close()


def test_verdicts_do_not_depend_on_how_the_journal_is_cut_into_batches(tmp_path: Path) -> None:
    entries = entries_of(crawl(9, 600, dense=True), 9)
    found = []
    for cut in (1, 2, 3):
        state, genesis = open_state(tmp_path / str(cut), VerdictOptions(), memory=1 << 20, generation=64)
        try:
            found.append(judge_all(Judge(state, genesis), entries, cut))
        finally:
            state.close()
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[3], OPTIONS[7]])
@pytest.mark.parametrize("bounds", [{"most": 0}, {"most": 40}, {"url_bytes": 0}, {"url_bytes": 4000}])
def test_nor_on_how_little_of_a_batch_is_judged_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: VerdictOptions, bounds: dict[str, int]
) -> None:
    monkeypatch.setattr(decide, "FEW", 8)
    monkeypatch.setattr(decide, "SEARCH_ROWS", 16)
    monkeypatch.setattr(tables, "PAIRS_AT_ONCE", 64)
    monkeypatch.setattr(page_log, "GROUPS_AT_ONCE", 2)
    monkeypatch.setattr(page_log, "PART_BYTES", 10_000)
    monkeypatch.setattr(page_log, "LEAST_KEPT", 0)
    entries = entries_of(crawl(11, 500, dense=True, skew=0.3), 11)
    found: list[list[bytes]] = []
    digests, turns, batches = [], [0], [0, 0]
    for which, effort in enumerate((None, Effort(on_iteration=lambda: turns.append(0), **bounds))):
        state, genesis = open_state(tmp_path / str(which), options, memory=1 << 20, generation=50)
        try:
            judge, first, verdicts = Judge(state, genesis), 0, []
            while first < len(entries):
                decided = judge.decide(entries[first : first + 9], effort)
                verdicts += decided.json()
                first += len(decided.entries)
                batches[which] += 1
                judge.apply(decided.entries, decided.record(), len(entries))
            found.append(verdicts)
            digests.append(state.digest())
        finally:
            state.close()
    assert found[0] == found[1]
    assert len(turns) > batches[1] > batches[0]
    assert digests[0] == digests[1]


def test_a_reopened_state_goes_on_where_it_was_flushed(tmp_path: Path) -> None:
    entries = entries_of(crawl(3, 800, dense=True), 3)
    whole, genesis = open_state(tmp_path / "whole", VerdictOptions(), memory=1 << 20, generation=64)
    want = judge_all(Judge(whole, genesis), entries, 1)
    whole.close()
    half = len(entries) // 2
    state, _ = open_state(tmp_path / "cut", VerdictOptions(), memory=1 << 20, generation=64)
    found = judge_all(Judge(state, genesis), entries[:half], 2)
    state.close()
    state, _ = open_state(tmp_path / "cut", VerdictOptions(), memory=0, generation=64)
    assert state.meta.applied == entries[half - 1].offset + 1
    found += judge_all(Judge(state, genesis), entries[half:], 3)
    assert found == want
    state.close()
