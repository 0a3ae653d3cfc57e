"""The judge's state: anchors, baselines of URLs and source offsets, in one RocksDB (rules 9 and 13).

Column families: `anchors` and `duplicates` hold pages by number, `urls` maps digests of URLs to their
baselines, and `default` holds the meta record, the progress of all sources and incomplete groups of pages.
`log` and `table-*` belong to `stream.tables`. The journal is the write-ahead log: after a crash, lost changes
are applied again from journal and decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.errors import NeardupError, StateError
from stream.fingerprint.lanes import first_words, integers, words_of
from stream.fingerprint.row import NO_DIGEST
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Batch
from stream.judge.rule import Rule
from stream.judge.state.forgotten_pages import ForgottenPages
from stream.judge.state.ledger import Ledger
from stream.judge.state.meta import LoadedRecords, Meta, stored_meta
from stream.judge.state.page_log import (
    HAS_OLDER,
    HEAD,
    OF_ANCHOR,
    URL_DIGEST,
    Added,
    LoggedPages,
    PageLog,
    record_words,
)
from stream.judge.state.page_numbers import PageNumbers
from stream.judge.state.pages_ahead import PagesAhead
from stream.judge.state.references import ANCHOR as _ANCHOR
from stream.judge.state.references import DUPLICATE as _DUPLICATE
from stream.judge.state.references import REFERENCE as _REFERENCE
from stream.judge.state.references import are_there, without_gone
from stream.judge.state.removal import Removal
from stream.judge.state.window import StoredWindow, Window
from stream.messages.byte_strings import StringColumn
from stream.messages.decision import NO_LONGER_LIVE, Forgotten, SourceProgress, Turn
from stream.messages.journal import Genesis
from stream.messages.verdict import Change, Verdict
from stream.tables.arrays import I64, U64, distinct
from stream.tables.compaction import RUN
from stream.tables.store.anchors import DEAD, with_prefix
from stream.tables.store.contents import union
from stream.tables.store.failures import damage_error
from stream.tables.store.meta_record import META
from stream.tables.store.rocks import ANCHORS, DEFAULT, DUPLICATES, LOG, RECORDS, URLS, Store, Writes
from stream.tables.tables import IndexKind, Tables

_SOURCE: Final = b"source/"
_PROGRESS_DECODER: Final = msgspec.msgpack.Decoder(SourceProgress)
_BYTES: Final = np.dtype(("V", _REFERENCE.itemsize))
_DIGEST: Final = np.dtype(("V", len(NO_DIGEST)))


@dataclass(frozen=True, slots=True)
class Baseline:
    """One of the last different pages of a URL, which are anchors or duplicates of one, or such a page looked
    up by its id."""

    page: int
    cluster: int
    fingerprint: int
    sketch: NDArray[np.uint64]
    number: int
    """Its number among anchors or, for a duplicate, among duplicates."""
    cluster_anchor: int
    """Number of its cluster's anchor, which may be dead."""
    url_bytes: int
    """Size of its URL."""
    _pages: LoggedPages
    _place: int
    skipped: int = 0
    """Mask of tables whose full bucket the anchor did not enter, and of triples that it did, as in
    `Decisions`."""

    @property
    def anchor(self) -> int | None:
        """Number of the anchor if the page was unique."""
        return self.number if self.page == self.cluster else None

    @property
    def url(self) -> str:
        """The page's URL, which may be read for it."""
        return self._pages.url(self._place)

    @property
    def url_digest(self) -> bytes:
        """The digest of its URL."""
        return self._pages.words[self._place, URL_DIGEST].astype("<u8").tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class Anchors:
    """Records of m distinct anchors, ascending by number."""

    number: NDArray[np.int64]
    page: NDArray[np.int64]
    fingerprint: NDArray[np.uint64]
    skipped: NDArray[np.uint64]
    sketch: NDArray[np.uint64]
    """(m, lanes)."""
    _pages: LoggedPages

    def url(self, place: int) -> str:
        """Return the URL of the anchor at index `place`."""
        return self._pages.url(place)

    def urls(self, places: NDArray[np.int64]) -> StringColumn:
        """Return the URLs (k,) of the anchors at these indexes."""
        return self._pages.urls(places)

    @property
    def url_bytes(self) -> NDArray[np.int64]:
        """(m,): sizes of the URLs."""
        return self._pages.url_bytes

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indexes (k,) of these anchors. For anchors that are not here, indexes are arbitrary."""
        if not len(self.number):
            return np.zeros(len(numbers), np.int64)
        places: NDArray[np.int64]
        first, span = int(self.number[0]), int(self.number[-1] - self.number[0]) + 1
        if span == len(self.number):
            return numbers - first
        if span > len(numbers):
            return self.number.searchsorted(numbers)
        table = np.zeros(span, np.int64)  # spam: very many pages find few anchors
        table[self.number - first] = np.arange(len(self.number))
        places = table.take(numbers - first, mode="clip")
        return places

    def has(self, numbers: NDArray[np.int64]) -> bool:
        """Return whether all of these anchors are here."""
        if not len(self.number):
            return not len(numbers)
        return bool(np.all(self.number.take(self.places(numbers), mode="clip") == numbers))

    def baseline(self, place: int) -> Baseline:
        """Return the anchor at index `place` as the baseline of its URL."""
        page, number = int(self.page[place]), int(self.number[place])
        return Baseline(
            page=page,
            cluster=page,
            fingerprint=integers(self.fingerprint[place : place + 1])[0],
            sketch=self.sketch[place],
            number=number,
            cluster_anchor=number,
            url_bytes=int(self.url_bytes[place]),
            _pages=self._pages,
            _place=place,
            skipped=int(self.skipped[place]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class StateChange:
    """The state change of one transaction: the part of its decisions that `apply` needs."""

    end: int
    last: bytes
    time: int
    sources: list[SourceProgress]
    stored_as: NDArray[np.uint8]
    """UNIQUE for rows that become anchors, DUPLICATE for rows that become baselines only."""
    change: NDArray[np.uint8]
    cluster: NDArray[np.int64]
    cluster_anchor: NDArray[np.int64]
    """Number of the anchor of the cluster of rows that become baselines only; arbitrary for other rows."""
    superseded: NDArray[np.int64]
    """Numbers of superseded anchors, including anchors of this transaction."""
    skipped: dict[int, int]
    """Row -> mask of tables whose full bucket its anchor did not enter, and of triples that it did."""
    hit_anchors: NDArray[np.int64]
    hit_duplicates: NDArray[np.int64]
    """Numbers of the pages that verdicts name, which may repeat (rule 23)."""


@dataclass(frozen=True, slots=True, eq=False)
class _Carried:
    """What was read to decide a turn: the pages that it carries."""

    turn: Turn
    anchors: LoggedPages
    duplicates: LoggedPages
    references: dict[bytes, bytes]
    """Digest of a URL -> references to its baselines, for URLs of duplicates."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A state change with its encoded records, not applied yet."""

    batch: Batch
    change: StateChange
    unique: NDArray[np.int64]
    """Rows that become anchors."""
    anchors: Added
    duplicates: Added
    urls: dict[bytes, bytes]
    """Digest of a URL -> references to its baselines."""
    writes: Writes
    """Further writes, filled by `advance`."""


class DeathListener(Protocol):
    """Is told which anchors die by each decision."""

    @property
    def most(self) -> int:
        """How many it can be told of at once."""
        ...

    def lose(self) -> None:
        """More anchors than that die by the next decision."""
        ...

    def note(self, numbers: I64, words: U64, skipped: U64) -> None:
        """The anchors (k,), ascending, die by the next decision. `words` (k, W) are their keys in the tables,
        and `skipped` (k,) their masks."""
        ...

    def reach(self, position: int) -> None:
        """The decisions before this offset are applied."""
        ...


class StateReader:
    """Read access to the pages in a store."""

    def __init__(self, store: Store, scheme: Scheme) -> None:
        """Raises StateError for a store of another format, before anything of it is read."""
        meta = stored_meta(store)
        self.store = store
        self._prints = words_of(scheme.width)
        words = record_words(scheme.width, scheme.sketch_bytes)
        self._identifying = np.r_[URL_DIGEST, HEAD + self._prints : words]
        """The words of a page that say what it was: the digest of its URL, and its sketch."""
        self._anchors = PageLog(store, ANCHORS, words)
        self._duplicates = PageLog(store, DUPLICATES, words + OF_ANCHOR)
        self._urls_ahead: dict[bytes, bytes] = {}
        """References that may not be in the store yet."""
        self.window = self._window(meta)
        """None without a lifetime."""
        self.forgotten: Final = ForgottenPages(store)

    def _window(self, meta: Meta | None) -> Window | None:
        if meta is None or meta.window is None:
            return None
        return Window(self.store, meta.window, self.first)

    @property
    def first(self) -> PageNumbers:
        """The numbers of the first anchor and of the first duplicate: those before them have expired, or are
        gone."""
        return PageNumbers(self._anchors.first, self._duplicates.first)

    def by_page(self, page: int) -> Baseline | None:
        """Return the anchor or duplicate with this page id, or None. With a lifetime, this may read all
        pages, because carried ones stand among younger ones."""
        ascending = self.window is None
        if (number := self._anchors.number_of(page, ascending=ascending)) is not None:
            baseline = self.anchors(np.array([number])).baseline(0)
        else:
            number = self._duplicates.number_of(page, ascending=ascending)
            if number is None:
                return None
            records = self._duplicates.pages(np.array([number]))
            baseline = self._duplicate(number, records, 0, int(self._cluster_anchors(records)[0]))
        is_erased = not baseline.url_bytes and baseline.url_digest == NO_DIGEST
        among = self.forgotten.among(np.array([baseline.number]), is_anchor=baseline.anchor is not None)
        return None if is_erased or among[0] else baseline

    @property
    def page_logs(self) -> tuple[PageLog, PageLog]:
        """The logs of anchors and of duplicates."""
        return self._anchors, self._duplicates

    def anchor_of(self, page: Baseline) -> Baseline | None:
        """Return the anchor of a page's cluster, dead or alive; None if it has expired."""
        if page.cluster_anchor < self.first.anchors:
            return None
        return self.anchors(np.array([page.cluster_anchor])).baseline(0)

    def urls(
        self, pages: NDArray[np.int64], numbers: NDArray[np.int64], duplicate: NDArray[np.bool_]
    ) -> StringColumn:
        """Return the URLs of m pages, given by ids and by their numbers, among duplicates or else among
        anchors. Raises StateError if one of these has another id."""
        columns, place = [StringColumn.none(0)], np.zeros(len(pages), np.int64)
        for log, which in ((self._anchors, ~duplicate), (self._duplicates, duplicate)):
            here = np.flatnonzero(which)
            some, at = np.unique(numbers[here], return_inverse=True)
            records = log.pages(some, keep_urls=True)
            other = np.flatnonzero(records.words[at, 0].astype(np.int64) != pages[here])
            if len(other):
                missing, number = int(pages[here[other[0]]]), int(numbers[here[other[0]]])
                raise StateError(
                    f"state directory {self.store.path}: has no page with the id {missing} and the number"
                    f" {number}"
                )
            place[here] = sum(len(each.sizes) for each in columns) + at
            columns.append(records.urls(np.arange(len(some))))
        return StringColumn.joined(columns).take(place)

    def anchors(self, numbers: NDArray[np.int64]) -> Anchors:
        """Return the records of the distinct anchors among `numbers`."""
        numbers = distinct(numbers)
        pages = self._anchors.pages(numbers)
        end = HEAD + self._prints
        return Anchors(
            number=numbers,
            page=pages.words[:, 0].astype(np.int64),
            fingerprint=self._fingerprints(pages),
            skipped=_masks(pages),
            sketch=pages.words[:, end:].copy(),
            _pages=pages,
        )

    def _fingerprints(self, pages: LoggedPages) -> NDArray[np.uint64]:
        return pages.words[:, HEAD : HEAD + self._prints]

    def _cluster_anchors(self, duplicates: LoggedPages) -> NDArray[np.int64]:
        """Return the present number of the anchor of each duplicate's cluster (m,), which may be dead."""
        anchors = duplicates.words[:, -1].astype(np.int64)
        return anchors if self.window is None else self.window.forwarding.present(anchors)

    def _duplicate(self, number: int, pages: LoggedPages, place: int, anchor: int) -> Baseline:
        page, cluster = pages.words[place, :2].tolist()
        return Baseline(
            page=page,
            cluster=cluster,
            fingerprint=integers(self._fingerprints(pages)[place : place + 1])[0],
            sketch=pages.words[place, HEAD + self._prints : -OF_ANCHOR],
            number=number,
            cluster_anchor=anchor,
            url_bytes=int(pages.url_bytes[place]),
            _pages=pages,
            _place=place,
        )

    def baselines(self, url: bytes) -> list[Baseline]:
        """Return the baselines of a URL, given by its digest, newest first."""
        return self.resolved(self.references([url]).get(url, []))

    def references(self, urls: Iterable[bytes]) -> dict[bytes, list[bytes]]:
        """Return digest of a URL -> references to its baselines, newest first, for the URLs that have any."""
        return {
            key: [value] if len(value) == _REFERENCE.itemsize else _each(value)
            for key, value in self._references(list(dict.fromkeys(urls))).items()
        }

    def resolved(self, references: Sequence[bytes]) -> list[Baseline]:
        """Return the pages that references name."""
        if not references:
            return []
        fields = np.frombuffer(b"".join(references), _REFERENCE)
        numbers = fields["number"].astype(np.int64)
        is_anchor = fields["kind"] == _ANCHOR
        anchors = self.anchors(numbers[is_anchor])
        duplicates = distinct(numbers[~is_anchor])
        pages = self._duplicates.pages(duplicates)
        anchors_of = self._cluster_anchors(pages).tolist()
        places = np.where(
            is_anchor, np.searchsorted(anchors.number, numbers), np.searchsorted(duplicates, numbers)
        )
        return [
            anchors.baseline(place) if of_anchor else self._duplicate(number, pages, place, anchors_of[place])
            for of_anchor, number, place in zip(
                is_anchor.tolist(), numbers.tolist(), places.tolist(), strict=True
            )
        ]

    def _references(self, urls: list[bytes]) -> dict[bytes, bytes]:
        """Return digest of a URL -> references to its baselines back to back, for the URLs that have any."""
        values, ahead = self.store.get(URLS, urls), self._urls_ahead
        if ahead and not ahead.keys().isdisjoint(urls):
            values = [ahead.get(url, value) for url, value in zip(urls, values, strict=True)]
        present = {url: value for url, value in zip(urls, values, strict=True) if value is not None}
        return present if self.window is None else self._unexpired(present, self.first)

    def _unexpired(self, references: dict[bytes, bytes], first: PageNumbers) -> dict[bytes, bytes]:
        """Leave out references to pages that have expired, and to superseded anchors if all newer baselines
        have (rule 23)."""
        if not references:
            return references
        values = b"".join(references.values())
        fields, live = np.frombuffer(values, _REFERENCE), are_there(values, first)
        if live.all():
            return references
        kept, end = dict[bytes, bytes](), 0
        for url, value in references.items():
            start, end = end, end + len(value) // _REFERENCE.itemsize
            if not live[start:end].all():
                value = self._without_superseded(fields[start:end][live[start:end]]).tobytes()
            if value:
                kept[url] = value
        return kept

    def _without_superseded(self, references: NDArray[Any]) -> NDArray[Any]:
        """Leave out the superseded anchors with which references to the baselines of a URL begin."""
        place = 0
        for kind, number in references.tolist():
            if kind != _ANCHOR or self.is_alive(number):
                break
            place += 1
        return references[place:]

    def is_alive(self, anchor: int) -> bool:
        """Whether an anchor is alive: it was not superseded, and has not expired."""
        if anchor < self.first.anchors:
            return False
        return self.store.get(DEFAULT, [DEAD + anchor.to_bytes(8, "big")])[0] is None


class State(StateReader):
    """The judge's state. The only writers are `apply`, or its three steps, `note_ledger`, and what forgets
    pages and erases them; everything else reads.

    Between `advance` and `write`, a decided batch is in RAM only, where the next batch finds it. RocksDB may
    flush whatever it is given at any time, so it must not be given uncommitted decisions (rule 9).
    """

    def __init__(
        self,
        path: Path,
        genesis: Genesis,
        cluster: str,
        *,
        memory: int,
        generation: int,
        cache: int,
    ) -> None:
        """Open or create a state. Raises StateError."""
        options = genesis.options
        self._carried: _Carried | None = None
        """Of the turn that was decided, until it is applied."""
        self._ahead: Final = PagesAhead()
        self._reference_bytes = options.baselines * _REFERENCE.itemsize
        self._rule = Rule(options, genesis.scheme)
        self.design = self._rule.design()
        expiring = options.lifetime is not None
        store = Store(path, self.design.tables + self._rule.triples, cache, expiring=expiring)
        try:
            super().__init__(store, genesis.scheme)
            self.meta = self._open_meta(path, genesis, cluster, generation)
            self.time = self.meta.time
            self.window = self.window or self._window(self.meta)
            self.ledger = Ledger(
                _PROGRESS_DECODER.decode(value) for _, value in with_prefix(self.store, _SOURCE)
            )
            self.tables = Tables(
                self.store,
                self.design,
                self._rule.search_options(),
                memory=memory,
                generation=generation,
                kind=IndexKind(self._rule.triples, windowed=expiring),
            )
            self.deaths: DeathListener | None = None
            self._removal = Removal(store, self._anchors, self._duplicates)
            indexed, logged = (f"[{each.first}, {each.count})" for each in (self.tables, self._anchors))
            if indexed != logged:
                self.tables.close()
                raise damage_error(path, f"anchors {indexed} in the tables, but records of {logged}")
            written, held = self.meta.held, self._held()
            if written not in (None, held):
                self.tables.close()
                raise damage_error(path, f"has {held}, but {written} was written")
        except BaseException:
            store.close()
            raise

    @property
    def next(self) -> PageNumbers:
        """The numbers of the next anchor and of the next duplicate."""
        return PageNumbers(self.tables.count, self._duplicates.count)

    def _open_meta(self, path: Path, genesis: Genesis, cluster: str, generation: int) -> Meta:
        lifetime = genesis.options.lifetime
        fresh = Meta(
            cluster=cluster,
            journal=genesis.journal,
            scheme=genesis.scheme_id,
            width=genesis.scheme.width,
            sketch_bytes=genesis.scheme.sketch_bytes,
            options=genesis.options.id,
            generation=generation,
            applied=0,
            window=None if lifetime is None else StoredWindow(lifetime=lifetime),
        )
        meta = stored_meta(self.store)
        if meta is None:
            # Tables may contain a run already; that is written before the first flush.
            if any(next(self.store.scan(family), None) for family in RECORDS):
                raise damage_error(path, "records, but no meta record")
            writes = self.store.batch()
            writes.put(DEFAULT, META, msgspec.msgpack.encode(fresh))
            self.store.write(writes)
            return fresh
        for name, option in (
            ("cluster", "bootstrap_servers"),
            ("journal", "namespace"),
            ("scheme", "scheme"),
            ("options", "verdict options"),
            ("generation", "tables_generation"),
        ):
            have, want = getattr(meta, name), getattr(fresh, name)
            if have != want:
                raise StateError(
                    f"state directory {path} belongs to {name} {have}, but {option} says {want}; "
                    f"use another state_dir, or delete this one to rebuild it"
                )
        return meta

    def prepare(self, batch: Batch, change: StateChange) -> Prepared:
        """Encode the records for the decided `batch`, without applying them."""
        unique, duplicate = (
            np.flatnonzero(change.stored_as == each) for each in (Verdict.UNIQUE, Verdict.DUPLICATE)
        )
        masks = np.zeros(len(batch), np.uint64)
        masks[list(change.skipped)] = list(change.skipped.values())
        if self.window is not None:
            masks[change.change != Change.NEW] |= HAS_OLDER
        of_cluster = change.cluster, change.cluster_anchor
        return Prepared(
            batch=batch,
            change=change,
            unique=unique,
            anchors=self._anchors.prepare(*_pages(batch, unique, masks)),
            duplicates=self._duplicates.prepare(
                *_pages(batch, duplicate, *(each.astype(np.uint64) for each in of_cluster))
            ),
            urls=self._new_baselines(batch, unique, duplicate, change.change),
            writes=self.store.batch(),
        )

    def _new_baselines(
        self,
        batch: Batch,
        unique: NDArray[np.int64],
        duplicate: NDArray[np.int64],
        change: NDArray[np.uint8],
    ) -> dict[bytes, bytes]:
        """Return digest of a URL -> references to its baselines, for the URLs that get a new one: behind it
        stand those before, if the page changed; if it did not, it takes the place of the newest (rule 22)."""
        references = np.zeros(len(batch), _REFERENCE)
        for rows, kind, log in ((unique, _ANCHOR, self._anchors), (duplicate, _DUPLICATE, self._duplicates)):
            references["kind"][rows] = kind
            references["number"][rows] = np.arange(log.count, log.count + len(rows))
        kept = np.flatnonzero(references["kind"])
        keys = batch.url_digests(kept)
        made = references[kept].view(_BYTES).tolist()
        urls = dict(zip(keys, made, strict=True))
        changed = {keys[i] for i in np.flatnonzero(change[kept] != Change.NEW).tolist()}
        if changed:
            before = self._references(list(changed))
            replaces = (change[kept] == Change.UNCHANGED).tolist()
            for key, reference, replace in zip(keys, made, replaces, strict=True):
                if key in changed:
                    older = before.get(key, b"")[len(reference) if replace else 0 :]
                    urls[key] = before[key] = (reference + older)[: self._reference_bytes]
        urls.pop(NO_DIGEST, None)
        return urls

    def apply(self, prepared: Prepared, decided: int) -> None:
        """Apply a decided batch in one atomic write. `decided` is the next offset of the decisions topic.

        Recovery, standby and rebuild use this. The leading judge performs the three steps itself.
        """
        self.advance(prepared)
        self.write(prepared, decided)
        self.maintain()

    def advance(self, prepared: Prepared) -> None:
        """Apply a decided batch in RAM. The previous one must have been written."""
        batch, change, unique, writes = prepared.batch, prepared.change, prepared.unique, prepared.writes
        anchors = np.searchsorted(unique, np.fromiter(change.skipped, np.int64, len(change.skipped)))
        skipped = dict(zip(anchors.tolist(), change.skipped.values(), strict=True))
        self._note_deaths(change.superseded)
        words = self._rule.table_words(batch.fingerprint, batch.sketch)
        self.tables.insert(writes, first_words(batch.fingerprint)[unique], skipped, words[unique])
        self.tables.kill(writes, change.superseded)
        self.ledger.apply(change.sources)
        self.time = change.time
        self._anchors.advance(prepared.anchors)
        self._duplicates.advance(prepared.duplicates)
        self._urls_ahead = prepared.urls
        if self.window is not None:
            self.window.note_hits(writes, change.hit_anchors, change.hit_duplicates)
            self.window.admitted += len(batch)

    def write(self, prepared: Prepared, decided: int) -> None:
        """Write the advanced batch to RocksDB. Other threads may read meanwhile to decide the next batch.

        Call `maintain` when they are done, before the next `advance`.
        """
        change, writes = prepared.change, prepared.writes
        self._anchors.write(writes, prepared.anchors)
        self._duplicates.write(writes, prepared.duplicates)
        writes.put_many(URLS, _in_order(prepared.urls))
        self._removal.note_written(prepared.urls)
        for source in change.sources:
            key = _SOURCE + f"{source.cluster}/{source.topic_id}/{source.partition}".encode()
            writes.put(DEFAULT, key, msgspec.msgpack.encode(source))
        meta = msgspec.structs.replace(
            self.meta,
            applied=change.end,
            last=change.last,
            time=change.time,
            decided=decided,
            window=None if self.window is None else self.window.stored,
            held=self._held(),
        )
        writes.put(DEFAULT, META, msgspec.msgpack.encode(meta))
        self.store.write(writes)
        self.meta = meta
        self._note_position(decided)

    def _note_deaths(self, numbers: I64) -> None:
        """Tell the listener of stored anchors that a decision supersedes, lets expire or forgets."""
        if self.deaths is not None:
            numbers = distinct(numbers[numbers < self.tables.count])
            numbers = numbers[self.tables.is_alive(numbers)]
            if len(numbers) > self.deaths.most:
                self.deaths.lose()
            else:
                self.deaths.note(numbers, *self.tables.entered(numbers))

    def _note_position(self, decided: int) -> None:
        if self.deaths is not None:
            self.deaths.reach(decided)

    def raise_first(self, writes: Writes, first: PageNumbers) -> None:
        """Let anchors and duplicates begin at these numbers, in RAM at once and in the store through
        `writes`: those before them are gone. `maintain` removes what they take."""
        self.tables.raise_first(writes, first.anchors)
        self._anchors.raise_first(writes, first.anchors)
        self._duplicates.raise_first(writes, first.duplicates)

    def hold_from(self, held: int) -> None:
        """Drop the tables of the anchors before this number. No batch may be ahead of the store."""
        writes = self.store.batch()
        self.tables.hold_from(writes, held)
        self.store.write(writes)
        self.maintain()

    def maintain(self, *, wait: bool = False) -> None:
        """Freeze anchors, and remove what is gone, in the background. Nothing may be ahead of the store.

        With `wait`, returns when nothing is due any more. Raises what failed in the background.
        """
        self.tables.maintain(wait=wait)
        self._removal.advance(wait=wait)

    def expiring(self, time: int) -> Turn:
        """Return the turn at a log time: which pages expire, and which of them are carried (rule 23). Changes
        nothing. No batch may be ahead of the store."""
        window = self._windowed()
        first, end = self.first, window.oldest_after(time)
        numbers = window.hit_duplicates.between(first.duplicates, end.duplicates)
        duplicates = self._ahead.pages(self._duplicates, numbers)
        references = self._references(list(dict.fromkeys(_url_digests(duplicates))))
        some = np.flatnonzero(_are_among(references, _DUPLICATE, numbers, duplicates))
        fitting = window.carried_at_once(duplicates.url_bytes[some])
        if fitting < len(some):
            end = end._replace(duplicates=int(numbers[some[fitting]]))
        numbers, duplicates = numbers[some[:fitting]], duplicates.take(some[:fitting])
        hit = window.hit_anchors.between(first.anchors, end.anchors)
        of_anchors = distinct(np.append(hit, self._cluster_anchors(duplicates)))
        of_anchors = of_anchors[(of_anchors >= first.anchors) & (of_anchors < end.anchors)]
        of_anchors = of_anchors[self.tables.is_alive(of_anchors)]
        anchors = self._ahead.pages(self._anchors, of_anchors)
        fitting = window.carried_at_once(anchors.url_bytes)
        if fitting < len(of_anchors):
            end = end._replace(anchors=int(of_anchors[fitting]))
        turn = Turn(
            oldest=end,
            next=self.next,
            anchors=of_anchors[:fitting].astype("<i8").tobytes(),
            duplicates=numbers.astype("<i8").tobytes(),
        )
        self._carried = _Carried(turn, anchors.take(np.arange(fitting)), duplicates, references)
        return turn

    def _windowed(self) -> Window:
        if self.window is None:
            raise ValueError("a turn without a lifetime")
        return self.window

    def turn(self, turn: Turn, time: int, decided: int) -> None:
        """Apply a turn at a log time in one atomic write. `decided` is the next offset of the decisions
        topic. No batch may be ahead of the store."""
        window, writes = self._windowed(), self.store.batch()
        oldest = PageNumbers(*turn.oldest)
        carried_anchors, carried_duplicates = (
            np.frombuffer(each, "<i8").astype(np.int64) for each in (turn.anchors, turn.duplicates)
        )
        read, self._carried = self._carried, None
        if read is None or read.turn is not turn:
            read = _Carried(
                turn,
                self._ahead.pages(self._anchors, carried_anchors),
                self._ahead.pages(self._duplicates, carried_duplicates),
                {},
            )
        anchors, duplicates = read.anchors, read.duplicates
        joined = self._carried_with(duplicates, carried_anchors, oldest)
        hit = joined[(joined != NO_LONGER_LIVE) & (joined < self.next.anchors)]
        urls = self._carried_references(carried_anchors, carried_duplicates, read, oldest)
        self._note_deaths(np.arange(self.first.anchors, oldest.anchors))
        self._insert_again(writes, anchors)
        records = duplicates.words.copy()
        records[:, -1] = joined.astype(np.uint64)
        for log, pages, words in (
            (self._anchors, anchors, anchors.words), (self._duplicates, duplicates, records),
        ):  # fmt: skip
            added = log.prepare(words, pages.urls(np.arange(len(words))))
            log.advance(added)
            log.write(writes, added)
        self.raise_first(writes, oldest)
        writes.put_many(URLS, _in_order(urls))
        self._removal.note_written(urls)
        self._urls_ahead = {}
        window.note_hits(writes, hit, np.zeros(0, np.int64))
        window.turn(writes, time, oldest, self.next, carried_anchors)
        self.time = time
        meta = msgspec.structs.replace(
            self.meta, time=time, decided=decided, window=window.stored, held=self._held()
        )
        writes.put(DEFAULT, META, msgspec.msgpack.encode(meta))
        self.store.write(writes)
        self.meta = meta
        self._note_position(decided)
        self.maintain()
        self._read_ahead(window)

    def _read_ahead(self, window: Window) -> None:
        """Start to read what the next turn will carry, as far as it was hit."""
        first, end = self.first, window.oldest_after(window.turned + window.slot)
        anchors = window.hit_anchors.between(first.anchors, end.anchors)
        self._ahead.begin(self._anchors, anchors[self.tables.is_alive(anchors)])
        duplicates = window.hit_duplicates.between(first.duplicates, end.duplicates)
        self._ahead.begin(self._duplicates, duplicates)

    def _carried_with(
        self, duplicates: LoggedPages, carried: NDArray[np.int64], oldest: PageNumbers
    ) -> NDArray[np.int64]:
        """Return the number, after the turn, of the anchor of the cluster of each carried duplicate (m,);
        NO_LONGER_LIVE if that was superseded or expires. `carried` are the carried anchors."""
        anchors = self._cluster_anchors(duplicates)
        live = self.tables.is_alive(anchors) & (anchors >= oldest.anchors)
        place = np.searchsorted(carried, anchors)
        again = (np.append(carried, NO_LONGER_LIVE)[place] == anchors) & (anchors != NO_LONGER_LIVE)
        return np.where(again, self.next.anchors + place, np.where(live, anchors, NO_LONGER_LIVE))

    def _insert_again(self, writes: Writes, anchors: LoggedPages) -> None:
        """Insert carried anchors into the tables, into the buckets in which they stood."""
        end = HEAD + self._prints
        prints, sketches = (
            np.ascontiguousarray(each) for each in (self._fingerprints(anchors), anchors.words[:, end:])
        )
        skipped = {row: mask for row, mask in enumerate(_masks(anchors).tolist()) if mask}
        words = self._rule.table_words(prints, sketches)
        self.tables.insert(writes, first_words(prints), skipped, words)

    def _carried_references(
        self,
        carried_anchors: NDArray[np.int64],
        carried_duplicates: NDArray[np.int64],
        pages: _Carried,
        oldest: PageNumbers,
    ) -> dict[bytes, bytes]:
        """Return digest of a URL -> references to its baselines after a turn, for the URLs of carried
        pages."""
        of_anchors, of_duplicates = _url_digests(pages.anchors), _url_digests(pages.duplicates)
        anchors_again, duplicates_again = (
            _references_to(kind, np.arange(next_, next_ + len(numbers)))
            for kind, next_, numbers in (
                (_ANCHOR, self.next.anchors, carried_anchors),
                (_DUPLICATE, self.next.duplicates, carried_duplicates),
            )
        )
        # A live anchor is the newest baseline of its URL, and most are the only one: these are not read.
        carried = dict(zip(of_anchors, anchors_again, strict=True))
        behind = np.flatnonzero(pages.anchors.words[:, 1] & HAS_OLDER).tolist()
        renamed = dict(zip(_references_to(_DUPLICATE, carried_duplicates), duplicates_again, strict=True))
        renamed |= {
            _references_to(_ANCHOR, carried_anchors[place : place + 1])[0]: anchors_again[place]
            for place in behind
        }
        urls = dict.fromkeys([*of_duplicates, *(of_anchors[place] for place in behind)])
        urls.pop(NO_DIGEST, None)
        references = {url: pages.references[url] for url in urls if url in pages.references}
        references |= self._references([url for url in urls if url not in references])
        again = {
            url: renamed.get(value) or b"".join(renamed.get(each, each) for each in _each(value))
            for url, value in references.items()
        }
        carried |= self._unexpired(again, oldest)
        carried.pop(NO_DIGEST, None)
        return carried

    def is_alive(self, anchor: int) -> bool:
        """Whether an anchor is alive: it was not superseded, and has not expired."""
        return bool(self.tables.is_alive(np.array([anchor]))[0])

    def note_ledger(self, ledger: int, decided: int) -> None:
        """Store that a ledger record was applied. `ledger` is its offset in the decisions topic, or that of
        its first part, and `decided` the next offset there. No batch may be ahead of the store."""
        meta = msgspec.structs.replace(self.meta, ledger=ledger, decided=decided)
        writes = self.store.batch()
        writes.put(DEFAULT, META, msgspec.msgpack.encode(meta))
        self.store.write(writes)
        self.meta = meta
        self._note_position(decided)

    def forget(self, forgotten: Forgotten, decided: int, appended: int = 0) -> None:
        """Forget pages: nothing finds them any more. `decided` is the next offset of the decisions topic, and
        `appended` when the record was written there, in milliseconds since the epoch. No batch may be ahead
        of the store. Call `maintain` before the next `advance`."""
        writes, (anchors, duplicates) = self.store.batch(), forgotten.numbers
        self._note_deaths(anchors)
        self.tables.kill(writes, anchors[self.tables.is_alive(anchors)])
        gone = {
            reference
            for kind, numbers in ((_ANCHOR, anchors), (_DUPLICATE, duplicates))
            for reference in _references_to(kind, numbers)
        }
        self._urls_ahead = {}
        for url, references in self.references(forgotten.url_digests).items():
            left = [each for each in references if each not in gone]
            if left:
                writes.put(URLS, url, b"".join(left))
            else:
                writes.delete(URLS, url)
        forgetting = msgspec.structs.replace(
            self.meta.forgetting, requests=forgotten.requests, journal=self.meta.applied, appended=appended
        )
        if gone:
            self.forgotten.add(writes, decided, anchors, duplicates)
            forgetting = msgspec.structs.replace(forgetting, decided=decided)
        self._write_meta(writes, decided=decided, forgetting=forgetting)
        self._note_position(decided)

    def blank_forgotten(self) -> bool:
        """Remove what says what forgotten pages were from the records of some of them. Returns whether there
        were any that had it. No batch may be ahead of the store."""
        return self.forgotten.blank(self._anchors, self._duplicates, self._identifying)

    def note_erased(self, erased: int) -> None:
        """Note that what decisions before the offset `erased` forgot is erased. No batch may be ahead of the
        store."""
        writes = self.store.batch()
        self.forgotten.drop(writes, erased)
        forgetting = msgspec.structs.replace(self.meta.forgetting, erased=erased)
        self._write_meta(writes, forgetting=forgetting)

    def _write_meta(self, writes: Writes, **fields: object) -> None:
        """Apply writes together with the meta record, of which some fields change."""
        meta = msgspec.structs.replace(self.meta, held=self._held(), **fields)
        writes.put(DEFAULT, META, msgspec.msgpack.encode(meta))
        self.store.write(writes)
        self.meta = meta

    def _held(self) -> LoadedRecords:
        stats = self.tables.stats
        return LoadedRecords(
            dead=stats.dead_anchors,
            skipped=stats.skipping_anchors,
            sources=len(self.ledger.progress),
            window=0 if self.window is None else self.window.count,
            forgotten=self.forgotten.count,
            digest=union(
                stats.digest,
                self.ledger.digest,
                self.forgotten.digest,
                0 if self.window is None else self.window.digest,
            ),
        )

    def flush(self) -> None:
        """Make all applied batches durable."""
        self.store.flush()

    def digest(self) -> str:
        """Return a digest of the content, independent of how it was built up, and of what is gone. Tables are
        left out, as they follow from it, and so is which of them were dropped."""
        starts = dict.fromkeys(RECORDS, b"")
        starts[ANCHORS] = self._anchors.start
        starts[LOG] = self.tables.start
        starts[DUPLICATES] = self._duplicates.start
        urls = partial(without_gone, first=self.first) if any(self.first) else None
        return self.store.digest(starts, leave_out=RUN, urls=urls)

    def close(self) -> None:
        """Finish background work, flush, and release the directory. Raises the first of several errors."""
        try:
            self._ahead.close()
            self.tables.close()
            self._removal.close()
            self.store.flush()
        except BaseException:
            with suppress(NeardupError):
                self.store.close()
            raise
        self.store.close()


def _masks(anchors: LoggedPages) -> NDArray[np.uint64]:
    """The mask of each anchor's skipped tables and triples (m,)."""
    return anchors.words[:, 1] & ~HAS_OLDER


def _url_digests(pages: LoggedPages) -> list[bytes]:
    """The digest of each page's URL (m,)."""
    words = np.ascontiguousarray(pages.words[:, URL_DIGEST]).astype("<u8")
    return cast(list[bytes], words.view(_DIGEST).ravel().tolist())


def _are_among(
    references: dict[bytes, bytes], kind: int, numbers: NDArray[np.int64], pages: LoggedPages
) -> NDArray[np.bool_]:
    """Whether each of these pages is among the baselines of its URL (m,), given references to these."""
    return np.array(
        [
            value == own or (len(value) > len(own) and own in _each(value))
            for value, own in zip(
                (references.get(url, b"") for url in _url_digests(pages)),
                _references_to(kind, numbers),
                strict=True,
            )
        ],
        np.bool_,
    )


def _each(references: bytes) -> list[bytes]:
    """The references of a value."""
    size = _REFERENCE.itemsize
    return [references[at : at + size] for at in range(0, len(references), size)]


def _references_to(kind: int, numbers: NDArray[np.int64]) -> list[bytes]:
    """References to anchors or duplicates (m,)."""
    references = np.zeros(len(numbers), _REFERENCE)
    references["kind"], references["number"] = kind, numbers
    return cast(list[bytes], references.view(_BYTES).tolist())


def _in_order(urls: dict[bytes, bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Items in order of their keys, digests of 16 bytes, as far as the first 8 tell. That halves the time of
    the write, during which rocksdict holds the GIL. Sorting the keys themselves takes six times as long."""
    keys, values = list(urls), list(urls.values())
    first_words = np.frombuffer(b"".join(keys), ">u8")[::2].astype(np.uint64)
    order = np.argsort(first_words).tolist()
    return zip(map(keys.__getitem__, order), map(values.__getitem__, order), strict=True)


def _pages(
    batch: Batch, rows: NDArray[np.int64], second: NDArray[np.uint64], *last: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], StringColumn]:
    """Return words and URLs of some rows. `second` is the second word of each row of the batch, `last` may be
    further ones."""
    digest = batch.url_digest.view("<u8").astype(np.uint64, copy=False)
    columns = (batch.page.astype(np.uint64), second, digest, batch.fingerprint, batch.sketch, *last)
    return np.column_stack([each[rows] for each in columns]), batch.url.take(rows)
