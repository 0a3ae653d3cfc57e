"""A run: its sources become rows and the rows get verdicts, in a directory where a killed run is resumed."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

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
from stream.output import writing
from stream.private import private_directory
from stream.settings import Settings
from stream.sources.compressed import STDIN
from stream.sources.directory import DirectorySource
from stream.sources.file import FileSource
from stream.sources.rows import RowsSource
from stream.sources.source import Source, arguments_of
from stream.stores.objects import is_url, path_of

_PLAN: Final = "plan.json"
_ROWS: Final = "rows"
_VERDICTS: Final = "verdicts.parquet"
_DECODE: Final = msgspec.json.Decoder(VerdictRecord).decode


class PlannedSource(msgspec.Struct, frozen=True):
    """A source of a run."""

    name: str
    """As rows have it."""
    place: str
    """Its URL, or its path from the root."""
    state: str
    """See `state_of`."""
    columns: dict[str, str]


class RunPlan(msgspec.Struct, frozen=True):
    """Whatever determines rows and verdicts."""

    scheme: str
    options: str
    page_bytes: int
    sources: list[PlannedSource]


class RunState(msgspec.Struct, frozen=True):
    """A plan, and how far it is."""

    plan: RunPlan
    stage: Literal["begun", "judging", "done"] = "begun"
    """Once it is judging, the index may have its pages; done, they are in an output, too."""


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
            [
                PlannedSource(each.name, _place(each.name), state_of(each), each.columns.given)
                for each in self.sources
            ],
        )


def state_of(source: Source) -> str:
    """A digest of names in a source, sizes and times of its files, which differs when one has changed.

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
    for file in source.files() if isinstance(source, DirectorySource) else [path]:
        try:
            status = file.stat()
        except OSError:  # reading it names the damage
            described = [-1]
        else:  # who sets a file's time back changes its ctime; of an object, there is the size alone
            times = (getattr(status, name, 0) for name in ("st_mtime_ns", "st_ctime_ns"))
            described = [status.st_size, *times]
        within = os.path.relpath(str(file), str(path))
        state.update(msgspec.json.encode([os.fsencode(within), described]))
    return state.hexdigest()


def _place(name: str) -> str:
    return name if is_url(name) else os.path.abspath(name)


class Run:
    """A run in a directory of its own below one that `open_run` has locked.

    Before it judges, other runs may begin as well. Then it takes the place of all others, whose pages the
    index has only with an output.
    """

    def __init__(self, runs: Path, index: Path | None, request: Request) -> None:
        self._runs, self._index, self._request = runs, index, request
        self._plan = request.plan()
        self.directory = runs / self.name()
        self.rows = self.directory / _ROWS
        self.verdicts = self.directory / _VERDICTS
        self._states = {each.name: each.state for each in self._plan.sources}
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
        directory = kept or self.directory / "index"
        with index_in(directory, settings, scheme, options) as index:
            rows.refuse_misfits(index.scheme)
            done = index.judged(identity)
            if done == rows.count and not (kept and (kept / VERDICT_LOG).exists()):
                self._refuse_missing_verdicts(rows)
                return
            if not same_pages and any(each.columns.has_ids for each in sources):
                await refuse_other_pages(settings, index, directory, [rows])
            self._take_place()
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
        self._write("done")

    @property
    def _restart(self) -> str:
        return "run the command again" if self._index is None else "begin again with a new --index"

    def _refuse_missing_verdicts(self, rows: RowsSource) -> None:
        """Raise SettingsError if the rows were judged, and the verdicts are gone: all would be duplicates."""
        if rows.count and not any(self.verdicts.glob("*.parquet")):
            raise SettingsError(
                f"index {self._index}: has judged these pages in a run before the last one, whose verdicts"
                " are not kept; name a new index"
            )

    def _begin(self) -> None:
        """Note the plan, or find that it is noted.

        Raises SettingsError if another run is unfinished: its pages are in the index, but in no output.
        """
        for other in self._others():
            before = self._read(other)
            if before and before.stage == "judging":
                raise SettingsError(self._difference(before.plan))
            if before and before.stage == "done" and (respelt := self._respelt(before.plan)):
                raise SettingsError(f"index {self._index}: has the pages of the last dedup, {respelt}")
        if self._read(self.directory) is None:
            private_directory(self.directory)
            self._write("begun")

    def _take_place(self) -> None:
        """Note that the index may have pages from now on, and remove what other runs left."""
        self._write("judging")
        for other in self._others():
            shutil.rmtree(other, ignore_errors=True)  # the next run removes what is left by a kill

    def _others(self) -> list[Path]:
        return [each for each in self._runs.iterdir() if each.is_dir() and each != self.directory]

    def _write(self, stage: Literal["begun", "judging", "done"]) -> None:
        with writing(self.directory / _PLAN) as file:
            file.write(msgspec.json.encode(RunState(self._plan, stage)))

    def _read(self, directory: Path) -> RunState | None:
        """The state of a run; None if a kill left none."""
        path = directory / _PLAN
        try:
            return msgspec.json.decode(path.read_bytes(), type=RunState)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
            raise SettingsError(f"{path}: damaged: {error}; {self._restart}") from error

    def _difference(self, before: RunPlan) -> str:
        """Why this run is another than one that is unfinished."""
        sources = {each.place: each for each in before.sources}
        now = {each.place: each for each in self._plan.sources}
        for place, each in now.items():
            if place in sources and each.state != sources[place].state:
                return (
                    f"source {each.name}: changed since an interrupted run began to judge it; {self._restart}"
                )
        unfinished = f"index {self._index}: an interrupted dedup of {_listed(before.sources)} is unfinished"
        again = f"run it again as it was, or {self._restart}"
        if sources.keys().isdisjoint(now):
            return f"{unfinished}, and this is another; run that again first, or {self._restart}"
        for these, others, word in ((now, sources, "has"), (sources, now, "lacks")):
            if more := [each for place, each in these.items() if place not in others]:
                return f"{unfinished}, and this one {word} {_listed(more)}; {again}"
        if respelt := self._respelt(before):
            return f"{unfinished}, {respelt}"
        for place, each in now.items():
            if each.columns != (given := sources[place].columns):
                listed = ", ".join(f"{name}={value}" for name, value in given.items())
                return f"{unfinished}, whose columns are {listed or 'not named'}; {again}"
        return f"{unfinished}, with another --page-bytes or order of sources; {again}"

    def _respelt(self, before: RunPlan) -> str:
        """What to do if only names of sources differ, which rows have as they were; empty if others do."""
        now = {each.place: each for each in self._plan.sources}
        alike = all(
            each.place in now and msgspec.structs.replace(now[each.place], name=each.name) == each
            for each in before.sources
        )
        if len(now) != len(before.sources) or not alike:
            return ""
        named = [(each.name, now[each.place].name) for each in before.sources]
        return next(
            (f"which named {one}, not {two}; name it so again" for one, two in named if one != two), ""
        )


def _listed(sources: Sequence[PlannedSource]) -> str:
    """The first source, and how many more there are."""
    more = len(sources) - 1
    return f"{sources[0].name}{f' and {more:,} more' if more else ''}"


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
