"""Judged pages as journal records with decisions, for electors, and what electors say of them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from stream.elector.elector import Due, Elector
from stream.elector.state import State
from stream.fingerprint.row import NO_DIGEST, Row
from stream.judge.batch import Decided, Entry, digest_of
from stream.messages.best import BestRecord, decode_best, encode_best
from stream.messages.decision import (
    OF_ANOTHER_CLUSTER,
    Decisions,
    LedgerPart,
    Turn,
    decode_decisions,
    encode_decisions,
    ledger_record,
    turn_record,
)
from stream.messages.journal import Genesis, Rows, SourceRange, decode_journal
from stream.messages.verdict import Verdict
from tests.genesis import genesis_of
from tests.property.best_oracle import Judged

KAFKA = "cluster"


def open_elector(path: Path, elect: str, genesis: Genesis | None = None) -> Elector:
    """An elector with the state in a directory, which may be new."""
    genesis = genesis or genesis_of()
    return Elector(State.open(path, genesis, KAFKA, elect, cache=8 << 20), genesis)


def url_digest_of(key: object) -> bytes:
    """Stands for the keyed digest of a URL key."""
    return NO_DIGEST if key is None else hashlib.blake2b(repr(key).encode(), digest_size=16).digest()


def decided_of(
    judged: Sequence[Judged],
    seed: int,
    genesis: Genesis | None = None,
    time: Callable[[int], int] = lambda offset: 1_700_000_000_000 + offset,
) -> list[Decided]:
    """Journal records with these pages, and decisions about one or several of them. Some records have pages
    that come again, which are not admitted, and some decisions are ledger records. `time` returns the append
    time of the record at an offset; with a lifetime, there are turns."""
    rng, genesis = random.Random(seed), genesis or genesis_of()
    of_offset: dict[int, list[Judged]] = {}
    for each in judged:
        of_offset.setdefault(each.page >> 16, []).append(each)
    entries, codes = list[Entry](), list[list[tuple[int, Judged | None]]]()
    for offset, pages in sorted(of_offset.items()):
        assert [each.page & 0xFFFF for each in pages] == list(range(len(pages)))
        with_copies: list[Judged | None] = [*pages, *([None] * rng.choice((0, 0, 2)))]
        entries.append(_entry(genesis, offset, with_copies, time(offset)))
        codes.append([(_code(rng, each), each) for each in with_copies])
    found, first = list[Decided](), 0
    while first < len(entries):
        end = min(len(entries), first + rng.choice((1, 1, 2, 5)))
        part = [each for of_record in codes[first:end] for each in of_record]
        found.append(_decided(genesis, entries[first:end], part, len(found) + 1))
        first = end
        if rng.random() < 0.1:
            found.append(_ledger(genesis, found[-1].decisions, len(found) + 1))
    return found if genesis.options.lifetime is None else _with_turns(found, genesis)


def _with_turns(decided: Sequence[Decided], genesis: Genesis) -> list[Decided]:
    """With a turn before the first decisions in each slot, but for the first one."""
    assert genesis.options.lifetime is not None
    slot, turned, found = max(1000, 1000 * genesis.options.lifetime // 1024), 0, list[Decided]()
    for each in decided:
        time = each.entries[0].time if each.entries else 0
        if time // slot > turned // slot:
            if found:
                found.append(_turn(genesis, found[-1].decisions, time, len(found) + 1))
            turned = time
        found.append(each._replace(next=len(found) + 1))
    return found


def _turn(genesis: Genesis, before: Decisions, time: int, after: int) -> Decided:
    """What a turn says of pages is of no meaning for electors."""
    turn = Turn(oldest=(0, 0), next=(0, 0), anchors=b"", duplicates=b"")
    record = turn_record(genesis.journal, genesis.options.id, before.end, before.last, time, None, turn)
    return Decided([], decode_decisions(encode_decisions(record), after - 1), after)


def _entry(genesis: Genesis, offset: int, pages: Sequence[Judged | None], time: int) -> Entry:
    blank = Judged(0, "https://again.example/", None, "rejected", None)
    rows = [
        Row(0, each.url, each.fetched_at, url_digest_of(each.key), length=each.length, quality=each.quality)
        for each in (page or blank for page in pages)
    ]
    source = SourceRange("c", "pages", "0" * 32, 0, offset * 100, offset * 100 + len(rows), len(rows))
    columns = Rows.of(genesis.scheme, [source], rows, range(source.start, source.end), [None] * len(rows))
    value = columns.encode()
    decoded = decode_journal(value, offset)
    assert isinstance(decoded, Rows)
    return Entry(offset, time, digest_of(value), decoded)


def _code(rng: random.Random, page: Judged | None) -> int:
    if page is None:
        return 0
    code = int(Verdict[page.verdict.upper()])
    apart = page.verdict == "recrawl" and (page.cluster == page.page or rng.random() < 0.5)
    return code | OF_ANOTHER_CLUSTER if apart else code


def _decided(
    genesis: Genesis, entries: Sequence[Entry], rows: Sequence[tuple[int, Judged | None]], after: int
) -> Decided:
    apart = [each for code, each in rows if code & OF_ANOTHER_CLUSTER]
    named = [
        0 if code & OF_ANOTHER_CLUSTER else each.cluster
        for code, each in rows
        if each is not None and each.verdict in ("duplicate", "recrawl")
    ]
    record = Decisions(
        journal=genesis.journal, options=genesis.options.id,
        start=entries[0].offset, end=entries[-1].offset + 1, last=entries[-1].digest, time=entries[-1].time,
        sources=[], ledger=None, codes=bytes(code for code, _ in rows),
        other=np.array(named, "<i8").tobytes(),
        clusters=np.array([each.cluster for each in apart if each], "<i8").tobytes(),
        numbers=bytes(8 * len(named)), distance=bytes(len(named)), similarity=bytes(2 * len(named)),
        anchors=bytes(8 * len(apart)), nearest=b"", nearest_numbers=b"", nearest_similarity=b"",
        superseded=[], skipped=[],
    )  # fmt: skip
    return Decided(entries, decode_decisions(encode_decisions(record), after - 1), after)


def _ledger(genesis: Genesis, before: Decisions, after: int) -> Decided:
    """A ledger record, which decides nothing."""
    record = ledger_record(
        genesis.journal, genesis.options.id, before.end, before.last, before.time, [], LedgerPart(0, 0)
    )
    return Decided([], decode_decisions(encode_decisions(record), after - 1), after)


def tell_all(elector: Elector, limit: int = 1000) -> list[BestRecord]:
    """Tell all that is due, as if the records were written, and return them as a reader gets them."""
    found = list[BestRecord]()
    while due := elector.due(limit):
        found += map(read_back, due)
        elector.tell(due, {})
    return found


def read_back(due: Due) -> BestRecord:
    """The record as it is on the topic."""
    return decode_best(encode_best(due.record), "best")
