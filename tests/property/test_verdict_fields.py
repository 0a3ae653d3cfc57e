"""Columns of verdicts are what each verdict alone says, for anything that a judge may write."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from stream.dashboard.counting.verdict_columns import LikePage, VerdictFields, batch_of, counted_host, normal
from stream.errors import RecordError
from stream.judge.ids import show
from stream.messages.verdict import VERDICTS, MessagePosition, NearestPage, PageRef, VerdictRecord
from stream.messages.verdict_options import VerdictOptions
from stream.pages.times import rfc3339
from tests.judged_crawls import mirrors, oracle_of
from tests.kafka.dashboard_helpers import VerdictMaker

JOURNAL = "9f576ade" * 4
LETTERS = st.text(st.sampled_from('aZ0-_~.%/:?#[]@!&=+ é\\"'), max_size=12)
URLS = st.one_of(
    st.builds("http{}://{}/{}".format, st.sampled_from(["", "s", "S"]), LETTERS, LETTERS),
    st.builds("https://{}.example{}".format, LETTERS, LETTERS),
    st.builds("http://a.b/{}?{}".format, LETTERS, LETTERS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["", "http:", "http://", "http://a.b", "https://1.2.3.4/", "http://a.b/" + "c" * 8200]),
)
PAGES = st.builds("abcd1234.{}.{}".format, st.integers(0, 2**40), st.integers(0, 512))
TIMES = st.integers(-(2**40), 2**46).map(rfc3339)
RECORDS = st.builds(
    VerdictRecord,
    id=PAGES,
    url=st.none() | URLS,
    verdict=st.sampled_from(VERDICTS),
    change=st.none() | st.just("new"),
    cluster=st.none() | PAGES | st.just(""),
    duplicate_of=st.none() | st.builds(PageRef, URLS, PAGES),
    distance=st.none() | st.integers(0, 128) | st.integers(-(2**40), 2**40),
    similarity=st.none()
    | st.integers(0, 10_000).map(lambda each: each / 10_000)
    | st.floats(0, 1)
    | st.floats(0, 1e9)
    | st.sampled_from([1, 0.29, 0.58, 1e-7]),
    nearest=st.just(msgspec.UNSET) | st.builds(NearestPage, URLS, PAGES, st.floats(0, 1)),
    fingerprint=st.none() | st.just("0123456789abcdef"),
    text_hash=st.none() | st.just("0" * 32),
    scheme=st.just("0" * 16),
    source=st.builds(
        MessagePosition, LETTERS, st.just("ab" * 16), st.integers(0, 99), st.integers(0, 2**63 - 1)
    ),
    fetched_at=st.none() | TIMES,
    decided_at=TIMES,
    reason=st.none() | LETTERS,
)


def seconds(fields: VerdictFields) -> int:
    """When it was decided, the plain way."""
    moment: Any = msgspec.convert(fields.decided_at, datetime)
    return int(moment.timestamp() // 1)


@given(st.lists(RECORDS, min_size=1, max_size=12))
def test_columns_are_what_verdicts_say(records: list[VerdictRecord]) -> None:
    values = [msgspec.json.encode(each) for each in records]
    batch = batch_of(2, range(7, 7 + len(values)), values)
    fields = [msgspec.json.decode(value, type=VerdictFields) for value in values]
    assert batch.members == [each for each in fields if each.joins or each.begins]
    for each in fields:
        if each.verdict == "duplicate":
            assert each.joins == bool(each.cluster)
        elif each.verdict != "recrawl":
            assert not each.joins
            assert not each.begins
    for row in range(len(values)):
        key = normal(fields[row].url or "")
        assert batch.shapes[batch.shape[row]] == fields[row].shape
        assert batch.host_name(row) == counted_host(key)
        assert batch.digests[row] == xxhash.xxh3_64_intdigest(key.encode(errors="replace"))
        assert batch.seconds[row] == seconds(fields[row])
        assert batch.record(row) == records[row]


@given(st.lists(RECORDS, min_size=1, max_size=4), st.data())
def test_what_is_damaged_is_refused_or_read_as_a_decoder_does(
    records: list[VerdictRecord], data: st.DataObject
) -> None:
    values = [msgspec.json.encode(each) for each in records]
    row = data.draw(st.integers(0, len(values) - 1))
    place = data.draw(st.integers(0, len(values[row]) - 1))
    byte = data.draw(st.sampled_from(b'0a"{}:,.\\n\x1f\xff'))
    values[row] = values[row][:place] + bytes([byte]) + values[row][place + 1 :]
    try:
        fields = msgspec.json.decode(values[row], type=VerdictFields)
        decided = seconds(fields)
    except (msgspec.DecodeError, UnicodeDecodeError):
        with pytest.raises(RecordError, match=rf"offset {row}"):
            batch_of(2, range(len(values)), values)
        return
    batch = batch_of(2, range(len(values)), values)
    assert batch.shapes[batch.shape[row]] == fields.shape
    assert batch.seconds[row] == decided


def test_a_field_that_is_not_utf_8_is_refused() -> None:
    """msgspec raises another error for it than for all other damage."""
    value = msgspec.json.encode(VerdictMaker().one(reason="odd")).replace(b"odd", b"\xff")
    with pytest.raises(RecordError, match=r"offset 7"):
        batch_of(2, [7], [value])


@pytest.mark.parametrize("seed", [1, 2])
def test_orphans_are_known_by_their_verdicts(seed: int) -> None:
    """But for some that join a cluster older than their baseline."""
    oracle, orphans, missed = oracle_of(VerdictOptions()), 0, 0
    for number, page in enumerate(mirrors(seed, 800)):
        page.id, before = number, len(oracle.orphans)
        want, is_orphan = oracle.judge(page), len(oracle.orphans) > before
        found = VerdictFields(
            id=show(JOURNAL, number),
            url=page.url,
            verdict=want.verdict,
            cluster=None if want.cluster is None else show(JOURNAL, want.cluster),
            duplicate_of=None if want.other is None else LikePage("", show(JOURNAL, want.other)),
            distance=None,
            similarity=None,
            decided_at="",
            reason=None,
        )
        if want.verdict == "recrawl":
            assert found.begins == (is_orphan and want.cluster == number)
            is_older = is_orphan and want.cluster < want.other
            assert found.joins == (is_orphan and not found.begins and not is_older)
            orphans, missed = orphans + is_orphan, missed + is_older
        else:
            assert found.joins == (want.verdict == "duplicate")
    assert missed < orphans / 10
