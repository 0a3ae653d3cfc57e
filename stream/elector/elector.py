"""Follows decisions, keeps the best page of each cluster, and says what is to be told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import msgspec
import numpy as np

from stream.elector.judged_pages import NO_CLUSTER, JudgedPages
from stream.elector.kept import kept_page
from stream.elector.layout import (
    CLUSTER,
    FORGOTTEN,
    NEVER,
    NOBODY,
    SEEN_VALUE,
    Cluster,
    Version,
    expired_from,
    expired_version,
    heads_of,
)
from stream.elector.newest import NO_KEY, Newest, member_keys
from stream.elector.state import FORGOTTEN_DOMAINS, FORGOTTEN_HOSTS, FORGOTTEN_URLS, Meta, State
from stream.errors import RecordError
from stream.judge.batch import Decided
from stream.judge.forgetting import NamedHosts
from stream.judge.ids import NO_PAGE, parse, show
from stream.judge.misfits import invalid, refuse_other_records
from stream.messages.best import Because, BestRecord
from stream.messages.decision import NamedDigests
from stream.messages.journal import Genesis
from stream.messages.row_columns import digests_in
from stream.messages.verdict import PageRef
from stream.pages.times import rfc3339
from stream.tables.store.failures import damage_error
from stream.tables.store.rocks import CLUSTERS, DEFAULT, DUE, MEMBERS, SEEN, VERSIONS, Writes

MOST_UNSEEN: Final = 1 << 16
"""Most URLs that leave in a turn because they were not seen for a lifetime. It bounds how long one takes."""


_NONE: Final[Mapping[bytes, int]] = {}


class Due(NamedTuple):
    """What is to be told of a cluster."""

    record: BestRecord
    digest: bytes
    """Digest of the URL that is kept; NOBODY."""
    was: bytes
    """Digest of the URL of the page before; NOBODY."""
    cluster: int
    entry: Cluster


class TopicRecord(NamedTuple):
    """A record of the topic."""

    record: BestRecord
    digest: bytes
    """Digest of the URL that is kept; NOBODY."""
    was: bytes
    """Digest of the URL of the page before; NOBODY."""
    where: str
    """Topic, partition and offset."""


class Erasing(NamedTuple):
    """What is forgotten, but not erased yet."""

    urls: set[bytes]
    """Digests."""
    hosts: NamedHosts

    def is_in(self, written: TopicRecord) -> bool:
        """Whether a record names any of it."""
        if written.digest in self.urls or written.was in self.urls:
            return True
        pages = (written.record.best, written.record.was) if self.hosts else ()
        return any(page is not None and self.hosts.of_url(page.url) for page in pages)


@dataclass(slots=True)
class _Moves:
    """What happened to clusters in a batch."""

    removed: dict[int, set[bytes]] = field(default_factory=dict)
    """Cluster -> places of members that left it, or that their new version has another place."""
    added: dict[int, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    """Cluster -> places and digests of members."""
    left: dict[int, bytes] = field(default_factory=dict)
    """Cluster that its first URL left -> how that was spelled when it began the cluster."""

    def clusters(self) -> list[int]:
        return sorted(self.removed.keys() | self.added.keys() | self.left.keys())


class Elector:
    """Applies decisions to a state. What it says is a function of journal and decisions; of what was told
    before, in `was`, `because` and when."""

    def __init__(self, state: State, genesis: Genesis) -> None:
        self.state, self.genesis = state, genesis
        lifetime = genesis.options.lifetime
        self._lifetime = None if lifetime is None else 1000 * lifetime
        """Milliseconds."""

    @property
    def is_catching_up(self) -> bool:
        """Whether the topic knows more than the state: then nothing may be told."""
        return self.state.meta.told_until > self.state.meta.page

    def follow(self, decided: Sequence[Decided]) -> int:
        """Apply recorded decisions, and return their number of pages. Raises StateError if they do not fit
        their records."""
        pages, part = 0, list[Decided]()
        for each in decided:
            is_alone = each.decisions.turn is not None or each.decisions.forgotten is not None
            if part and is_alone:
                pages += self.apply(part)
                part = []
            if each.decisions.turn is not None:
                self.turn(each)
            elif each.decisions.forgotten is not None:
                self.forget(each)
            else:
                part.append(each)
        return pages + (self.apply(part) if part else 0)

    def apply(self, decided: Sequence[Decided]) -> int:
        """Apply decisions about consecutive journal records in one atomic write, and return their number of
        pages. Raises StateError if decisions do not fit their records."""
        state, end = self.state, decided[-1].decisions
        pages = JudgedPages.of(decided, self.genesis, state.meta.time)
        meta, writes = state.meta, state.store.batch()
        if len(pages):
            newest = Newest.of(pages, state)
            urls = _write_versions(newest, writes, has_lifetime=self._lifetime is not None)
            moves = self._moves(pages, newest, writes)
            meta = self._write_clusters(moves, _founders(pages), writes)
            meta = msgspec.structs.replace(meta, urls=meta.urls + urls)
        if pages.last is not None:
            meta = msgspec.structs.replace(meta, page=pages.last[0], page_time=pages.last[1])
        state.write(
            writes,
            msgspec.structs.replace(
                meta,
                applied=end.end,
                last=end.last,
                decided=decided[-1].next,
                ledger=_newest_ledger(decided, meta.ledger),
                time=pages.time,
            ),
        )
        return len(pages)

    def turn(self, decided: Decided) -> None:
        """Apply a turn, in one atomic write: URLs that were not seen for a lifetime of log time leave their
        clusters, at most MOST_UNSEEN, those first that were not seen for longest. Raises StateError if it
        does not fit."""
        state, record = self.state, decided.decisions
        refuse_other_records([], record, self.genesis)
        if self._lifetime is None:
            raise invalid(record, "a turn, but the genesis has no lifetime")
        meta, writes, moves = state.meta, state.store.batch(), _Moves()
        pages = state.unseen(record.time - self._lifetime, MOST_UNSEEN)
        gone = [digest for _, digest in pages]
        values = state.store.get(VERSIONS, gone)
        for (page, digest), value in zip(pages, values, strict=True):
            if value is None or expired_from(value) is not None or Version.of(value).page != page:
                raise damage_error(
                    state.store.path, f"URL {digest.hex()} was seen with page {page}, but has no such version"
                )
        there, expired = [value for value in values if value is not None], dict[bytes, int]()
        for (page, digest), value, key in zip(pages, there, member_keys(state, there), strict=True):
            writes.delete(SEEN, CLUSTER.pack(page))
            writes.delete(VERSIONS, digest)
            writes.delete(MEMBERS, key)
            version = Version.of(value)
            expired[digest] = version.cluster
            moves.removed.setdefault(version.cluster, set()).add(key[CLUSTER.size :])
            if version.is_first:
                moves.left[version.cluster] = version.first_url
        meta = self._write_clusters(moves, {}, writes, expired=expired)
        state.write(
            writes,
            msgspec.structs.replace(
                meta,
                urls=meta.urls - len(gone),
                unseen=pages[-1][0] + 1 if pages else meta.unseen,
                decided=decided.next,
                time=max(meta.time, record.time),
            ),
        )

    def forget(self, decided: Decided) -> None:
        """Apply a decision that forgets pages, in one atomic write. Their URLs leave their clusters, and
        nothing that is told from now on names them. With a lifetime, what requests name counts as well: of
        pages that have expired the decision does not say more. Raises StateError if it does not fit."""
        state, record = self.state, decided.decisions
        refuse_other_records([], record, self.genesis)
        assert record.forgotten is not None  # noqa: S101 (the caller knows)
        named = NamedDigests() if self._lifetime is None else record.forgotten.named
        urls, hosts, domains = named.columns
        of_hosts = state.of_hosts(self._named_hosts(hosts, domains)) if hosts or domains else set()
        gone = sorted({*record.forgotten.url_digests, *urls, *of_hosts} - {NOBODY, FORGOTTEN})  # of no URL
        writes, moves = state.store.batch(), _Moves()
        versions = dict(zip(gone, state.store.get(VERSIONS, gone), strict=True))
        there = {
            url: value for url, value in versions.items() if value is not None and expired_from(value) is None
        }
        for url, value in versions.items():
            if value is not None:
                writes.delete(VERSIONS, url)
        for value, key in zip(there.values(), member_keys(state, list(there.values())), strict=True):
            writes.delete(SEEN, CLUSTER.pack(Version.of(value).page))
            writes.delete(MEMBERS, key)
            moves.removed.setdefault(CLUSTER.unpack_from(key)[0], set()).add(key[CLUSTER.size :])
        for cluster in state.clusters_told(set(gone)):
            moves.removed.setdefault(cluster, set())
        meta = self._write_clusters(moves, {}, writes, forgotten=frozenset(gone))
        meta = msgspec.structs.replace(meta, urls=meta.urls - len(there), decided=decided.next)
        for prefix, digests in (
            (FORGOTTEN_URLS, gone), (FORGOTTEN_HOSTS, hosts), (FORGOTTEN_DOMAINS, domains),
        ):  # fmt: skip
            if digests:
                writes.put(DEFAULT, prefix + CLUSTER.pack(decided.next), b"".join(digests))
        if gone or hosts or domains:
            meta = msgspec.structs.replace(meta, forgotten=decided.next)
        state.write(writes, meta)

    def to_erase(self) -> Erasing:
        """What is forgotten, but not erased yet."""
        urls, hosts, domains = map(self.state.forgotten, (FORGOTTEN_URLS, FORGOTTEN_HOSTS, FORGOTTEN_DOMAINS))
        return Erasing(urls, self._named_hosts(hosts, domains))

    def _named_hosts(self, hosts: Iterable[bytes], domains: Iterable[bytes]) -> NamedHosts:
        return NamedHosts(self.genesis, dict.fromkeys(hosts, (0,)), dict.fromkeys(domains, (0,)))

    def naming(self, records: Sequence[TopicRecord], erasing: Erasing) -> dict[int, bool]:
        """Return for each cluster of records of the topic whether the last of them names what is to be
        erased."""
        return {self._page_of(each.record.cluster, each.where): erasing.is_in(each) for each in records}

    def tell_again(self, clusters: Sequence[int]) -> None:
        """Have something told of clusters whose last record names a URL that is forgotten."""
        meta, writes = self.state.meta, self.state.store.batch()
        due = meta.due
        for cluster, entry, is_stored in self._entries(sorted(clusters), {}):
            if entry is not None and is_stored and not entry.is_due:
                entry.forget_told()
                self._put(writes, cluster, entry, is_stored=True)
                due += _note_due(writes, cluster, entry, was_due=False)
        self.state.write(writes, msgspec.structs.replace(meta, due=due))

    def _moves(self, pages: JudgedPages, newest: Newest, writes: Writes) -> _Moves:
        """Write members that moved, and return what this means for clusters. A cluster that began in the
        batch, and has its first URL alone, is left out."""
        moves, size = _Moves(), CLUSTER.size
        cluster, since = newest.cluster, newest.since
        alone = newest.began & (cluster == since)
        if self.is_catching_up:  # something was told of clusters that begin only now
            alone[:] = False
        else:
            alone &= ~np.isin(cluster, cluster[~alone])
        # In order of the keys, or nearly so: RocksDB inserts these in half the time.
        for at in np.argsort(since, kind="stable").tolist():
            key, before = newest.key[at], newest.key_before[at]
            if key == before:
                continue
            if before != NO_KEY:
                writes.delete(MEMBERS, before)
                former = CLUSTER.unpack_from(before)[0]
                moves.removed.setdefault(former, set()).add(before[size:])
                value = newest.before[at]
                assert value is not None  # noqa: S101 (it has a key)
                version = Version.of(value)
                if version.is_first and newest.began[at]:
                    moves.left[former] = version.first_url
            if key != NO_KEY:
                writes.put(MEMBERS, key, newest.digest[at])
                if not alone[at]:
                    moves.added.setdefault(int(cluster[at]), []).append((key[size:], newest.digest[at]))
        began = np.flatnonzero(pages.cluster == pages.page)
        gone = began[~np.isin(pages.page[began], since[(cluster == since)])]
        for each, url in zip(pages.page[gone].tolist(), pages.url.take(gone).strings(), strict=True):
            moves.left[each] = url or b""
        return moves

    def _write_clusters(
        self,
        moves: _Moves,
        founders: Mapping[int, bytes],
        writes: Writes,
        *,
        forgotten: frozenset[bytes] = frozenset(),
        expired: Mapping[bytes, int] = _NONE,
    ) -> Meta:
        """Write the clusters that something happened to. `founders`: cluster that began in the batch ->
        digest of its first URL. `forgotten`: digests of URLs that are. `expired`: digest of a URL that was
        not seen for a lifetime -> the cluster that it leaves."""
        meta = self.state.meta
        records, due = meta.clusters, meta.due
        for cluster, entry, is_stored in self._entries(moves.clusters(), founders):
            if entry is None:
                raise damage_error(
                    self.state.store.path, f"cluster {cluster} has neither a record nor a member"
                )
            was_due = is_stored and entry.is_due
            if not entry.was_told and not entry.kept_url:
                entry.kept_url = moves.left.get(cluster, b"")
            self._move(cluster, entry, moves)
            if entry.kept in forgotten:
                entry.forget_told()
            elif expired.get(entry.kept) == cluster:
                writes.put(VERSIONS, entry.kept, expired_version(cluster))
            records += self._put(writes, cluster, entry, is_stored=is_stored)
            due += _note_due(writes, cluster, entry, was_due)
        return msgspec.structs.replace(meta, clusters=records, due=due)

    def _entries(
        self, clusters: list[int], founders: Mapping[int, bytes]
    ) -> Iterator[tuple[int, Cluster | None, bool]]:
        """Yield for each cluster what is known of it, None for one that never began, and whether it has a
        record."""
        stored = self.state.clusters(clusters)
        without = [
            each
            for each, entry in zip(clusters, stored, strict=True)
            if entry is None and each not in founders
        ]
        singles = dict(zip(without, self.state.first_members(without), strict=True))
        for cluster, entry in zip(clusters, stored, strict=True):
            if entry is not None:
                yield cluster, entry, True
            elif cluster in founders:
                yield cluster, Cluster.new(cluster, founders[cluster]), False
            else:
                yield cluster, singles[cluster], False

    def _move(self, cluster: int, entry: Cluster, moves: _Moves) -> None:
        """Apply what happened to a cluster's members."""
        removed, added = moves.removed.get(cluster, set()), moves.added.get(cluster, [])
        entry.members += len(added) - len(removed)
        candidates = added[:]
        if entry.best != NOBODY and entry.place not in removed:
            candidates.append((entry.place, entry.best))
        elif entry.best != NOBODY and entry.members > len(added) and not min(added, default=_LAST) < (
            entry.place, b"",
        ):  # fmt: skip
            # The best one is gone, and no new one is better: the next one that stays may be.
            stay = (each for each in self.state.members(cluster, entry.place) if each[0] not in removed)
            candidates += islice(stay, 1)
        if not candidates:
            if entry.members:
                raise damage_error(
                    self.state.store.path, f"cluster {cluster} has none of {entry.members} members"
                )
            entry.place, entry.best = bytes(self.state.keys.place_bytes), NOBODY
            return
        entry.place, entry.best = min(candidates)

    def _put(self, writes: Writes, cluster: int, entry: Cluster, *, is_stored: bool) -> int:
        """Write what is known of a cluster, and return by how much the number of records changes."""
        key = CLUSTER.pack(cluster)
        if not entry.is_plain(self.state.keys.since_of(entry.place), cluster):
            writes.put(CLUSTERS, key, self.state.encoding.encode(entry))
            return 1 - is_stored
        if is_stored:
            writes.delete(CLUSTERS, key)
        return -is_stored

    def due(self, limit: int, after: int = NO_PAGE) -> list[Due]:
        """Return what is to be told now of at most so many clusters, in their order, from the one after
        `after` on. Nothing may be applied before it is told."""
        state = self.state
        if self.is_catching_up:
            return []
        clusters = state.due(limit, after + 1)
        entries = [self._due_cluster(*each) for each in zip(clusters, state.clusters(clusters), strict=True)]
        best = state.versions([each.best for each in entries])
        urls = [each.kept for each in entries]
        kept, gone = state.versions(urls), state.expired_from(urls)
        return [self._due(*each) for each in zip(clusters, entries, best, kept, gone, strict=True)]

    def _due_cluster(self, cluster: int, entry: Cluster | None) -> Cluster:
        if entry is None or not entry.is_due:
            raise damage_error(self.state.store.path, f"cluster {cluster} is noted as due, but it is not")
        return entry

    def _due(
        self, cluster: int, entry: Cluster, best: Version | None, kept: Version | None, gone: int | None
    ) -> Due:
        """`gone`: the cluster in which the URL that was kept was not seen for a lifetime."""
        meta, journal = self.state.meta, self.genesis.journal
        if entry.best != NOBODY and (best is None or best.cluster != cluster):
            raise damage_error(self.state.store.path, f"cluster {cluster} has a member without a version")
        was = None
        if entry.kept not in (NOBODY, FORGOTTEN):
            url = entry.kept_url
            if not url and not entry.was_told and kept is not None:
                url = kept.first_url
            was = PageRef(url.decode(), show(journal, entry.kept_page))
        record = BestRecord(
            cluster=show(journal, cluster),
            best=None if best is None else kept_page(best, journal),
            was=was,
            because="expired" if gone == cluster else self._because(cluster, entry, kept),
            members=entry.members,
            as_of=show(journal, meta.page),
            decided_at=rfc3339(meta.page_time),
        )
        return Due(record, entry.best, NOBODY if was is None else entry.kept, cluster, entry)

    def _because(self, cluster: int, entry: Cluster, kept: Version | None) -> Because:
        if entry.best == entry.kept:
            return "grew"
        if entry.kept == FORGOTTEN:
            return "forgotten"
        if entry.kept != NOBODY and (kept is None or kept.cluster != cluster):
            return "left"
        since = self.state.keys.since_of(entry.place)
        return "joined" if since > (entry.as_of if entry.was_told else cluster) else "better"

    def tell(self, due: Sequence[Due], positions: Mapping[int, int]) -> None:
        """Note that these records are written, in one atomic write. `positions`: partition of the topic ->
        the offset after them."""
        meta, writes = self.state.meta, self.state.store.batch()
        self._drop_expired(writes, [(each.cluster, each.entry.kept) for each in due])
        for record, digest, was, cluster, entry in due:
            self._note_told(entry, TopicRecord(record, digest, was, ""))
            self._put(writes, cluster, entry, is_stored=True)
            writes.delete(DUE, CLUSTER.pack(cluster))
        self.state.write(
            writes,
            msgspec.structs.replace(meta, due=meta.due - len(due), positions={**meta.positions, **positions}),
        )

    def take_over(self, written: Sequence[TopicRecord], positions: Mapping[int, int]) -> None:
        """Take records of the topic as what was told, in one atomic write: those that are there from the
        state's positions on, in the order of their partition. Raises RecordError.

        If partitions were added, the records of a cluster are in several, which are read in any order. So one
        with a lower `as_of` than what is known is passed over.
        """
        meta, writes = self.state.meta, self.state.store.batch()
        last = dict[int, TopicRecord]()
        for each in sorted(written, key=lambda each: self._page_of(each.record.as_of, each.where)):
            last[self._page_of(each.record.cluster, each.where)] = each
        records, due, until = meta.clusters, meta.due, meta.told_until
        later = {each: NOBODY for each in last if each > meta.page}  # they have no members yet
        entries = list(self._entries(list(last), later))
        self._drop_expired(writes, [(cluster, entry.kept) for cluster, entry, _ in entries if entry])
        for (cluster, entry, is_stored), each in zip(entries, last.values(), strict=True):
            if entry is None:
                raise RecordError(
                    f"{each.where}: of a cluster {each.record.cluster}, which state directory"
                    f" {self.state.store.path} does not know, though it has come as far"
                )
            if entry.was_told and self._page_of(each.record.as_of, each.where) < entry.as_of:
                continue
            was_due = is_stored and entry.is_due
            self._note_told(entry, each)
            until = max(until, entry.as_of)
            records += self._put(writes, cluster, entry, is_stored=is_stored)
            due += _note_due(writes, cluster, entry, was_due)
        self.state.write(
            writes,
            msgspec.structs.replace(
                meta, clusters=records, due=due, told_until=until, positions={**meta.positions, **positions}
            ),
        )

    def _drop_expired(self, writes: Writes, kept: Sequence[tuple[int, bytes]]) -> None:
        """Drop that the URLs that clusters kept, given by digests, were not seen for a lifetime."""
        digests = [digest for _, digest in kept]
        for (cluster, digest), gone in zip(kept, self.state.expired_from(digests), strict=True):
            if gone == cluster:
                writes.delete(VERSIONS, digest)

    def _note_told(self, entry: Cluster, written: TopicRecord) -> None:
        """Note in a cluster what a record says. Raises RecordError."""
        record, digest, _, where = written
        first = page = self._page_of(record.cluster, where)
        entry.as_of = self._page_of(record.as_of, where)
        entry.kept, entry.told_members, entry.kept_page, entry.kept_url = digest, record.members, NEVER, b""
        if record.best is not None:
            page = entry.kept_page = self._page_of(record.best.id, where)
            entry.kept_url = record.best.url.encode()
        if not first <= page <= entry.as_of:
            raise RecordError(f"{where}: keeps a page that is older than its cluster or newer than its as_of")

    def _page_of(self, shown: str, where: str) -> int:
        """The packed form of an id of this journal in a record. Raises RecordError."""
        name = parse(shown)
        if name is None:
            raise RecordError(f"{where}: {shown} is the id of no page")
        if name.journal != self.genesis.journal[:8]:
            raise RecordError(f"{where}: {shown} is a page of another journal than {self.genesis.journal}")
        return name.page


_LAST = (b"\xff" * 64, b"")


def _newest_ledger(decided: Sequence[Decided], before: int) -> int:
    """The offset of the newest ledger record, or of its first part; `before` if there is none."""
    first = (each.next - 1 for each in decided if each.decisions.ledger and not each.decisions.ledger.first)
    return max(first, default=before)


def _write_versions(newest: Newest, writes: Writes, *, has_lifetime: bool) -> int:
    """Write the newest version of each URL, and return how many more URLs are in a cluster."""
    more, kept = 0, (newest.cluster != NO_CLUSTER).tolist()
    for digest in newest.expired:
        writes.delete(VERSIONS, digest)
    if has_lifetime:
        _note_seen(newest, kept, writes)
    for digest, value, before, is_kept in zip(newest.digest, newest.value, newest.before, kept, strict=True):
        if is_kept:
            writes.put(VERSIONS, digest, value)
            more += before is None
        elif before is not None:
            writes.delete(VERSIONS, digest)
            more -= 1
    return more


def _note_seen(newest: Newest, kept: Sequence[bool], writes: Writes) -> None:
    """Write when each URL that is in a cluster was seen last."""
    there = [value for value in newest.before if value is not None]
    for page in heads_of(there)["page"].tolist():
        writes.delete(SEEN, CLUSTER.pack(page))
    numbers = zip(newest.page.tolist(), newest.seen.tolist(), strict=True)
    for digest, (page, seen), is_kept in zip(newest.digest, numbers, kept, strict=True):
        if is_kept:
            writes.put(SEEN, CLUSTER.pack(page), SEEN_VALUE.pack(seen, digest))


def _note_due(writes: Writes, cluster: int, entry: Cluster, was_due: bool) -> int:
    """Note whether a cluster is due, and return by how much their number changes."""
    if entry.is_due and not was_due:
        writes.put(DUE, CLUSTER.pack(cluster), b"")
    elif was_due and not entry.is_due:
        writes.delete(DUE, CLUSTER.pack(cluster))
    return entry.is_due - was_due


def _founders(pages: JudgedPages) -> dict[int, bytes]:
    """Cluster that began with one of these pages -> digest of its first URL."""
    rows = np.flatnonzero(pages.cluster == pages.page)
    return dict(zip(pages.page[rows].tolist(), digests_in(pages.digest[rows]), strict=True))
