"""Records of the topic `candidates`: answers of segments about journal records.

`schemas/candidates.md` describes their layout. Their columns are differences of sorted numbers, as varints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.errors import AnswerError, RecordError
from stream.fingerprint.parity import ONE
from stream.judge.ids import INDEX_BITS, INDEX_MASK, OFFSET_BITS
from stream.judge.rule import NO_SIMILARITY
from stream.judge.segments.answer import Answer, BucketCounts, ListedPairs, Run, Segment
from stream.messages.segments import NUMBER_BITS, SEGMENT_BITS, Hex16, Hex32
from stream.messages.varints import decode_varints, encode_varints
from stream.messages.versions import refuse_other_version
from stream.settings import NAME
from stream.tables.arrays import distinct

VERSION: Final = 1
DIGEST_BYTES: Final = 16
"""Bytes of the digest of a segment's file that name it in an answer: the first half."""
PAIR_BYTES: Final = 4
"""A pair takes at least so many bytes: anchor, distance, rank and similarity."""
BUCKETS: Final = 1 << 16
"""The bucket of a page is below this number, whatever its tables are."""


class SentAnswer(NamedTuple):
    """An answer, and who sends it."""

    answer: Answer
    journal: str
    """UUID of the journal."""
    scheme: str
    """Id of its scheme."""
    group: str
    """Name of the holder's group, empty for the one without a name."""
    holder: str
    """Client id of who holds the segment."""
    digest: bytes
    """The first DIGEST_BYTES of the SHA-256 of the segment's file that it holds."""


class AnswerHeading(NamedTuple):
    """What an answer is about, and who sends it."""

    journal: str
    group: str
    holder: str
    digest: bytes
    segment: Segment
    run: Run


def encode_answer(sent: SentAnswer) -> bytes:
    """Encode a record of the topic `candidates`."""
    answer = sent.answer
    pairs, counts, base = answer.pairs, answer.counts, answer.run.start << INDEX_BITS
    pages = distinct(np.concatenate([pairs.page, answer.cut, counts.page]))
    record, index = pages - base >> INDEX_BITS, pages - base & INDEX_MASK
    steps = _differences(record)
    pairs_of, counts_of = (np.searchsorted(each, pages, "right") for each in (pairs.page, counts.page))
    is_cut = np.zeros(len(pages), np.bool_)
    is_cut[np.searchsorted(pages, answer.cut)] = True
    columns = _Columns(
        records=encode_varints(steps),
        indexes=encode_varints(_steps(index, np.cumsum(_pages_of_records(steps)))),
        pairs=encode_varints(_differences(pairs_of)),
        counts=encode_varints(_differences(counts_of)),
        cut=np.packbits(is_cut).tobytes(),
        anchors=encode_varints(_steps(pairs.anchor - answer.segment.first, pairs_of)),
        distances=pairs.distance.astype(np.uint8).tobytes(),
        ranks=pairs.rank.astype(np.uint8).tobytes(),
        similarities=encode_varints(pairs.similarity - NO_SIMILARITY),
        similar=np.packbits(pairs.similar).tobytes(),
        buckets=encode_varints(_steps(counts.bucket, counts_of)),
        sizes=encode_varints(counts.size - 1),
    )
    return _ENCODER.encode(
        _Record(
            journal=sent.journal,
            scheme=sent.scheme,
            group=sent.group,
            holder=sent.holder,
            digest=sent.digest,
            segment=answer.segment,
            run=answer.run,
            decided=answer.decided,
            most=answer.most,
            columns=columns,
        )
    )


def decode_answer(value: bytes | None, name: str) -> SentAnswer:
    """Decode a record of the topic `candidates`; `name` names it in errors. Raises RecordVersionError for
    another version, and RecordError for what is no answer."""
    return _decode(value, name, _sent)


def decode_heading(value: bytes | None, name: str) -> AnswerHeading:
    """Decode what a record of the topic `candidates` is about, but not what it answers. Raises as
    `decode_answer` does."""
    return _decode(value, name, _heading)


T = TypeVar("T")


def _decode(value: bytes | None, name: str, of: Callable[[_Record], T]) -> T:
    try:
        record = _DECODER.decode(value or b"")
        if record.version != VERSION:
            raise ValueError(f"version {record.version}")
        _refuse_wrong_ranges(record.segment, record.run)
        return of(record)
    except (msgspec.DecodeError, ValueError, AnswerError) as error:
        refuse_other_version(value or b"", VERSION, name)
        raise RecordError(f"{name}: {error}") from error


def _sent(record: _Record) -> SentAnswer:
    return SentAnswer(
        _decoded(record), record.journal, record.scheme, record.group, record.holder, record.digest
    )


def _heading(record: _Record) -> AnswerHeading:
    return AnswerHeading(
        record.journal, record.group, record.holder, record.digest, record.segment, record.run
    )


_Digest = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=np.iinfo(np.int64).max)]


class _Columns(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is said of P pages in order, of which some have a pair, a bucket or a cut list; of M pairs, and of
    K buckets. All columns are varints, but for `cut` and `similar`, of one bit each, and `distances` and
    `ranks`, of one byte each."""

    records: bytes
    """P: journal records between the page's and that of the page before, of the first the start of the
    run."""
    indexes: bytes
    """P: the page's index in its record; if the page before is of the same one, less that one's and 1."""
    pairs: bytes
    """P: number of pairs that are listed for the page."""
    counts: bytes
    """P: number of buckets that have anchors."""
    cut: bytes
    """P: whether it has more pairs than are listed."""
    anchors: bytes
    """M: the anchor's number, less the first of the segment; but for the first of a page, less that of the
    pair before and 1."""
    distances: bytes
    """M."""
    ranks: bytes
    """M."""
    similarities: bytes
    """M: in ten-thousandths, and 1 more; 0 in strict mode."""
    similar: bytes
    """M: whether the rule says that they are near-duplicates."""
    buckets: bytes
    """K: the bucket, but for the first of a page less the one before and 1."""
    sizes: bytes
    """K: number of live anchors, less 1."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of a record."""

    version: int = VERSION
    journal: Hex32
    scheme: Hex16
    group: Annotated[str, msgspec.Meta(pattern=rf"^({NAME})?$")]
    holder: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    digest: _Digest
    segment: Segment
    run: Run
    decided: _Count
    most: Annotated[int, msgspec.Meta(ge=1, le=np.iinfo(np.int64).max)]
    columns: _Columns


def _refuse_wrong_ranges(segment: Segment, run: Run) -> None:
    """Raise ValueError for ranges that none has."""
    if not 0 <= segment.first < segment.end <= min(1 << NUMBER_BITS, segment.first + (1 << SEGMENT_BITS)):
        raise ValueError(f"is of {segment}, which no segment has")
    is_run = 0 <= run.start <= run.end and 0 <= min(run[2:]) <= max(run[2:]) <= INDEX_MASK
    if not is_run or not run.first < run.until <= 1 << OFFSET_BITS + INDEX_BITS:
        raise ValueError(f"is about {run}, which no journal has")


def _decoded(record: _Record) -> Answer:
    """Return the answer of a record. Raises ValueError if its columns do not fit each other, and AnswerError
    as `Answer` does."""
    segment, run, columns = record.segment, record.run, record.columns
    number = {name: _varints(columns, name) for name in _VARINTS}
    pages = _pages(number["records"], number["indexes"], run)
    pairs, counts = number["pairs"], number["counts"]
    cut = _bits(columns, "cut", len(pages))
    distances, ranks = (np.frombuffer(each, np.uint8) for each in (columns.distances, columns.ranks))
    _refuse_other_size("distances", len(distances), len(ranks))
    similarities = number["similarities"]
    _refuse_other_size("similarities", len(similarities), len(ranks))
    _refuse_larger("similarities", similarities, ONE - NO_SIMILARITY)
    similar = _bits(columns, "similar", len(ranks))
    for name, of in (("pairs", pairs), ("counts", counts)):
        _refuse_other_size(name, len(of), len(pages))
    anchors = _from_steps("anchors", number["anchors"], pairs, segment.end - segment.first)
    _refuse_other_size("anchors", len(anchors), len(ranks))
    buckets, sizes = _from_steps("buckets", number["buckets"], counts, BUCKETS), number["sizes"]
    _refuse_other_size("sizes", len(sizes), len(buckets))
    _refuse_larger("sizes", sizes, segment.end - segment.first - 1)
    if len(pages) and (pairs + counts + cut).min() == 0:
        raise ValueError("names a page of which it says nothing")
    listed = ListedPairs(
        np.repeat(pages, pairs),
        anchors + segment.first,
        distances.copy(),
        ranks.copy(),
        similarities + NO_SIMILARITY,
        similar,
    )
    counted = BucketCounts(np.repeat(pages, counts), buckets, sizes + 1)
    return Answer(segment, run, record.decided, record.most, listed, pages[cut], counted)


def _pages(steps: NDArray[np.int64], indexes: NDArray[np.int64], run: Run) -> NDArray[np.int64]:
    """Return the packed ids (P,) of pages. Raises ValueError for what is none of the run's."""
    records = run.end - run.start + (run.end_row > 0)
    if steps.sum(dtype=np.float64) >= records:  # as a float, it does not wrap
        raise ValueError(f"names a page beyond {run}")
    index = _from_steps("indexes", indexes, _pages_of_records(steps), INDEX_MASK + 1)
    return run.start + np.cumsum(steps) << INDEX_BITS | index


def _pages_of_records(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many consecutive pages are of the same record, given how many records (P,) each is after the
    page before."""
    starts = np.flatnonzero(steps[1:]) + 1
    return np.diff(starts, prepend=0, append=len(steps))


def _steps(numbers: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the differences, less 1, of ascending numbers in groups; the first of a group stays. `ends` has
    where each group ends."""
    steps = _differences(numbers) - 1
    starts = np.concatenate([np.zeros(1, np.int64), ends])
    starts = starts[starts < len(numbers)]
    steps[starts] = numbers[starts]
    return steps


def _differences(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each number less the one before it, and the first. `np.diff` takes several times as long for a
    few thousand."""
    differences = numbers.copy()
    differences[1:] -= numbers[:-1]
    return differences


def _from_steps(name: str, steps: NDArray[np.int64], sizes: NDArray[np.int64], end: int) -> NDArray[np.int64]:
    """Return the numbers whose `_steps` these are, given the sizes of the groups. Raises ValueError unless
    they are as many, and all below `end`."""
    _refuse_other_size(name, len(steps), int(sizes.sum(dtype=np.float64)))  # as a float, which does not wrap
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return steps
    first = np.cumsum(sizes) - sizes
    if np.add.reduceat(steps + 1.0, first).max() > end:
        raise ValueError(f"{name} are not below {end}")
    sums = np.cumsum(steps + 1)  # may wrap, but not their differences in a group
    numbers: NDArray[np.int64] = sums - np.repeat(sums[first] - steps[first], sizes)
    return numbers


_VARINTS: Final = ("records", "indexes", "pairs", "counts", "anchors", "similarities", "buckets", "sizes")


def _varints(columns: _Columns, name: str) -> NDArray[np.int64]:
    try:
        return decode_varints(getattr(columns, name))
    except ValueError as error:
        raise ValueError(f"{name} {error}") from error


def _bits(columns: _Columns, name: str, count: int) -> NDArray[np.bool_]:
    bits = np.frombuffer(getattr(columns, name), np.uint8)
    _refuse_other_size(name, len(bits), -(-count // 8))
    return np.unpackbits(bits, count=count).astype(np.bool_)


def _refuse_other_size(name: str, size: int, wanted: int) -> None:
    if size != wanted:
        raise ValueError(f"has {size} {name} instead of {wanted}")


def _refuse_larger(name: str, numbers: NDArray[np.int64], most: int) -> None:
    if numbers.max(initial=0) > most:
        raise ValueError(f"{name} are up to {numbers.max()}, of at most {most}")


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Record)
