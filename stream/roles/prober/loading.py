"""Loads the segments of an assignment, one after the other, beside the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from stream.errors import CheckpointError, DamagedCheckpointError, SegmentFileError, TrimmedLogError
from stream.judge.rule import Rule
from stream.judge.segments.answer import Segment
from stream.judge.segments.deaths_decided import DecidedDeaths
from stream.judge.segments.file import Origin, SegmentFile
from stream.judge.segments.held_segment import HeldSegment, TablesRoom
from stream.kafka.in_flight import in_stoppable_thread, in_thread
from stream.kafka.names import TopicNames
from stream.kafka.reader import TopicReader
from stream.messages.journal import Genesis
from stream.messages.segments import SegmentRecord
from stream.roles.prober.following import decode_decided
from stream.roles.prober.segment_files import SegmentFiles
from stream.roles.prober.watch import ProberWatch
from stream.settings import Settings

PAUSE_SECONDS: Final = 10.0
"""Pause before a segment that could not be loaded is tried again, unless another announcement comes."""
LEAST_CACHE: Final = 1 << 20
LEAST_MEMORY: Final = 1 << 20
MEMORY_AN_ANCHOR: Final = 160
"""Bytes of an anchor in tables that are in RAM as a whole, triples included."""
log = structlog.get_logger(__name__, role="prober")


class CatchingUp:
    """A loaded segment, and a reader of the decisions that are to be applied to it."""

    def __init__(
        self, segment: SegmentRecord, held: HeldSegment, decisions: TopicReader, genesis: Genesis
    ) -> None:
        self.segment, self.held, self._decisions, self._genesis = segment, held, decisions, genesis
        self.joined: Final = asyncio.Event()
        """Set once the segment is held by others; then the reader is closed."""

    async def catch_up(self, position: Callable[[], int]) -> None:
        """Apply the decisions up to a position, which may move on meanwhile. Raises StateError for those of
        another journal."""
        decisions = self._decisions
        while decisions.position < position():
            for record in await decisions.poll():
                decided = decode_decided(record.value, record.offset, self._genesis)
                await in_thread(self.held.kill, decided.deaths, decided.decided)


class _Refused(NamedTuple):
    """An announcement by which a segment could not be loaded."""

    segment: SegmentRecord
    until: float
    """When it is tried again."""


class Loading:
    """Loads segments until they are all held."""

    def __init__(
        self,
        settings: Settings,
        genesis: Genesis,
        files: SegmentFiles,
        watch: ProberWatch,
        position: Callable[[], int],
        news: asyncio.Event,
    ) -> None:
        """`position` is how far decisions are applied to what is held. `news` is set when a segment has
        caught up with it."""
        self._settings, self._files, self._watch = settings, files, watch
        self._genesis = genesis
        self._rule, self._origin = Rule(genesis.options, genesis.scheme), Origin.of(genesis)
        self._position, self._news = position, news
        self._wanted: dict[str, SegmentRecord] | None = None  # by digest
        self._held: set[str] = set()
        self._changed = asyncio.Event()
        self._loading: tuple[str, asyncio.Task[None]] | None = None
        self._refused: dict[int, _Refused] = {}
        self._ready: CatchingUp | None = None
        self._is_claimed = False

    def want(self, segments: Sequence[SegmentRecord]) -> None:
        """Load these segments, and no others."""
        self._wanted = {each.digest: each for each in segments}
        if self._loading is not None and self._loading[0] not in self._wanted and not self._is_claimed:
            self._ready = None  # before it ends, and closes the segment
            self._loading[1].cancel()
        self._changed.set()

    def claim(self) -> CatchingUp | None:
        """Return a segment that has caught up, if there is one. The caller catches up the rest, and then
        calls `note_held`."""
        ready, self._ready = self._ready, None
        self._is_claimed = ready is not None
        return ready

    def note_held(self, ready: CatchingUp) -> None:
        """Note that the caller holds a segment, which it closes one day."""
        self._held.add(ready.segment.digest)
        self._is_claimed = False
        ready.joined.set()

    def note_released(self, digest: str) -> None:
        """Note that a segment is not held any more."""
        self._held.discard(digest)
        self._changed.set()

    def _room(self, segment: Segment) -> TablesRoom:
        """What a segment may take: as much as it needs, or a share of all, by the number of segments rounded
        up to a power of two, so that few changes of an assignment change it."""
        settings, share = self._settings, 1
        while share < len(self._wanted or ()):
            share *= 2
        need = max(LEAST_MEMORY, MEMORY_AN_ANCHOR * (segment.end - segment.first))
        cache = max(LEAST_CACHE, settings.tables_cache // share)
        return TablesRoom(min(need, settings.tables_memory // share), cache, settings.tables_generation)

    def is_wanted(self, held: HeldSegment, digest: str) -> bool:
        """Whether a segment is to stay held. One whose share of memory has changed is not, and is loaded
        again; of these one at a time."""
        if self._wanted is None:
            return True
        if digest not in self._wanted:
            return False
        is_right = held.room.memory == self._room(held.segment).memory
        return is_right or self._loading is not None or not self._held >= self._wanted.keys()

    @property
    def missing(self) -> int | None:
        """Number of segments that are not held yet; None before it is known which are wanted."""
        return None if self._wanted is None else len(self._wanted.keys() - self._held)

    async def run(self) -> None:
        """Load what is wanted, for ever. Raises StateError and DamagedCheckpointError for a segment that
        cannot be used, and DiskError."""
        while True:
            self._changed.clear()
            if self._wanted is not None:  # first, so that others' segments make room
                await in_thread(self._files.keep_only, self._wanted.keys() | self._held)
            segment = self._next()
            if segment is None:
                await self._wait()
                continue
            loading = asyncio.create_task(self._load(segment))
            self._loading = segment.digest, loading
            try:
                await asyncio.wait([loading])
            finally:
                self._loading = None
                loading.cancel()
                await asyncio.gather(loading, return_exceptions=True)
            if not loading.cancelled():
                loading.result()

    async def _wait(self) -> None:
        pauses = [each.until - time.monotonic() for each in self._refused.values()]
        try:
            async with asyncio.timeout(max(0.1, min(pauses)) if pauses else None):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _next(self) -> SegmentRecord | None:
        """The next segment to load."""
        now, wanted = time.monotonic(), self._wanted or {}
        self._refused = {
            first: each
            for first, each in self._refused.items()
            if wanted.get(each.segment.digest) == each.segment and now < each.until
        }
        missing = [
            each
            for digest, each in wanted.items()
            if digest not in self._held and each.first not in self._refused
        ]
        return min(missing, key=lambda each: each.first, default=None)

    async def _load(self, segment: SegmentRecord) -> None:
        """Load a segment, and return once it is held."""
        try:
            await self._hold(segment)
        except (FileNotFoundError, TrimmedLogError, CheckpointError) as error:
            if isinstance(error, DamagedCheckpointError):
                raise
            if isinstance(error, FileNotFoundError):
                error = CheckpointError(f"checkpoints: {error.filename}: is missing")
            log.warning(
                "segment_not_loaded",
                first=segment.first,
                end=segment.end,
                error=str(error),
                again=f"in {PAUSE_SECONDS:g} s, or with its next announcement",
            )
            self._refused[segment.first] = _Refused(segment, time.monotonic() + PAUSE_SECONDS)

    async def _hold(self, segment: SegmentRecord) -> None:
        began, opened = time.monotonic(), list[HeldSegment]()
        with self._watch.loading(segment):
            try:
                # If this is cancelled, the thread may have opened it all the same.
                await in_stoppable_thread(lambda turn: opened.append(self._open(segment, turn)))
                await self._catch_up(segment, opened[0])
            finally:
                self._ready = None
                if segment.digest not in self._held:
                    for held in opened:
                        await in_thread(held.close)
        seconds = round(time.monotonic() - began, 1)
        log.info("segment_loaded", first=segment.first, end=segment.end, seconds=seconds)

    async def _catch_up(self, segment: SegmentRecord, held: HeldSegment) -> None:
        """Let a segment that is loaded catch up with the decisions, and return once it is held."""
        topic = TopicNames(self._settings.namespace).decisions
        async with TopicReader(self._settings, topic, held.decided) as decisions:
            catching = CatchingUp(segment, held, decisions, self._genesis)
            await catching.catch_up(self._position)
            self._ready = catching
            self._news.set()
            await catching.joined.wait()

    def _open(self, segment: SegmentRecord, turn: Callable[[], None]) -> HeldSegment:
        """Download and verify a segment's file, and open or build its tables, with the deaths that are
        announced."""

        def report(built: int) -> None:
            turn()
            self._watch.note_built(segment, built)

        path, room = self._files.tables(segment), self._room(Segment(segment.first, segment.end))
        file = SegmentFile(self._files.fetch(segment, turn), self._origin)
        if file.segment != (segment.first, segment.end):
            raise SegmentFileError(
                f"{segment.object}: has {file.segment}, but is announced for those of"
                f" [{segment.first}, {segment.end})"
            )
        held = HeldSegment.open(path, file, self._rule, room)
        if held is None:
            held = HeldSegment.build(path, file, self._rule, room, segment.oldest, report)
        try:
            if held.decided < segment.decided:
                dead = self._files.fetch_dead(segment, turn)
                held.kill(DecidedDeaths(dead, segment.oldest), segment.decided)
        except BaseException:
            held.close()
            raise
        return held
