"""The dashboard's blocks of verdicts: each URL's last ones are found, and nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import msgspec
import numpy as np
import pytest
import xxhash
from faust.types import TP
from msgspec import UNSET, structs

from stream.dashboard.counting import history
from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.forgotten_ids import ForgottenIds
from stream.dashboard.counting.history import KEPT, History
from stream.dashboard.counting.latest_verdicts import LatestVerdicts, VerdictFilter
from stream.dashboard.counting.rows import UrlRow
from stream.dashboard.counting.verdict_columns import batch_of, normal
from stream.fingerprint.seed import host_hasher, url_hasher
from stream.judge.ids import pack
from stream.messages.requests import ForgetRequest, What
from stream.messages.verdict import NearestPage, PageRef, VerdictRecord
from tests.genesis import genesis_of
from tests.kafka.dashboard_helpers import VerdictMaker

PARTITION = 2


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setattr(history, "BLOCK_BYTES", 4000)
    return table_in(tmp_path / "first")


def table_in(path: Path) -> History:
    path.mkdir()
    app = faust.App("dashboard", store="rocksdb://?driver=rocksdict", datadir=str(path))
    return History(app, name="urls", partitions=4)


def crawled(times: int) -> list[VerdictRecord]:
    """URLs that come again and again, and one that comes once."""
    made = VerdictMaker()
    found = [made.one(url=f"http://a.example/{i % 5}") for i in range(5 * times)]
    return [*found, made.one(url="http://once.example/")]


def kept(table: History, verdicts: list[VerdictRecord], first: int = 0) -> dict[bytes, bytes]:
    values = [msgspec.json.encode(each) for each in verdicts]
    return table.keep([batch_of(PARTITION, range(first, first + len(values)), values)])


GENESIS = genesis_of()
FORGOTTEN = "http://a.example/3"


def forgotten_pages(*requests: tuple[What, str], start: int = 8) -> ForgottenPages:
    """Pages that are forgotten at a journal offset, by names of what was requested."""
    pages = ForgottenPages(GENESIS)
    for offset, (what, name) in enumerate(requests):
        hasher = url_hasher if what == "url" else host_hasher
        digest = hasher(GENESIS.seed)(name).hex()
        pages.add(offset, 0, ForgetRequest(journal=GENESIS.journal, forget=what, digest=digest))
    pages.decide(len(requests), start)
    return pages


def ids(verdicts: list[VerdictRecord]) -> list[str]:
    return [each.id for each in verdicts]


def check(table: History, verdicts: list[VerdictRecord]) -> None:
    for url in {each.url or "" for each in verdicts}:
        its = [each for each in verdicts if each.url == url]
        assert table.of(PARTITION, normal(url)) == its[::-1][:KEPT]
    assert table.of(PARTITION, "http://never.example/") == []
    assert table.of(PARTITION + 1, normal("http://once.example/")) == [], "no RocksDB of that partition"


def test_the_last_verdicts_of_each_url_are_found(table: History) -> None:
    verdicts = crawled(2 * KEPT)
    assert len(kept(table, verdicts)) > 3, "in blocks"
    check(table, verdicts)


def test_verdicts_that_come_again_are_found_once_however_they_are_cut(table: History) -> None:
    verdicts = crawled(KEPT)
    for first, last in ((0, 30), (0, 7), (5, 31), (20, len(verdicts))):
        kept(table, verdicts[first:last], first)
    check(table, verdicts)


def changes(rows: dict[bytes, bytes]) -> list[Any]:
    """Rows as Faust gives them from the changelog."""
    changelog = TP("dashboard-urls-changelog", PARTITION)
    messages = [
        SimpleNamespace(tp=changelog, offset=i, partition=PARTITION, key=key, value=value)
        for i, (key, value) in enumerate(rows.items())
    ]
    return [SimpleNamespace(message=each) for each in messages]


def test_blocks_recovered_from_the_changelog_are_found(table: History, tmp_path: Path) -> None:
    verdicts = crawled(KEPT)
    rows = kept(table, verdicts)
    before = VerdictRecord(**{**msgspec.structs.asdict(verdicts[-1]), "id": "abcd1234.1.1"})
    digest = xxhash.xxh3_128_hexdigest(normal(before.url or "").encode())
    old = f'"{PARTITION}/{digest}"'.encode()
    rows[old] = msgspec.msgpack.encode(UrlRow(3, [verdicts[-1], before]))
    recovered = table_in(tmp_path / "second")
    recovered.apply_changelog_batch(changes(rows))
    check(recovered, verdicts[:-1])
    found = recovered.of(PARTITION, normal(before.url or ""))
    assert ids(found) == ids([verdicts[-1], before]), "also those that an earlier version kept"


def test_a_block_is_rewritten_without_what_it_says_of_forgotten_pages(table: History) -> None:
    prefix, verdicts = GENESIS.journal[:8], crawled(KEPT)
    verdicts = [structs.replace(each, id=f"{prefix}.7.{place}") for place, each in enumerate(verdicts)]
    named = PageRef(FORGOTTEN, f"{prefix}.7.3")
    verdicts[-1] = structs.replace(
        verdicts[-1],
        verdict="unique", duplicate_of=None, nearest=NearestPage(named.url, named.id, 0.3),
    )  # fmt: skip
    verdicts[-2] = structs.replace(verdicts[-2], verdict="duplicate", duplicate_of=named)
    kept(table, verdicts)
    pages = forgotten_pages(("url", FORGOTTEN))
    keys = [key for key, _ in table.next_rows(PARTITION, b"")]
    assert rewrite(table, pages) > 1
    table.flush(PARTITION)
    for each in ((b'"', b"~"), *table.index_slices(PARTITION)):
        table.compact(PARTITION, *each)
    assert table.of(PARTITION, FORGOTTEN) == []
    check(
        table,
        [
            structs.replace(
                each,
                duplicate_of=None if each.duplicate_of == named else each.duplicate_of,
                nearest=UNSET,
            )
            for each in verdicts
            if each.url != FORGOTTEN
        ],
    )
    assert not table.rewritten(PARTITION, keys, pages), "once"
    database = table.assigned_database(PARTITION)
    contents = [part for entry in database.items() for part in entry]
    digest = xxhash.xxh3_64_digest(FORGOTTEN.encode())
    assert not any(digest in each for each in contents)
    assert not any(digest in each.read_bytes() for each in Path(database.path()).glob("*.sst"))


def rewrite(table: History, pages: ForgottenPages) -> int:
    """Rewrite all rows, and return how many it were."""
    rows = table.rewritten(PARTITION, [key for key, _ in table.next_rows(PARTITION, b"")], pages)
    table.write_rewritten(PARTITION, rows)
    return len(rows)


def names_digest(table: History, url: str) -> bool:
    """Whether rows, or the index, have the digest of a URL."""
    digest, database = xxhash.xxh3_64_digest(url.encode()), table.assigned_database(PARTITION)
    return any(digest in part for entry in database.items() for part in entry)


def test_blocks_that_come_again_leave_no_index_of_forgotten_pages(table: History, tmp_path: Path) -> None:
    """Redelivered verdicts, and later versions of rows in a changelog, in one batch or in two."""
    prefix, verdicts = GENESIS.journal[:8], crawled(KEPT)
    verdicts = [structs.replace(each, id=f"{prefix}.7.{place}") for place, each in enumerate(verdicts)]
    rows, pages = kept(table, verdicts), forgotten_pages(("url", FORGOTTEN))
    assert names_digest(table, FORGOTTEN)
    values = pages.forget_all(map(msgspec.json.encode, verdicts))
    left = [msgspec.json.decode(each, type=VerdictRecord) for each in values]
    rewritten = kept(table, left)
    rewrite(table, pages)  # blocks that begin elsewhere
    assert not names_digest(table, FORGOTTEN)
    check(table, [each for each in left if each.url])
    for name, batches in (
        ("one", [[*changes(rows), *changes(rewritten)]]),
        ("two", map(changes, (rows, rewritten))),
    ):
        recovered = table_in(tmp_path / name)
        for batch in batches:
            recovered.apply_changelog_batch(batch)
        rewrite(recovered, pages)
        assert not names_digest(recovered, FORGOTTEN)
        check(recovered, [each for each in left if each.url])


def test_a_block_that_is_replaced_leaves_the_index_of_others(
    table: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shorter one comes in its place once another one has the rest of its verdicts."""
    monkeypatch.setattr(history, "BLOCK_BYTES", 1 << 20)
    verdicts = crawled(1)
    kept(table, verdicts)
    kept(table, verdicts[3:], first=3)
    kept(table, verdicts[:3])
    check(table, verdicts)


def test_pages_that_have_the_key_of_another_url_are_forgotten_by_their_ids(table: History) -> None:
    """And the recrawls of them. A page that is like them stays, and so does one that was crawled later."""
    prefix, made = GENESIS.journal[:8], VerdictMaker()

    def page(place: int, url: str, verdict: str, like: PageRef | None, offset: int = 7) -> VerdictRecord:
        each = made.one(url=url)
        return structs.replace(each, id=f"{prefix}.{offset}.{place}", verdict=verdict, duplicate_of=like)

    gone = PageRef("http://a.example/?session=1", f"{prefix}.7.0")
    verdicts = [
        page(0, gone.url, "unique", None),
        page(1, "http://a.example/?session=2", "recrawl", gone),
        page(2, "http://b.example/", "duplicate", gone),
        page(3, "http://a.example/?session=3", "unique", None, offset=9),
    ]
    kept(table, verdicts)
    pages = forgotten_pages(("url", "http://a.example/"))
    assert rewrite(table, pages) == 0
    pages.ids.add(np.array([pack(7, 0), pack(6, 5)]))
    assert rewrite(table, pages) == 1
    assert [table.of(PARTITION, normal(each.url or "")) for each in verdicts] == [
        [], [], [structs.replace(verdicts[2], duplicate_of=None)], [verdicts[3]],
    ]  # fmt: skip
    assert rewrite(table, pages) == 0
    assert pages.names("http://any.example/", f"{prefix}.6.5")
    assert not pages.names("http://any.example/", "ffffffff.6.5"), "of another journal"


def test_ids_of_forgotten_pages_are_read_back(tmp_path: Path) -> None:
    journal, written = GENESIS.journal, ForgottenIds(GENESIS.journal)
    assert ForgottenIds.read(tmp_path, journal) is None
    for some in ([5, 9], [], [7, 9, 1 << 60], [1]):
        written.add(np.array(some, np.int64))
        written.write(tmp_path)
        found = ForgottenIds.read(tmp_path, journal)
        assert found is not None
        assert [each for each in (1, 2, 5, 7, 9, 1 << 60) if each in found] == [
            each for each in (1, 2, 5, 7, 9, 1 << 60) if each in written
        ]
    assert (len(written), 7 in written, 8 in written, 1 << 61 in written) == (5, True, False, False)
    assert ForgottenIds.read(tmp_path, "cd" * 16) is None
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert ForgottenIds.read(tmp_path, journal) is None


@pytest.mark.parametrize(
    ("what", "name", "url", "is_named"),
    [
        ("url", "http://a.example/3", "HTTP://A.example:80/3#part", True),
        ("url", "http://a.example/3", "http://a.example/4", False),
        ("url", "http://xn--bcher-kva.example/", "http://bücher.example/", True),
        ("host", "a.example", "https://a.example:8443/x", True),
        ("host", "a.example", "http://www.a.example/x", False),
        ("host", "example", "http://a.example/x", False),
        ("domain", "a.example", "http://www.a.example/x", True),
        ("domain", "a.example", "http://nota.example/x", False),
        ("domain", "a.example", "not a url", False),
    ],
)
def test_pages_are_forgotten_by_urls_hosts_and_domains_until_the_decision(
    what: What, name: str, url: str, is_named: bool
) -> None:
    pages, prefix = forgotten_pages(("url", "http://other.example/"), (what, name)), GENESIS.journal[:8]
    assert pages.names(url, f"{prefix}.7.0") == is_named
    assert not pages.names(url, f"{prefix}.8.0"), "crawled again later"
    assert not pages.names(url, "ffffffff.7.0"), "of another journal"
    assert not pages.names(None, f"{prefix}.7.0")
    hasher = url_hasher if what == "url" else host_hasher
    again = ForgetRequest(journal=GENESIS.journal, forget=what, digest=hasher(GENESIS.seed)(name).hex())
    pages.add(2, 0, again)
    assert not pages.names(url, f"{prefix}.8.0"), "not decided"
    pages.decide(3, 20)
    assert pages.names(url, f"{prefix}.19.0") == is_named
    assert pages.names("http://other.example/", f"{prefix}.7.0")
    assert not pages.names("http://other.example/", f"{prefix}.8.0")


async def test_the_latest_verdicts_lose_what_they_say_of_forgotten_pages() -> None:
    latest, prefix = LatestVerdicts(), GENESIS.journal[:8]
    verdicts = [structs.replace(each, id=f"{prefix}.7.{n}") for n, each in enumerate(crawled(2))]
    for first, last in ((0, 2), (2, 7), (7, len(verdicts))):
        values = [msgspec.json.encode(each) for each in verdicts[first:last]]
        latest.tell(batch_of(PARTITION, range(first, last), values))
    await latest.forget(forgotten_pages(("url", FORGOTTEN)))
    shown = [each.answer().verdict for each in latest.latest(VerdictFilter(), 100, None)]
    assert [each.id for each in shown] == [each.id for each in reversed(verdicts)]
    assert [each.url for each in shown if each.url] == [
        each.url for each in reversed(verdicts) if each.url != FORGOTTEN
    ]


def test_pages_of_one_host_near_one_anchor_of_another_are_counted() -> None:
    victim, other = (PageRef(f"http://victim.example/{n}", f"9f576ade.1.{n}") for n in range(2))
    near = NearestPage(victim.url, victim.id, 0.7)
    said = [
        *((f"http://a.example/{n}", "duplicate", victim, UNSET) for n in range(3)),
        *(
            (f"http://a.example/{n}", "unique", None, near) for n in range(2, 5)
        ),  # one URL for the second time
        *((f"http://a.example/{n}", "duplicate", other, UNSET) for n in range(4)),
        *((f"http://b.example/{n}", "duplicate", victim, UNSET) for n in range(4)),
        *((f"http://victim.example/{n}", "duplicate", victim, UNSET) for n in range(9)),
        *((f"http://c.example/{n}", "recrawl", victim, UNSET) for n in range(9)),
    ]
    verdicts = [
        structs.replace(crawled(1)[0], url=url, verdict=verdict, duplicate_of=of, nearest=nearest)
        for url, verdict, of, nearest in said
    ]
    latest = LatestVerdicts()
    assert latest.near_one_anchor == 0
    latest.tell(batch_of(PARTITION, range(len(verdicts)), [msgspec.json.encode(each) for each in verdicts]))
    assert latest.near_one_anchor == 5
