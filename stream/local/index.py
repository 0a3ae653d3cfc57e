"""Embedded index: the judge without Kafka, in the calling process.

Fingerprints, tables and verdicts are those of a deployment. Unlike there, the journal is not stored.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

import msgspec

from stream.errors import (
    OutputError,
    PageError,
    RecordError,
    RecordVersionError,
    SchemeMismatchError,
    SettingsError,
    StateBusyError,
    StateError,
)
from stream.fingerprint.row import Row
from stream.fingerprint.scheme import FILES, Scheme
from stream.judge.batch import Entry
from stream.judge.forgetting import Search
from stream.judge.judge import Judge
from stream.judge.judged_batch import JudgedBatch
from stream.judge.query import matching_anchors
from stream.judge.rule import Rule
from stream.judge.state.labels import note_labels, remove_labels
from stream.judge.state.state import State
from stream.locks import try_lock
from stream.messages.decision import Forgotten
from stream.messages.journal import Genesis, Rows, SourceRange, decode_journal, encode_genesis
from stream.messages.requests import ForgetRequest
from stream.messages.verdict import NearestPage, VerdictRecord
from stream.messages.verdict_options import VerdictOptions
from stream.output import writing
from stream.page_rows.page_fingerprinter import PageFingerprinter, ReadPage
from stream.pages.columns import ID_URL
from stream.pages.fields import fields_of_mapping, name_field, text_field, unreadable
from stream.pages.page import PAGE_BYTES, Page
from stream.private import private_directory, tighten
from stream.scratch import ScratchDirectory
from stream.tables.store.failures import TranslatedErrors, damage_error, translate_cause
from stream.tables.store.rocks import INDEX

MEMORY: Final = 1 << 30
"""Maximum RAM for the tables of the newest anchors, allocated as they grow."""
GENERATION: Final = 1_000_000
CACHE: Final = 32 << 20
TOPIC_ID: Final = "0" * 32
_SOURCE: Final = "index"
_GENESIS: Final = "genesis"
_FLUSHED: Final = "flushed"
"""File in the state directory with the number of flushed items. It reveals a truncated RocksDB manifest,
which RocksDB opens as an older state; without a journal, the lost items could not be restored."""
VERDICT_LOG: Final = "verdicts.log"
"""File with verdicts that the output of an interrupted scan lacks."""
RUN: Final = "dedup"
"""Directory with the last run of `neardup dedup`, which may begin before there is an index."""
_ROWS: Final = 512
"""Batch size of `Index.add_all`."""

_ADVICE: Final = "give what it has, or name a new index"

_Options = TypeVar("_Options", Scheme, VerdictOptions)
Item = Page | Mapping[str, Any] | tuple[str | int, str]
"""A page, the fields of its message, or name and text."""


class RowsId(NamedTuple):
    """What rows come from: in verdicts, the topic and its id."""

    name: str
    digest: str
    """32 hex digits."""


OWN: Final = RowsId(_SOURCE, TOPIC_ID)
"""Whatever is added without a source."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a text or page that was added, with the same meaning as on the topic `verdicts`."""

    name: str
    """The name or URL of the text or page."""
    verdict: str
    """`unique`, `duplicate`, `recrawl`, `insufficient` or `rejected`."""
    change: str | None
    """Whether the name is `new`, or its content `unchanged` or `changed`."""
    duplicate_of: str | None
    """Name of the matching anchor; for `recrawl` the name itself."""
    distance: int | None
    """Hamming distance to the anchor."""
    similarity: float | None
    """Estimated Jaccard similarity to the anchor; None in strict mode."""
    nearest: str | None
    """Of a unique text or page: name of the most similar anchor that it was compared with, if its similarity
    is at least the verdict option `evidence`."""
    nearest_similarity: float | None
    id: str
    cluster: str | None
    """`id` of the cluster's anchor."""
    reason: str | None
    """Why the page was rejected, as a short code."""


class Near(msgspec.Struct, frozen=True, kw_only=True):
    """An anchor that matches a query."""

    name: str
    id: str
    distance: int
    similarity: float | None


class Index:
    """Stores texts and pages, and finds near-duplicates of earlier ones.

    >>> from neardup import Index
    >>> text = "The harbour authority will repair the old lighthouse at the north pier before the storms."
    >>> with Index() as index:
    ...     index.add("monday", text).verdict
    ...     answer = index.add("tuesday", text.upper() + "!")
    ...     answer.verdict, answer.duplicate_of, answer.similarity
    ...     [each.name for each in index.near(text)]
    'unique'
    ('duplicate', 'monday', 1.0)
    ['monday']

    Without a directory, the index is deleted when it is closed. With a directory, it is durable once `flush`
    or `close` returned, and can be reopened. Only one process can open it at a time. It is not thread-safe.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        scheme: Scheme | None = None,
        options: VerdictOptions | None = None,
        memory: int = MEMORY,
        generation: int = GENERATION,
        cache: int = CACHE,
        page_bytes: int = PAGE_BYTES,
    ) -> None:
        """Open or create an index. An existing index keeps its scheme and options.

        `memory`, `generation` and `cache` are the settings `tables_memory`, `tables_generation` and
        `tables_cache`; `page_bytes` is the setting of that name, which limits pages. Raises SettingsError for
        an option of another type or out of range, and for options that do not fit the scheme or allow no
        tables, SchemeMismatchError if scheme or options differ
        from those of an existing index, StateError if the directory holds something else, and StateBusyError
        if it is open elsewhere. A new index leaves nothing in the directory if it cannot be opened, or if the
        `with` block fails before anything is added.
        Like every method, raises DamagedStateError if the index is damaged, and DiskError if the disk is full
        or fails.
        """
        for name, value, least in (
            *(("memory", memory, 0), ("generation", generation, 1)),
            *(("cache", cache, 0), ("page_bytes", page_bytes, 1)),
        ):
            if type(value) is not int or value < least:
                raise SettingsError(f"{name}={value!r:.60}: an integer, at least {least}")
        scheme, options = _checked(scheme, Scheme, "scheme"), _checked(options, VerdictOptions, "options")
        self._closed = False
        self._temporary = ScratchDirectory("index") if directory is None else None
        scratch = self._temporary and Path(self._temporary.name, "index")  # each has its own lock
        self._path = path = scratch or Path(os.fspath(directory or ""))
        self._flushed = path / INDEX / _FLUSHED
        self._made: list[Path] = []
        """What a new index made: its genesis, its state, and the directory unless it was there."""
        try:
            genesis, is_new = _genesis(path, scheme, options)
            Rule(genesis.options, genesis.scheme).design()  # refuses options before they are written
            self._fingerprinter = PageFingerprinter(genesis.scheme, genesis.seed)
            made = [path / _GENESIS, path / INDEX, *([] if path.exists() else [path])]
            with _create_alone(path) if is_new else nullcontext():
                if is_new:
                    self._made = made
                    _write_genesis(path / _GENESIS, genesis)
                with _busy_named(path):
                    self._state = State(
                        path / INDEX, genesis, _SOURCE, memory=memory, generation=generation, cache=cache
                    )
            self._refuse_older_state()
            remove_labels(self._state.store, self._state.meta.applied)
        except BaseException:
            self._discard()
            self._remove()
            raise
        self._judge = Judge(self._state, genesis)
        self._page_bytes = page_bytes
        if not self._state.meta.forgetting.is_erased:
            self._erase()

    def add(self, name: str | int, text: str) -> Answer:
        """Judge a plain text and store it. Adding a name again stores a new version of its text.

        The name may be any string, or an integer, which is the string of its decimal digits. If it is a URL,
        it is normalised like the URL of a page.
        """
        return next(self.add_all([(name, text)]))

    def add_page(self, page: Page | Mapping[str, Any]) -> Answer:
        """Judge a page and store it. A page that a stream rejects gets the verdict `rejected` here, too, with
        the same reason."""
        return next(self.add_all([page]))

    def add_all(self, items: Iterable[Item]) -> Iterator[Answer]:
        """Judge and store many items in batches, which is much faster. Yields the answers in order.

        Items are pages, dicts of the fields of page messages, or pairs of name and text. Whatever is of
        another type is `rejected`, with the reason `wrong_type`. The generator is lazy: it adds a batch when
        it reaches it. Raises StateError if a scan of this index was interrupted.
        """
        self._refuse_closed()
        self._refuse_interrupted_scan()
        coming = iter(items)
        while some := list(islice(coming, _ROWS)):
            yield from map(_answer, self.judge(self._rows(some)).verdict_records())

    def remove(self, name: str | int) -> int:
        """Remove a name and all that was added by it, and return how many versions the index had of it.

        It is as if they had not been added: the same text is `unique` again, and so is a copy of it whose
        anchor it was. Nothing of them is left on disk, and the removal is durable, when this returns. It
        looks at all that the index has, so `remove_all` is faster for several names.
        """
        return self.remove_all([name])

    def remove_all(self, names: Iterable[str | int]) -> int:
        """Remove several names, as `remove` does. A page goes by its URL, or the one whose key it has.

        Raises PageError for a name that none can have, and StateError if a scan of this index was
        interrupted; nothing is removed then.
        """
        self._refuse_closed()
        self._refuse_interrupted_scan()
        state, genesis = self._state, self._judge.genesis
        end = state.meta.forgetting.requests + 1
        digests = {self._digest_of(name) for name in names}
        requests = [
            (end - 1, ForgetRequest(journal=genesis.journal, forget="url", digest=each.hex()))
            for each in digests
        ]
        search, removed, is_last = Search(state, genesis, requests, end), 0, not requests
        while not is_last:
            record = search.record()
            forgotten = cast(Forgotten, record.forgotten)
            removed += sum(map(len, forgotten.numbers))
            self._judge.apply_apart(record, state.meta.forgetting.decided)
            is_last = search.note_forgotten(forgotten)
        self._erase()
        return removed

    def near(self, item: str | Page | Mapping[str, Any]) -> list[Near]:
        """Return the anchors that match a text or page, best first, without storing it.

        A cluster is represented by its anchor: its other members are not listed. Raises PageError for a
        malformed page, and for an item of another type.
        """
        self._refuse_closed()
        row = self._rows([("", item) if isinstance(item, str) else item])[0]
        if row.reason is not None:
            raise PageError(row.reason, row.detail or "")
        matches = matching_anchors(self._judge, [row])[0]
        return [
            Near(name=each["url"], id=each["id"], distance=each["distance"], similarity=each["similarity"])
            for each in matches
        ]

    def judge(
        self,
        rows: Sequence[Row],
        source: RowsId = OWN,
        before: Callable[[JudgedBatch], None] = lambda decided: None,
        labels: Sequence[str] = (),
    ) -> JudgedBatch:
        """Judge and store at most 65,535 rows, made by a fingerprinter with this index's scheme.

        `source` is what they come from, and `judged` counts them by it. `before` is called with the decided
        batch before it is stored. `labels` say by what each page is counted in `neardup query --clusters`,
        such as its file. Returns the decided batch, in the form in which a deployment publishes it.
        """
        self._refuse_closed()
        entry = self._entry(rows, source)
        decided = self._judge.decide([entry])
        before(decided)
        if labels:
            note_labels(self._state.store, entry.offset, labels)
        self._judge.apply([entry], decided.record())
        return decided

    def find_ids(self, urls: Iterable[str | None]) -> set[str]:
        """Return those URLs that stand for ids, and of which the index has pages."""
        digests = {url: self._digest_of(url) for url in urls if url is not None and url.startswith(ID_URL)}
        stored = self._state.references(list(digests.values()))
        return {url for url, digest in digests.items() if digest in stored}

    def are_changed(self, rows: Sequence[Row]) -> list[bool]:
        """Whether the index has the URL of each row with another text. Nothing is stored."""
        if not rows:
            return []
        decided = self._judge.decide([self._entry(rows, RowsId(_SOURCE, secrets.token_hex(16)))])
        return [each.change == "changed" for each in decided.verdict_records()]

    def _entry(self, rows: Sequence[Row], source: RowsId) -> Entry:
        """The journal record of the next rows of a source."""
        offset = self.judged(source)
        end = offset + len(rows)
        covered = SourceRange(
            _SOURCE, source.name, source.digest, 0, offset, end, len(rows), opening=not offset
        )
        offsets = range(offset, offset + len(rows))
        columns = Rows.of(self.scheme, [covered], rows, offsets, [None] * len(rows))
        name = secrets.token_bytes(16)  # there is no record that could have a digest
        return Entry(self._state.meta.applied, int(time.time() * 1000), name, columns)

    @property
    def journal(self) -> str:
        """32 hex digits that identify the index."""
        return self._judge.genesis.journal

    @property
    def last_batch(self) -> str:
        """32 hex digits that name the last batch and, with it, all that the index has; empty before it."""
        return self._state.meta.last.hex()

    @property
    def scheme(self) -> Scheme:
        """The scheme of the fingerprints."""
        return self._judge.genesis.scheme

    @property
    def seed(self) -> bytes:
        """The seed of the fingerprints (16 bytes), which is a secret unless it is the public one."""
        return self._judge.genesis.seed

    @property
    def options(self) -> VerdictOptions:
        """The options that decide when two texts are near-duplicates."""
        return self._judge.genesis.options

    def __len__(self) -> int:
        """Number of texts and pages added, whatever their verdict."""
        return sum(each.expected for each in self._state.ledger.progress.values())

    def judged(self, source: RowsId) -> int:
        """Number of rows of a source that are judged."""
        progress = self._state.ledger.progress.get((_SOURCE, source.digest, 0))
        return progress.expected if progress else 0

    def flush(self) -> None:
        """Make everything added so far durable."""
        self._refuse_closed()
        count = len(self)
        self._state.flush()
        self._note_flushed(count)

    def close(self) -> None:
        """Flush and release the directory; a temporary directory is removed. Done again, it does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            count = len(self)
            self._state.close()
            self._note_flushed(count)
        finally:
            self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not self._made or len(self) or self._closed:
            self.close()
            return
        self._closed = True
        self._made[0].unlink(missing_ok=True)  # without a genesis, nobody else opens what is removed
        try:
            self._state.close()
        finally:
            self._discard()
            self._remove()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StateError(f"index {self._path}: is closed")

    def _erase(self) -> None:
        """Remove from disk what is to be erased, and make that durable."""
        state = self._state
        while state.blank():
            pass
        state.compact()
        state.note_erased(state.erasable)
        self.flush()

    def _note_flushed(self, count: int) -> None:
        """Record the number of durable items. Items added during a flush may be lost, so count before it."""
        if not self._temporary:
            try:
                with writing(self._flushed) as file:
                    file.write(b"%d" % count)
                tighten(self._flushed)
            except OutputError as error:
                raise translate_cause(self._flushed.parent, error) or error from None

    def _refuse_interrupted_scan(self) -> None:
        """Raise StateError if a log has verdicts: its numbers would be those of other pages."""
        log = self._path / VERDICT_LOG
        if log.exists():
            raise StateError(
                f"index {self._path}: a scan was interrupted; run it again, or remove {log}, which may have"
                " verdicts that its output lacks"
            )

    def _refuse_older_state(self) -> None:
        """Close the state and raise DamagedStateError if it has fewer items than were flushed."""
        try:
            noted = self._flushed.read_bytes() if self._flushed.exists() else b"0"
            if noted.isdigit() and len(self) >= int(noted):
                return
            count = noted.decode(errors="backslashreplace")
            raise damage_error(self._flushed.parent, f"has {len(self)} items, {_FLUSHED} says {count}")
        except BaseException:
            self._state.close()
            raise

    def _rows(self, items: Iterable[object]) -> list[Row]:
        return self._fingerprinter.rows_of(list(map(self._read, items)))

    def _read(self, item: object) -> ReadPage | Row:
        if isinstance(item, Page):
            return self._fingerprinter.read_page(self._fingerprinter.validate(item, self._page_bytes))
        if isinstance(item, tuple | list) and len(item) == 2:
            name, text = name_field(item[0]), text_field(item[1])
            if isinstance(name, str) and isinstance(text, str):
                return ReadPage(name, self._key_of(name), None, text)
            fields = {"url": name, "text": text}
        elif isinstance(item, Mapping):
            fields = fields_of_mapping(item)
        else:
            fields = {"url": unreadable(type(item).__name__)}
        return self._fingerprinter.read_page(self._fingerprinter.page_of_fields(fields, self._page_bytes))

    def _key_of(self, name: str) -> str:
        try:
            return self._fingerprinter.url_key(name)
        except PageError:  # a name that is not a URL is its own key
            return name

    def _digest_of(self, name: object) -> bytes:
        if not isinstance(field := name_field(name), str):
            raise PageError("wrong_type", f"the name {name!r:.60} is a {type(name).__name__}, not a string")
        return self._fingerprinter.url_digest(self._key_of(field))

    def _discard(self) -> None:
        """Remove what a new index made, so that the next one here may have other options."""
        with suppress(OSError):
            for each in self._made:
                if each == self._path:
                    each.rmdir()
                elif each.is_dir():
                    shutil.rmtree(each)
                else:
                    each.unlink(missing_ok=True)

    def _remove(self) -> None:
        if self._temporary:
            self._temporary.cleanup()


def _genesis(directory: Path, scheme: Scheme | None, options: VerdictOptions | None) -> tuple[Genesis, bool]:
    """Read the genesis record of the index, or make one, and return whether the index is new. Raises
    SettingsError for a lifetime: nothing expires in an index, which has no log time."""
    if options is not None and options.lifetime is not None:
        raise SettingsError(
            f"lifetime={options.lifetime}s: only pages of a topic expire; an index and a scan keep all pages"
        )
    path = directory / _GENESIS
    if not path.exists():
        scheme, options = scheme or Scheme(), options or VerdictOptions()
        seed = scheme.seed()
        scheme = scheme.with_seed(seed)
        genesis = Genesis(
            journal=uuid.uuid4().hex, scheme=scheme, scheme_id=scheme.id, options=options, seed=seed
        )
        with TranslatedErrors(directory):
            _refuse_others_files(directory)
        return genesis, True
    stored = read_genesis(directory)
    refuse_others(directory, stored, scheme, options)
    private_directory(directory)
    return stored, False


def refuse_unfit(directory: Path, scheme: Scheme, options: VerdictOptions) -> None:
    """Raise SchemeMismatchError, StateError or SettingsError if no index with these can be opened or made
    in a directory. Makes nothing."""
    Rule(options, scheme).design()
    _genesis(directory, scheme, options)


def read_genesis(directory: Path) -> Genesis:
    """Return the scheme, options and seed of an index. Raises StateError if there is none."""
    path = directory / _GENESIS
    if not path.exists():
        raise StateError(f"index {directory}: there is no index")
    try:
        stored = decode_journal(path.read_bytes(), 0)
    except RecordVersionError as error:
        raise StateError(
            f"index {directory}: another version of neardup made it; make a new one ({_GENESIS}: {error})"
        ) from error
    except RecordError as error:
        raise damage_error(directory, f"{_GENESIS}: {error}") from error
    if not isinstance(stored, Genesis):
        raise damage_error(directory, f"{_GENESIS}: it holds another record")
    return stored


def refuse_others(
    directory: Path, genesis: Genesis, scheme: Scheme | None, options: VerdictOptions | None
) -> None:
    """Raise SchemeMismatchError unless an index has this scheme and these options, where they are given."""
    if differing := _differences(genesis.scheme, scheme):
        raise SchemeMismatchError(
            f"index {directory} has scheme {genesis.scheme_id}, not that which was given: {differing};"
            f" {_ADVICE}"
        )
    if genesis.scheme.id != genesis.scheme_id:
        raise SchemeMismatchError(
            f"index {directory} has scheme {genesis.scheme_id}: another version of neardup made it, whose"
            " fingerprints are others; make a new one"
        )
    if differing := _differences(genesis.options, options):
        raise SchemeMismatchError(
            f"index {directory} was made with other verdict options: {differing}; {_ADVICE}"
        )


def _differences(stored: msgspec.Struct, given: msgspec.Struct | None) -> str:
    """Return the options of an index that are not those that were given. Names of files are none."""
    if given is None:
        return ""
    here = msgspec.structs.asdict(given)
    return ", ".join(
        f"{name} is {value!r}, not {here[name]!r}"
        for name, value in msgspec.structs.asdict(stored).items()
        if value != here[name] and name not in FILES
    )


def _checked(given: _Options | None, kind: type[_Options], name: str) -> _Options | None:
    """Return options whose values are of the right types and in range, which is not checked when they are
    made. Raises SettingsError."""
    if given is None:
        return None
    if not isinstance(given, kind):
        raise SettingsError(f"{name}: is a {type(given).__name__}, not {kind.__name__}")
    try:
        return msgspec.convert(msgspec.structs.asdict(given), kind)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{name}: {error}") from None


@contextmanager
def _busy_named(directory: Path) -> Iterator[None]:
    try:
        yield
    except StateBusyError as error:
        raise StateBusyError(f"index {directory}: another process uses it") from error


@contextmanager
def _create_alone(directory: Path) -> Iterator[None]:
    """Create the directory of a new index, where no other process makes one meanwhile."""
    with TranslatedErrors(directory):
        private_directory(directory)
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not try_lock(held):
            raise StateBusyError(f"index {directory}: another process is making it")
        if (directory / _GENESIS).exists():
            raise StateBusyError(f"index {directory}: another process has just made it")
        yield
    finally:
        os.close(held)


def _write_genesis(path: Path, genesis: Genesis) -> None:
    with writing(path) as file:
        file.write(encode_genesis(genesis))
    tighten(path)


def _refuse_others_files(directory: Path) -> None:
    """Raise StateError for a directory that has files without being an index: they would become private, and
    rows with other files are damaged."""
    if not directory.is_dir():
        if directory.exists():
            raise StateError(f"index {directory}: is a file, not a directory")
        return
    for left in sorted(directory.iterdir()):
        # of a start that was killed; of a run that is not judged yet, and of a volume
        if left.suffix != ".part" and left.name not in (RUN, "lost+found"):
            raise StateError(f"index {directory}: is no index and not empty, it has {left.name}")


def _answer(verdict: VerdictRecord) -> Answer:
    nearest = verdict.nearest if isinstance(verdict.nearest, NearestPage) else None
    return Answer(
        name=verdict.url or "",
        verdict=verdict.verdict,
        change=verdict.change,
        duplicate_of=verdict.duplicate_of.url if verdict.duplicate_of else None,
        distance=verdict.distance,
        similarity=verdict.similarity,
        nearest=nearest.url if nearest else None,
        nearest_similarity=nearest.similarity if nearest else None,
        id=verdict.id,
        cluster=verdict.cluster,
        reason=verdict.reason,
    )
