"""A run: its sources become rows and the rows get verdicts, in a directory where a killed run is resumed."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import xxhash

from stream.dedup.election import refuse_unfit_path
from stream.errors import SettingsError
from stream.fingerprint.scheme import Scheme
from stream.local.corpus import (
    PAGES_PER_FILE,
    CorpusCounts,
    RowsOptions,
    fingerprint_corpus,
    refuse_unwritable_name,
)
from stream.local.index import RUN, VERDICT_LOG, refuse_unfit
from stream.local.scan import ScannedBatch, index_in, judge_sources, rows_id
from stream.local.scan_output import BegunRows, verdicts_to
from stream.local.shared_ids import refuse_other_pages
from stream.locks import try_lock
from stream.messages.verdict import VerdictRecord
from stream.messages.verdict_options import VerdictOptions
from stream.objects import path_of
from stream.output import writing
from stream.private import private_directory
from stream.settings import Settings
from stream.sources.compressed import STDIN
from stream.sources.directory import DirectorySource
from stream.sources.file import FileSource
from stream.sources.rows import RowsSource
from stream.sources.source import Source, arguments_of

_PLAN: Final = "plan.json"
_ROWS: Final = "rows"
_VERDICTS: Final = "verdicts.parquet"
_DECODE: Final = msgspec.json.Decoder(VerdictRecord).decode


class RunPlan(msgspec.Struct, frozen=True):
    """Whatever determines rows and verdicts."""

    scheme: str
    options: str
    page_bytes: int
    sources: list[tuple[str, str]]
    """Names, and the `state_of` each."""
    columns: list[dict[str, str]]
    done: bool = False
    """Whether the output is whole, so that another run may take this one's place."""


class Request(NamedTuple):
    """What a run was asked for."""

    settings: Settings
    scheme: Scheme
    options: VerdictOptions
    sources: Sequence[Source]
    same_pages: bool = False
    """Whether ids that the index has name the same pages in new versions."""

    def plan(self) -> RunPlan:
        """Return the plan. Raises SettingsError for a source that cannot be copied."""
        return RunPlan(
            self.scheme.id,
            self.options.id,
            self.settings.page_bytes,
            [(each.name, state_of(each)) for each in self.sources],
            [each.columns.given for each in self.sources],
        )


def state_of(source: Source) -> str:
    """A digest of names, sizes and times of a source's files, which differs when one has changed.

    Raises SettingsError for a source that cannot be copied.
    """
    if source.name == STDIN:
        raise SettingsError("source -: standard input cannot be read twice, as dedup has to; name a file")
    if not isinstance(source, DirectorySource | FileSource):
        raise SettingsError(
            f"source {source.name}: rows have no pages to write; name the sources that they were made of"
        )
    path = path_of(source.name)
    if isinstance(path, Path) and path.exists() and not (path.is_file() or path.is_dir()):
        raise SettingsError(
            f"source {source.name}: a pipe cannot be read twice, as dedup has to; name a file"
        )
    refuse_unwritable_name(source)
    state = xxhash.xxh3_128()
    for file in source.files() if isinstance(source, DirectorySource) else [path_of(source.name)]:
        try:
            status = file.stat()
        except OSError:  # reading it names the damage
            described = [-1]
        else:  # who sets a file's time back changes its ctime; of an object, there is the size alone
            times = (getattr(status, name, 0) for name in ("st_mtime_ns", "st_ctime_ns"))
            described = [status.st_size, *times]
        state.update(msgspec.json.encode([os.fsencode(str(file)), described]))
    return state.hexdigest()


class Run:
    """A run in its directory, which `open_run` has locked."""

    def __init__(self, directory: Path, index: Path | None, request: Request) -> None:
        self.directory, self._index, self._request = directory, index, request
        self.rows = directory / _ROWS
        self.verdicts = directory / _VERDICTS
        self._plan = request.plan()
        self._states = dict(self._plan.sources)
        self._begin()

    async def fingerprint(self, counts: CorpusCounts, progress: Callable[[int, int], None]) -> RowsSource:
        """Return the rows of all pages, and make those that an earlier process did not."""
        settings, scheme, _, sources, _ = self._request
        rows = RowsOptions(pages_per_file=PAGES_PER_FILE)
        await fingerprint_corpus(settings, scheme, sources, self.rows, rows, counts=counts, progress=progress)
        return RowsSource(str(self.rows))

    async def judge(self, rows: RowsSource, progress: Callable[[int], None], crowding: Counter[str]) -> None:
        """Judge the rows that have no verdict yet. `progress` is called with their number, and `crowding`
        gets the counts of `JudgedBatch.crowding`."""
        settings, scheme, options, sources, same_pages = self._request
        identity, kept = rows_id(rows), self._index
        with index_in(kept or self.directory / "index", settings, scheme, options) as index:
            rows.refuse_misfits(index.scheme)
            done = index.judged(identity)
            if done == rows.count and not (kept and (kept / VERDICT_LOG).exists()):
                self._refuse_missing_verdicts(rows)
                return
            if not same_pages and any(each.columns.has_ids for each in sources):
                try:
                    await refuse_other_pages(settings, index, [rows])
                except SettingsError:
                    self.finish()  # another run may take its place: nothing of this one is in the index
                    raise
            begun = [BegunRows(rows.name, identity, done)] if 0 < done < rows.count else []
            with verdicts_to(self.verdicts, index, kept, begun) as verdicts:
                values: list[bytes] = []

                def before(scanned: ScannedBatch) -> None:
                    values[:] = verdicts.log(scanned)

                async with aclosing(
                    judge_sources(settings, index, [rows], before, arguments_of(sources))
                ) as batches:
                    async for decided in batches:
                        crowding.update(decided.crowding)
                        verdicts.write(values, list(map(_DECODE, values)))
                        done += len(values)
                        progress(done)

    def refuse_changed(self, source: Source) -> None:
        """Raise SettingsError if a source is not as it was when the run began."""
        if self._states[source.name] != state_of(source):
            raise SettingsError(f"source {source.name}: changed since its pages were judged; {self._restart}")

    @property
    def resumable(self) -> bool:
        """Whether a process may go on with what another one wrote."""
        return self._index is not None

    def name(self, *written: object) -> str:
        """16 hex digits that name the run and what is written of it."""
        return xxhash.xxh3_64_hexdigest(msgspec.json.encode([self._plan, list(map(repr, written))]))

    def finish(self) -> None:
        """Note that the output is whole."""
        self._write(msgspec.structs.replace(self._plan, done=True))

    @property
    def _restart(self) -> str:
        if self._index is None:
            return "run the command again"
        return f"begin again with a new --index, or without {self.directory}, whose pages are in this one"

    def _refuse_missing_verdicts(self, rows: RowsSource) -> None:
        """Raise SettingsError if the rows were judged, and the verdicts are gone: all would be duplicates."""
        if rows.count and not any(self.verdicts.glob("*.parquet")):
            self.finish()  # else the index would be for this run alone, which will always be refused
            raise SettingsError(
                f"index {self._index}: has judged these pages in a run before the last one, whose verdicts"
                " are not kept; name a new index"
            )

    def _begin(self) -> None:
        """Note the plan, or find that it is noted.

        Raises SettingsError if another run is unfinished: its pages are in the index, but in no output.
        """
        path = self.directory / _PLAN
        if path.exists():
            before = self._read(path)
            if msgspec.structs.replace(before, done=False) == self._plan:
                return
            if not before.done:
                raise SettingsError(self._difference(before))
            for left in (
                self.rows,
                self.verdicts,
            ):  # a process that is killed here leaves the rest to the next
                shutil.rmtree(left, ignore_errors=True)
        self._write(self._plan)

    def _write(self, plan: RunPlan) -> None:
        with writing(self.directory / _PLAN) as file:
            file.write(msgspec.json.encode(plan))

    def _read(self, path: Path) -> RunPlan:
        try:
            return msgspec.json.decode(path.read_bytes(), type=RunPlan)
        except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
            raise SettingsError(f"{path}: damaged: {error}; {self._restart}") from error

    def _difference(self, before: RunPlan) -> str:
        names, now = dict(before.sources), self._states
        if names.keys() == now.keys():
            for name, state in now.items():
                if names[name] != state:
                    return (
                        f"source {name}: changed since an interrupted run began to judge it; {self._restart}"
                    )
        return (
            f"index {self._index}: an interrupted dedup of {', '.join(names)} is unfinished, and this is"
            f" another; run that again first, or {self._restart}"
        )


@contextmanager
def open_run(scratch: Path, index: Path | None, request: Request) -> Iterator[Run]:
    """The run of a request: in `scratch`, or in the directory of an index that outlives it.

    Raises SettingsError.
    """
    refuse_unfit_path(*("TMPDIR", scratch) if index is None else ("index", index))
    if index is None:
        yield Run(scratch, None, request)
        return
    request.plan()  # refuses sources before anything is made
    refuse_unfit(index, request.scheme, request.options)
    directory = index / RUN
    try:
        private_directory(directory)
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise SettingsError(f"index {directory}: {error.strerror}") from error
    try:
        if not try_lock(held):
            raise SettingsError(f"index {index}: another dedup uses it")
        yield Run(directory, index, request)
    finally:
        os.close(held)
