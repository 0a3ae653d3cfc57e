"""Records of the `decisions` topic: what the judge decided, so that nothing is decided twice (rule 8).

`schemas/decisions.md` describes their layout.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.errors import RecordError
from stream.messages.row_columns import URL_DIGEST_BYTES, digests_in
from stream.messages.verdict import Verdict
from stream.messages.versions import refuse_other_version

VERSION: Final = 4
NOT_ADMITTED: Final = 0
"""Code of a row that was dropped as redelivered, or ignored because it follows a source gap."""
CHANGE_SHIFT: Final = 3
OF_ANOTHER_CLUSTER: Final = 1 << 5
"""Bit of a row's code: `clusters` says its cluster, which is not the page in `other`."""
JUDGED_AGAIN: Final = 1 << 6
"""Bit of a recrawl's code: its URL's newest baseline has no live anchor, and the page takes its place. The
row is OF_ANOTHER_CLUSTER, too: of that of a live anchor, or of its own (rule 22)."""
NAMES_NEAREST: Final = 1 << 7
"""Bit of a unique row's code: `nearest` says which page it is nearest to."""


NO_LONGER_LIVE: Final = -1
"""In place of the number of an anchor."""


class SourceProgress(msgspec.Struct, frozen=True, array_like=True):
    """The position up to which a source partition has been judged."""

    cluster: str
    topic: str
    topic_id: str
    partition: int
    expected: int
    """The next source offset to judge."""
    lost: int
    """Offsets that retention deleted before a worker read them, as declared so far."""


class LedgerPart(msgspec.Struct, frozen=True, array_like=True):
    """Which part of the whole ledger a ledger record has."""

    first: int
    """Index of its first source, among all sources in order of cluster, topic id and partition."""
    total: int
    """Number of all sources."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn does between two journal records: which pages expire, and which of them are carried
    (rule 23)."""

    oldest: tuple[int, int]
    """Numbers of the first anchor and of the first duplicate that have not expired."""
    next: tuple[int, int]
    """Numbers of the next anchor and of the next duplicate before the turn: those that carried pages get
    from there on."""
    anchors: bytes
    """Numbers of the expiring anchors that are carried, ascending, int64 little-endian."""
    duplicates: bytes
    """Numbers of the expiring duplicates that are carried, ascending, int64 little-endian."""


class NamedDigests(msgspec.Struct, frozen=True, array_like=True):
    """What requests name: distinct keyed digests, 16 bytes each, ascending."""

    urls: bytes = b""
    hosts: bytes = b""
    domains: bytes = b""

    @classmethod
    def of(cls, **digests: Iterable[bytes]) -> Self:
        """`digests` of each kind, in any order."""
        return cls(**{kind: b"".join(sorted(set(some))) for kind, some in digests.items()})

    @property
    def columns(self) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """The digests of URLs, hosts and domains."""
        urls, hosts, domains = (digests_in(each) for each in (self.urls, self.hosts, self.domains))
        return urls, hosts, domains


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """Pages that are forgotten between two journal records, because requests name their URLs."""

    requests: int
    """The next offset of the requests topic: the pages of all requests before it are forgotten, here or
    before."""
    anchors: bytes
    """Numbers of forgotten anchors, ascending, int64 little-endian. Some may be superseded."""
    duplicates: bytes
    """Numbers of forgotten duplicates, ascending, int64 little-endian."""
    urls: bytes
    """Digests of their URLs, 16 bytes each, ascending; of a page without a URL key the numbers 1 and its
    packed id, int64 big-endian."""
    ids: bytes
    """Packed ids of those of these pages that a request names by URL, ascending, int64 little-endian. Readers
    of verdicts cannot know them all by the URLs there, as a page may have the key of another one."""
    pages: list[tuple[int, int]]
    """(offset, pages) for the requests with which this record is done and which named any page."""
    named: NamedDigests
    """What the requests name with which this record is done, whether or not the judge has any such page."""

    @property
    def numbers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of the anchors and of the duplicates."""
        return np.frombuffer(self.anchors, "<i8"), np.frombuffer(self.duplicates, "<i8")

    @property
    def page_ids(self) -> NDArray[np.int64]:
        """The packed ids of pages that are named by URL."""
        return np.frombuffer(self.ids, "<i8")

    @property
    def url_digests(self) -> list[bytes]:
        """The digests of the URLs."""
        return digests_in(self.urls)


class SupersededAnchor(msgspec.Struct, frozen=True, array_like=True):
    """An anchor that no longer matches, because the page of its URL changed."""

    row: int
    """Index, among all rows of the decided range, of the page that superseded the anchor."""
    anchor: int
    """Anchor number."""


class Decisions(msgspec.Struct, frozen=True, kw_only=True, tag="decisions", tag_field="kind"):
    """The decisions about the N rows in journal records `start` up to `end`. Three kinds of records have no
    rows: a ledger record has the progress of all sources, a turn says which pages expire, and a forgetting
    names pages that are forgotten."""

    version: int = VERSION
    journal: str
    options: str
    """`VerdictOptions.id` of the options in force."""
    start: int
    end: int
    """Exclusive."""
    last: bytes
    """Digest of the journal record at `end - 1`."""
    time: int
    """Log time after that record, or of a turn that of the record before which it stands, in milliseconds
    since the epoch."""
    cap: int | None = None
    """What append times count at most for log time, in milliseconds since the epoch (rule 15); None where no
    append time of these records is above it, or of a turn that of the record before which it stands."""
    sources: list[SourceProgress]
    """Progress of the source partitions that advanced; in a ledger record, of its part of all."""
    ledger: LedgerPart | None
    """None if this is no ledger record."""
    turn: Turn | None = None
    """None if this is no turn."""
    forgotten: Forgotten | None = None
    """None if this is no forgetting."""
    codes: bytes
    """N bytes: a `Verdict` | a `Change` << CHANGE_SHIFT | OF_ANOTHER_CLUSTER | JUDGED_AGAIN |
    NAMES_NEAREST, or NOT_ADMITTED."""
    other: bytes
    """Packed ids of the pages that duplicate and recrawl rows are compared with, int64 little-endian."""
    numbers: bytes
    """Their numbers in the state, int64 little-endian: of duplicates in rows OF_ANOTHER_CLUSTER, else of
    anchors."""
    distance: bytes
    """Their distances, uint8."""
    similarity: bytes
    """Their similarities in ten-thousandths, uint16 little-endian; empty in strict mode."""
    clusters: bytes
    """Packed page ids of the anchors of the rows OF_ANOTHER_CLUSTER, int64 little-endian."""
    anchors: bytes
    """Numbers of these anchors, int64 little-endian; NO_LONGER_LIVE for those that were superseded before."""
    nearest: bytes
    """Packed ids of the anchors that the rows NAMES_NEAREST are nearest to, int64 little-endian."""
    nearest_numbers: bytes
    """Numbers of these anchors, int64 little-endian."""
    nearest_similarity: bytes
    """Their similarities in ten-thousandths, uint16 little-endian."""
    superseded: list[SupersededAnchor]
    skipped: list[tuple[int, int]]
    """(row, mask) for rows whose anchor stayed out of full buckets: bits of the tables that it did not enter,
    and above these of the reserves that it did (rule 16)."""

    @property
    def has_rows(self) -> bool:
        """Whether these are decisions about journal records: no ledger record, turn or forgetting."""
        return self.ledger is None and self.turn is None and self.forgotten is None

    @property
    def begins_ledger(self) -> bool:
        """Whether this is a ledger record, and no later part of one."""
        return self.ledger is not None and not self.ledger.first

    @property
    def verdict(self) -> NDArray[np.uint8]:
        """(N,) codes of `Verdict`, or NOT_ADMITTED."""
        return np.frombuffer(self.codes, np.uint8) & np.uint8((1 << CHANGE_SHIFT) - 1)

    def stored_as(self, pages: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(N,): UNIQUE for rows that become anchors, DUPLICATE for those that become baselines only, other
        values for the rest, given the packed ids of their pages (N,)."""
        codes, kind = np.frombuffer(self.codes, np.uint8), self.verdict
        of_clusters = np.flatnonzero(codes & OF_ANOTHER_CLUSTER)
        again = codes[of_clusters] & JUDGED_AGAIN > 0
        rows = of_clusters[again]
        own = np.frombuffer(self.clusters, "<i8")[again] == pages[rows]
        kind[rows] = np.where(own, np.uint8(Verdict.UNIQUE), np.uint8(Verdict.DUPLICATE))
        return kind

    def clusters_of(self, pages: NDArray[np.int64]) -> NDArray[np.int64]:
        """(N,): the packed page id of each row's cluster, given the ids of the rows' pages (N,), which rows
        that join none have."""
        codes, verdict, clusters = np.frombuffer(self.codes, np.uint8), self.verdict, pages.copy()
        clusters[(verdict == Verdict.DUPLICATE) | (verdict == Verdict.RECRAWL)] = np.frombuffer(
            self.other, "<i8"
        )
        clusters[codes & OF_ANOTHER_CLUSTER > 0] = np.frombuffer(self.clusters, "<i8")
        return clusters

    @property
    def change(self) -> NDArray[np.uint8]:
        """(N,) codes of `Change`."""
        return (np.frombuffer(self.codes, np.uint8) & np.uint8(OF_ANOTHER_CLUSTER - 1)) >> np.uint8(
            CHANGE_SHIFT
        )


def ledger_record(
    journal: str,
    options: str,
    applied: int,
    last: bytes,
    time: int,
    sources: list[SourceProgress],
    part: LedgerPart,
) -> Decisions:
    """Return a ledger record, or a part of one, as of journal offset `applied`."""
    return _without_rows(journal, options, applied, last, time, sources=sources, ledger=part)


def turn_record(
    journal: str, options: str, applied: int, last: bytes, time: int, cap: int | None, turn: Turn
) -> Decisions:
    """Return the record of a turn before journal offset `applied`, at a log time."""
    return _without_rows(journal, options, applied, last, time, cap=cap, turn=turn)


def forgetting_record(
    journal: str, options: str, applied: int, last: bytes, time: int, forgotten: Forgotten
) -> Decisions:
    """Return the record by which pages are forgotten before journal offset `applied`."""
    return _without_rows(journal, options, applied, last, time, forgotten=forgotten)


def _without_rows(
    journal: str, options: str, applied: int, last: bytes, time: int, **content: Any
) -> Decisions:
    """Return a record of one kind without rows; `content` are the fields that this kind has."""
    return Decisions(
        journal=journal,
        options=options,
        start=applied,
        end=applied,
        last=last,
        time=time,
        **_NO_ROWS | content,
    )


def encode_decisions(decisions: Decisions) -> bytes:
    """Encode a record of the decisions topic."""
    return _ENCODER.encode(decisions)


def decode_decisions(value: bytes, offset: int) -> Decisions:
    """Decode the record at `offset` of the decisions topic. Raises RecordError."""
    value = value or b""  # Kafka has None for a tombstone
    try:
        decisions = _DECODER.decode(value)
        if decisions.version != VERSION:
            raise ValueError(f"version {decisions.version}")
        if why := _misshapen(decisions):
            raise ValueError(why)
        for name, size in _SIZES:
            if len(getattr(decisions, name)) % size:
                raise ValueError(f"the length of {name} is not a multiple of {size} bytes")
    except (msgspec.DecodeError, ValueError) as error:
        refuse_other_version(value, VERSION, f"decisions offset {offset}")
        raise RecordError(f"decisions offset {offset}: {error}") from error
    return decisions


def _misshapen(decisions: Decisions) -> str | None:
    """Return why a record is neither decisions about journal records nor of one kind without rows, or
    None."""
    for name in ("time", "cap"):
        if not 0 <= (getattr(decisions, name) or 0) < _LATEST:
            return f"a {name} of {getattr(decisions, name)}"
    part, count = decisions.ledger, len(decisions.sources)
    if decisions.has_rows:
        return None if decisions.start < decisions.end else "decides no journal record"
    kinds = {"a ledger record": part, "a turn": decisions.turn, "a forgetting": decisions.forgotten}
    what, *others = [kind for kind, content in kinds.items() if content is not None]
    if others:
        return f"{what} that is {others[0]} as well"
    if decisions.start != decisions.end or any(getattr(decisions, name) for name in _OF_ROWS):
        return f"{what} that decides rows"
    if decisions.turn is not None:
        return _misshapen_turn(decisions.turn, count)
    if decisions.forgotten is not None:
        return _misshapen_forgetting(decisions.forgotten, count)
    assert part is not None  # noqa: S101 (one of the three)
    if not 0 <= part.first <= part.first + count <= part.total or (part.total and not count):
        return f"a ledger record of {count} sources from {part.first} on, of {part.total}"
    return None


def _misshapen_turn(turn: Turn, sources: int) -> str | None:
    if sources:
        return "a turn that moves sources"
    for name, oldest, next_ in zip(("anchors", "duplicates"), turn.oldest, turn.next, strict=True):
        carried = getattr(turn, name)
        if len(carried) % 8:
            return f"the length of {name} is not a multiple of 8 bytes"
        numbers = np.frombuffer(carried, "<i8")
        if not 0 <= oldest <= next_ or (len(numbers) and not 0 <= numbers[0] <= numbers[-1] < oldest):
            return f"a turn that carries {name} which do not expire"
        if (numbers[1:] <= numbers[:-1]).any():
            return f"a turn that carries {name} out of order"
    return None


def _misshapen_forgetting(forgotten: Forgotten, sources: int) -> str | None:
    if sources:
        return "a forgetting that moves sources"
    for name, size in (("anchors", 8), ("duplicates", 8), ("urls", URL_DIGEST_BYTES), ("ids", 8)):
        if len(getattr(forgotten, name)) % size:
            return f"the length of {name} is not a multiple of {size} bytes"
    for numbers in (*forgotten.numbers, forgotten.page_ids):
        if (len(numbers) and numbers[0] < 0) or (numbers[1:] <= numbers[:-1]).any():
            return "a forgetting of numbers that are not in order"
    for name in forgotten.named.__struct_fields__:
        column = getattr(forgotten.named, name)
        if len(column) % URL_DIGEST_BYTES:
            return f"the length of named {name} is not a multiple of {URL_DIGEST_BYTES} bytes"
        if digests_in(column) != sorted(set(digests_in(column))):
            return f"a forgetting that names {name} out of order"
    digests, offsets = forgotten.url_digests, [offset for offset, _ in forgotten.pages]
    if digests != sorted(set(digests)) or bool(digests) != bool(forgotten.anchors or forgotten.duplicates):
        return "a forgetting of URLs that are not those of its pages, in order"
    if offsets != sorted(set(offsets)) or any(offset >= forgotten.requests for offset in offsets):
        return "a forgetting that found pages of requests which are not decided"
    return None


_LATEST: Final = 253_402_300_800_000
"""Milliseconds since the epoch at the end of the year 9999."""
_SIZES: Final = (
    ("other", 8), ("numbers", 8), ("similarity", 2), ("clusters", 8), ("anchors", 8),
    ("nearest", 8), ("nearest_numbers", 8), ("nearest_similarity", 2),
)  # fmt: skip
"""Bytes per entry."""
_OF_ROWS: Final = ("codes", *(name for name, _ in _SIZES), "distance", "superseded", "skipped")
"""Fields about rows, which are empty in records without."""
_NO_ROWS: Final[dict[str, Any]] = {
    "sources": [],
    "ledger": None,
    **{name: [] if name in ("superseded", "skipped") else b"" for name in _OF_ROWS},
}
"""What records without rows have in the fields that other kinds use."""
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Decisions)
