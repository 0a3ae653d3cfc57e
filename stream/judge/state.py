"""What a judge remembers: anchors, URLs and source offsets, in one RocksDB (rules 9 and 13).

Families: `anchors` holds number -> anchor, `urls` URL key -> baseline, `default` the meta record and the
progress of every source; `log` and `table-*` belong to `stream.tables`. The journal is the write-ahead log:
what a crash takes from here is applied again from journal and decisions.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream.errors import StateError
from stream.fingerprint.columns import first_words, integers
from stream.fingerprint.row import WORD
from stream.fingerprint.scheme import Scheme
from stream.judge.batch import Batch
from stream.judge.ledger import Ledger
from stream.judge.page_records import PageRecords, anchor_records, baseline_records
from stream.judge.rule import Rule
from stream.messages.decision import SourceProgress
from stream.messages.journal import Genesis
from stream.messages.verdict import Verdict
from stream.tables.anchors import with_prefix
from stream.tables.candidates import distinct
from stream.tables.live import of_another_version
from stream.tables.rocks import ANCHORS, URLS, Store
from stream.tables.rocks import Batch as Writes
from stream.tables.tables import Tables

_META: Final = b"meta"
_SOURCE: Final = b"source/"
VERSION: Final = 3
"""Of what a state directory holds; raised when it is laid out anew."""
_ANCHOR: Final = struct.Struct("<qQ")  # page, skipped tables; then fingerprint, sketch, URL
_DUPLICATE: Final = struct.Struct("<cqq")  # b"d", page, cluster; then fingerprint, sketch, URL
_REFERENCE: Final = struct.Struct("<cQ")  # b"a", anchor number: the baseline is that anchor


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """Whose state this is, and how far it has come."""

    version: int = VERSION
    cluster: str
    journal: str
    scheme: str
    width: int
    """Bits of a fingerprint."""
    options: str
    generation: int
    applied: int
    """The next journal offset to apply."""
    last: bytes = b""
    """Digest of the journal record at `applied - 1`; empty while there is none."""
    decided: int = 0
    """The next offset of the decisions topic to apply."""
    time: int = 0
    """Log time, milliseconds since the epoch (rule 15)."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A URL's last page judged `unique` or `duplicate`."""

    page: int
    cluster: int
    url: str
    fingerprint: int
    sketch: NDArray[np.uint64]
    anchor: int | None
    """Anchor number where that page was unique."""
    skipped: int = 0
    """Bit mask of the full buckets that the anchor did not enter."""


@dataclass(frozen=True, slots=True, eq=False)
class Anchors:
    """Records of m distinct anchors, ascending by number."""

    number: NDArray[np.int64]
    page: NDArray[np.int64]
    fingerprint: NDArray[np.uint64]
    skipped: NDArray[np.uint64]
    sketch: NDArray[np.uint64]
    """(m, words)"""
    _values: list[bytes]
    _size: int
    """Bytes before the URL in each of them."""

    def url(self, place: int) -> str:
        """URL of the anchor at that index."""
        return self._values[place][self._size :].decode()

    def baseline(self, place: int) -> Baseline:
        """That anchor as the baseline of its URL."""
        page = int(self.page[place])
        return Baseline(
            page=page,
            cluster=page,
            url=self.url(place),
            fingerprint=integers(self.fingerprint[place : place + 1])[0],
            sketch=self.sketch[place],
            anchor=int(self.number[place]),
            skipped=int(self.skipped[place]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What a transaction does to the state: the part of decisions that `apply` needs."""

    end: int
    last: bytes
    time: int
    sources: list[SourceProgress]
    verdict: NDArray[np.uint8]
    cluster: NDArray[np.int64]
    superseded: NDArray[np.int64]
    """Anchor numbers, those of this very step included."""
    skipped: dict[int, int]
    """Row -> mask."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A step, and the records of its pages ready to be written; nothing has changed yet."""

    batch: Batch
    step: Step
    unique: NDArray[np.int64]
    """Rows that become anchors."""
    records: PageRecords
    writes: Writes
    """What else is to be written, as `advance` finds it."""


class Records:
    """What a store remembers of pages. Reads only."""

    def __init__(self, store: Store, scheme: Scheme) -> None:
        self.store = store
        self._ahead: PageRecords = {}
        """Records that the store may not have yet."""
        self._prints = -(-scheme.width // WORD)  # words of a fingerprint
        self._words = self._prints + scheme.sketch_bytes // 8  # and of the sketch after it

    def stored_meta(self) -> Meta | None:
        """Whose state it is; None before anything was flushed."""
        value = self.store.get("default", [_META])[0]
        if value is None:
            return None
        with contextlib.suppress(msgspec.ValidationError):
            meta = msgspec.msgpack.decode(value, type=Meta)
            if meta.version == VERSION:
                return meta
        raise of_another_version(self.store.path)

    def _get(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """Values of keys, those included that are not written yet."""
        found, ahead = self.store.get(family, keys), self._ahead.get(family)
        if ahead and not ahead.keys().isdisjoint(keys):
            return [ahead.get(key, value) for key, value in zip(keys, found, strict=True)]
        return found

    def by_page(self, page: int) -> Baseline | None:
        """The anchor or the URL's baseline that is that page; looks through all of them."""
        for key, value in self.store.scan(ANCHORS):
            if _ANCHOR.unpack_from(value)[0] == page:
                return self.anchors(np.array([int.from_bytes(key, "big")], np.int64)).baseline(0)
        for key, value in self.store.scan(URLS):
            if value[:1] == b"d" and _DUPLICATE.unpack_from(value)[1] == page:
                return self.baselines([key.decode()])[key.decode()]
        return None

    def anchors(self, numbers: NDArray[np.int64]) -> Anchors:
        """Records of these anchors, made distinct."""
        numbers = distinct(numbers)
        found = self._get(ANCHORS, [_number(n) for n in numbers.tolist()])
        values = [value for value in found if value is not None]
        if len(values) != len(found):
            missing = numbers[[value is None for value in found]].tolist()
            raise StateError(f"state directory: anchors {missing[:5]} are in the tables but have no record")
        size = _ANCHOR.size + self._words * 8
        fixed = np.frombuffer(b"".join(value[:size] for value in values), np.uint8).reshape(-1, size)
        words = np.ascontiguousarray(fixed).view("<u8").reshape(-1, size // 8)
        return Anchors(
            number=numbers,
            page=words[:, 0].astype(np.int64),
            fingerprint=words[:, 2] if self._prints == 1 else words[:, 2:4],
            skipped=words[:, 1],
            sketch=words[:, 2 + self._prints :].copy(),
            _values=values,
            _size=size,
        )

    def baselines(self, url_keys: Iterable[str]) -> dict[str, Baseline]:
        """Baselines of the URLs that have one."""
        keys = list(dict.fromkeys(url_keys))
        found = self._get(URLS, [_text(key) for key in keys])
        references: list[tuple[str, int]] = []
        baselines: dict[str, Baseline] = {}
        for key, value in zip(keys, found, strict=True):
            if value is None:
                continue
            if value[:1] == b"a":
                references.append((key, _REFERENCE.unpack(value)[1]))
            else:
                _, page, cluster = _DUPLICATE.unpack_from(value)
                end = _DUPLICATE.size + self._words * 8
                words = np.frombuffer(value[_DUPLICATE.size : end], "<u8").astype(np.uint64)
                fingerprint = words[0] if self._prints == 1 else words[:2]
                url, sketch = value[end:].decode(), words[self._prints :]
                baselines[key] = Baseline(page, cluster, url, integers(fingerprint[None])[0], sketch, None)
        if references:
            anchors = self.anchors(np.array([number for _, number in references], np.int64))
            for key, number in references:
                baselines[key] = anchors.baseline(int(np.searchsorted(anchors.number, number)))
        return baselines


class State(Records):
    """The judge's memory. One writer: `apply`, or its three steps. Everything else reads.

    Between `advance` and `write` what was decided is in RAM alone, where the next batch finds it: RocksDB may
    make durable whatever it has, and must not have what nobody has committed (rule 9).
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
        start: int = 1,
    ) -> None:
        """Open or create. `start` is the first journal offset after genesis. Raises StateError."""
        options = genesis.options
        self._by_minima = options.by_minima
        self.design = Rule(options, genesis.scheme).design()
        super().__init__(Store(path, self.design.tables, cache), genesis.scheme)
        try:
            self.meta = self._open_meta(path, genesis, cluster, generation, start)
            self.time = self.meta.time
            self.ledger = Ledger(
                msgspec.msgpack.decode(value, type=SourceProgress)
                for _, value in with_prefix(self.store, _SOURCE)
            )
            self.tables = Tables(
                self.store,
                self.design,
                flip_bits=options.flip_bits,
                flips=options.flips,
                distance=options.largest_distance,
                cap=None if options.strict else options.bucket_cap,
                memory=memory,
                generation=generation,
            )
        except BaseException:
            self.store.close()
            raise

    def _open_meta(self, path: Path, genesis: Genesis, cluster: str, generation: int, start: int) -> Meta:
        fresh = Meta(
            cluster=cluster,
            journal=genesis.journal,
            scheme=genesis.scheme_id,
            width=genesis.scheme.width,
            options=genesis.options.id,
            generation=generation,
            applied=start,
        )
        meta = self.stored_meta()
        if meta is None:
            writes = self.store.batch()
            writes.put("default", _META, msgspec.msgpack.encode(fresh))
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

    def table_words(
        self, fingerprints: NDArray[np.uint64], sketches: NDArray[np.uint64]
    ) -> NDArray[np.uint64]:
        """What the tables hold of n pages, (n,): their fingerprints (n,), or the minima that end their
        sketches (n, words)."""
        if not self._by_minima:
            return fingerprints
        return np.ascontiguousarray(sketches[:, -1]) if len(sketches) else np.zeros(0, np.uint64)

    def prepare(self, batch: Batch, step: Step) -> Prepared:
        """The records of what was decided of `batch`, the next one, and no change. `apply` comes next."""
        unique, duplicate = (
            np.flatnonzero(step.verdict == each) for each in (Verdict.UNIQUE, Verdict.DUPLICATE)
        )
        first = self.tables.count
        records = {
            ANCHORS: anchor_records(batch, unique, step.skipped, first),
            URLS: baseline_records(batch, unique, duplicate, step.cluster, first),
        }
        return Prepared(batch, step, unique, records, self.store.batch())

    def apply(self, prepared: Prepared, decided: int) -> None:
        """Take over what was decided, in one atomic write; `decided` is the next decisions offset.

        Live judging takes the three steps; recovery, standby and rebuild come through here.
        """
        self.advance(prepared)
        self.write(prepared, decided)
        self.tables.maintain()

    def advance(self, prepared: Prepared) -> None:
        """Take over in RAM what was decided of a batch; the one before must have been written."""
        batch, step, unique, writes = prepared.batch, prepared.step, prepared.unique, prepared.writes
        skipped = {int(np.searchsorted(unique, row)): mask for row, mask in step.skipped.items()}
        words = self.table_words(batch.fingerprint, batch.sketch)
        self.tables.insert(writes, first_words(batch.fingerprint)[unique], skipped, words[unique])
        self.tables.kill(writes, step.superseded)
        self.ledger.apply(step.sources)
        self.time = step.time
        self._ahead = prepared.records

    def write(self, prepared: Prepared, decided: int) -> None:
        """Write what was advanced. Other threads may read meanwhile, to decide the next batch;
        `tables.maintain` comes when they are done, before the next `advance`.
        """
        step, writes = prepared.step, prepared.writes
        for family, records in prepared.records.items():
            # In order: RocksDB holds the GIL while it writes, and is done in half the time where one key
            # belongs beside the one before.
            writes.put_many(family, sorted(records.items()))
        for source in step.sources:
            key = _SOURCE + f"{source.cluster}/{source.topic_id}/{source.partition}".encode()
            writes.put("default", key, msgspec.msgpack.encode(source))
        meta = msgspec.structs.replace(
            self.meta, applied=step.end, last=step.last, time=step.time, decided=decided
        )
        writes.put("default", _META, msgspec.msgpack.encode(meta))
        self.store.write(writes)
        self.meta = meta

    def flush(self) -> None:
        """Make everything applied durable."""
        self.store.flush()

    def digest(self) -> str:
        """Equal for states that remember the same, however they came to it."""
        self.tables.maintain(wait=True)
        return self.store.digest()

    def close(self) -> None:
        """Finish background work, make everything durable and let go of the directory."""
        self.tables.close()
        self.store.flush()
        self.store.close()


def _number(anchor: int) -> bytes:
    return anchor.to_bytes(8, "big")


def _text(value: str) -> bytes:
    return value.encode()
