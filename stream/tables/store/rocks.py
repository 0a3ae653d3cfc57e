"""The RocksDB stores of judge and elector: no write-ahead log, and atomic flushes.

The journal is the write-ahead log (rule 13), so RocksDB's own is disabled. A crash leaves the state of the
last flush. That state must be consistent, so a flush covers all column families atomically.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Final, NamedTuple, cast

import xxhash
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    BottommostLevelCompaction,
    Cache,
    Checkpoint,
    ColumnFamily,
    CompactOptions,
    DBCompactionStyle,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    SstFileWriter,
    UniversalCompactOptions,
    WriteBatch,
    WriteOptions,
)

from stream.errors import NeardupError, StateError
from stream.failpoints import reach
from stream.private import private_directory, tighten
from stream.tables.store.failures import MISSING_FILE, TranslatedErrors, damage_error

DEFAULT: Final = "default"
LOG: Final = "log"
ANCHORS: Final = "anchors"
DUPLICATES: Final = "duplicates"
URLS: Final = "urls"
RECORDS: Final = (DEFAULT, LOG, ANCHORS, DUPLICATES, URLS)
"""The families that are written by batches only."""
VERSIONS: Final = "versions"
MEMBERS: Final = "members"
CLUSTERS: Final = "clusters"
DUE: Final = "due"
SEEN: Final = "seen"
RUNS: Final = "runs"
ROLE: Final = "judge"
"""Name of the store's directory within that of a namespace."""
INDEX: Final = "state"
"""Name of the store's directory within that of an `Index`."""
FLUSH: Final = "flush"
"""A family that is always empty, used to flush. `Rdict.flush` covers only one family, even with atomic flush
enabled. A manual compaction flushes all families in one manifest edit and releases the GIL; in an empty
family it has nothing to compact."""

REMOVED: Final = "removed-"
"""Prefix of the names of files with deletions, until they are ingested."""

WRITE_BUFFER: Final = 64 << 20
MANIFEST_BYTES: Final = 8 << 20
"""Size at which RocksDB writes its manifest anew. It grows with each flush, and every checkpoint has a
copy."""
FLUSHES_MERGED: Final = 12
"""Flushed files that trigger a compaction. With more, existing data are rewritten less often, but a look-up
of a missing key checks the filter of each file."""
FLUSHES_BEHIND: Final = 300
"""Flushed files of URLs that a compaction may be behind by. Writes are slowed down at three times as many."""
SPACE_OF_DELETED: Final = 50
"""Where URLs expire: percent that deleted ones and their deletions may take on top of those that are left,
before all are merged. With RocksDB's 200, the disk that URLs take triples and shrinks in turns."""
_BY_DIGEST: Final = (URLS, VERSIONS)
"""Families with a key for each URL, which arrive in random order; most that are looked up are not there."""
READ_TRIES: Final = 5
READ_PAUSE: Final = 0.1
"""Attempts to open a directory that another process may be writing to, and seconds between them. A compaction
may remove a file after we have read the manifest that names it."""
READ_AHEAD: Final = 256 << 10
"""Bytes read ahead in a full scan."""
KEYS_A_TURN: Final = 64
BLOOM_BITS: Final = 10
MEMTABLE_FILTER: Final = 0.02
"""Size of a write buffer's Bloom filter, as a fraction of the buffer."""
BLOCK_BYTES: Final = 4096
URL_BLOCK_BYTES: Final = 8192
"""Block size of URLs. They arrive in random order, so their compactions rewrite existing rows, and larger
blocks make that cheaper per row."""


class Layout(NamedTuple):
    """Whose store it is, and which families it has."""

    owner: str
    families: tuple[str, ...]
    marks: frozenset[str]
    """Families that every version of it has, by which it is told from other stores."""
    write_buffer: int = WRITE_BUFFER
    """Bytes of a family in memory above which all are written to files."""


JUDGE: Final = Layout("a judge's", (*RECORDS, RUNS), frozenset({LOG, ANCHORS, URLS}))
ELECTOR: Final = Layout(
    "an elector's", (DEFAULT, VERSIONS, MEMBERS, CLUSTERS, DUE, SEEN), frozenset({VERSIONS, MEMBERS})
)


def _has_store(path: Path) -> bool:
    """Whether a directory has a store. Raises DamagedStateError if it has data files without CURRENT."""
    if (path / "CURRENT").exists():
        return True
    if any(path.glob("*.sst")):
        raise damage_error(path, "CURRENT: missing, although there are data files")
    return False


def state_directory(path: Path) -> Path | None:
    """The store's directory at or below `path`, which may be the store itself, the directory of a namespace
    or of an `Index`, or a `state_dir` with one namespace. None if there is none. Raises StateError if there
    are several."""
    if (path / "CURRENT").exists():
        return path
    for name in (ROLE, INDEX):
        if (path / name / "CURRENT").exists():
            return path / name
    directories = sorted(entry.parent for entry in path.glob(f"*/{ROLE}/CURRENT"))
    if len(directories) > 1:
        raise StateError(f"state directory {path}: it contains several namespaces; name one of {directories}")
    return directories[0] if directories else None


def version_error(path: Path, which: str) -> StateError:
    """The error for a directory with the layout of another version."""
    return StateError(
        f"state directory {path}: another version made it ({which}); if it is deleted, a role rebuilds it"
        " from the topics, a dashboard from what they still have, and an Index starts empty"
    )


def unflushed_error(path: Path) -> StateError:
    """The error for the directory of a judge that has not flushed yet."""
    return StateError(f"state directory {path}: nothing was flushed into it yet")


def _items(reader: Rdict, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Keys from `start` on, in byte order, with their values. Raises the error at which RocksDB stopped.

    The caller must not write until the end is reached. A snapshot would allow that, but makes RocksDB rewrite
    files when it is released.
    """
    last, again = None, None
    try:
        # The binding's iterator bounds are broken, so callers must stop on their own.
        for pair in cast(Iterator[tuple[bytes, bytes]], reader.items(from_key=start)):
            yield pair
            last = pair[0]
        # The binding ends the loop silently at a damaged block. Another iterator tells whether that happened.
        again = reader.iter()
        again.seek(start if last is None else last)
        if last is not None and again.valid():
            again.next()
        again.status()
        if again.valid():
            raise Exception(f"Corruption: keys from {again.key()!r} on were not read")
    finally:
        # The traceback of an error keeps this frame alive; its references would keep the store open.
        del reader
        again = None


def sst_writer(family: str) -> SstFileWriter:
    """A writer of files for `Store.ingest`, with the family's options."""
    return SstFileWriter(_options(family, Cache(0)))


def _options(family: str, cache: Cache, *, expiring: bool = False) -> Options:
    """The options of a family, including those of the whole database."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_atomic_flush(True)
    options.set_max_open_files(-1)
    options.set_max_background_jobs(3)  # a flush, a long merge, and one other
    options.set_keep_log_file_num(2)
    options.set_max_manifest_file_size(MANIFEST_BYTES)
    options.set_write_buffer_size(WRITE_BUFFER)
    options.set_level_zero_file_num_compaction_trigger(FLUSHES_MERGED)
    # One merge may rewrite all URLs, at a million per second. A billion take a quarter of an hour, in which
    # look-ups check more filters, but writes continue.
    files = FLUSHES_BEHIND if family in _BY_DIGEST else FLUSHES_MERGED
    options.set_level_zero_slowdown_writes_trigger(3 * files)
    options.set_level_zero_stop_writes_trigger(5 * files)
    options.set_compression_type(DBCompressionType.none() if family == RUNS else DBCompressionType.lz4())
    if family in _BY_DIGEST:
        # Universal compaction merges sorted runs of similar size. Measured up to 28 M rows, flushed every
        # 230 k, it takes 1.4 us of processor time per row, levelled compaction 2.5. A look-up of a new URL
        # takes 5 us instead of 9.
        options.set_compaction_style(DBCompactionStyle.universal())
        if expiring:
            merging = UniversalCompactOptions()
            merging.max_size_amplification_percent = SPACE_OF_DELETED
            options.set_universal_compaction_options(merging)
        # Most URLs that are looked up are new, so write buffers have a filter as well.
        options.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER)
        options.set_memtable_whole_key_filtering(True)
    blocks = BlockBasedOptions()
    if family == RUNS:  # which the page cache has
        blocks.disable_cache()
    else:
        blocks.set_block_cache(cache)
    blocks.set_format_version(5)
    blocks.set_block_size(URL_BLOCK_BYTES if family in _BY_DIGEST else BLOCK_BYTES)
    # Look-ups in the other families are of existing keys, for which filters are useless.
    if family in (DEFAULT, *_BY_DIGEST, CLUSTERS):
        blocks.set_bloom_filter(BLOOM_BITS, False)
    options.set_block_based_table_factory(blocks)
    return options


def _open_read_only(path: Path, families: dict[str, Options]) -> Rdict:
    """Open these families read-only, in the state of the last flush, even if another process has them
    open."""
    for left in reversed(range(READ_TRIES)):
        try:
            return Rdict(
                str(path),
                families[DEFAULT],
                column_families=families,
                access_type=AccessType.read_only(False),
            )
        except Exception as error:
            if not left or MISSING_FILE not in str(error):
                raise
            time.sleep(READ_PAUSE)
    raise AssertionError("the last try returns or raises")


def families_in(path: Path) -> list[str]:
    """The families of the store in a directory, sorted. Raises DamagedStateError."""
    with TranslatedErrors(path):
        return sorted(Rdict.list_cf(str(path)))


def read_from_disk(path: Path, family: str, turn: Callable[[], None]) -> int:
    """Read all blocks of a family's files and verify all checksums. Returns the size of the files in bytes.

    Bypasses the page cache if the file system supports that, since a cached copy may be intact while the disk
    is not, and to leave the judge's pages in the cache. Another process may write meanwhile. `turn` is called
    every few blocks. Raises DamagedStateError, DiskError.
    """
    direct = _takes_direct_reads(path)

    def options(name: str) -> Options:
        made = _options(name, Cache(0))
        made.set_use_direct_reads(direct)
        return made

    reading = ReadOptions()
    reading.set_readahead_size(READ_AHEAD)
    with TranslatedErrors(path):
        db = _open_read_only(path, {name: options(name) for name in (DEFAULT, family)})
        try:
            return _read_through(db.get_column_family(family), reading, turn)
        finally:
            db.close()


def _read_through(family: Rdict, reading: ReadOptions, turn: Callable[[], None]) -> int:
    each = family.iter(reading)
    each.seek_to_first()
    for number in count():
        if not each.valid():
            break
        if number % KEYS_A_TURN == 0:
            turn()
        each.next()
    each.status()
    return family.property_int_value("rocksdb.total-sst-files-size") or 0


@contextmanager
def opened_to_read(path: Path, family: str) -> Iterator[Rdict]:
    """A family of the store in a directory, as of its last flush, which another process may have open to
    write. Raises as `Store` does."""
    with TranslatedErrors(path):
        if not _has_store(path):
            raise StateError(f"state directory {path}: it contains no RocksDB")
        db = _open_read_only(path, {name: _options(name, Cache(0)) for name in (DEFAULT, family)})
        try:
            yield db.get_column_family(family)
        finally:
            db.close()


def read_value(path: Path, family: str, key: bytes) -> bytes | None:
    """Read one key of the store in a directory, and open no files but those of its family. Raises as `Store`
    does."""
    with opened_to_read(path, family) as opened:
        value: bytes | None = opened.get(key)
        return value


def _takes_direct_reads(path: Path) -> bool:
    """Whether the file system supports O_DIRECT. Some do not, such as tmpfs of older kernels."""
    try:
        os.close(os.open(path / "CURRENT", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
    except OSError:
        return False
    return True


class Writes:
    """Writes that are applied together, by `Store.write`."""

    def __init__(self, handles: dict[str, ColumnFamily]) -> None:
        self._handles = handles
        self.writes: Final = WriteBatch(raw_mode=True)

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Set a key."""
        self.writes.put(key, value, self._handles[family])

    def put_many(self, family: str, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Set many keys of a family."""
        put, handle = self.writes.put, self._handles[family]
        for key, value in pairs:
            put(key, value, handle)

    def delete(self, family: str, key: bytes) -> None:
        """Remove a key, if it exists."""
        self.writes.delete(key, self._handles[family])

    def delete_many(self, family: str, keys: Iterable[bytes]) -> None:
        """Remove many keys of a family, as far as they exist."""
        delete, handle = self.writes.delete, self._handles[family]
        for key in keys:
            delete(key, handle)

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        """Remove the keys of [start, end)."""
        self.writes.delete_range(start, end, self._handles[family])


class Store:
    """A RocksDB directory with all its column families.

    Writes are in memory until `flush`. After a crash the state is that of a flush: the last one requested, or
    a later one that RocksDB started because its buffers were full. A batch is never applied in part.

    `read_only` opens the state of the last flush, even if another process has the directory open. Otherwise
    StateBusyError is raised if another process has it open to write. Every method raises other failures of
    RocksDB as DamagedStateError, DiskError or StateError, which name the directory. `expiring` says that URLs
    are deleted as fast as they come.
    """

    def __init__(
        self,
        path: Path,
        cache: int,
        *,
        read_only: bool = False,
        layout: Layout = JUDGE,
        expiring: bool = False,
    ) -> None:
        self.path: Final = path
        self.families: Final = (*layout.families, FLUSH)
        self._layout = layout
        self._translated_errors = TranslatedErrors(path)
        self._read_only = read_only
        self._cache = Cache(cache)
        # Pass the options of all families: RocksDB silently resets those that are not passed.
        options = {family: _options(family, self._cache, expiring=expiring) for family in self.families}
        for each in options.values():
            each.set_write_buffer_size(layout.write_buffer)
        with self._translated_errors:
            self._refuse_other_layout(read_only)
            if not read_only:
                private_directory(path)
            self._db = self._open(options)
        self._read = {family: self._db.get_column_family(family) for family in self.families}
        self._handles = {family: self._db.get_column_family_handle(family) for family in self.families}
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True  # type: ignore[assignment, method-assign]  # a property
        self._move = IngestExternalFileOptions()
        self._move.set_move_files(True)

    def _open(self, options: dict[str, Options]) -> Rdict:
        if self._read_only:
            return _open_read_only(self.path, options)
        return Rdict(
            str(self.path),
            _options(DEFAULT, self._cache),
            column_families=options,
            access_type=AccessType.read_write(),
        )

    def _refuse_other_layout(self, read_only: bool) -> None:
        """Refuse a directory with another layout. Runs before it is opened to write, so it stays
        unchanged."""
        if not _has_store(self.path):
            if read_only:
                raise StateError(f"state directory {self.path}: it contains no RocksDB")
            return
        present = set(Rdict.list_cf(str(self.path)))
        if present == set(self.families):
            return
        # Families are created one by one: after an interrupted first start some are missing, and all are
        # empty. Of a manifest that is cut, some are missing as well.
        empty = self._is_empty(present)
        if empty and any(self.path.glob("*.sst")):
            raise damage_error(self.path, "MANIFEST: lists no records, although there are data files")
        if empty and present < set(self.families):
            if read_only:
                raise unflushed_error(self.path)
        elif not self._layout.marks <= present:
            raise StateError(f"state directory {self.path}: this RocksDB is not {self._layout.owner}")
        else:
            raise version_error(self.path, f"has {', '.join(sorted(present))}")

    def _is_empty(self, families: set[str]) -> bool:
        options = {family: _options(family, self._cache) for family in families}
        store = _open_read_only(self.path, options)
        try:
            return next(_items(store.get_column_family(DEFAULT)), None) is None
        finally:
            store.close()

    def get(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """The values of many keys, in their order. Releases the GIL."""
        with self._translated_errors:
            values: list[bytes | None] = self._read[family].get(keys)  # type: ignore[assignment, arg-type]
            return values

    def batch(self) -> Writes:
        """A new empty batch."""
        return Writes(self._handles)

    def write(self, batch: Writes) -> None:
        """Apply a batch atomically. It is visible at once, and durable with the next flush."""
        with self._translated_errors:
            self._db.write(batch.writes, self._unlogged)

    def scan(self, family: str, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` on, in byte order, with their values. Ends after the last key, or raises."""
        with self._translated_errors:
            yield from _items(self._read[family], start)

    def iterator(self, family: str) -> RdictIter:
        """An iterator over a family as it is now; others may write meanwhile."""
        return self._read[family].iter()

    def some(self, family: str, start: bytes, most: int) -> list[tuple[bytes, bytes]]:
        """At most so many keys from `start` on, in byte order, with their values. Unlike in a `scan`, others
        may write meanwhile; but if there are fewer, a damaged block may be the reason."""
        with self._translated_errors:
            pairs = cast(Iterator[tuple[bytes, bytes]], self._read[family].items(from_key=start))
            return list(islice(pairs, most))

    def first_from(self, family: str, starts: Iterable[bytes]) -> list[tuple[bytes, bytes] | None]:
        """For each of these keys the first one that is not before it, with its value; None after the last.
        Cheaper than a `scan` for each, above all if they are in order."""
        with self._translated_errors:
            each, pairs = self._read[family].iter(), list[tuple[bytes, bytes] | None]()
            for start in starts:
                each.seek(start)
                if each.valid():
                    pairs.append((each.key(), each.value()))
                else:
                    each.status()  # raises if a bad block ended the search
                    pairs.append(None)
            return pairs

    def ingest(self, family: str, paths: list[Path]) -> None:
        """Move finished SST files, whose keys do not overlap, into a family, together. Unlike `write`, this
        is durable at once."""
        with self._translated_errors:
            self._read[family].ingest_external_file([str(path) for path in paths], self._move)

    def remove(self, family: str, start: bytes, end: bytes) -> None:
        """Remove the keys of [start, end), which nobody reads or writes any more, and free their disk space.
        Also flushes, since it is durable at once what is removed; a thread may do it.

        Deletions in a batch would be flushed to one file with the newest keys: wherever those of a family
        ascend, compacting that file rewrites all of them. So the deletions have a file of their own.
        """
        with self._translated_errors:
            self._flush()
            keys = cast(Iterator[bytes], self._read[family].keys(from_key=start))
            removed = list(takewhile(lambda key: key < end, keys))
            if removed:
                path = self.path / f"{REMOVED}{family}.sst"
                path.unlink(missing_ok=True)  # of a process that was killed
                writer = sst_writer(family)
                writer.open(str(path))
                for key in removed:
                    del writer[key]
                writer.finish()
                self.ingest(family, [path])
        self.reclaim(family, start, end)

    def reclaim(self, family: str, start: bytes, end: bytes) -> None:
        """Free the disk space of removed keys in [start, end). Also flushes; releases the GIL."""
        self._read[family].compact_range(start, end)

    def compact(self, family: str, start: bytes | None = None, end: bytes | None = None) -> None:
        """Rewrite the files of a family that have keys in [start, end), or all, without what was removed or
        replaced. Also flushes; releases the GIL, and may take minutes."""
        with self._translated_errors:
            # Without it, RocksDB moves files that share one key to the lowest level as they are, and what was
            # replaced stays in the older one.
            options = CompactOptions()
            options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
            self._read[family].compact_range(start, end, options)
            self._db.write(WriteBatch(raw_mode=True), self._unlogged)  # reports a failure

    def flush(self) -> None:
        """Make all writes durable, atomically over all families. Releases the GIL."""
        reach("flush")
        with self._translated_errors:
            self._flush()
            tighten(self.path)

    def _flush(self) -> None:
        self._read[FLUSH].compact_range(None, None)
        # compact_range does not report failures, but the next write does.
        self._db.write(WriteBatch(raw_mode=True), self._unlogged)

    def checkpoint(self, path: Path) -> None:
        """Make a directory `path` with the current content, by hard links, so on the same file system. What
        is not flushed is flushed before."""
        with self._translated_errors:
            Checkpoint(self._db).create_checkpoint(str(path))
            tighten(path)

    def flush_and_close(self) -> None:
        """Flush, and close the directory. Raises the first of two errors."""
        try:
            self.flush()
        except BaseException:
            with suppress(NeardupError):
                self.close()
            raise
        self.close()

    def close(self) -> None:
        """Close the directory. RocksDB flushes pending writes, atomically as well."""
        self._read.clear()
        self._handles.clear()
        with self._translated_errors:
            try:
                self._db.close()
            finally:
                del self._db  # releases the directory even if the flush failed
        if not self._read_only:
            with self._translated_errors:
                tighten(self.path)

    def digest(
        self,
        starts: Mapping[str, bytes] | None = None,
        leave_out: bytes | None = None,
        urls: Callable[[bytes], bytes] | None = None,
    ) -> str:
        """xxh3-128 of keys and values, in order; equal for equal content: of all families, or of some, each
        from a key on. Keys of the default family that start with `leave_out` are left out. Of a value of the
        family `urls` counts what the function `urls` returns; those of which that is empty are left out."""
        state = xxhash.xxh3_128()
        for family, start in (starts or dict.fromkeys(self.families, b"")).items():
            name = family.encode()
            state.update(b"%d:%b" % (len(name), name))
            for key, value in self.scan(family, start):
                if family == DEFAULT and leave_out is not None and key.startswith(leave_out):
                    continue
                if family == URLS and urls is not None and not (value := urls(value)):
                    continue
                state.update(b"%d:%d:" % (len(key), len(value)))
                state.update(key)
                state.update(value)
        return state.hexdigest()

    def disk_bytes(self) -> int:
        """Size of the SST files in use, in bytes."""
        return sum(int(file["size"]) for file in self._db.live_files())

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
