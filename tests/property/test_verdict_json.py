"""The compiled JSON writer produces byte for byte what msgspec produces for the verdicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.fingerprint.lanes import words_of
from stream.fingerprint.row import NO_HASH
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Batch
from stream.judge.decision.decide_rows_compiled import VerdictColumns
from stream.judge.ids import NO_PAGE, show
from stream.judge.rule import Rule
from stream.judge.verdict_json_compiled import columns, quoted, write
from stream.messages.byte_strings import StringColumn
from stream.messages.journal import SourceRange, Strings
from stream.messages.row_columns import NO_TIME
from stream.messages.verdict import Change, MessagePosition, NearestPage, PageRef, Verdict, VerdictRecord
from stream.messages.verdict_options import VerdictOptions
from stream.pages.times import rfc3339

JOURNAL = "0123456789abcdef" * 2
STRINGS = st.one_of(
    st.integers(0, 10**6).map("https://example.com/{}".format),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(['"', "\\", "\x1f\n\t", "é", "新闻", "\x7f", ""]),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PAGES = st.integers(0, 2**62)
YEARS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
"""Milliseconds from year 1 up to year 9999."""
ROWS = st.fixed_dictionaries(
    {
        "page": PAGES,
        "url": st.none() | STRINGS,
        "verdict": st.sampled_from(Verdict),
        "change": st.sampled_from(Change),
        "cluster": PAGES,
        "other": PAGES,
        "other_url": STRINGS,
        "near": st.booleans(),
        "distance": st.integers(0, 128),
        "similarity": st.integers(0, 10_000),
        "fingerprint": st.binary(min_size=16, max_size=16),
        "text_hash": st.binary(min_size=16, max_size=16) | st.just(NO_HASH),
        "source": st.integers(0, 2),
        "offset": st.integers(0, 2**63 - 1),
        "fetched_at": YEARS | st.just(NO_TIME),
        "time": st.integers(0, 2**42),
        "reason": st.none() | STRINGS,
    }
)
RANGES = [
    SourceRange("c", topic, "0" * 32, number, 0, 0, 0) for number, topic in enumerate(["pages", 'a"b', "ü"])
]


def of_rows(rows: list[dict[str, Any]], width: int) -> tuple[Batch, VerdictColumns, StringColumn]:
    n = len(rows)

    def column(name: str, kind: type) -> Any:
        return np.array([row[name] for row in rows], kind)

    urls = [row["url"] for row in rows]
    strings = Strings.of(urls, [None] * n).columns()
    words = np.frombuffer(b"".join(row["fingerprint"] for row in rows), ">u8").astype(np.uint64)
    batch = Batch(
        place=np.arange(n),
        page=column("page", np.int64),
        time=column("time", np.int64),
        status=np.zeros(n, np.uint8),
        fingerprint=words.reshape(n, 2)[:, -words_of(width) :] % np.uint64(1 << min(width, 64) - 1) * 2,
        sketch=np.zeros((n, 5), np.uint64),
        text_hash=np.frombuffer(b"".join(row["text_hash"] for row in rows), np.uint8).reshape(n, 16),
        offset=column("offset", np.int64),
        fetched_at=column("fetched_at", np.int64),
        url_digest=np.zeros((n, 16), np.uint8),
        **strings._asdict(),
        reason={i: row["reason"] for i, row in enumerate(rows) if row["reason"] is not None},
        traceparent={},
        source=column("source", np.int64),
        ranges=RANGES,
    )
    judged = VerdictColumns.blank(n)
    judged.verdict[:], judged.change[:] = column("verdict", np.uint8), column("change", np.uint8)
    judged.cluster[:] = column("cluster", np.int64)
    clustered = np.isin(judged.verdict, (Verdict.DUPLICATE, Verdict.RECRAWL))
    named = clustered | (judged.verdict == Verdict.UNIQUE) & column("near", bool)
    judged.other[named] = column("other", np.int64)[named]
    other_url = StringColumn.utf8(
        [row["other_url"] if each else None for row, each in zip(rows, named, strict=True)]
    )
    judged.distance[clustered] = column("distance", np.int16)[clustered]
    judged.similarity[named] = column("similarity", np.int32)[named]
    return batch, judged, other_url


def value(
    batch: Batch, judged: VerdictColumns, other_url: StringColumn, rule: Rule, row: int
) -> VerdictRecord:
    """One verdict, the plain way."""
    verdict, change = Verdict(int(judged.verdict[row])), Change(int(judged.change[row]))
    other = None
    if judged.other[row] != NO_PAGE:
        other = PageRef(other_url.text(row), show(JOURNAL, int(judged.other[row])))
    public, tens = rule.options.disclosure == "public", int(judged.similarity[row])
    similarity = (tens + 50) // 100 / 100 if public else tens / 10_000
    named = other is not None and verdict != Verdict.UNIQUE
    fingerprinted = named or verdict == Verdict.UNIQUE
    word = 0
    for part in batch.fingerprint[row].tolist():
        word = word << 64 | part
    source = batch.ranges[int(batch.source[row])]
    fetched, text_hash = int(batch.fetched_at[row]), batch.text_hash[row].tobytes()
    moment = None if fetched == NO_TIME else _EPOCH + timedelta(milliseconds=fetched)
    return VerdictRecord(
        id=show(JOURNAL, int(batch.page[row])),
        url=batch.url.texts()[row],
        verdict=verdict.name.lower(),
        change=None if change is Change.NONE else change.name.lower(),
        cluster=show(JOURNAL, int(judged.cluster[row])) if fingerprinted else None,
        duplicate_of=other if named else None,
        distance=int(judged.distance[row]) if named and not public else None,
        similarity=similarity if named else None,
        nearest=NearestPage(other.url, other.id, similarity)
        if other and not named and not public
        else msgspec.UNSET,
        fingerprint=f"{word:0{rule.scheme.width // 4}x}" if fingerprinted and not public else None,
        text_hash=None if text_hash == NO_HASH else text_hash.hex(),
        scheme=rule.scheme.id,
        source=MessagePosition(source.topic, source.topic_id, source.partition, int(batch.offset[row])),
        fetched_at=moment and f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z",
        decided_at=rfc3339(int(batch.time[row])),
        reason=batch.reason.get(row),
    )


@pytest.mark.parametrize("disclosure", ["internal", "public"])
@pytest.mark.parametrize("width", [32, 64, 128])
@given(rows=st.lists(ROWS, max_size=12), data=st.data())
@settings(max_examples=40)
def test_json_of_any_verdicts_equals_that_of_their_values(
    width: int, disclosure: Any, rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    batch, judged, urls = of_rows(rows, width)
    rule = Rule(VerdictOptions(disclosure=disclosure), Scheme(width=width))
    chosen = data.draw(st.lists(st.sampled_from(range(len(rows)))) if rows else st.just([]))
    written = write(columns(batch, judged, urls, rule, JOURNAL), np.array(chosen, np.int64)).strings()
    assert written == [msgspec.json.encode(value(batch, judged, urls, rule, row)) for row in chosen]


def test_json_of_longest_and_shortest_numbers() -> None:
    row = {
        "page": 2**63 - 1, "url": "", "verdict": Verdict.DUPLICATE, "change": Change.UNCHANGED, "cluster": 0,
        "other": 2**63 - 1, "other_url": "\x01" * 9000, "near": False, "distance": 128, "similarity": 3333,
        "fingerprint": bytes(16), "text_hash": b"\xff" * 16, "source": 0, "offset": 0, "fetched_at": -1,
        "time": int(datetime(9999, 12, 31, tzinfo=UTC).timestamp() * 1000), "reason": "x" * 70_000,
    }  # fmt: skip
    batch, judged, urls = of_rows([row] * 3, 128)
    rule = Rule(VerdictOptions(), Scheme(width=128))
    written = write(columns(batch, judged, urls, rule, JOURNAL), np.arange(3)).strings()
    assert written == [msgspec.json.encode(value(batch, judged, urls, rule, 0))] * 3


@given(strings=st.lists(st.none() | STRINGS))
def test_quoted_strings_are_the_json_of_strings(strings: list[str | None]) -> None:
    written = [msgspec.json.encode(each) for each in strings]
    assert quoted(StringColumn.utf8(strings)).strings() == written
