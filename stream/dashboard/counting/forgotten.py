"""Which verdicts name pages that were forgotten (rule 24), by the decisions that forgot them.

Decisions name URLs and hosts by keyed digests. A page is forgotten if it has such a URL and was judged before
the decision, so a page that is crawled again later is not. Nothing is asked of the judge's state: verdicts on
pages that it never stored, as they were insufficient, have URLs as well. A page may have the key of another
URL than that of its verdict, such as its canonical one: decisions have the ids of those that the state had.

The dashboard's state keeps what decisions say of this, because they may be trimmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from stream.dashboard.counting.state import State
from stream.errors import PageError, RecordError, TrimmedLogError
from stream.fingerprint.seed import url_hasher
from stream.judge.forgetting import NamedHosts, Wanted
from stream.judge.ids import INDEX_BITS, pack
from stream.kafka.in_flight import in_thread
from stream.kafka.log_starts import BROKERS_APART_MS
from stream.kafka.names import TopicNames
from stream.kafka.reader import TopicReader
from stream.messages.decision import NamedDigests, decode_decisions
from stream.messages.journal import Genesis
from stream.messages.requests import ForgetRequest, decode_request
from stream.messages.verdict import PageRef, VerdictRecord
from stream.settings import Settings
from stream.tables.store.rocks import DEFAULT, Store
from stream.text.url import url_key

URLS, HOSTS, DOMAINS = b"forgotten-url/", b"forgotten-host/", b"forgotten-domain/"
"""Prefixes of keys: a digest follows. The value is the journal offset at which it was forgotten last."""
PAGES: Final = b"forgotten-page/"
"""Prefix of keys: the packed id of a page, u64 BE, follows."""
_BEYOND: Final = (1 << 63) - 1


class _Named(msgspec.Struct, gc=False):
    """The pages that a verdict names."""

    id: str
    url: str | None
    verdict: str
    duplicate_of: PageRef | None
    nearest: PageRef | None = None


class _Starts:
    """Digest of what was named -> the journal offset at which it was forgotten last."""

    def __init__(self, store: Store, prefix: bytes) -> None:
        self._store, self._prefix = store, prefix
        self._are_any = any(key.startswith(prefix) for key, _ in store.some(DEFAULT, prefix, 1))

    def __bool__(self) -> bool:
        """Whether there were any when this was made."""
        return self._are_any

    def get(self, digest: bytes, default: tuple[int, ...] = (), /) -> tuple[int, ...]:
        (start,) = self._store.get(DEFAULT, [self._prefix + digest])
        return default if start is None else (int.from_bytes(start, "big"),)


class ForgottenPages:
    """Says which pages are forgotten, by a dashboard's state; `follow` keeps that up to date. Other threads
    may ask meanwhile."""

    def __init__(self, genesis: Genesis, state: State) -> None:
        self._genesis, self._state = genesis, state
        self._digest_url = url_hasher(genesis.seed)
        self._urls = _Starts(state.store, URLS)
        self._hosts = self._named_hosts()

    def _named_hosts(self) -> NamedHosts:
        store = self._state.store
        return NamedHosts(self._genesis, _Starts(store, HOSTS), _Starts(store, DOMAINS))

    def rewrite(self, verdict: bytes) -> bytes | None:
        """Return a verdict, in JSON, without what it says of pages that are forgotten; None if it says
        nothing of any."""
        if not (end := self._state.meta.forgotten_before):
            return None
        named, like = (each := _NAMED.decode(verdict)), each.duplicate_of
        if self._page(named.id) >> INDEX_BITS >= end:
            return None
        changes = dict[str, object]()
        # Of a recrawl the state has no page, but the one that it is like, which has the same URL key.
        is_again = named.verdict == "recrawl" and named.url and like and self._has(self._page(like.id))
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
        packed = self._page(page)
        return packed >> INDEX_BITS < self._start_of(url) or self._has(packed)

    def _has(self, page: int) -> bool:
        return self._state.store.get(DEFAULT, [PAGES + page.to_bytes(8, "big")]) != [None]

    def _page(self, shown: str) -> int:
        """The packed id of a page, which is beyond all if it is of another journal."""
        journal, offset, index = shown.split(".")
        return pack(int(offset), int(index)) if self._genesis.journal.startswith(journal) else _BEYOND

    def _start_of(self, url: str) -> int:
        starts, key = tuple[int, ...](), url
        with suppress(PageError):
            key = url_key(url, self._genesis.scheme.url_rules)
            starts = self._urls.get(self._digest_url(key))
        return max(starts + self._hosts.of_url(key), default=0)

    # Following the topics.

    async def follow(self, settings: Settings) -> None:
        """Read decisions, and requests where some are trimmed. Does not return. Raises as readers do."""
        names = TopicNames(settings.namespace)
        async with TopicReader(settings, names.decisions, self._state.meta.decided) as decisions:
            if (await decisions.bounds()).end < decisions.position:  # it lost its end, and is read again
                decisions.seek(0)
            while True:
                try:
                    await self.read(decisions)
                except TrimmedLogError:
                    position = decisions.position
                    try:
                        async with TopicReader(settings, names.requests, 0) as requests:
                            await self.pass_over_trimmed(decisions, requests)
                    except TrimmedLogError:  # more was trimmed meanwhile
                        decisions.seek(position)

    async def read(self, decisions: TopicReader) -> None:
        """Read the next decisions, and note what they forget."""
        if records := await decisions.poll():
            await in_thread(self._note, records, decisions.position)

    async def pass_over_trimmed(self, decisions: TopicReader, requests: TopicReader) -> None:
        """Go on with the first decision that is left. Older requests count as decided just before it: what
        decided them is gone, but for those that a later decision names, which then forgets more."""
        decisions.seek((await decisions.bounds()).start)
        while not (records := await decisions.poll()):
            await decisions.bounds()  # raises if the leader is away
        first, some, older = records[0], list[tuple[int, ForgetRequest]](), 0
        at = await requests.bounds()
        requests.seek(max(at.start, self._state.meta.requested))
        while requests.position < at.stable:
            if not (read := await requests.poll()):
                await requests.bounds()  # raises if the leader is away
            for record in read:
                with suppress(RecordError):  # the judge reports it
                    request = decode_request(record.value, record.offset)
                    if request.journal == self._genesis.journal:
                        some.append((record.offset, request))
                older = len(some) if record.timestamp < first.timestamp + BROKERS_APART_MS else older
        if older:
            start = decode_decisions(first.value, first.offset).start
            named, requested = Wanted(some[:older], self._genesis).digests, some[older - 1][0] + 1
            await in_thread(self._forget, named, start, first.offset, requested)
        decisions.seek(first.offset)

    def _note(self, records: Sequence[Any], end: int) -> None:
        """Write what these decisions forget. `end` is the offset after them."""
        for record in records:
            decided = decode_decisions(record.value, record.offset)
            if (what := decided.forgotten) is not None:
                pages = what.page_ids.tolist()
                self._forget(what.named, decided.start, record.offset + 1, what.requests, pages)
        self._state.write(self._state.store.batch(), decided=end)

    def _forget(
        self, named: NamedDigests, start: int, end: int, requested: int, pages: Sequence[int] = ()
    ) -> None:
        """Write what is forgotten at a journal offset, by a decision before `end`, with which the requests
        before `requested` are decided."""
        meta, writes = self._state.meta, self._state.store.batch()
        for prefix, digests in zip((URLS, HOSTS, DOMAINS), named.columns, strict=True):
            writes.put_many(DEFAULT, ((prefix + each, start.to_bytes(8, "big")) for each in digests))
        writes.put_many(DEFAULT, ((PAGES + each.to_bytes(8, "big"), b"") for each in pages))
        self._state.store.write(writes)
        # Before the state says that it knows of them, or a verdict that is read meanwhile could keep them.
        self._hosts = self._named_hosts()
        changes = {"decided": end, "requested": max(meta.requested, requested)}
        if named != NamedDigests():  # else more pages of the same requests follow
            changes |= {"forgotten": end, "forgotten_before": max(meta.forgotten_before, start)}
        self._state.write(self._state.store.batch(), **changes)


_NAMED: Final = msgspec.json.Decoder(_Named)
_VERDICT: Final = msgspec.json.Decoder(VerdictRecord)
