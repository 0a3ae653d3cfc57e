"""Segments of a judge's anchors: files of ranges that are full, stored beside checkpoints and announced.

Whoever makes a checkpoint exports them from the same moment. A file is stored, read back, and then announced;
what is announced is not exported again, except for the list of the dead, which is as of each checkpoint.
Objects that nothing names any more are removed a day after they were stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np
import structlog
from numpy.typing import NDArray

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.digests import digest_of_file, new_hash
from stream.checkpoints.pruning import SPARED_SECONDS
from stream.checkpoints.uploads import FILE_SHARE, HASH_SHARE, LinkedState
from stream.errors import CheckpointError, StateError
from stream.failpoints import reach
from stream.fingerprint.row import NO_DIGEST
from stream.judge.rule import Rule
from stream.judge.segments.answer import Segment
from stream.judge.segments.dead_file import encode_dead
from stream.judge.segments.file import AnchorColumns, Origin, write_segment_file
from stream.judge.state.forgotten_pages import ForgottenPages
from stream.judge.state.meta import stored_meta
from stream.judge.state.page_log import HAS_OLDER, HEAD, URL_DIGEST, PageLog, record_words
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord, object_of
from stream.pages.times import to_the_second
from stream.settings import MIB
from stream.tables.store.anchors import DEAD
from stream.tables.store.rocks import ANCHORS, DEFAULT, Store, tables_of

log = structlog.get_logger(__name__)

READ_AT_ONCE: Final = 1 << 14
"""Anchors that are read at a time. They take some MiB, and tens of milliseconds."""
DEAD_A_TURN: Final = 1 << 12
_MARK: Final = np.dtype([("", f"S{len(DEAD)}"), ("number", ">i8")])
"""The key of a dead anchor."""
_NO_DIGEST: Final = np.frombuffer(NO_DIGEST, "<u8")


class Announcements(Protocol):
    """What is announced of a journal's segments. Its methods wait, and raise BrokerError if brokers do not
    answer."""

    def read(self) -> Mapping[int, SegmentRecord]:
        """Return the announced segments, by their first anchors."""

    def announce(self, record: SegmentRecord) -> None:
        """Announce a segment, in place of what was announced of it."""

    def withdraw(self, record: SegmentRecord) -> None:
        """Announce that a segment has expired."""


class SegmentExport:
    """Exports the segments of a judge's state."""

    def __init__(
        self, catalogue: Catalogue, genesis: Genesis, anchors: int, announcements: Announcements
    ) -> None:
        """A new segment has so many `anchors`."""
        self._catalogue, self._anchors, self._announcements = catalogue, anchors, announcements
        self._journal, self._origin = genesis.journal, Origin.of(genesis)
        self._no_bucket = Rule(genesis.options, genesis.scheme).no_bucket
        self.decided = -1
        """The position of the last state whose segments were all exported by this process."""

    def export(self, state: LinkedState, turn: Callable[[float], None], go_on: Callable[[], None]) -> int:
        """Export the segments of a state, and return how many are announced then. `turn` and `go_on` are
        those of `Uploads.upload`.

        Raises CheckpointError if the store fails or does not return what was stored, BrokerError, StateError
        for a state of another journal, and OSError if the directory of the state cannot be written.
        """
        with Store(state.path, tables_of(state.path), MIB, read_only=True) as store:
            anchors = _Anchors(store, self._origin, self._no_bucket)
            announced = dict(sorted(self._announcements.read().items()))
            for record in list(announced.values()):
                go_on()
                if record.end <= anchors.first:
                    self._announcements.withdraw(record)
                    del announced[record.first]
                elif record.decided < state.summary.decided:
                    announced[record.first] = self._renew(record, anchors, state, turn)
            while (segment := self._next(announced, anchors)) is not None:
                record = self._export(segment, anchors, state, turn, go_on)
                announced[record.first] = record
        self._prune()
        self.decided = state.summary.decided
        return len(announced)

    def _next(self, announced: Mapping[int, SegmentRecord], anchors: _Anchors) -> Segment | None:
        """The next segment that is not announced and has not expired, if it is full. It begins where the last
        one ends, however large that is."""
        size = self._anchors
        first = max((each.end for each in announced.values()), default=0)
        first += max(0, anchors.first - first) // size * size
        return Segment(first, first + size) if first + size <= anchors.end else None

    def _export(
        self,
        segment: Segment,
        anchors: _Anchors,
        state: LinkedState,
        turn: Callable[[float], None],
        go_on: Callable[[], None],
    ) -> SegmentRecord:
        """Store the file of a segment, read it back, and announce it."""
        began, path = time.monotonic(), state.path.with_name("segment")
        path.unlink(missing_ok=True)
        write_segment_file(path, self._origin, segment, anchors.columns(segment, turn))
        digest, size = digest_of_file(path, lambda: turn(HASH_SHARE)), path.stat().st_size
        name = object_of(self._journal, digest)
        turn(FILE_SHARE)
        self._catalogue.put_file(name, path, go_on)
        path.unlink()
        self._verify(name, digest, path, go_on)
        reach("segment.exported")
        dead = self._store_dead(segment, anchors.dead(segment, turn), state)
        record = SegmentRecord(
            journal=self._journal,
            scheme=self._origin.scheme,
            first=segment.first,
            end=segment.end,
            oldest=max(segment.first, anchors.first),
            digest=digest,
            size=size,
            dead=dead.digest,
            dead_size=dead.size,
            decided=state.summary.decided,
            exported_at=to_the_second(time.time()),
        )
        # Another judge may have been faster. Its file has the same anchors, and holders may have it already.
        if (other := self._announcements.read().get(segment.first)) is not None:
            return other
        self._announcements.announce(record)
        log.info(
            "segment",
            segment=str(segment),
            digest=digest,
            bytes=size,
            dead_bytes=dead.size,
            seconds=round(time.monotonic() - began, 1),
        )
        reach("segment.announced")
        return record

    def _renew(
        self, record: SegmentRecord, anchors: _Anchors, state: LinkedState, turn: Callable[[float], None]
    ) -> SegmentRecord:
        """Announce which anchors of a segment are dead now."""
        segment = Segment(record.first, record.end)
        dead = self._store_dead(segment, anchors.dead(segment, turn), state, unless=record.dead)
        renewed = msgspec.structs.replace(
            record,
            oldest=max(record.first, anchors.first),
            dead=dead.digest,
            dead_size=dead.size,
            decided=state.summary.decided,
        )
        self._announcements.announce(renewed)
        return renewed

    def _store_dead(
        self, segment: Segment, dead: NDArray[np.int64], state: LinkedState, unless: str = ""
    ) -> _Stored:
        """Store the list of the dead of a segment, unless it has this digest."""
        content, path = encode_dead(self._journal, segment, dead), state.path.with_name("dead")
        digest = new_hash(content).hexdigest()
        if digest != unless:
            path.write_bytes(content)
            self._catalogue.put_file(object_of(self._journal, digest), path)
        return _Stored(digest, len(content))

    def _verify(self, name: str, digest: str, path: Path, go_on: Callable[[], None]) -> None:
        """Raise CheckpointError unless the store returns what was stored. `path` is free."""
        try:
            stored = self._catalogue.download(name, path, go_on)
        except FileNotFoundError as error:
            raise CheckpointError(f"checkpoints: {name}: is missing, though it was just stored") from error
        path.unlink()
        if stored != digest:
            raise CheckpointError(f"checkpoints: {name}: is not what was stored")

    def _prune(self) -> None:
        """Remove what nothing names, once it is old enough for nobody to be about to name it."""
        objects = self._catalogue.segments(self._journal)
        named = {name for each in self._announcements.read().values() for name in (each.digest, each.dead)}
        now = min(time.time(), max((each.modified for each in objects), default=0.0))
        self._catalogue.delete(
            each.name for each in objects if each.digest not in named and each.modified < now - SPARED_SECONDS
        )


class _Stored(NamedTuple):
    digest: str
    size: int


class _Anchors:
    """The anchors of a state that nobody changes."""

    def __init__(self, store: Store, origin: Origin, no_bucket: int) -> None:
        """Raises StateError for a state of another journal or format."""
        meta = stored_meta(store)
        has = meta and (meta.journal, meta.scheme, meta.options, meta.width, meta.sketch_bytes)
        if has != origin:
            raise StateError(f"state directory {store.path}: is of {has}, not of {tuple(origin)}")
        self._store, self._no_bucket = store, np.uint64(no_bucket)
        self._words = record_words(origin.width, origin.sketch_bytes)
        self._sketch = record_words(origin.width, 0)
        """Place of the sketch among the words of an anchor."""
        self._log = PageLog(store, ANCHORS, self._words)
        self._forgotten = ForgottenPages(store)

    @property
    def first(self) -> int:
        """Number of the first anchor that has not expired."""
        return self._log.first

    @property
    def end(self) -> int:
        """Number of the next anchor."""
        return self._log.count

    def columns(self, segment: Segment, turn: Callable[[float], None]) -> Iterator[AnchorColumns]:
        """The anchors of a segment, in parts. Those that are gone are in no bucket."""
        for start in range(segment.first, segment.end, READ_AT_ONCE):
            turn(HASH_SHARE)
            numbers = np.arange(start, min(start + READ_AT_ONCE, segment.end))
            gone, lanes = np.ones(len(numbers), np.bool_), np.zeros((len(numbers), self._words), np.uint64)
            there = slice(np.searchsorted(numbers, self.first), None)
            pages = self._log.pages(numbers[there])
            lanes[there] = pages.words
            erased = (pages.words[:, URL_DIGEST] == _NO_DIGEST).all(axis=1) & (pages.url_bytes == 0)
            gone[there] = erased | self._forgotten.among(numbers[there], is_anchor=True)
            lanes[gone] = 0
            skipped = np.where(gone, self._no_bucket, lanes[:, 1] & ~HAS_OLDER)
            yield AnchorColumns(lanes[:, HEAD : self._sketch], skipped, lanes[:, self._sketch :])

    def dead(self, segment: Segment, turn: Callable[[float], None]) -> NDArray[np.int64]:
        """The anchors of a segment that were superseded or forgotten, and have not expired, ascending."""
        first, dead = max(segment.first, self.first), [np.zeros(0, np.int64)]
        marks = self._store.scan(DEFAULT, DEAD + first.to_bytes(8, "big"))
        while keys := [key for key, _ in islice(marks, DEAD_A_TURN)]:
            turn(HASH_SHARE)
            if not keys[-1].startswith(DEAD):  # others follow
                keys = [key for key in keys if key.startswith(DEAD)]
            numbers = np.frombuffer(b"".join(keys), _MARK)["number"].astype(np.int64)
            dead.append(numbers[numbers < segment.end])
            if len(dead[-1]) < DEAD_A_TURN:
                break
        return np.concatenate(dead)
