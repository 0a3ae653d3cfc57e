"""`neardup forget` on a broker: requests, decisions, what is erased, and what is told of it."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream.checkpoints.kinds import meta_of
from stream.dashboard.counting.state import State as DashboardState
from stream.errors import SettingsError
from stream.figures import EARLIER, FIGURES, Meta
from stream.fingerprint.row import Row
from stream.fingerprint.seed import host_hasher
from stream.judge.forgetting import Wanted
from stream.judge.state.meta import Forgetting
from stream.kafka import topics
from stream.kafka.names import TopicNames
from stream.messages.best import BestRecord, decode_best
from stream.messages.decision import Forgotten
from stream.messages.journal import SourceRange
from stream.messages.requests import ForgetRequest
from stream.pages.page import Page
from stream.roles.auditor.recompute import recompute
from stream.roles.elector.role import ElectorRole
from stream.roles.forgetter.compacted import RequestedPages, count_forgotten
from stream.roles.forgetter.request import Name, names_in, names_of, request
from stream.roles.forgetter.status import _Decided, _directories, status
from stream.roles.judge.role import JudgeRole
from stream.settings import Settings
from stream.states.follower import open_follower
from tests.commands import neardup_process
from tests.genesis import genesis_of
from tests.kafka.disk_scan import DiskScan
from tests.kafka.judge_helpers import (
    CLUSTER,
    FINGERPRINTER,
    TOPIC_ID,
    Part,
    add_partitions,
    append,
    decided,
    decision_records,
    delete_records,
    record,
    text,
    verdicts,
)
from tests.kafka.worker_helpers import create, read_all, running, scrape
from tests.kills import killed_command
from tests.night import cases
from tests.url_digests import digest_of_url
from tests.waiting import until

pytestmark = pytest.mark.broker
RULES = FINGERPRINTER.scheme.url_rules


@pytest.fixture
async def deployed(settings: Settings) -> Settings:
    settings = settings.model_copy(update={"session_seconds": 1.0, "flush_seconds": 0.1})
    await create(settings)
    return settings


def row_of(url: str, seed: object, key: str | None = None) -> Row:
    """The row of a page; `key` is the URL whose key it has, such as its canonical one, if that is another."""
    row: Row = FINGERPRINTER.page(Page(url=url, text=text(seed)))
    return row if key is None else msgspec.structs.replace(row, url_digest=digest_of_url(key))


def pages(partition: int, *of_urls: tuple[Any, ...]) -> Part:
    """The first pages of a partition, given as `row_of` takes them."""
    rows = [row_of(*each) for each in of_urls]
    count = len(rows)
    source = SourceRange(CLUSTER, "pages", TOPIC_ID, partition, 0, count, count, opening=True)
    return Part(source, rows, list(range(count)))


async def judge(settings: Settings, partition: int, *of_urls: tuple[Any, ...]) -> list[str]:
    """Have pages judged, and return the verdicts on them and the URLs that these name, in order."""
    await decided(settings, await append(settings, record(pages(partition, *of_urls))))
    found = [each for each in await verdicts(settings) if each["source"]["partition"] == partition]
    found.sort(key=lambda each: each["source"]["offset"])
    return [f"{each['verdict']} {(each['duplicate_of'] or {}).get('url', '-')}" for each in found]


async def ask(settings: Settings, *urls: str, hosts: tuple[str, ...] = ()) -> int:
    genesis = await topics.wait_for_genesis(settings)
    return await request(settings, genesis, names_of(urls, hosts, (), RULES))


async def forgotten(settings: Settings) -> list[Forgotten]:
    """What was decided so far."""
    return [each.forgotten for each in (await decision_records(settings)).values() if each.forgotten]


def state_of(settings: Settings, name: str = "judge") -> Forgetting:
    """As of the last flush."""
    meta = meta_of(settings.state_dir / settings.namespace / name, name)
    return Forgetting() if meta is None else meta.forgetting


async def erased(settings: Settings, requests: int, name: str = "judge") -> None:
    """Wait until a state directory has nothing left of so many requests."""
    await until(lambda: (found := state_of(settings, name)).requests >= requests and found.is_erased)


def content(path: Path) -> bytes:
    """All bytes of a state directory that no process has open: its files as they are, keys and values."""
    scan = DiskScan()
    return b"\n".join([*scan.files(path), scan.entries(path)])


A, B, C, D, E = (f"http://{name}.example.org/page" for name in "abcde")


async def test_pages_of_a_url_are_forgotten_in_all_versions(deployed: Settings, tmp_path: Path) -> None:
    async with running(JudgeRole(deployed)) as judging:
        assert await judge(deployed, 0, (A, 1), (A, 2), (A, 3), (A, 4), (B, 4), (C, 5)) == [
            "unique -", "unique -", "unique -", "unique -", f"duplicate {A}", "unique -",
        ]  # fmt: skip
        assert await ask(deployed, A, A, "http://nobody.example.net/") == 2
        await erased(deployed, 2)
        assert [each.pages for each in await forgotten(deployed)] == [[(0, 4)]]
        # B's cluster has ended; A is new, and finds B, which was judged again.
        assert await judge(deployed, 1, (B, 4), (A, 4), (A, 1), (C, 5)) == [
            f"recrawl {B}", f"duplicate {B}", "unique -", f"recrawl {C}",
        ]  # fmt: skip
        found = await status(deployed)
        assert (found.requests, found.decided, found.unknown, found.pages) == (2, 2, 1, 4)
        assert found.forgotten is not None
        told = await scrape(judging)
        assert told["neardup_judge_forgotten_pages_total"] == 4
        assert (
            told["neardup_judge_forget_requests_waiting"] == told["neardup_judge_forget_waiting_seconds"] == 0
        )
        assert told["neardup_judge_erase_waiting_seconds"] == 0
    clusters = await read_all(deployed, TopicNames(deployed.namespace).clusters)
    ended = {each.key: each.value for each in clusters}
    assert A.encode() not in b"".join(value or b"" for value in ended.values())
    assert await recompute(deployed) == []
    # Another holder, built from the topics.
    genesis = await topics.wait_for_genesis(deployed)
    async with open_follower(deployed, genesis, tmp_path / "follower") as follower:
        await follower.follow_to_end()
        while not follower.state.meta.forgetting.is_erased:
            await follower.follow()
        other = follower.state.digest()
    directory = deployed.state_dir / deployed.namespace / "judge"
    async with open_follower(deployed, genesis, directory) as follower:
        assert follower.state.digest() == other


@pytest.mark.night
async def test_records_of_kept_pages_are_replaced_in_partitions_of_before(settings: Settings) -> None:
    """Where partitions were added, keys have others than before."""
    electing = settings.model_copy(
        update={"session_seconds": 1.0, "flush_seconds": 0.1, "elect": "first", "elect_seconds": 0.2}
    )
    await create(electing)
    best = TopicNames(electing.namespace).best()
    directory = electing.state_dir / electing.namespace / "elector"
    clusters = [[f"http://{name}{number}.example/" for name in "abc"] for number in range(8)]
    of_pages = [(url, number) for number, urls in enumerate(clusters) for url in urls]

    async def last() -> dict[tuple[int, bytes], BestRecord]:
        records = await read_all(electing, best)
        return {(each.partition, each.key): decode_best(each.value, "best") for each in records}

    def erased_until() -> int:
        meta = meta_of(directory, "elector") if (directory / "CURRENT").exists() else None
        return 0 if meta is None or meta.erased < meta.forgotten else meta.erased

    async with running(JudgeRole(electing)):
        await judge(electing, 0, *of_pages)
        async with running(ElectorRole(electing)):
            await ask(electing, *(urls[0] for urls in clusters))
            await until(erased_until)
        before, done = await last(), erased_until()
        assert {each.best and each.best.url for each in before.values()} == {urls[1] for urls in clusters}
        await add_partitions(electing, best, 13)
        async with running(ElectorRole(electing)):
            await ask(electing, *(urls[1] for urls in clusters))
            await until(lambda: erased_until() > done)
        after = await last()
    assert after.keys() > before.keys(), "some keys have another partition"
    kept = {urls[2] for urls in clusters}
    assert {each.best and each.best.url for each in after.values()} == kept
    assert {each.was for each in after.values()} == {None}


@pytest.mark.parametrize(("forgotten", "requests", "delayed"), [(0, 4, False), (0, 5, True), (9, 4, True)])
def test_figures_that_do_not_say_that_all_is_erased_delay_it(
    tmp_path: Path, forgotten: int, requests: int, delayed: bool
) -> None:
    """So does what an earlier version of the dashboard counted."""
    settings, genesis = Settings(state_dir=tmp_path, namespace="n"), genesis_of()
    figures = tmp_path / "n" / "dashboard" / FIGURES
    meta = Meta(cluster="c", journal=genesis.journal, topic="t", requested=4, forgotten=forgotten)
    with closing(DashboardState.open(figures, meta)) as state:
        state.note_erased(0)
    found = _directories(settings, genesis, _Decided(pages={}, requests=requests))
    assert [each.what for each in found] == [str(figures)] * delayed
    figures.with_name(EARLIER).mkdir()
    found = _directories(settings, genesis, _Decided(pages={}, requests=requests))
    assert str(figures.with_name(EARLIER)) in {each.what for each in found}


async def test_the_command_requests_and_says_what_delays_it(deployed: Settings, tmp_path: Path) -> None:
    file = tmp_path / "urls.txt"
    file.write_text(f"{A}\n\n{B}\n")
    async with running(JudgeRole(deployed)):
        await judge(deployed, 0, (A, 1), (B, 2), (C, 3), ("http://sub.d.example.org/", 4))
        code, _, error = await neardup_process(
            deployed, "forget", "--file", str(file), "--domain", "d.example.org"
        )
        assert (code, "requested: 3" in error) == (0, True), error
        await erased(deployed, 3)
    code, out, error = await neardup_process(deployed, "forget", "--status", "--json")
    assert code == 1, error
    told = json.loads(out)
    assert (told["requests"], told["decided"], told["unknown"], told["pages"]) == (3, 3, 0, 3)
    delays = {each["what"]: each for each in told["delays"]}
    names = TopicNames(deployed.namespace)
    assert delays.keys() == {names.verdicts, names.journal}, delays
    assert delays[names.verdicts]["until"] is not None
    await delete_records(deployed, names.journal, 1)
    code, out, error = await neardup_process(deployed, "forget", "--status")
    assert code == 1, error
    assert names.journal not in out
    assert f"delayed by {names.verdicts}: has records from before" in out
    # Once decisions are trimmed, states say what was decided.
    await delete_records(deployed, names.decisions, max(await decision_records(deployed)) + 1)
    code, out, error = await neardup_process(deployed, "forget", "--status", "--json")
    assert code == 1, error
    told = json.loads(out)
    assert (told["requests"], told["decided"], told["unknown"], told["pages"]) == (3, 3, 0, 0)
    assert {each["what"] for each in told["delays"]} == {names.verdicts}
    assert any("3 requests were decided by records that are trimmed" in each for each in told["notes"])
    code, _, error = await neardup_process(deployed, "forget")
    assert code == 2, error


async def test_records_that_name_forgotten_pages_are_counted_until_they_are_compacted(
    deployed: Settings,
) -> None:
    """Two requests, which name A and E's domain, were decided before record 5 of the journal, another one,
    which names B, before record 9, and one that names C is not."""
    genesis, topic = await topics.wait_for_genesis(deployed), TopicNames(deployed.namespace).clusters
    hasher = host_hasher(genesis.seed)
    requests = [
        (at, ForgetRequest(journal=genesis.journal, forget=what, digest=digest.hex()))
        for at, (what, digest) in enumerate(
            (
                ("url", digest_of_url(A)),
                ("domain", hasher("e.example.org")),
                ("url", digest_of_url(B)),
                ("url", digest_of_url(C)),
            )
        )
    ]
    pages_ = RequestedPages(Wanted(requests, genesis), [(0, 3), (2, 5), (3, 9)], {})

    def ended(url: str, place: int) -> bytes:
        return json.dumps({"cluster": "j.1.0", "url": url, "by": f"j.{place}.0"}).encode()

    def best(url: str | None, was: str | None, place: int) -> bytes:
        kept, before = (each and {"url": each} for each in (url, was))
        return json.dumps({"best": kept, "was": before, "as_of": f"j.{place}.0"}).encode()

    cases: tuple[tuple[str, bytes | None, dict[str, str], int], ...] = (
        ("an anchor that was superseded before", ended(A, 4), {"digest": A}, 1),
        ("of a page that was crawled again", ended(A, 5), {"digest": A}, 0),
        ("by a later request", ended(B, 8), {"digest": B}, 1),
        ("by one that is not decided", ended(C, 1), {"digest": C}, 0),
        ("by its key, which is that of another URL", ended(D, 4), {"digest": A}, 1),
        ("whose URL is the key of others", ended(A, 4), {"digest": D}, 0),
        ("by its domain", ended(E, 4), {"digest": E}, 1),
        ("a tombstone", None, {}, 0),
        ("a kept page", best(A, None, 4), {"digest": A}, 1),
        ("the one before", best(D, A, 4), {"digest": D, "was": A}, 1),
        ("both", best(E, A, 4), {"digest": E, "was": A}, 1),
        ("neither", best(D, C, 4), {"digest": D, "was": C}, 0),
        ("what took its place", best(None, None, 4), {}, 0),
        ("what is of somebody else", b"\xff", {}, 0),
    )  # fmt: skip
    for what, value, headers, names in cases:
        before = await count_forgotten(deployed, topic, pages_)
        digests = [(name, digest_of_url(url)) for name, url in headers.items()]
        await append(deployed, value, topic=topic, key=b"a", headers=digests)
        assert await count_forgotten(deployed, topic, pages_) - before == names, what
    for appended, count in ((0, 0), (1 << 60, 6)):
        of_trimmed = RequestedPages(Wanted(requests[:1], genesis), [(3, 9)], {0: appended})
        assert await count_forgotten(deployed, topic, of_trimmed) == count, "by when they were written"


FAILPOINTS = ("forget.requested", "forget.sent", "forget.decided", "erase.blanked", "erase.compacted")


@pytest.mark.parametrize("failpoint", cases(FAILPOINTS, by_day=["forget.decided", "erase.blanked"]))
async def test_a_killed_judge_goes_on_with_what_was_requested(deployed: Settings, failpoint: str) -> None:
    async with running(JudgeRole(deployed)):
        await judge(deployed, 0, (A, 1), (B, 1), (C, 2))
    await ask(deployed, A)
    await killed_command(deployed, failpoint, "judge")
    async with running(JudgeRole(deployed)):
        await erased(deployed, 1)
        assert [each.pages for each in await forgotten(deployed)] == [[(0, 1)]]
        assert await judge(deployed, 1, (A, 1), (C, 2)) == ["unique -", f"recrawl {C}"]
    assert A.encode() + b"x" not in content(deployed.state_dir / deployed.namespace / "judge")
    assert await recompute(deployed) == []


async def test_a_bad_record_is_refused_by_name_and_the_next_is_decided(
    deployed: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    topic = TopicNames(deployed.namespace).requests
    async with running(JudgeRole(deployed)):
        await judge(deployed, 0, (A, 1))
        await append(deployed, b"{}", b'{"v":2,"journal":"x"}', topic=topic)
        await ask(deployed, A)
        await erased(deployed, 3)
    assert [each.pages for each in await forgotten(deployed)][-1] == [(2, 1)]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"http://a.example/\n\n  http://b.example/x \nnot a url\n", "line 4: "),
        (b"http://a.example/\n\xff\n", "line 2: is not UTF-8"),
        (None, ""),
        (b"\n \n", "has no URL"),
        (b"http://a.example/ http://b.example/", "line 1: has several URLs"),
    ],
)
def test_a_file_of_urls_that_has_others_is_refused(content: bytes | None, why: str, tmp_path: Path) -> None:
    file = tmp_path / "urls"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=f"--file {file}: {why}"):
        names_in(file, RULES)


def test_what_cannot_be_named_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "urls"
    file.write_bytes(b"\xef\xbb\xbfhttp://a.example/x\r\nhttp://a.example/a b\r\n")
    assert [each.name for each in names_in(file, RULES)] == ["http://a.example/x", "http://a.example/a%20b"]
    for host in ("http://a/", "", "a b", "a\tb", "a.example:80", "a[", "[::1", "a*", "a." * 126 + "ab"):
        with pytest.raises(SettingsError, match=f"--host {re.escape(host)}: is no host"):
            names_of((), (host,), (), RULES)
    for host in ("*.a.example", ".a.example"):
        with pytest.raises(SettingsError, match=f"--host {re.escape(host)}: is no host; `--domain` names"):
            names_of((), (host,), (), RULES)
    with pytest.raises(SettingsError, match="URL: "):
        names_of(("nothing",), (), (), RULES)
    hosts = ("A.Example.", "Bücher.example", "[::1]", "10.0.0.1")
    assert names_of(("HTTP://A.example:80/x#y",), hosts, ("xn--bcher-kva.example",), RULES) == [
        Name("url", "http://a.example/x"),
        *(Name("host", each) for each in ("a.example", "xn--bcher-kva.example", "[::1]", "10.0.0.1")),
        Name("domain", "xn--bcher-kva.example"),
    ]
