"""Fingerprints sources into a directory of rows, on all cores. A run that is killed is resumed by another."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import pyarrow as pa

from stream import failpoints
from stream.errors import RowsError, SettingsError
from stream.fingerprint.row import Row, Status
from stream.fingerprint.scheme import Scheme
from stream.local.scan import fingerprint_messages
from stream.locks import try_lock
from stream.page_rows.page_fingerprinter import labelled, with_columns_named
from stream.pages.columns import Columns
from stream.private import private_directory
from stream.rows.arrow import FIRST, Place, batch_of
from stream.rows.files import last_read, read_described, sorted_table, write_file
from stream.rows.manifest import (
    NAME,
    SUFFIX,
    DamagedSource,
    Manifest,
    RowsFile,
    read_manifest,
    visible,
    writing_to,
)
from stream.settings import Settings
from stream.sources.compressed import is_read_once
from stream.sources.rejections import Rejections
from stream.sources.row_warnings import RowWarnings
from stream.sources.source import Damage, Message, Source, refuse_unreadable
from stream.stores.objects import AnyPath

PLAN: Final = "_neardup_plan.json"
"""File with the plan of a run, by which another run resumes it."""
PAGES_PER_FILE: Final = 65_536


class CorpusPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Whatever determines the bytes of the files."""

    scheme: str
    order: str
    pages_per_file: int
    page_bytes: int
    sources: list[tuple[str, int | None]]
    """Names and sizes in bytes."""
    columns: dict[str, dict[str, str]] = {}
    """Names of columns and prefix of ids, by source."""


class RowsOptions(NamedTuple):
    """How rows are made."""

    order: Literal["position", "fetched_at"] = "position"
    """The order key: the number of the page in the input, or its time; pages without a time come first."""
    pages_per_file: int = PAGES_PER_FILE


class CorpusCounts:
    """Counts of pages and their states."""

    def __init__(self) -> None:
        self.resumed = 0
        """Pages of files that an earlier run wrote."""
        self.pages = 0
        """Pages fingerprinted by this run."""
        self.statuses: Counter[str] = Counter()
        self.rejections = Rejections()
        self.warnings = RowWarnings()

    def count(self, row: Row, origin: str) -> None:
        """Count a row of this run."""
        self.pages += 1
        self.statuses[Status(row.status).name.lower()] += 1
        self.warnings.count(row, origin)
        if row.reason is not None:
            self.rejections.count(row.reason, origin, row.detail)


async def fingerprint_corpus(
    settings: Settings,
    scheme: Scheme,
    sources: Sequence[Source],
    directory: AnyPath,
    options: RowsOptions | None = None,
    *,
    counts: CorpusCounts | None = None,
    progress: Callable[[int, int], None] = lambda pages, ahead: None,
) -> Manifest:
    """Fingerprint all pages of the sources into files of `directory`, and write the manifest last.

    Files appear whole, one for `pages_per_file` pages. Called again after it was killed, it resumes after the
    last file; the files are the same, byte for byte, as without the kill. `progress` is called with the
    number of pages fingerprinted so far, and of those read ahead.

    Raises SettingsError if the directory holds something else, or the rows of another run. Objects cannot be
    locked: two runs that write the same rows below one prefix do no harm, as both write the same bytes.
    """
    counts, options = counts or CorpusCounts(), options or RowsOptions()
    plan = CorpusPlan(
        scheme=scheme.id,
        order=options.order,
        pages_per_file=options.pages_per_file,
        page_bytes=settings.page_bytes,
        sources=[(each.name, each.total_bytes) for each in sources],
        columns={each.name: given for each in sources if (given := each.columns.given)},
    )
    names = [name for name, _ in plan.sources]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise SettingsError(f"source {doubled[0]}: named twice")
    for each in sources:
        refuse_unwritable_name(each)
    seed = scheme.seed()
    with _lock_directory(directory):
        if _is_resumed(directory, plan) and (directory / NAME).exists():
            manifest = read_manifest(directory)
            counts.resumed = manifest.rows
            _recall_damages(sources, manifest.damaged)
            return manifest
        files = _finished_files(directory, plan, scheme)
        counts.resumed = sum(each.rows for each in files)
        last = last_read(directory / files[-1].name, names) if files else None
        feed = _PlacedMessages(sources, counts.resumed, last, directory)
        async with aclosing(fingerprint_messages(settings, scheme, seed, feed)) as chunks:
            file = _File(scheme, plan)
            async for rows in chunks:
                for of_message in rows:
                    number, place, key, origin, columns, label = feed.places.popleft()
                    row = labelled(with_columns_named(of_message, columns), label)
                    counts.count(row, origin)
                    if options.order == "fetched_at":
                        number = FIRST if row.fetched_at is None else row.fetched_at
                    file.add(row, place._replace(order=number), key)
                    if file.rows == options.pages_per_file:
                        files.append(file.write(directory, len(files)))
                        file = _File(scheme, plan)
                progress(counts.resumed + counts.pages, len(feed.places))
            if file.rows:
                files.append(file.write(directory, len(files)))
        if not files:
            refuse_unreadable(sources)
            _record_plan(directory, plan)
        failpoints.reach("rows.manifest")
        damaged = [
            DamagedSource(each.name, each.damage_count, [(one.error, one.pages) for one in each.damages])
            for each in sources
            if each.damages
        ]
        manifest = Manifest.of(scheme, files, damaged=damaged)
        manifest.write(directory)
    return manifest


def _recall_damages(sources: Sequence[Source], damaged: Sequence[DamagedSource]) -> None:
    """Note the damages of the run that made the rows, as if the sources had been read again."""
    recorded = {each.source: each for each in damaged}
    for source in sources:
        if record := recorded.get(source.name):
            source.damages = [Damage(error, pages) for error, pages in record.damages]
            source.damage_count = record.places


def refuse_unwritable_name(source: Source) -> None:
    """Raise SettingsError for a source whose name no row can have: its bytes are not UTF-8."""
    try:
        source.name.encode()
    except UnicodeEncodeError:
        raise SettingsError(
            f"source {source.name!r}: its path is not UTF-8, which rows cannot have; rename it"
        ) from None


class _PlacedMessages:
    """The messages of sources from number `start` on. The place of each is kept until it is taken.

    Raises SettingsError unless the page before `start` is `last`: a source that was damaged meanwhile has
    other pages, so the same numbers would mean other pages.
    """

    def __init__(
        self, sources: Sequence[Source], start: int, last: tuple[str, int] | None, directory: AnyPath
    ) -> None:
        self._sources, self._start, self._last, self._directory = sources, start, last, directory
        self.places: deque[tuple[int, Place, bytes | None, str, Columns, str | None]] = deque()
        """Number, place (without order), key, origin, columns and label of the messages handed out: a thread
        reads them."""

    def __iter__(self) -> Iterator[Message]:
        number = 0
        before: tuple[str, int] | None = None
        for source in self._sources:
            for position, message in enumerate(source):
                if number < self._start:
                    before = (source.name, position)
                else:
                    if number == self._start:
                        self._refuse_other_pages(before)
                    place = Place(0, source.name, position)
                    columns = message.columns
                    label = columns.label_of(message.value)
                    self.places.append((number, place, message.key, message.origin, columns, label))
                    yield message
                number += 1
        if number <= self._start:
            self._refuse_other_pages(before)

    def _refuse_other_pages(self, before: tuple[str, int] | None) -> None:
        if self._last and before != self._last:
            name, position = self._last
            raise SettingsError(
                f"output {self._directory}: page {position + 1} of {name} was number {self._start}, which is"
                " another page now: a source was damaged then, or is now; name a new directory"
            )


class _File:
    """The rows of a file that is not written yet."""

    def __init__(self, scheme: Scheme, plan: CorpusPlan) -> None:
        self._scheme, self._plan = scheme, plan
        self._batches: list[pa.RecordBatch] = []
        self._rows: list[Row] = []
        self._places: list[Place] = []
        self._keys: list[bytes | None] = []
        self.rows = 0

    def add(self, row: Row, place: Place, key: bytes | None) -> None:
        self._rows.append(row)
        self._places.append(place)
        self._keys.append(key)
        self.rows += 1
        if len(self._rows) == _BATCH:
            self._pack()

    def _pack(self) -> None:
        """Turn rows into columns, which take a third of the memory."""
        made = batch_of(self._scheme, self._rows, self._places, self._keys)
        self._batches.append(made)
        self._rows, self._places, self._keys = [], [], []

    def write(self, directory: AnyPath, number: int) -> RowsFile:
        self._pack()
        if not number:
            _record_plan(directory, self._plan)
        written = write_file(directory / _name(number), sorted_table(self._batches, self._scheme))
        failpoints.reach("rows.file")
        return written


_BATCH: Final = 1024


def _name(number: int) -> str:
    return f"rows-{number:06}{SUFFIX}"


@contextmanager
def _lock_directory(directory: AnyPath) -> Iterator[None]:
    """Create the directory and lock it. Raises SettingsError."""
    if not isinstance(directory, Path):
        try:
            yield
        except OSError as error:
            raise SettingsError(f"output {directory}: {error.strerror or error}") from None
        return
    try:
        if directory.is_dir():
            _refuse_others_files(directory)
        private_directory(directory)
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise SettingsError(f"output {directory}: {error.strerror}") from error
    try:
        if not try_lock(held):
            raise SettingsError(f"output {directory}: another process is writing to it")
        yield
    finally:
        os.close(held)


def _refuse_others_files(directory: AnyPath) -> None:
    """Raise SettingsError for a directory with files that no run wrote, before it becomes private."""
    if (directory / PLAN).exists():
        return
    files: Iterator[AnyPath] = directory.iterdir()
    for other in sorted(files, key=lambda each: each.name):
        if not _is_partial(other):
            raise SettingsError(f"output {directory}: not empty, it has {other.name}; name a new directory")


def _is_partial(file: AnyPath) -> bool:
    """Whether a killed run was writing this file."""
    return file.name.startswith(".neardup-") and file.suffix == ".part"


def _record_plan(directory: AnyPath, plan: CorpusPlan) -> None:
    """Write the plan, unless an earlier run did. Called before the first file is written, when nothing of the
    plan can be refused any more."""
    if not _is_resumed(directory, plan):
        with writing_to(directory / PLAN) as file:
            file.write(msgspec.json.encode(plan))


def _is_resumed(directory: AnyPath, plan: CorpusPlan) -> bool:
    """Whether a run began with this plan. Raises SettingsError if one began with another."""
    path = directory / PLAN
    if not path.exists():
        _refuse_others_files(directory)
        return False
    try:
        before: dict[str, Any] = msgspec.to_builtins(msgspec.json.decode(path.read_bytes(), type=CorpusPlan))
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise RowsError(f"rows {path}: damaged: {error}") from error
    now: dict[str, Any] = msgspec.to_builtins(plan)
    for name, value in now.items():
        if before[name] != value:
            raise SettingsError(
                f"output {directory}: begun with {name} {_as_json(before[name])}, not {_as_json(value)};"
                " name a new directory, or run the same command again"
            )
    if once := next((name for name, _ in plan.sources if is_read_once(name)), None):
        raise SettingsError(f"output {directory}: begun from {once}, which cannot be read again")
    for left in directory.iterdir():
        if _is_partial(left):
            left.unlink()
    return True


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _finished_files(directory: AnyPath, plan: CorpusPlan, scheme: Scheme) -> list[RowsFile]:
    """The complete files of an earlier run. A last one with fewer pages is removed, to be made again."""
    files: list[RowsFile] = []
    there = list(visible(directory))
    for number, path in enumerate(there):
        if path.name != _name(number):
            raise RowsError(f"rows {path}: not a file of this run, which has {_name(number)} here")
        file = read_described(path, scheme)
        if file.rows != plan.pages_per_file:
            if number + 1 < len(there):
                raise RowsError(f"rows {path}: has {file.rows} pages, not {plan.pages_per_file}")
            path.unlink()
            break
        files.append(file)
    return files
