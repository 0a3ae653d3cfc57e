"""Which verdicts name pages that were forgotten (rule 24), by requests and by where these were decided.

Requests name URLs and hosts by keyed digests. A page is forgotten if it has such a URL and was judged before
the decision, so a page that is crawled again later is not. Nothing is asked of the judge's state: verdicts on
pages that it never stored, as they were insufficient, have URLs as well. A page may have the key of another
URL than that of its verdict, such as its canonical one: decisions have the ids of those that the state had.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np
import structlog
from aiokafka.errors import KafkaError
from numpy.typing import NDArray

from stream.dashboard.counting.page_ids import JOINED_SHARE, LEAST_JOINED, PageIds
from stream.errors import PageError, RecordError, TrimmedLogError
from stream.fingerprint.seed import url_hasher
from stream.judge.forgetting import NamedHosts
from stream.judge.ids import INDEX_BITS, pack
from stream.kafka import broker_metadata, clients
from stream.kafka.log_starts import BROKERS_APART_MS, first_since
from stream.kafka.names import TopicNames
from stream.kafka.outage import PAUSE_SECONDS, Outage, retry_until_answered
from stream.kafka.reader import TopicReader
from stream.messages.decision import Decisions, decode_decisions
from stream.messages.journal import Genesis
from stream.messages.requests import ForgetRequest, decode_request
from stream.messages.verdict import PageRef, VerdictRecord
from stream.settings import Settings
from stream.tables.store.rocks import DEFAULT, Store
from stream.text.url import url_key

POLL_SECONDS: Final = 1.0
KNOWN: Final = b"forgotten"
"""Key of what a store knows."""
_DIGEST: Final = np.dtype([("first", "<u8"), ("second", "<u8")])
_BEYOND: Final = (1 << 63) - 1

log = structlog.get_logger(__name__)


class _Known(msgspec.Struct, array_like=True):
    """What a store knows."""

    decided: list[tuple[int, int]]
    """As `ForgottenPages.decided`."""
    ids: bytes


class _Named(msgspec.Struct, gc=False):
    """The pages that a verdict names."""

    id: str
    url: str | None
    verdict: str
    duplicate_of: PageRef | None
    nearest: PageRef | None = None


class _Decided:
    """Digest of what was named -> the journal offset at which it was last forgotten."""

    def __init__(self) -> None:
        self._digests, self._starts = np.zeros(0, _DIGEST), np.zeros(0, np.int64)
        self._added = dict[bytes, int]()
        """Those that were added since, as in `PageIds`."""

    def __bool__(self) -> bool:
        return bool(self._added) or len(self._digests) > 0

    def add(self, digests: Sequence[bytes], start: int) -> None:
        """Note that these are forgotten at `start`, later than all before."""
        self._added.update(dict.fromkeys(digests, start))
        if len(self._added) > max(LEAST_JOINED, len(self._digests) // JOINED_SHARE):
            self._join()

    def _join(self) -> None:
        digests = np.frombuffer(b"".join(self._added), _DIGEST)
        starts = np.fromiter(self._added.values(), np.int64, len(self._added))
        # The first of equal ones is kept: the newest.
        self._digests, first = np.unique(np.concatenate([digests, self._digests]), return_index=True)
        self._starts = np.concatenate([starts, self._starts])[first]
        self._added.clear()

    def get(self, digest: bytes, default: tuple[int, ...] = (), /) -> tuple[int, ...]:
        """Where this was last forgotten; the default if it never was."""
        if (start := self._added.get(digest)) is not None:
            return (start,)
        wanted: NDArray[np.void] = np.frombuffer(digest, _DIGEST)
        place = int(np.searchsorted(self._digests["first"], wanted["first"][0]))
        while place < len(self._digests) and self._digests["first"][place] == wanted["first"][0]:
            if self._digests["second"][place] == wanted["second"][0]:
                return (int(self._starts[place]),)
            place += 1
        return default


class _Waiting(NamedTuple):
    """A request that is not decided, as far as is known."""

    offset: int
    appended: int
    """In milliseconds since the epoch."""
    request: ForgetRequest


class ForgottenPages:
    """Says which pages are forgotten; `follow` keeps it up to date. Other threads may ask meanwhile."""

    def __init__(
        self,
        genesis: Genesis,
        decided: Iterable[tuple[int, int]] = (),
        ids: PageIds | None = None,
    ) -> None:
        """`decided` and `ids` are what another one knew before. Without `ids`, decisions are read again, and
        `decided` says what those said that are gone."""
        self._genesis = genesis
        self.ids: Final = PageIds() if ids is None else ids
        """Of pages that were requested by URL."""
        self._digest_url = url_hasher(genesis.seed)
        self._urls, self._hosts, self._domains = _Decided(), _Decided(), _Decided()
        self._named_hosts = NamedHosts(genesis, self._hosts, self._domains)
        self._known, self._has_ids = deque(decided), ids is not None
        self._waiting = deque[_Waiting]()
        self._position = 0
        """The next request to read."""
        self._floor: Decisions | None = None
        """The first decision that was read, where those before it are gone."""
        self._floor_appended = 0
        self.decided = list[tuple[int, int]]()
        """(requests, start): the requests before an offset of `requests` were decided at a journal offset,
        where the ones before it in this list were decided earlier."""
        self.end = 0
        """The journal offset before which pages may be forgotten."""
        self._start_of = lru_cache(4096)(self._ask_start)
        self._lock = threading.Lock()
        """Held while digests and ids are looked up or added, so that no older answer stays in the cache."""

    @property
    def requests(self) -> int:
        """The offset before which all requests are decided and known."""
        return self.decided[-1][0] if self.decided else 0

    @property
    def waiting(self) -> tuple[int, int | None]:
        """How many requests are not decided, as far as is known, and when the oldest of them was appended, in
        milliseconds since the epoch."""
        return len(self._waiting), self._waiting[0].appended if self._waiting else None

    @classmethod
    def known_in(cls, genesis: Genesis, store: Store) -> Self:
        """What a store knows of them, as `note_in` wrote it."""
        (value,) = store.get(DEFAULT, [KNOWN])
        if value is None:
            return cls(genesis)
        record = _KNOWN.decode(value)
        return cls(genesis, record.decided, PageIds(record.ids))

    def note_in(self, store: Store) -> None:
        """Write what is known: decisions that say it may be trimmed."""
        with self._lock:
            record = _Known(list(self.decided), self.ids.encoded())
        writes = store.batch()
        writes.put(DEFAULT, KNOWN, msgspec.msgpack.encode(record))
        store.write(writes)

    def rewrite(self, verdict: bytes) -> bytes | None:
        """Return a verdict, in JSON, without what it says of pages that are forgotten; None if it says
        nothing of any."""
        if not self.end:
            return None
        named, like = (each := _NAMED.decode(verdict)), each.duplicate_of
        if self._page(named.id) >> INDEX_BITS >= self.end:
            return None
        changes = dict[str, object]()
        # Of a recrawl the state has no page, but the one that it is like, which has the same URL key.
        is_again = named.verdict == "recrawl" and named.url and like and self._has(like.id)
        if is_again or self.names(named.url, named.id):
            changes = {"url": None, "fingerprint": None, "text_hash": None, "fetched_at": None}
        if like and self.names(like.url, like.id):
            changes["duplicate_of"] = None
        if named.nearest and self.names(named.nearest.url, named.nearest.id):
            changes["nearest"] = msgspec.UNSET
        if not changes:
            return None
        return msgspec.json.encode(msgspec.structs.replace(_VERDICT.decode(verdict), **changes))

    def names(self, url: str | None, page: str) -> bool:
        """Whether the page with this URL and id is forgotten."""
        if not url:
            return False
        with self._lock:
            packed = self._page(page)
            return packed in self.ids or packed >> INDEX_BITS < self._start_of(url)

    def _has(self, page: str) -> bool:
        with self._lock:
            return self._page(page) in self.ids

    def _page(self, shown: str) -> int:
        """The packed id of a page, which is beyond all if it is of another journal."""
        journal, offset, index = shown.split(".")
        return pack(int(offset), int(index)) if self._genesis.journal.startswith(journal) else _BEYOND

    def _ask_start(self, url: str) -> int:
        starts, key = tuple[int, ...](), url
        with suppress(PageError):
            key = url_key(url, self._genesis.scheme.url_rules)
            starts = self._urls.get(self._digest_url(key))
        return max(starts + self._named_hosts.of_url(key), default=0)

    def add(self, offset: int, appended: int, request: ForgetRequest) -> None:
        """Add a request, in their order, before it is decided."""
        self._waiting.append(_Waiting(offset, appended, request))

    def decide(self, requests: int, start: int) -> None:
        """Note that the requests before an offset are decided at a journal offset."""
        some = list[ForgetRequest]()
        while self._waiting and self._waiting[0].offset < requests:
            some.append(self._waiting.popleft().request)
        with self._lock:
            for named, what in ((self._urls, "url"), (self._hosts, "host"), (self._domains, "domain")):
                named.add([each.words for each in some if each.forget == what], start)
            self.end = max(self.end, start)
            self.decided.append((requests, start))
            self._named_hosts = NamedHosts(self._genesis, self._hosts, self._domains)
            self._start_of.cache_clear()

    def _decide_known(self, until: int) -> None:
        """Note what was known before of the requests before an offset."""
        while self._known and self._known[0][0] <= until:
            self.decide(*self._known.popleft())

    # Following the topics.

    async def follow(self, settings: Settings) -> None:
        """Read requests and, while some wait, decisions. Does not return. Raises as readers do."""
        names = TopicNames(settings.namespace)
        async with (
            TopicReader(settings, names.requests, 0) as requests,
            TopicReader(settings, names.decisions, 0) as decisions,
        ):
            await self._read_to_end(requests)
            is_reading = False
            while True:
                await self._read_requests(requests)
                if not self._waiting:
                    is_reading = False
                    await asyncio.sleep(POLL_SECONDS)
                    continue
                if not is_reading:
                    await self._seek(settings, decisions, self._waiting[0].appended)
                    is_reading = True
                await self._read_decisions(decisions, requests)

    async def catch_up(self, settings: Settings) -> None:
        """Read the requests that are there, so that what was known of them before is known again. Waits for
        brokers."""
        outage = Outage(f"topic {(topic := TopicNames(settings.namespace).requests)}")
        while True:
            try:
                async with TopicReader(settings, topic, 0) as requests:
                    await self._read_to_end(requests)
            except clients.DENIED:
                raise
            except (KafkaError, TrimmedLogError) as error:
                outage.note(error)
            else:
                return outage.end()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _read_to_end(self, requests: TopicReader) -> None:
        bounds = await retry_until_answered(f"topic {requests.topic}", requests.bounds)
        requests.seek(max(bounds.start, self._position))
        while requests.position < bounds.stable:
            await self._read_requests(requests)
            # Says for what it waits if there is no leader.
            await retry_until_answered(f"topic {requests.topic}", requests.bounds)

    async def _read_requests(self, reader: TopicReader) -> None:
        while records := await reader.poll(0.05):
            for record in records:
                with suppress(RecordError):  # the judge reports it
                    request = decode_request(record.value, record.offset)
                    if request.journal == self._genesis.journal:
                        self.add(record.offset, record.timestamp, request)
            self._position = reader.position
        if self._has_ids:
            self._decide_known(self._position)

    async def _read_requests_before(self, until: int, reader: TopicReader) -> None:
        """Read what came after requests were read, as far as a decision is about it."""
        if reader.position < until:
            bounds = await retry_until_answered(f"topic {reader.topic}", reader.bounds)
            while reader.position < min(until, bounds.end):
                await self._read_requests(reader)

    async def _seek(self, settings: Settings, decisions: TopicReader, appended: int) -> None:
        """Go to the first decision since a time."""
        # The bounds first, and of what can be read: the decision may come meanwhile.
        bounds = await retry_until_answered(f"topic {decisions.topic}", decisions.bounds)
        async with broker_metadata.connect(settings) as client:
            since = await first_since(client, decisions.topic, max(0, appended - BROKERS_APART_MS))
        decisions.seek(max(bounds.start, bounds.stable if since is None else since.offset))
        self._floor, self._floor_appended = None, 0
        self._is_trimmed = decisions.position == bounds.start > 0

    async def _read_decisions(self, decisions: TopicReader, requests: TopicReader) -> None:
        records = await decisions.poll()
        for record in records:
            decided = decode_decisions(record.value, record.offset)
            if self._is_trimmed:
                self._floor, self._floor_appended, self._is_trimmed = decided, record.timestamp, False
            if decided.forgotten is not None:
                await self._read_requests_before(decided.forgotten.requests, requests)
                with self._lock:
                    self.ids.add(decided.forgotten.page_ids)
                self._decide_known(decided.forgotten.requests)
                if decided.forgotten.requests > self.requests:
                    self.decide(decided.forgotten.requests, decided.start)
        if not records and self._floor is not None:
            # What no decision that is left is about was decided by one that is gone.
            older = [each.offset for each in self._waiting if each.appended < self._floor_appended]
            if older:
                self._decide_known(older[-1] + 1)
                if self.requests <= older[-1]:
                    self.decide(older[-1] + 1, self._floor.start)
            self._floor = None


_KNOWN: Final = msgspec.msgpack.Decoder(_Known)
_NAMED: Final = msgspec.json.Decoder(_Named)
_VERDICT: Final = msgspec.json.Decoder(VerdictRecord)
