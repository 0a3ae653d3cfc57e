"""Batches of verdicts of one partition in columnar form, and sums over them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import compress
from typing import Final, TypeVar

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from stream.errors import PageError, RecordError
from stream.judge.ids import parse
from stream.messages.verdict import VerdictRecord
from stream.text.url import LONGEST_HOST, PLAIN, host_of, url_key

NO_HOST: Final = "(no host)"
"""Placeholder for the host of a page whose URL is missing or malformed, or has a longer one than DNS."""
PAGES_KEPT: Final = 24
"""Maximum number of pages stored per cluster for display. All are counted."""
T = TypeVar("T")

Shape = tuple[str, int | None, int | None, str | None]
"""The counted properties of a verdict: kind, distance, hundredths of the similarity, and reject reason."""


class LikePage(msgspec.Struct, gc=False):
    """The page that a page is like: the anchor of a duplicate, the baseline of a recrawl."""

    url: str
    id: str


class VerdictFields(msgspec.Struct, gc=False):
    """The fields of a verdict that are counted or shown."""

    id: str
    url: str | None
    verdict: str
    cluster: str | None
    duplicate_of: LikePage | None
    distance: int | None
    similarity: float | None
    decided_at: str
    reason: str | None

    @property
    def shape(self) -> Shape:
        """The counted properties."""
        hundredths = None if self.similarity is None else int(self.similarity * 100 + 1e-9)
        reason = (self.reason or "unknown") if self.verdict == "rejected" else None
        return self.verdict, self.distance, hundredths, reason

    @property
    def joins(self) -> bool:
        """Whether the page joins a cluster, as a duplicate or as an orphan that is judged again (rule 22).

        A recrawl that stays names a baseline that is not older than its cluster. An orphan that joins a
        cluster older than its baseline looks the same, and is not known by its verdict.
        """
        if self.verdict == "duplicate":
            return bool(self.cluster)
        if self.verdict != "recrawl" or self.cluster is None or self.duplicate_of is None or self.begins:
            return False
        if self.cluster == self.duplicate_of.id:  # of an anchor, as most recrawls are
            return False
        cluster, baseline = parse(self.cluster), parse(self.duplicate_of.id)
        return cluster is not None and baseline is not None and cluster.page > baseline.page

    @property
    def begins(self) -> bool:
        """Whether the page is an orphan that begins a cluster."""
        return self.verdict == "recrawl" and self.cluster == self.id


@dataclass(frozen=True, slots=True)
class VerdictColumns:
    """n verdicts of a partition, in the order of offsets."""

    partition: int
    offsets: NDArray[np.int64]
    json: bytes
    """A JSON array of all verdicts, shared by slices of the batch."""
    starts: NDArray[np.int64]
    """(n,): positions in `json` where the verdicts start."""
    ends: NDArray[np.int64]
    seconds: NDArray[np.int64]
    """(n,): `decided_at` in whole seconds since the epoch, which never decreases within a partition."""
    shape: NDArray[np.int64]
    """(n,): indexes into `shapes`."""
    shapes: Sequence[Shape]
    host: NDArray[np.int64]
    """(n,): indexes into `hosts`."""
    hosts: Sequence[str]
    clustered: NDArray[np.bool_]
    """(n,): whether the page joins a cluster, or is an orphan that begins one."""
    members: Sequence[VerdictFields]
    """The verdicts of these pages."""
    digests: NDArray[np.uint64]
    """(n,): XXH3 of the URL keys, or of malformed URLs as they are."""

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def last(self) -> int:
        """Offset of the last verdict."""
        return int(self.offsets[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of the verdicts in JSON."""
        return int(self.ends[-1] - self.starts[0])

    def between(self, first: int, last: int) -> VerdictColumns:
        """Return the verdicts at offsets from `first` to `last`, inclusive."""
        return self.rows(bisect_left(self.offsets, first), bisect_right(self.offsets, last))

    def rows(self, first: int, end: int) -> VerdictColumns:
        """Return the verdicts at indexes [first, end)."""
        if first == 0 and end == len(self):
            return self
        rows = slice(first, end)
        skipped, kept = (int(self.clustered[each].sum()) for each in (slice(first), rows))
        return VerdictColumns(
            self.partition,
            self.offsets[rows],
            self.json,
            self.starts[rows],
            self.ends[rows],
            self.seconds[rows],
            self.shape[rows],
            self.shapes,
            self.host[rows],
            self.hosts,
            self.clustered[rows],
            self.members[skipped : skipped + kept],
            self.digests[rows],
        )

    def kind(self, row: int) -> str:
        """Return the kind of a verdict."""
        return self.shapes[int(self.shape[row])][0]

    def host_name(self, row: int) -> str:
        """Return the host of a verdict's page."""
        return self.hosts[int(self.host[row])]

    def kinds(self) -> Counter[str]:
        """Return the number of verdicts of each kind."""
        counts: Counter[str] = Counter()
        for (kind, *_), pages in zip(self.shapes, np.bincount(self.shape).tolist(), strict=False):
            counts[kind] += pages
        return counts

    def record(self, row: int) -> VerdictRecord:
        """Decode a verdict with all its fields."""
        return _RECORD.decode(self.json[self.starts[row] : self.ends[row]])

    def values(self) -> list[bytes]:
        """Return the verdicts, each in JSON."""
        return [
            self.json[start:end] for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        ]

    def array(self) -> bytes:
        """Return the verdicts as a JSON array."""
        return b"[" + self.json[self.starts[0] : self.ends[-1]] + b"]"


def batch_of(partition: int, offsets: Sequence[int], values: Sequence[bytes]) -> VerdictColumns:
    """Decode verdicts to columns. Raises RecordError that names the first record which is not a verdict."""
    json = b"[" + b",".join(values) + b"]"
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)) + 1)
    starts = np.concatenate(([0], ends[:-1])) + 1
    fields, seconds = [], []
    for offset, value in zip(offsets, values, strict=True):
        try:
            fields.append(_FIELDS.decode(value))
            seconds.append(_seconds(fields[-1].decided_at))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordError(f"verdicts[{partition}] offset {offset}: {error}") from error
    keys = [normal(each.url or "") for each in fields]
    shapes: dict[Shape, int] = {}
    hosts: dict[str, int] = {}
    clustered = [each.joins or each.begins for each in fields]
    return VerdictColumns(
        partition,
        np.array(offsets, np.int64),
        json,
        starts,
        ends,
        np.array(seconds, np.int64),
        _places(shapes, [each.shape for each in fields]),
        list(shapes),
        _places(hosts, map(counted_host, keys)),
        list(hosts),
        np.array(clustered, np.bool_),
        list(compress(fields, clustered)),
        np.array([_DIGEST(key.encode(errors="replace")) for key in keys], np.uint64),
    )


@lru_cache(16)
def _seconds(decided_at: str) -> int:
    """Parse a time to whole seconds since the epoch. Many verdicts in a row have the same."""
    return int(_TIME.decode(f'"{decided_at}"'.encode()).timestamp() // 1)


@dataclass(slots=True)
class ClusterNews:
    """New members of one cluster."""

    members: int = 0
    """Pages that joined it."""
    anchor: str | None = None
    """URL of the anchor, from the last duplicate, or from an orphan that is the anchor."""
    pages: list[VerdictFields] = field(default_factory=list)
    """The first PAGES_KEPT that joined."""


class Sum:
    """The sum of verdicts that are folded together."""

    def __init__(self) -> None:
        self.clusters: dict[str, ClusterNews] = {}
        self._columns: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
        """Seconds, indexes into the shapes, and indexes into the hosts."""
        self._shapes: dict[Shape, int] = {}
        self._hosts: dict[str, int] = {}

    def add(self, batch: VerdictColumns) -> None:
        """Add the next verdicts."""
        shape = _places(self._shapes, batch.shapes)[batch.shape]
        host = _places(self._hosts, batch.hosts)[batch.host]
        self._columns.append((batch.seconds, shape, host))
        for each in batch.members:
            news = self.clusters.setdefault(each.cluster or "", ClusterNews())
            if each.begins:
                news.anchor = each.url
                continue
            news.members += 1
            if each.verdict == "duplicate" and each.duplicate_of:
                news.anchor = each.duplicate_of.url
            if len(news.pages) < PAGES_KEPT:
                news.pages.append(each)

    def pages(self, size: int, *, of_hosts: bool) -> Iterator[tuple[int, str, Shape, int]]:
        """Yield (start, host, shape, pages) of windows of `size` seconds, with an empty host unless
        `of_hosts`."""
        seconds, shape, host = (np.concatenate(column) for column in zip(*self._columns, strict=True))
        shapes, hosts = list(self._shapes), list(self._hosts) if of_hosts else [""]
        place = host if of_hosts else 0
        words = (seconds // size * len(hosts) + place) * len(shapes) + shape
        distinct, counts = np.unique(words, return_counts=True)
        for word, pages in zip(distinct.tolist(), counts.tolist(), strict=True):
            rest, its_shape = divmod(word, len(shapes))
            number, its_host = divmod(rest, len(hosts))
            yield number * size, hosts[its_host], shapes[its_shape], pages


def _places(places: dict[T, int], names: Iterable[T]) -> NDArray[np.int64]:
    """Return the number of each name, numbering new names consecutively."""
    return np.array([places.setdefault(name, len(places)) for name in names], np.int64)


def normal(url: str) -> str:
    """Return the key of a URL by no rule but spelling, whatever the journal's rules, or a malformed URL
    unchanged."""
    try:
        return url_key(url, PLAIN)
    except PageError:
        return url


def digest_of_url(url: str | None) -> int:
    """Return the digest by which the verdicts of a URL are found; of no URL, that of an empty one."""
    return _DIGEST(normal(url or "").encode(errors="replace"))


def counted_host(url: str) -> str:
    """Return the host under which a URL is counted."""
    host = host_of(url)
    return host if 0 < len(host) <= LONGEST_HOST else NO_HOST


_DIGEST = xxhash.xxh3_64_intdigest
_FIELDS = msgspec.json.Decoder(VerdictFields)
_RECORD = msgspec.json.Decoder(VerdictRecord)
_TIME = msgspec.json.Decoder(datetime)
