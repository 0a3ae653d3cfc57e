"""Verdicts of one partition in columns, and what they add up to."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import msgspec

from stream.dashboard.windows import HOSTS, TOTALS
from stream.errors import PageError, RecordError
from stream.messages.verdict import VerdictRecord
from stream.text.url import url_key

NO_HOST: Final = "(no host)"
"""Stands for the host of a page whose URL is missing or malformed."""
_TICK: Final = min(TOTALS)
_MINUTE: Final = min(HOSTS)

Shape = tuple[str, int | None, int | None, str | None]
"""What is counted of a verdict: its kind, distance, hundredths of the similarity, and why it was rejected."""


class Anchor(msgspec.Struct, gc=False):
    """The page that a page is like."""

    url: str


class VerdictFields(msgspec.Struct, gc=False):
    """What is counted or shown of a verdict."""

    id: str
    url: str | None
    verdict: str
    cluster: str | None
    duplicate_of: Anchor | None
    distance: int | None
    similarity: float | None
    decided_at: str
    reason: str | None

    @property
    def shape(self) -> Shape:
        """What is counted of it."""
        hundredths = None if self.similarity is None else int(self.similarity * 100 + 1e-9)
        reason = (self.reason or "unknown") if self.verdict == "rejected" else None
        return self.verdict, self.distance, hundredths, reason


@dataclass(frozen=True, slots=True)
class VerdictColumns:
    """Verdicts of a partition in the order of their offsets; all columns are equally long."""

    partition: int
    offsets: Sequence[int]
    values: Sequence[bytes]
    """As JSON."""
    said: Sequence[VerdictFields]
    seconds: Sequence[int]
    """`decided_at`, whole seconds since the epoch. Never falls within a partition."""
    hosts: Sequence[str]
    keys: Sequence[str]
    """URL keys, or URLs as they are where they have none."""

    def __len__(self) -> int:
        return len(self.offsets)

    def between(self, first: int, last: int) -> VerdictColumns:
        """Those at offsets from `first` to `last`."""
        rows = slice(bisect_left(self.offsets, first), bisect_right(self.offsets, last))
        return VerdictColumns(
            self.partition,
            self.offsets[rows],
            self.values[rows],
            self.said[rows],
            self.seconds[rows],
            self.hosts[rows],
            self.keys[rows],
        )

    def record(self, row: int) -> VerdictRecord:
        """A verdict with all its fields."""
        return _RECORD.decode(self.values[row])


def batch_of(partition: int, offsets: Sequence[int], values: Sequence[bytes]) -> VerdictColumns:
    """The verdicts at these places. Raises RecordError, which names the first that is none."""
    try:
        said = _ALL.decode(b"[" + b",".join(values) + b"]")
        if len(said) != len(values):  # a value that is several
            raise msgspec.DecodeError("not one verdict each")
        seconds = _seconds(said)
    except msgspec.DecodeError:
        said = [_decoded(partition, offset, value) for offset, value in zip(offsets, values, strict=True)]
        seconds = _seconds(said)
    keys = [normal(each.url or "") for each in said]
    return VerdictColumns(partition, offsets, values, said, seconds, [host_of(key) for key in keys], keys)


def _decoded(partition: int, offset: int, value: bytes) -> VerdictFields:
    try:
        said = _ONE.decode(value)
        _TIME.decode(f'"{said.decided_at}"'.encode())
    except msgspec.DecodeError as error:
        raise RecordError(f"verdicts[{partition}] offset {offset}: {error}") from error
    return said


def _seconds(said: Iterable[VerdictFields]) -> list[int]:
    known: dict[str, int] = {}  # a journal record's verdicts have one time
    seconds = []
    for each in said:
        found = known.get(each.decided_at)
        if found is None:
            moment = _TIME.decode(f'"{each.decided_at}"'.encode())
            found = known[each.decided_at] = int(moment.timestamp() // 1)
        seconds.append(found)
    return seconds


@dataclass(slots=True)
class Sum:
    """What some batches of one partition add up to, at most a chunk; its rows are written once."""

    batches: list[VerdictColumns] = field(default_factory=list)
    totals: Counter[tuple[int, Shape]] = field(default_factory=Counter)
    """By the window of five seconds, counted from the epoch."""
    hosts: Counter[tuple[int, str, Shape]] = field(default_factory=Counter)
    """By the minute, counted from the epoch, and the host."""
    clusters: dict[str, list[VerdictFields]] = field(default_factory=dict)
    """Cluster -> its duplicates, in order."""

    @property
    def last(self) -> int:
        """Offset of the last verdict."""
        return self.batches[-1].offsets[-1]

    def add(self, batch: VerdictColumns) -> None:
        """Count verdicts that follow."""
        self.batches.append(batch)
        shapes = [each.shape for each in batch.said]
        ticks = [each // _TICK for each in batch.seconds]
        self.totals.update(zip(ticks, shapes, strict=True))
        minutes = [each // _MINUTE for each in batch.seconds]
        self.hosts.update(zip(minutes, batch.hosts, shapes, strict=True))
        for each in batch.said:
            if each.verdict == "duplicate" and each.cluster:
                self.clusters.setdefault(each.cluster, []).append(each)


def chunks(batches: Sequence[VerdictColumns], cuts: Iterable[int]) -> Iterator[list[VerdictColumns]]:
    """The batches of a partition, cut after the offsets `cuts`; none is empty.

    A row knows the last offset that is folded into it. Where no chunk reaches over it, each chunk is either
    wholly in the row or not at all.
    """
    first, end = batches[0].offsets[0], batches[-1].offsets[-1]
    for last in [*sorted(cut for cut in set(cuts) if first <= cut < end), end]:
        cut = [each.between(first, last) for each in batches]
        if kept := [each for each in cut if len(each)]:
            yield kept
        first = last + 1


def normal(url: str) -> str:
    """The URL's key, by which equal URLs are known; the URL itself where it is malformed."""
    try:
        return url_key(url)
    except PageError:
        return url


def host_of(url: str) -> str:
    """The host that figures of a URL are counted under."""
    site, mark, rest = url.partition("//")
    return _host(site + mark + rest.partition("/")[0])


@lru_cache(4096)
def _host(site: str) -> str:
    try:
        return urlsplit(site).hostname or NO_HOST
    except ValueError:
        return NO_HOST


_ONE = msgspec.json.Decoder(VerdictFields)
_ALL = msgspec.json.Decoder(list[VerdictFields])
_RECORD = msgspec.json.Decoder(VerdictRecord)
_TIME = msgspec.json.Decoder(datetime)
