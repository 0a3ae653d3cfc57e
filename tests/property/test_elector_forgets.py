"""An elector forgets URLs: what is kept is as if they had never been, and nothing that it has names them."""

from __future__ import annotations

import dataclasses
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from stream.elector.elector import Due, Elector, Erasing, TopicRecord
from stream.elector.layout import CLUSTER, NOBODY, Version, expired_from
from stream.fingerprint.seed import host_hasher
from stream.judge.batch import Decided
from stream.judge.forgetting import NamedHosts
from stream.messages.best import BestRecord, KeptPage
from stream.messages.decision import (
    Forgotten,
    NamedDigests,
    decode_decisions,
    encode_decisions,
    forgetting_record,
)
from stream.messages.verdict import PageRef
from stream.messages.verdict_options import VerdictOptions
from stream.states import erasing as states_erasing
from stream.tables.store.rocks import CLUSTERS, ELECTOR, VERSIONS, Store
from tests.elected import decided_of, open_elector, read_back, url_digest_of
from tests.genesis import genesis_of
from tests.night import by_night
from tests.property import best_oracle
from tests.property.best_oracle import POLICIES, crawl


def forgetting(before: Decided, digests: list[bytes], named: NamedDigests | None = None) -> Decided:
    """The decision that URLs are forgotten, after another decision. `named` is what was requested."""
    forgotten = Forgotten(
        requests=1,
        anchors=np.arange(len(digests), dtype="<i8").tobytes(),
        duplicates=b"",
        urls=b"".join(sorted(digests)),
        ids=b"",
        pages=[],
        named=named or NamedDigests(),
    )
    last = before.decisions
    record = forgetting_record(last.journal, last.options, last.end, last.last, last.time, forgotten)
    return Decided([], decode_decisions(encode_decisions(record), before.next), before.next + 1)


def tell(elector: Elector) -> list[Due]:
    found = list[Due]()
    while due := elector.due(100):
        found += due
        elector.tell(due, {})
    return found


def erase(elector: Elector, topic: list[Due], gone: set[bytes]) -> list[Due]:
    """What the role does: records of the topic that name URLs are replaced, then files are rewritten. Digests
    do not follow from URLs here, as those of pages with a canonical URL do not."""
    state = elector.state
    erasing = elector.to_erase()
    assert erasing.urls == gone
    records = [TopicRecord(read_back(each), each.digest, each.was, "best") for each in topic]
    naming = elector.naming(records, erasing)
    elector.tell_again([cluster for cluster, is_named in naming.items() if is_named])
    told = tell(elector)
    state.compact()
    state.note_erased(state.erasable)
    state.store.flush()
    assert state.meta.erased == state.meta.forgotten
    return told


_KEYS: dict[str, object] = {}


def test_the_last_record_of_a_cluster_is_searched_for_urls(tmp_path: Path) -> None:
    """By the digests of the kept page and of the page before, which may be those of other URLs than their
    own, such as canonical ones."""
    elector = open_elector(tmp_path, "first")
    show = partial(best_oracle.show, journal=elector.genesis.journal[:8])

    def record(cluster: int, was: bytes, digest: bytes = b"k" * 16) -> TopicRecord:
        best = KeptPage("http://kept.example/", show(9), 1, None, None)
        told = BestRecord(
            cluster=show(cluster), best=best, was=PageRef("http://any.example/", show(cluster)),
            because="joined", members=2, as_of=show(9), decided_at="2026-01-02T03:04:05.000Z",
        )  # fmt: skip
        return TopicRecord(told, digest, was, "here")

    gone, other = b"g" * 16, b"o" * 16
    records = [
        record(1, gone), record(2, other), record(3, NOBODY), record(4, gone), record(4, other),
        record(5, other, gone),
    ]  # fmt: skip
    nothing = NamedHosts(elector.genesis, {}, {})
    assert elector.naming(records, Erasing({gone}, nothing)) == {
        1: True, 2: False, 3: False, 4: False, 5: True,
    }  # fmt: skip
    digest = host_hasher(elector.genesis.seed)("kept.example")
    host = NamedHosts(elector.genesis, {digest: (0,)}, {})
    assert set(elector.naming(records, Erasing(set(), host)).values()) == {True}
    elector.state.close()


async def test_what_is_forgotten_while_files_are_rewritten_is_erased_after_that(tmp_path: Path) -> None:
    elector, batches = open_elector(tmp_path, "first"), decided_of(crawl(0, 50), 0)
    elector.apply(batches)
    one, other = url_digest_of(1), url_digest_of(2)
    before = forgetting(batches[-1], [one])

    async def replace() -> bool:
        assert elector.to_erase().urls == {one}
        return False

    elector.forget(before)
    erasing = states_erasing.Erasing(elector.state, replace)
    await erasing.attend()
    elector.forget(forgetting(before, [other]))  # before the thread runs that rewrites files
    await erasing.close()
    await erasing.attend()
    assert elector.state.meta.erased == before.next
    assert elector.to_erase().urls == {other}
    assert erasing.is_due
    elector.state.close()


def test_a_host_is_forgotten_with_urls_of_which_the_judge_has_no_page_any_more(tmp_path: Path) -> None:
    """With a lifetime, the pages of a URL may have expired though it was seen since, and its cluster may keep
    another one."""
    genesis = genesis_of(options=VerdictOptions(lifetime=86_400))
    elector = open_elector(tmp_path, "first", genesis)
    judged = crawl(0, 250)
    batches = decided_of(judged, 0, genesis)
    elector.follow(batches)
    tell(elector)
    named = NamedDigests.of(hosts=[host_hasher(genesis.seed)("a.example")])
    elector.forget(forgetting(batches[-1], [], named))
    left = [
        Version.of(value).url
        for _, value in elector.state.store.scan(VERSIONS)
        if expired_from(value) is None
    ]
    assert left
    assert not any(url.startswith(b"https://a.example/") for url in left)
    told = tell(elector)
    assert told
    kept = [each.record.best.url for each in told if each.record.best is not None]
    assert not any(url.startswith("https://a.example/") for url in kept)
    elector.state.close()


def content(path: Path) -> bytes:
    """All bytes of a state directory: files as they are, keys and values."""
    found = [each.read_bytes() for each in path.iterdir() if not each.name.startswith("MANIFEST")]
    with Store(path, 1 << 20, read_only=True, layout=ELECTOR) as store:
        found += [part for family in store.families for pair in store.scan(family) for part in pair]
    return b"\n".join(found)


@pytest.mark.parametrize(
    ("elect", "seed"), [("first", 0), ("longest", 1), *by_night((each, 2) for each in POLICIES)]
)
def test_what_is_kept_is_as_if_forgotten_urls_had_never_been(tmp_path: Path, elect: str, seed: int) -> None:
    judged, rng = crawl(seed, 250), random.Random(seed)
    judged = [
        each if each.key is None else dataclasses.replace(each, url=f"{each.url}~{each.key}~")
        for each in judged
    ]
    _KEYS.update({each.url: each.key for each in judged})
    batches, keys = (
        decided_of(judged, seed),
        sorted({each.key for each in judged if isinstance(each.key, int)}),
    )
    elector, topic = open_elector(tmp_path, elect), list[Due]()
    half = batches[len(batches) // 2]
    for batch in batches[: len(batches) // 2 + 1]:
        elector.apply([batch])
        if rng.random() < 0.5:
            topic += tell(elector)
    gone_keys = set(rng.sample(keys, len(keys) // 3))
    gone = {url_digest_of(key) for key in gone_keys}
    state = elector.state
    told = [
        (CLUSTER.unpack(key)[0], state.encoding.decode(value)) for key, value in state.store.scan(CLUSTERS)
    ]
    assert state.clusters_told(gone) == [cluster for cluster, entry in told if entry.kept in gone]
    elector.forget(forgetting(half, sorted(gone)))
    so_far = [each for each in judged if each.page >> 16 < half.decisions.end]
    left = [each for each in so_far if each.key not in gone_keys]
    every, kept = best_oracle.members(so_far), best_oracle.kept(left, elect)
    for cluster in every:
        found = elector.state.kept(cluster)
        want = kept.get(cluster)
        assert (found and found[0] and found[0].page) == (want and want.page), cluster
    told = erase(elector, topic, gone)
    assert "forgotten" in {each.record.because for each in told}
    newest = {each.record.cluster: each.record for each in [*topic, *told]}
    named = [each.url for record in newest.values() for each in (record.best, record.was) if each is not None]
    assert not any(_KEYS[url] in gone_keys for url in named)
    for cluster in every:  # what the topic says, and the rule for clusters without a record
        record, want = newest.get(best_oracle.show(cluster, elector.genesis.journal[:8])), kept.get(cluster)
        if record is None:
            assert want is not None
            assert cluster == want.cluster
        else:
            assert (record.best is None) == (want is None)
            assert record.best is None or want is None or _KEYS[record.best.url] == want.key
    elector.state.close()
    left_bytes = content(tmp_path)
    for key in keys:
        if key in gone_keys:
            assert f"~{key}~".encode() not in left_bytes
            assert url_digest_of(key) not in left_bytes
    elector = open_elector(tmp_path, elect)
    for batch in batches[len(batches) // 2 + 1 :]:
        elector.apply([batch])
        tell(elector)
    elector.state.close()
