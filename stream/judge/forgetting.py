"""Decides which pages are forgotten: those of the URLs and hosts that requests name, all versions (rule 24).

Pages are searched for in the state, beside the judge, as hosts need a look at all stored URLs, and older
versions of a page are in no index. What was judged since is searched for when the decision is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from stream.errors import DamagedStateError
from stream.fingerprint.seed import host_hasher
from stream.judge.ledger_records import misfit_place
from stream.judge.state.page_log import URL_DIGEST, PageLog
from stream.judge.state.state import State
from stream.messages.decision import Decisions, Forgotten, NamedDigests, forgetting_record
from stream.messages.journal import Genesis
from stream.messages.requests import ForgetRequest, What
from stream.messages.row_columns import digests_in
from stream.tables.arrays import I64
from stream.text.url import LONGEST_HOST, host_of

MOST_FORGOTTEN: Final = 65_536
"""Pages that one record forgets at most. More are forgotten by several."""
READ_AT_ONCE: Final = 4096
"""Pages read at once in a search."""
HOSTS_KEPT: Final = 1 << 16
"""Hosts whose requests are remembered during a search."""
_OWN_DIGEST: Final = 1

_Requests = Mapping[bytes, tuple[int, ...]]
"""Digest -> offsets of the requests that name it."""


class Named(Protocol):
    """Digest -> offsets of the requests that name it, or what follows from these."""

    def get(self, digest: bytes, default: tuple[int, ...], /) -> tuple[int, ...]: ...


class NamedHosts:
    """The hosts and domains that requests name, by digests."""

    def __init__(self, genesis: Genesis, hosts: Named, domains: Named) -> None:
        self._hosts, self._domains = hosts, domains
        self._digest_host = host_hasher(genesis.seed)
        self._of_host = dict[str, tuple[int, ...]]()

    def __bool__(self) -> bool:
        return bool(self._hosts or self._domains)

    def of_url(self, url: str) -> tuple[int, ...]:
        """Return the offsets of the requests that name the host of a URL, or a domain that it is in."""
        if not self or not (host := host_of(url)):
            return ()
        if len(host) > LONGEST_HOST:  # on which hashing may take as long as its square
            return self._of_domains(host[-LONGEST_HOST - 1 :].partition(".")[2])
        if (offsets := self._of_host.get(host)) is None:
            if len(self._of_host) >= HOSTS_KEPT:
                self._of_host.clear()
            offsets = self._of_host[host] = self._naming(host)
        return offsets

    def _naming(self, host: str) -> tuple[int, ...]:
        return self._hosts.get(self._digest_host(host), ()) + self._of_domains(host)

    def _of_domains(self, host: str) -> tuple[int, ...]:
        offsets = tuple[int, ...]()
        while self._domains and host:
            offsets += self._domains.get(self._digest_host(host), ())
            host = host.partition(".")[2]
        return offsets


class Wanted:
    """What some requests name."""

    def __init__(self, requests: Sequence[tuple[int, ForgetRequest]], genesis: Genesis) -> None:
        """`requests` are given with their offsets."""
        self._urls, hosts, domains = (_named(requests, what) for what in ("url", "host", "domain"))
        self._first_words = np.frombuffer(b"".join(self._urls), "<u8")[::2]
        self.hosts: Final = NamedHosts(genesis, hosts, domains)
        self.digests: Final = NamedDigests.of(urls=self._urls, hosts=hosts, domains=domains)

    def of_urls(self, digests: NDArray[np.uint64]) -> list[tuple[int, tuple[int, ...]]]:
        """Return (row, offsets of the requests) for the digests of URLs (n, 2) that are named."""
        rows = np.flatnonzero(np.isin(digests[:, 0], self._first_words))
        matches = zip(rows.tolist(), digests_in(digests[rows].astype("<u8")), strict=True)
        return [(row, self._urls[digest]) for row, digest in matches if digest in self._urls]

    def of_page(self, digest: bytes, url: str) -> tuple[int, ...]:
        """Return the offsets of the requests that name a page, given the digest of its URL key and its
        URL."""
        return self._urls.get(digest, ()) + self.hosts.of_url(url)


def _named(requests: Sequence[tuple[int, ForgetRequest]], what: What) -> _Requests:
    named = dict[bytes, list[int]]()
    for offset, request in requests:
        if request.forget == what:
            named.setdefault(request.words, []).append(offset)
    return {digest: tuple(offsets) for digest, offsets in named.items()}


_MATCH: Final = np.dtype(
    [
        ("kind", "u1"),
        ("number", "<i8"),
        ("page", "<i8"),
        ("first", ">u8"),
        ("second", ">u8"),
        ("is_of_host", "?"),
    ]
)
"""A page that was found: 0 for an anchor or 1 for a duplicate, its number, its id, the digest of its URL, and
whether requests name it by its host or a domain alone."""


class Search:
    """The search for the pages that requests name, in the state of a judge that goes on."""

    def __init__(
        self, state: State, genesis: Genesis, requests: Sequence[tuple[int, ForgetRequest]], end: int
    ) -> None:
        """`end` is the offset after that of the last request."""
        self._state, self._genesis, self._end = state, genesis, end
        self._requests = requests
        self._next = [0, 0]
        """Numbers of the next anchor and duplicate to look at."""
        self._matches = np.zeros(0, _MATCH)
        """Pages that no record has forgotten yet, by URL, the newest page first."""
        self._new = list[NDArray[np.void]]()
        """Pages that were found since, not in order: they follow when those are forgotten."""
        self._taken = 0
        """How many of the matches the last record takes."""
        self._pages = Counter[int]()
        """Offset of a request -> number of its pages."""

    @cached_property
    def _wanted(self) -> Wanted:
        """Made by `run`: of very many requests it takes a tenth of a second."""
        return Wanted(self._requests, self._genesis)

    def remaining(self) -> int:
        """Return how many pages of the state were not looked at yet."""
        return sum(
            max(0, log.count - max(log.first, at))
            for log, at in zip(self._state.page_logs, self._next, strict=True)
        )

    def run(self, turn: Callable[[], None] = lambda: None) -> None:
        """Look at all pages that the state has now. `turn` is called every few thousand. May run in a thread
        while the state changes."""
        end = self._state.next
        for kind in range(2):
            while self._next[kind] < end[kind]:
                self._next[kind] = self._look(kind, end[kind])
                turn()
        if self._new and not len(self._matches):
            matches = np.concatenate(self._new)
            self._matches = matches[np.lexsort((-matches["page"], matches["second"], matches["first"]))]
            self._new.clear()

    def _look(self, kind: int, end: int) -> int:
        """Look at the next pages of a log. Returns the number of the next one."""
        log = self._state.page_logs[kind]
        start = max(self._next[kind], log.first)
        numbers = np.arange(start, min(end, start + READ_AT_ONCE))
        try:
            self._note(log, kind, numbers)
        except DamagedStateError:
            if start >= log.first:
                raise
            return start  # they have expired meanwhile
        return max(start, start + len(numbers))

    def _note(self, log: PageLog, kind: int, numbers: I64) -> None:
        names_hosts = bool(self._wanted.hosts)
        pages = log.pages(numbers, keep_urls=names_hosts)
        named = dict(self._wanted.of_urls(pages.words[:, URL_DIGEST]))
        is_of_host = np.zeros(len(numbers), np.bool_)
        if names_hosts:
            for row, url in enumerate(pages.urls(np.arange(len(numbers))).texts()):
                if url and (offsets := self._wanted.hosts.of_url(url)):
                    is_of_host[row] = row not in named
                    named[row] = named.get(row, ()) + offsets
        rows = np.array(sorted(named), np.int64)
        rows = rows[~self._state.forgotten.among(numbers[rows], is_anchor=kind == 0)]
        if len(rows):
            matches = np.zeros(len(rows), _MATCH)
            matches["kind"], matches["number"] = kind, numbers[rows]
            matches["page"], matches["is_of_host"] = pages.words[rows, 0], is_of_host[rows]
            matches["first"], matches["second"] = _own_digests(
                pages.words[rows][:, URL_DIGEST], matches["page"]
            )
            self._new.append(matches)
        for row in rows.tolist():
            self._pages.update(named[row])

    def record(self) -> Decisions:
        """Return the record that forgets the next pages, after looking at what was judged since the last
        `run`. No batch may be ahead of the store.

        All pages of a URL that were found at a time are forgotten at once, or, of very many, the newest
        first: it has baselines until it has none.
        """
        self.run()
        state, meta = self._state, self._state.meta
        some = self._next_matches()
        is_last = self._taken == len(self._matches) and not self._new
        anchors, duplicates = (np.sort(some["number"][some["kind"] == kind]) for kind in range(2))
        urls = np.unique(some[["first", "second"]])
        forgotten = Forgotten(
            requests=self._end if is_last else meta.forgetting.requests,
            anchors=anchors.astype("<i8").tobytes(),
            duplicates=duplicates.astype("<i8").tobytes(),
            urls=np.column_stack([urls["first"], urls["second"]]).astype(">u8").tobytes(),
            ids=np.sort(some["page"][~some["is_of_host"]]).astype("<i8").tobytes(),
            pages=sorted(self._pages.items()) if is_last else [],
            named=self._wanted.digests if is_last else NamedDigests(),
        )
        return forgetting_record(
            self._genesis.journal,
            self._genesis.options.id,
            meta.applied,
            meta.last,
            state.time,
            forgotten,
        )

    def _next_matches(self) -> NDArray[np.void]:
        """Return the pages that are forgotten next, and note how many matches that takes: those that have
        expired meanwhile are passed over."""
        first = np.array([log.first for log in self._state.page_logs])
        while True:
            some: NDArray[np.void] = self._matches[: MOST_FORGOTTEN + 1]
            self._taken = len(some)
            if len(some) > MOST_FORGOTTEN:
                of_another = [some[word][1:] != some[word][:-1] for word in ("first", "second")]
                begins = np.flatnonzero(np.logical_or(*of_another)) + 1
                self._taken = int(begins[-1]) if len(begins) else MOST_FORGOTTEN
            some = some[: self._taken]
            some = some[some["number"] >= first[some["kind"]]]
            if len(some) or self._taken == len(self._matches):
                return some
            self._matches = self._matches[self._taken :]

    def note_forgotten(self, forgotten: Forgotten) -> bool:
        """Note that the pages of the last record were forgotten. Returns whether these were the last ones."""
        self._matches = self._matches[self._taken :]
        return forgotten.requests == self._end


def _own_digests(digests: NDArray[np.uint64], pages: I64) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the digests (n, 2) of the URLs of pages with these ids, as two numbers, big-endian; of a page
    without a URL key its own, as electors have it."""
    first, second = (digests[:, word].byteswap() for word in range(2))
    without = (first == 0) & (second == 0)
    return np.where(without, _OWN_DIGEST, first), np.where(without, pages.astype(np.uint64), second)


def _pages_of(state: State, numbers: Sequence[I64]) -> tuple[list[bytes], I64]:
    """Return the distinct digests, in order, of the URLs of anchors and duplicates, given by ascending
    numbers, and their ids. A page without a URL key has a digest of its own."""
    digests, pages = set[bytes](), [np.zeros(0, np.int64)]
    for log, some in zip(state.page_logs, numbers, strict=True):
        for start in range(0, len(some), READ_AT_ONCE):
            words = log.pages(some[start : start + READ_AT_ONCE]).words
            pages.append(words[:, 0].astype(np.int64))
            columns = _own_digests(words[:, URL_DIGEST], pages[-1])
            digests |= set(digests_in(np.column_stack(columns).astype(">u8")))
    return sorted(digests), np.concatenate(pages)


def misfit_forgetting(record: Decisions, forgotten: Forgotten, state: State, genesis: Genesis) -> str | None:
    """Return why a record by which pages are forgotten does not fit a state, or None."""
    if why := misfit_place(record, state, genesis):
        return why
    for name, numbers, log in zip(("anchor", "duplicate"), forgotten.numbers, state.page_logs, strict=True):
        if len(numbers) and not log.first <= numbers[0] <= numbers[-1] < log.count:
            have = f"the state has {log.first} to {log.count}"
            return f"forgets {name} {numbers[0]} to {numbers[-1]}, but {have}"
    digests, pages = _pages_of(state, forgotten.numbers)
    if digests != forgotten.url_digests:
        return "forgets pages of other URLs than the state has by these numbers"
    if not np.isin(forgotten.page_ids, pages).all():
        return "forgets pages of other ids than the state has by these numbers"
    return None
