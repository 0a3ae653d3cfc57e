"""The judge's state: anchors, baselines of URLs and source offsets, in one RocksDB (rules 9 and 13).

Column families: `anchors` and `duplicates` hold pages by number, `urls` maps digests of URLs to their
baselines, and `default` holds the meta record, the progress of all sources and incomplete groups of pages.
`log` and `runs` belong to `stream.tables`. The journal is the write-ahead log: after a crash, lost changes
are applied again from journal and decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.errors import NeardupError
from stream.fingerprint.lanes import first_words
from stream.fingerprint.row import NO_DIGEST
from stream.judge.batch import Batch
from stream.judge.rule import Rule
from stream.judge.state.ledger import Ledger
from stream.judge.state.meta import META_DECODER, LoadedRecords, Meta
from stream.judge.state.page_log import HAS_OLDER, HEAD, Added, LoggedPages
from stream.judge.state.page_numbers import PageNumbers
from stream.judge.state.reader import StateReader
from stream.judge.state.references import ANCHOR, BYTES, DUPLICATE, REFERENCE, references_to, without_gone
from stream.judge.state.removal import Removal
from stream.judge.state.turn_reader import TurnReader
from stream.judge.state.window import StoredWindow
from stream.messages.byte_strings import StringColumn
from stream.messages.decision import NO_LONGER_LIVE, Forgotten, SourceProgress, Turn
from stream.messages.journal import Genesis
from stream.messages.verdict import Change, Verdict
from stream.tables.runs.tier import RUN
from stream.tables.store.anchors import with_prefix
from stream.tables.store.contents import union
from stream.tables.store.failures import damage_error
from stream.tables.store.meta_record import META, OWNERS, begun
from stream.tables.store.rocks import ANCHORS, DEFAULT, DUPLICATES, LOG, RECORDS, URLS, Store, Writes
from stream.tables.tables import IndexKind, Tables

_OWNERS: Final = OWNERS | {"generation": "tables_generation"}
_SOURCE: Final = b"source/"
_PROGRESS_DECODER: Final = msgspec.msgpack.Decoder(SourceProgress)


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
    """Row -> mask of tables whose full bucket its anchor did not enter, and of reserves that it did."""
    hit_anchors: NDArray[np.int64]
    hit_duplicates: NDArray[np.int64]
    """Numbers of the pages that verdicts name, which may repeat (rule 23)."""


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
        self._reference_bytes = options.baselines * REFERENCE.itemsize
        self._rule = Rule(options, genesis.scheme)
        self.design = self._rule.design()
        expiring = options.lifetime is not None
        store = Store(path, cache, expiring=expiring)
        try:
            super().__init__(store, genesis.scheme)
            self.meta = self._open_meta(genesis, cluster, generation)
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
                kind=IndexKind(self._rule.reserves, windowed=expiring),
            )
            self._turns = None if self.window is None else TurnReader(self, self.window, self.tables)
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

    def _open_meta(self, genesis: Genesis, cluster: str, generation: int) -> Meta:
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
        # Tables may contain a run already; that is written before the first flush.
        return begun(self.store, META_DECODER, fresh, _OWNERS, RECORDS)

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
        references = np.zeros(len(batch), REFERENCE)
        for rows, kind, log in ((unique, ANCHOR, self._anchors), (duplicate, DUPLICATE, self._duplicates)):
            references["kind"][rows] = kind
            references["number"][rows] = np.arange(log.count, log.count + len(rows))
        kept = np.flatnonzero(references["kind"])
        keys = batch.url_digests(kept)
        made = references[kept].view(BYTES).tolist()
        urls = dict(zip(keys, made, strict=True))
        changed = {keys[i] for i in np.flatnonzero(change[kept] != Change.NEW).tolist()}
        if changed:
            before = self.stored_references(list(changed))
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
        words = self._rule.table_words(batch.fingerprint, batch.sketch)
        prints = first_words(batch.fingerprint)[unique]
        self.tables.insert(writes, prints, skipped, words[unique], change.superseded)
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
        self._write_meta(
            writes,
            applied=change.end,
            last=change.last,
            time=change.time,
            decided=decided,
            window=None if self.window is None else self.window.stored,
        )

    def raise_first(self, writes: Writes, first: PageNumbers) -> None:
        """Let anchors and duplicates begin at these numbers, in RAM at once and in the store through
        `writes`: those before them are gone. `maintain` removes what they take."""
        self.tables.raise_first(writes, first.anchors)
        self._anchors.raise_first(writes, first.anchors)
        self._duplicates.raise_first(writes, first.duplicates)

    def maintain(self, *, wait: bool = False) -> None:
        """Freeze anchors, and remove what is gone, in the background. Nothing may be ahead of the store.

        With `wait`, returns when nothing is due any more. Raises what failed in the background.
        """
        self.tables.maintain(wait=wait)
        self._removal.advance(wait=wait)

    def expiring(self, time: int) -> Turn:
        """Return the turn at a log time: which pages expire, and which of them are carried (rule 23). Changes
        nothing. No batch may be ahead of the store."""
        return self._turning().decide(time, self.next)

    def _turning(self) -> TurnReader:
        if self._turns is None:
            raise ValueError("a turn without a lifetime")
        return self._turns

    def turn(self, turn: Turn, time: int, decided: int) -> None:
        """Apply a turn at a log time in one atomic write. `decided` is the next offset of the decisions
        topic. No batch may be ahead of the store."""
        turns, writes = self._turning(), self.store.batch()
        carried = turns.carried(turn)
        oldest, duplicates = carried.oldest, carried.duplicates
        joined, urls = turns.anchors_after(carried), turns.references_after(carried)
        hit = joined[(joined != NO_LONGER_LIVE) & (joined < self.next.anchors)]
        self._insert_again(writes, carried.anchors)
        records = duplicates.words.copy()
        records[:, -1] = joined.astype(np.uint64)
        for log, pages, words in (
            (self._anchors, carried.anchors, carried.anchors.words), (self._duplicates, duplicates, records),
        ):  # fmt: skip
            added = log.prepare(words, pages.urls(np.arange(len(words))))
            log.advance(added)
            log.write(writes, added)
        self.raise_first(writes, oldest)
        writes.put_many(URLS, _in_order(urls))
        self._removal.note_written(urls)
        self._urls_ahead = {}
        window = turns.window
        window.note_hits(writes, hit, np.zeros(0, np.int64))
        window.turn(writes, time, self.next, carried.anchor_numbers)
        self.time = time
        self._write_meta(writes, time=time, decided=decided, window=window.stored)
        self.maintain()
        turns.begin()

    def _insert_again(self, writes: Writes, anchors: LoggedPages) -> None:
        """Insert carried anchors into the tables, into the buckets in which they stood."""
        end = HEAD + self._prints
        prints, sketches = (
            np.ascontiguousarray(each) for each in (self.fingerprints(anchors), anchors.words[:, end:])
        )
        skipped = {row: mask for row, mask in enumerate(anchors.masks().tolist()) if mask}
        words = self._rule.table_words(prints, sketches)
        self.tables.insert(writes, first_words(prints), skipped, words)

    def is_alive(self, anchor: int) -> bool:
        """Whether an anchor is alive: it was not superseded, and has not expired."""
        return bool(self.tables.is_alive(np.array([anchor]))[0])

    def note_ledger(self, ledger: int, decided: int) -> None:
        """Store that a ledger record was applied. `ledger` is its offset in the decisions topic, or that of
        its first part, and `decided` the next offset there. No batch may be ahead of the store."""
        self._write_meta(self.store.batch(), ledger=ledger, decided=decided)

    def forget(self, forgotten: Forgotten, decided: int, appended: int = 0) -> None:
        """Forget pages: nothing finds them any more. `decided` is the next offset of the decisions topic, and
        `appended` when the record was written there, in milliseconds since the epoch. No batch may be ahead
        of the store. Call `maintain` before the next `advance`."""
        writes, (anchors, duplicates) = self.store.batch(), forgotten.numbers
        self.tables.kill(writes, anchors[self.tables.is_alive(anchors)])
        gone = {
            reference
            for kind, numbers in ((ANCHOR, anchors), (DUPLICATE, duplicates))
            for reference in references_to(kind, numbers)
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

    def blank(self) -> bool:
        """Remove what says what forgotten pages were from the records of some of them. Returns whether there
        were any that had it. No batch may be ahead of the store."""
        return self.forgotten.blank(self._anchors, self._duplicates, self._identifying)

    @property
    def is_erased(self) -> bool:
        """Whether nothing is left of all that was forgotten."""
        return self.meta.forgetting.is_erased

    @property
    def erasable(self) -> int:
        """The offset before which decisions forgot what is blanked, and gone once files are rewritten."""
        return self.forgotten.blanked

    def compact(self) -> None:
        """Rewrite the files that may have what is blanked, as `ForgottenPages.compact` does."""
        self.forgotten.compact()

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
        left out, as they follow from it."""
        starts = dict.fromkeys(RECORDS, b"")
        starts[ANCHORS] = self._anchors.start
        starts[LOG] = self.tables.start
        starts[DUPLICATES] = self._duplicates.start
        urls = partial(without_gone, first=self.first) if any(self.first) else None
        return self.store.digest(starts, leave_out=RUN, urls=urls)

    def close(self) -> None:
        """Finish background work, flush, and release the directory. Raises the first of several errors."""
        try:
            if self._turns is not None:
                self._turns.close()
            self.tables.close()
            self._removal.close()
            self.store.flush()
        except BaseException:
            with suppress(NeardupError):
                self.store.close()
            raise
        self.store.close()


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
