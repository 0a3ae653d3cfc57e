"""One RocksDB directory, as the judge needs it: no write-ahead log, everything durable at once.

The journal is the log (rule 13), so RocksDB's own is off. What a crash leaves is the state of the last
flush, and that must be one state: a flush covers all column families atomically.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Final, cast

import xxhash
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    ColumnFamily,
    DBCompactionStyle,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
    WriteOptions,
)

from stream.errors import StateError
from stream.failpoints import reach
from stream.private import private_directory, tighten
from stream.tables.failures import MISSING_FILE, Explained, damaged

DEFAULT: Final = "default"
LOG: Final = "log"
ANCHORS: Final = "anchors"
DUPLICATES: Final = "duplicates"
URLS: Final = "urls"
RECORDS: Final = (DEFAULT, LOG, ANCHORS, DUPLICATES, URLS)
"""What is written by batches alone."""
TABLE: Final = "table-"
ROLE: Final = "judge"
"""Name of the directory in a namespace's own."""
INDEX: Final = "state"
"""Name of the directory in an `Index`'s own."""
FLUSH: Final = "flush"
"""Always empty. `Rdict.flush` covers one family even with atomic flush on; a manual compaction flushes
all families in one manifest edit, releases the GIL, and has nothing to compact in an empty family."""

WRITE_BUFFER: Final = 64 << 20
FLUSHES_MERGED: Final = 12
"""Files of flushes that a compaction waits for: with more, what is there already is rewritten more rarely.
Keys that are not there cost a look at the filter of each."""
FLUSHES_BEHIND: Final = 300
"""The same of URLs, where it is too many: writes are slowed down at three times as many files."""
READ_TRIES: Final = 5
READ_PAUSE: Final = 0.1
"""Tries to open a directory that another process may be writing, and seconds between them: a compaction there
may remove a file after the manifest that names it was read."""
READ_AHEAD: Final = 256 << 10
"""Bytes read at once where all is read."""
KEYS_A_TURN: Final = 64
BLOOM_BITS: Final = 10
MEMTABLE_FILTER: Final = 0.02
"""Of a write buffer."""
BLOCK_BYTES: Final = 4096
URL_BLOCK_BYTES: Final = 8192
"""URLs come in no order, so their compactions rewrite what is there, and cost what it costs to pack a row."""


def table_family(table: int) -> str:
    """The column family of one table."""
    return f"{TABLE}{table:02d}"


def tables_of(path: Path) -> int:
    """How many tables the store in a directory was made for. Raises StateError where there is no store."""
    if not (path / "CURRENT").exists():
        raise StateError(f"state directory {path}: no RocksDB is in it")
    with Explained(path):
        return sum(family.startswith(TABLE) for family in Rdict.list_cf(str(path)))


def state_directory(path: Path) -> Path | None:
    """The judge's directory at or below `path`: the one itself, a namespace's, an `Index`'s, or the only
    namespace's of a `state_dir`. None where there is none. Raises StateError where there are several."""
    if (path / "CURRENT").exists():
        return path
    for name in (ROLE, INDEX):
        if (path / name / "CURRENT").exists():
            return path / name
    found = sorted(entry.parent for entry in path.glob(f"*/{ROLE}/CURRENT"))
    if len(found) > 1:
        raise StateError(f"state directory {path}: several namespaces in it; name one of {found}")
    return found[0] if found else None


def of_another_version(path: Path) -> StateError:
    """What is said of a directory that is not laid out as this version does it."""
    return StateError(
        f"state directory {path}: another version made it; where it is deleted, a judge rebuilds it, and an"
        " Index begins anew"
    )


def nothing_flushed(path: Path) -> StateError:
    """What is said of a directory whose judge has just begun."""
    return StateError(f"state directory {path}: nothing was flushed into it yet")


def _items(reader: Rdict, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Keys from `start` on, in byte order, with their values. Raises what RocksDB stopped at.

    Who reads to the end sees to it that nobody writes meanwhile: a snapshot would have RocksDB rewrite files
    when it is let go.
    """
    last, again = None, None
    try:
        # Iterator bounds of this binding are broken: callers stop by themselves.
        for pair in cast(Iterator[tuple[bytes, bytes]], reader.items(from_key=start)):
            yield pair
            last = pair[0]
        # It ends at a damaged block as it does behind the last key: another iterator says which it was.
        again = reader.iter()
        again.seek(start if last is None else last)
        if last is not None and again.valid():
            again.next()
        again.status()
        if again.valid():
            raise Exception(f"Corruption: keys from {again.key()!r} on were not read")
    finally:
        # An error's traceback holds this frame, and what it has of the store would keep that open.
        del reader
        again = None


def sst_writer(family: str) -> SstFileWriter:
    """A writer of files for `Store.ingest`, with the family's options, in a process without a store."""
    return SstFileWriter(_options(family, Cache(0)))


def _options(family: str, cache: Cache) -> Options:
    """The options of one family, and of the database in so far as they are of the database."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_atomic_flush(True)
    options.set_max_open_files(-1)
    options.set_max_background_jobs(3)  # a flush, a long merge, and what else is due
    options.set_keep_log_file_num(2)
    options.set_write_buffer_size(WRITE_BUFFER)
    options.set_level_zero_file_num_compaction_trigger(FLUSHES_MERGED)
    # One merge may rewrite all URLs, a million a second: of a billion it takes a quarter of an hour, in which
    # look-ups ask more filters, and writes go on.
    files = FLUSHES_BEHIND if family == URLS else FLUSHES_MERGED
    options.set_level_zero_slowdown_writes_trigger(3 * files)
    options.set_level_zero_stop_writes_trigger(5 * files)
    # Read out of the page cache as it lies there: a group of a table costs 3 us instead of 7 to 10.
    options.set_allow_mmap_reads(True)
    of_table = family.startswith(TABLE)
    options.set_compression_type(DBCompressionType.none() if of_table else DBCompressionType.lz4())
    if family == URLS:
        # Up to 28 M rows, flushed every 230 k, compactions take 1.4 us of processor a row where sorted runs
        # of similar size are merged, and 2.5 where levels are; a look-up of a new URL 5 us instead of 9.
        options.set_compaction_style(DBCompactionStyle.universal())
        # Most URLs that are looked up are new: what is not flushed yet has a filter too.
        options.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER)
        options.set_memtable_whole_key_filtering(True)
    blocks = BlockBasedOptions()
    if of_table:  # nothing to decompress, so nothing worth a copy
        blocks.disable_cache()
    else:
        blocks.set_block_cache(cache)
    blocks.set_format_version(5)
    blocks.set_block_size(URL_BLOCK_BYTES if family == URLS else BLOCK_BYTES)
    # What is looked for in the others is there.
    if family in (DEFAULT, URLS):
        blocks.set_bloom_filter(BLOOM_BITS, False)
    options.set_block_based_table_factory(blocks)
    return options


def _opened_to_read(path: Path, families: dict[str, Options]) -> Rdict:
    """These families as the last flush left them, whether or not another process has the directory open."""
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
    """The families of the store in a directory, in order. Raises DamagedStateError."""
    with Explained(path):
        return sorted(Rdict.list_cf(str(path)))


def read_from_disk(path: Path, family: str, turn: Callable[[], None]) -> int:
    """Read all blocks of a family's files, verifying every checksum; the files' size in bytes.

    It reads past the page cache where the file system can: what is in memory may be whole, and what the page
    cache holds for a judge stays there. Another process may write meanwhile. `turn` is called every few
    blocks. Raises DamagedStateError, DiskError.
    """
    direct = _takes_direct_reads(path)

    def options(name: str) -> Options:
        made = _options(name, Cache(0))
        made.set_allow_mmap_reads(False)  # an error of the disk would be SIGBUS
        made.set_use_direct_reads(direct)
        return made

    reading = ReadOptions()
    reading.set_readahead_size(READ_AHEAD)
    with Explained(path):
        db = _opened_to_read(path, {name: options(name) for name in (DEFAULT, family)})
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


def _takes_direct_reads(path: Path) -> bool:
    """Some file systems, tmpfs of older kernels for one, do not."""
    try:
        os.close(os.open(path / "CURRENT", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
    except OSError:
        return False
    return True


class Batch:
    """Writes that happen together. `put` and `delete` take effect in `Store.write`."""

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
        """Remove a key, if it is there."""
        self.writes.delete(key, self._handles[family])

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        """Remove the keys of [start, end)."""
        self.writes.delete_range(start, end, self._handles[family])


class Store:
    """One RocksDB directory with all its column families, each with its own options.

    Writes are in memory until `flush`. A crash keeps the state of some flush: the last one asked for, or
    a later one that RocksDB made because its buffers were full; never half a batch.

    `read_only` opens what the last flush left, whether or not another process has the directory open, and
    refuses writes. Raises StateBusyError when another process has it open to write. Whatever else RocksDB
    fails with becomes an error that names the directory too, of any method: DamagedStateError, DiskError,
    StateError.
    """

    def __init__(self, path: Path, tables: int, cache: int, *, read_only: bool = False) -> None:
        self.path: Final = path
        self.tables: Final = tables
        self.families: Final = (
            *RECORDS, FLUSH, *(table_family(table) for table in range(tables)),
        )  # fmt: skip
        self._explained = Explained(path)
        self._read_only = read_only
        self._cache = Cache(cache)
        # Options of families that are not passed on reopen are silently lost: pass all of them.
        options = {family: _options(family, self._cache) for family in self.families}
        if not read_only:
            with self._explained:
                private_directory(path)
        with self._explained:
            self._refuse_other_layout(read_only)
            self._db = self._opened(options)
        self._read = {family: self._db.get_column_family(family) for family in self.families}
        self._handles = {family: self._db.get_column_family_handle(family) for family in self.families}
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True  # type: ignore[assignment, method-assign]  # a property
        self._move = IngestExternalFileOptions()
        self._move.set_move_files(True)

    def _opened(self, options: dict[str, Options]) -> Rdict:
        if self._read_only:
            return _opened_to_read(self.path, options)
        return Rdict(
            str(self.path),
            _options(DEFAULT, self._cache),
            column_families=options,
            access_type=AccessType.read_write(),
        )

    def _refuse_other_layout(self, read_only: bool) -> None:
        """Before anything is opened to write: what is refused stays as it is."""
        if not (self.path / "CURRENT").exists():
            if any(self.path.glob("*.sst")):
                raise damaged(self.path, "CURRENT: not there, but files that it leads to")
            return
        found = set(Rdict.list_cf(str(self.path)))
        if found == set(self.families):
            return
        # Families are made one by one: where a first start was cut short, some are missing, all are empty.
        tables = sum(family.startswith(TABLE) for family in found)
        if found < set(self.families) and any(self.path.glob("*.sst")) and self._is_empty(found):
            raise damaged(self.path, "MANIFEST: names no records, but there are files of them")
        if found < set(self.families) and self._is_empty(found):
            if read_only:
                raise nothing_flushed(self.path)
        elif not {LOG, ANCHORS, URLS} <= found:
            raise StateError(f"state directory {self.path}: this RocksDB is not a judge's")
        elif tables != self.tables:
            raise StateError(
                f"state directory {self.path}: made for {tables} tables, opened for {self.tables}"
            )
        else:
            raise of_another_version(self.path)

    def _is_empty(self, families: set[str]) -> bool:
        options = {family: _options(family, self._cache) for family in families}
        store = _opened_to_read(self.path, options)
        try:
            return next(_items(store.get_column_family(DEFAULT)), None) is None
        finally:
            store.close()

    def get(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """The values of many keys, in their order. Releases the GIL."""
        with self._explained:
            values: list[bytes | None] = self._read[family].get(keys)  # type: ignore[assignment, arg-type]
            return values

    def batch(self) -> Batch:
        """A new empty batch."""
        return Batch(self._handles)

    def write(self, batch: Batch) -> None:
        """Apply a batch, all or nothing, to every reader from now on; durable with the next flush."""
        with self._explained:
            self._db.write(batch.writes, self._unlogged)

    def scan(self, family: str, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` on, in byte order, with their values. Ends behind the last one, or raises."""
        with self._explained:
            yield from _items(self._read[family], start)

    def ingest(self, family: str, path: Path) -> None:
        """Move a finished SST file into a family; durable at once, unlike `write`."""
        with self._explained:
            self._read[family].ingest_external_file([str(path)], self._move)

    def sst_writer(self, family: str) -> SstFileWriter:
        """A writer of files for `ingest`, with the family's options."""
        return SstFileWriter(_options(family, self._cache))

    def reclaim(self, family: str, start: bytes, end: bytes) -> None:
        """Give back the disk of what was removed of the keys [start, end). A flush too; releases the GIL."""
        self._read[family].compact_range(start, end)

    def flush(self) -> None:
        """Make everything written durable, atomically over all families. Releases the GIL."""
        reach("flush")
        with self._explained:
            self._read[FLUSH].compact_range(None, None)
            # It does not say that it failed; the next write does.
            self._db.write(WriteBatch(raw_mode=True), self._unlogged)
            tighten(self.path)

    def close(self) -> None:
        """Close the directory. What was written and not flushed is flushed by RocksDB, atomically too."""
        self._read.clear()
        self._handles.clear()
        with self._explained:
            try:
                self._db.close()
            finally:
                del self._db  # where it could not flush, it lets go of the directory only so
        if not self._read_only:
            with self._explained:
                tighten(self.path)

    def digest(self) -> str:
        """xxh3-128 of all families' keys and values in order: equal for equal content."""
        state = xxhash.xxh3_128()
        for family in self.families:
            name = family.encode()
            state.update(b"%d:%b" % (len(name), name))
            for key, value in self.scan(family):
                state.update(b"%d:%d:" % (len(key), len(value)))
                state.update(key)
                state.update(value)
        return state.hexdigest()

    def disk_bytes(self) -> int:
        """Bytes of the SST files in use."""
        return sum(int(file["size"]) for file in self._db.live_files())

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
