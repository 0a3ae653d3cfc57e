"""The dashboard on a real broker: its figures equal an independent count, despite aborts and kills."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aiokafka.admin import NewPartitions

from stream.checkpoints.kinds import meta_of
from stream.dashboard.counting.app import directory_of
from stream.dashboard.deployment.groups import committed_offsets
from stream.dashboard.lookup.member_pages import PageGoneError, page_message
from stream.dashboard.role import DashboardRole
from stream.errors import StaleError
from stream.figures import EARLIER, FIGURES, figures_below
from stream.fingerprint.scheme import Scheme
from stream.kafka import broker_metadata, clients, topics
from stream.kafka.aiokafka_internals import client_of
from stream.kafka.names import TopicNames
from stream.messages.best import ELECT_HEADER, BestRecord, KeptPage, encode_best
from stream.messages.verdict import MessagePosition, PageRef, VerdictRecord
from stream.messages.verdict_options import VerdictOptions
from stream.pages.times import rfc3339
from stream.roles.forgetter.request import names_of, request
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.kafka.dashboard_helpers import (
    JOURNAL,
    KINDS,
    Client,
    VerdictMaker,
    by_kind,
    dashboard,
    dashboard_process,
    decide,
    supersede,
)
from tests.kafka.judge_helpers import append, audited, page, recreate, text
from tests.kafka.worker_helpers import create, publish, running, topic_id
from tests.waiting import HANG_SECONDS, until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("no_children")]


@pytest.fixture
async def settings(settings: Settings) -> Settings:
    await create(settings)
    return settings


async def test_figures_are_a_recount_of_the_committed_verdicts(settings: Settings) -> None:
    made = VerdictMaker()
    kept = made.some(300)
    await decide(settings, kept)
    await decide(settings, made.some(80), commit=False)
    async with dashboard(settings) as client:
        figures = await client.counted(300)
        assert figures["verdicts"] == by_kind(kept)
        duplicates = [each for each in kept if each.verdict == "duplicate"]
        distances = Counter(each.distance for each in duplicates)
        assert figures["distances"]["duplicate"] == [distances[i] for i in range(64)]
        assert sum(figures["similarities"]["duplicate"]) == len(duplicates)
        assert figures["duplicate_ratio"] == pytest.approx(len(duplicates) / 300)
        assert figures["reasons"] == dict(Counter(each.reason for each in kept if each.verdict == "rejected"))
        assert [sum(figures["series"]["verdicts"][kind]) for kind in KINDS] == list(by_kind(kept).values())

        assert figures["range"]["from"] <= figures["last"] <= figures["range"]["to"]
        about = await client.get("/api/v1/about")
        assert about["verdict_options"]["similarity"] == VerdictOptions().similarity
        assert about["scheme_options"]["width"] == Scheme().width
        assert about["rejected_topic"] == f"{settings.namespace}.rejected"

        hosts = await client.get("/api/v1/hosts", range="all", limit=200)
        per_host = Counter((each.url or "").split("/")[2] for each in duplicates)
        assert {h["host"]: h["verdicts"].get("duplicate", 0) for h in hosts["hosts"] if h["pages"]} == {
            host: per_host[host] for host in {(each.url or "").split("/")[2] for each in kept}
        }
        top = hosts["hosts"][0]["host"]
        its = await client.get("/api/v1/figures", range="all", host=top)
        assert its["verdicts"] == by_kind([each for each in kept if f"//{top}/" in (each.url or "")])

        clusters = (await client.get("/api/v1/clusters", limit=5))["clusters"]
        sizes = Counter(each.cluster for each in duplicates)
        assert [each["pages"] for each in clusters] == [1 + n for _, n in sizes.most_common(5)]
        await supersede(settings, clusters[1]["cluster"])

        def marks(answer: dict[str, Any]) -> list[bool]:
            return [each["superseded"] for each in answer["clusters"]]

        marked = await client.until("/api/v1/clusters", lambda answer: any(marks(answer)), limit=5)
        assert marks(marked) == [False, True, False, False, False]
        await supersede(settings, clusters[1]["cluster"], ended=True)
        await client.until("/api/v1/clusters", lambda answer: not any(marks(answer)), limit=5)
        assert {each["kept"] for each in clusters} == {None}, "no elector is wanted here"
        one = await client.get(f"/api/v1/clusters/{clusters[0]['cluster']}")
        assert one["election"] == {"state": "none", "elect": None}
        assert one["pages"] == clusters[0]["pages"]
        assert {each["id"] for each in one["members"]} <= {each.id for each in duplicates}

        # More, while somebody listens.
        await decide(settings, made.some(40), commit=False)
        async with client.session.get(
            client.url + "/api/v1/events", params={"verdict": "rejected"}
        ) as events:
            assert events.headers["Content-Type"] == "text/event-stream"
            more = [*made.some(60), made.one("rejected", url="http://late.example/")]
            await decide(settings, more)
            async with asyncio.timeout(HANG_SECONDS):
                while True:
                    line = await events.content.readline()
                    if line.startswith(b"data: ") and b"late.example" in line:
                        break
            heard = json.loads(line[6:])["verdicts"]
            assert {each["verdict"]["verdict"] for each in heard} == {"rejected"}
        assert (await client.counted(361))["verdicts"] == by_kind([*kept, *more])


@pytest.mark.night
async def test_members_of_a_cluster_are_shown_where_they_are_now_and_its_kept_page(
    settings: Settings,
) -> None:
    """One of four copies begins a cluster when it is judged again, one joins it, one has too little text."""
    settings = settings.model_copy(update={"elect": "longest"})
    names, made = await create(settings), VerdictMaker()
    urls = [f"https://{name}.example/" for name in ("copy", "other", "third", "short")]
    anchor = PageRef("https://anchor.example/", f"{JOURNAL}.8.0")
    copies = [
        made.one("duplicate", url=url, id=f"{JOURNAL}.8.{n}", cluster=anchor.id, duplicate_of=anchor)
        for n, url in enumerate(urls, 1)
    ]

    def again(number: int, page: str, cluster: str) -> VerdictRecord:
        ref = PageRef(urls[number], copies[number].id)
        return made.one("recrawl", url=urls[number], id=page, cluster=cluster, duplicate_of=ref)

    began = f"{JOURNAL}.9.1"
    later = [
        again(0, began, began),
        again(1, f"{JOURNAL}.9.2", began),
        again(2, f"{JOURNAL}.9.3", anchor.id),
        made.one("rejected", url=urls[2]),
        made.one("insufficient", url=urls[3]),
    ]
    await decide(settings, copies)
    await decide(settings, later)
    async with dashboard(settings) as client:
        await client.counted(len(copies) + len(later))
        answer = await client.get("/api/v1/clusters")
        sizes = {each["cluster"]: (each["anchor"], each["pages"]) for each in answer["clusters"]}
        assert sizes == {anchor.id: (anchor.url, 5), began: (urls[0], 2)}
        ended = await client.get(f"/api/v1/clusters/{anchor.id}")
        assert [each["url"] for each in ended["members"]] == [urls[2]]
        former = {each["url"]: each["cluster"] for each in ended["former"]}
        assert former == {urls[0]: began, urls[1]: began, urls[3]: None}
        new = await client.get(f"/api/v1/clusters/{began}")
        (member,) = new["members"]
        assert (new["anchor"], new["former"]) == (urls[0], [])
        assert (member["url"], member["distance"], member["similarity"]) == (urls[1], None, None)

        best = KeptPage("https://longer.example/", f"{JOURNAL}.9.1", 9, None, None)
        at = {"as_of": f"{JOURNAL}.9.1", "decided_at": rfc3339(0)}
        told = BestRecord(cluster=anchor.id, best=best, was=None, because="joined", members=2, **at)
        headers = [(ELECT_HEADER, b"longest")]
        key = anchor.id.encode()
        await append(settings, encode_best(told), topic=names.best(), key=key, headers=headers)
        answer = await client.until("/api/v1/clusters", lambda answer: answer["election"]["elect"], limit=200)
        assert answer["election"] == {"state": "following", "elect": "longest"}
        kept = {each["cluster"]: (each["kept"]["id"], each["kept"]["url"]) for each in answer["clusters"]}
        assert kept == {anchor.id: (best.id, best.url), began: (began, urls[0])}, "told, and the anchor"
        one = await client.get(f"/api/v1/clusters/{anchor.id}")
        assert (one["kept"]["because"], one["kept"]["members"]) == ("joined", 2)
        path = f"/api/v1/clusters/{anchor.id}/comparison"
        refusal = await client.get(path, 404, one=best.id, other=anchor.id)
        assert "is not among the last verdicts of its URL" in refusal["detail"], "it may be compared"


async def test_a_killed_dashboard_counts_every_verdict_once(settings: Settings, tmp_path: Path) -> None:
    """In the middle of folding, before a flush, and when all is committed that was not flushed. What an
    earlier version counted is named and left."""
    made, kept, home = VerdictMaker(), [], directory_of(settings)
    log, earlier = tmp_path / "dashboard.log", home / EARLIER / "row"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("old")
    soon = settings.flush_seconds
    for kill_at, flush_seconds in ((1, soon), (700, soon), (1500, 3600.0)):
        news = made.some(500)
        await decide(settings, made.some(20), commit=False)
        await decide(settings, news)
        kept += news
        flushed = meta_of(home / FIGURES, "dashboard") if kill_at > 1 else None
        lazy = settings.model_copy(update={"flush_seconds": flush_seconds})
        async with dashboard_process(lazy, log) as (process, client):
            await client.counted(kill_at)
            if flush_seconds == 3600:
                await until(partial(_commits_all, settings))
            process.kill()
            await process.wait()
    assert meta_of(home / FIGURES, "dashboard") == flushed
    assert f"{settings.namespace}.dashboard-urls-changelog" in log.read_text()
    assert earlier.read_text() == "old"
    # The state is there, and then it is lost: the topic has all of it.
    for lost in (False, True):
        if lost:
            (home / FIGURES).rename(tmp_path / "lost")
        async with dashboard(settings) as client:
            figures = await client.counted(1500)
            assert (figures["verdicts"], figures["since"]) == (by_kind(kept), None)
            latest = await client.get("/api/v1/verdicts", limit=10)
            assert latest["verdicts"], "a restarted dashboard shows the last verdicts again"
            for verdict in (kept[0], kept[-1]):
                found = await client.post("/api/v1/lookup", {"url": verdict.url})
                assert [each["id"] for each in found["history"]] == [verdict.id]
    async with broker_metadata.connect(settings) as client_:
        await client_.force_metadata_update()
        ours = [name for name in client_.cluster.topics() if name.startswith(f"{settings.namespace}.")]
    assert not [name for name in ours if "dashboard" in name], "it makes no topics"


@pytest.mark.night
async def test_partitions_may_be_added_to_the_verdicts(settings: Settings, tmp_path: Path) -> None:
    made, log, names = VerdictMaker(), tmp_path / "dashboard.log", TopicNames(settings.namespace)
    kept, partitions = made.some(300), 7
    await decide(settings, kept)
    async with dashboard_process(settings, log) as (process, client):
        await client.counted(len(kept))
        async with clients.open_client(settings, clients.admin(settings)) as admin:
            await admin.create_partitions({names.verdicts: NewPartitions(partitions)})
        for _ in range(5):
            places = [MessagePosition("pages", "ab" * 16, n % partitions, n) for n in range(90)]
            news = [made.one(source=each) for each in places]
            await decide(settings, news)
            kept += news
        async with asyncio.timeout(HANG_SECONDS):
            assert await process.wait() == StaleError.exit_code
        assert "partitions were added" in log.read_text()
    async with dashboard_process(settings, log) as (_, client):
        assert (await client.counted(len(kept)))["verdicts"] == by_kind(kept)
        await until(partial(_commits_all, settings))
        system = await client.get("/api/v1/system")
        assert (system["partitions_read"], system["partitions"]) == (partitions, partitions)


async def _commits_all(settings: Settings) -> bool:
    names = TopicNames(settings.namespace)
    async with clients.open_client(settings, clients.admin(settings)) as admin:
        committed = await committed_offsets(admin, names.dashboard())
        bounds = await broker_metadata.log_bounds(client_of(admin), [names.verdicts])
    # A transaction ends with a marker.
    return committed == {key: each.end - 1 for key, each in bounds.items()}


@pytest.mark.night
async def test_dashboards_of_two_names_count_all_each_and_one_of_a_name(
    settings: Settings, tmp_path: Path
) -> None:
    """A second one of a name ends, and the first misses nothing."""
    named = settings.model_copy(update={"dashboard_name": "b"})
    made, kept, log = VerdictMaker(), [], tmp_path / "second.log"

    async def decide_some() -> None:
        news = made.some(300)
        await decide(settings, news)
        kept.extend(news)

    await decide_some()
    async with dashboard(settings) as first:
        async with dashboard_process(named, log) as (process, second):
            for each in (first, second):
                assert (await each.counted(300))["verdicts"] == by_kind(kept)
            process.kill()
            await process.wait()
        await decide_some()
        async with dashboard_process(named, log) as (_, second):
            for each, name in ((first, ""), (second, "b")):
                assert (await each.counted(600))["verdicts"] == by_kind(kept)
                groups = {g["role"]: g["group"] for g in (await each.get("/api/v1/system"))["groups"]}
                assert groups["dashboard"] == TopicNames(settings.namespace).dashboard(name)
        other = settings.model_copy(update={"state_dir": tmp_path / "other", "session_seconds": 6.0})
        with pytest.raises(StaleError, match=r"another dashboard of this name reads .* dashboard_name"):
            async with asyncio.timeout(HANG_SECONDS):
                await DashboardRole(other).run()
        await decide_some()
        assert (await first.counted(900))["verdicts"] == by_kind(kept)
    homes = [each.parent.name for each in figures_below(settings.state_dir / settings.namespace)]
    assert homes == ["dashboard", "dashboard-b"]


@pytest.mark.night
@pytest.mark.parametrize("step", ["stream.dashboard.role.Statistics.load", "faust.App.start"])
async def test_a_dashboard_that_starts_can_be_stopped(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    reached = asyncio.Event()

    async def never_ends(*_: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(step, never_ends)
    role = DashboardRole(settings)
    running = asyncio.create_task(role.run())
    async with asyncio.timeout(HANG_SECONDS):
        await reached.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await running


async def _compares_the_two_members(client: Client, cluster: dict[str, Any]) -> None:
    """By their messages, which the pages topic has still; and says which hosts share them."""
    anchor, copy = cluster["cluster"], cluster["members"][0]["id"]
    path = f"/api/v1/clusters/{anchor}/comparison"
    found = await client.get(path, one=anchor, other=copy)
    assert (found["distance"], found["exact_similarity"], found["alike"]) == (0, 1.0, None)
    assert [each["shared"] for each in found["shingles"]["anchor"]] == [True]
    problem = await client.get(path, 404, one=anchor, other="none")
    assert "other: none is not among" in problem["detail"]
    first, second = "a.example", "b.example"
    if cluster["anchor"] == "http://b.example/copy":
        first, second = second, first
    neighbours = await client.get("/api/v1/neighbours", host=first)
    assert neighbours["duplicates"] == [{"host": second, "pages": 1}]
    assert (await client.get("/api/v1/neighbours", host=second))["anchors"] == [{"host": first, "pages": 1}]


async def test_a_page_is_looked_up_without_a_trace(settings: Settings) -> None:
    await publish(settings, [page(f"http://a.example/{i}", i) for i in range(20)])
    await publish(settings, [page("http://b.example/copy", 3)], partition=1)
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        await audited(settings, 21)
        async with dashboard(settings) as client:
            await client.counted(21)

            async def there() -> bool:
                async with client.session.post(
                    client.url + "/api/v1/lookup", json={"text": text(3)}
                ) as response:
                    return response.status == 200

            await until(there)
            await asyncio.sleep(0)
            found = await client.post("/api/v1/lookup", {"text": text(3)})
            assert (found["verdict"], found["near"][0]["alike"]) == ("duplicate", True)
            assert found["cluster"]["pages"] == 2
            await _compares_the_two_members(client, found["cluster"])
            found = await client.post("/api/v1/lookup", {"url": "http://A.example:80/3#x", "text": text(3)})
            assert found["verdict"] in ("recrawl", "duplicate"), found
            assert len(found["history"]) == 1
            found = await client.post("/api/v1/lookup", {"html": f"<p>{text('new')}</p>"})
            assert found["verdict"] == "unique"
            assert (found["near"], found["searched"], found["anchors"]) == ([], 20, 20), "far from everything"
            assert not {"fingerprint", "candidate"} & {*found, *found["near"]}
            assert (await client.post("/api/v1/lookup", {"text": "short"}))["verdict"] == "insufficient"
            compare = {"html": f"<p>old words {text(3)}</p>"}
            found = await client.post("/api/v1/lookup", {"text": text(3), "compare": compare})
            comparison = found["comparison"]
            assert (found["verdict"], comparison["alike"]) == ("duplicate", True), comparison
            assert comparison["shingles"]["anchor"][0] == {"shared": False, "text": "old words", "units": 2}
            assert [each["shared"] for each in comparison["shingles"]["page"]] == [True]
            found = await client.post("/api/v1/lookup", {"url": "http://b.example/copy"})
            assert found["comparison"] is None
            assert [each["verdict"] for each in found["history"]] in (["duplicate"], ["unique"])

            def is_healthy(system: dict[str, Any]) -> bool:
                return all(each["state"] == "up" for each in system["roles"]) and system["anchors"] == 20

            system = await client.until("/api/v1/system", is_healthy)
            lags = {each["role"]: (each["lag_records"], each["lag_seconds"]) for each in system["groups"]}
            assert lags == dict.fromkeys(("worker", "judge", "dashboard"), (0, 0.0))
            assert system["state_bytes"] > 0
            assert system["partitions_read"] == system["partitions"] == 3
            assert (await client.counted(21))["pages"] == 21
            assert system["window"] is system["forgetting"] is None
            genesis = await topics.wait_for_genesis(settings)
            await request(
                settings, genesis, names_of(("http://nobody.example/",), (), (), genesis.scheme.url_rules)
            )
            decided = {"decided": 1, "waiting": 0, "since": None}
            await client.until("/api/v1/system", lambda system: system["forgetting"] == decided)
        assert (await audited(settings, 21)).clean


async def _says_which_partitions_are_behind(client: Client, namespace: str) -> None:
    """Of 5 pages that no worker reads, 4 are in partition 0."""

    def of_workers(system: dict[str, Any]) -> Any:
        return next((each for each in system["groups"] if each["role"] == "worker"), {})

    def is_measured(system: dict[str, Any]) -> bool:
        group = of_workers(system)
        return group.get("lag_records") == 5 and group["lag_seconds"] is not None

    group = of_workers(await client.until("/api/v1/system", is_measured))
    assert {each["partition"]: each["lag_records"] for each in group["behind"]} == {0: 4, 1: 1}
    assert [each["read_from"] for each in group["behind"]] == [None, None]
    assert group["partitions_behind"] == 2
    async with client.session.get(client.url + "/metrics") as response:
        metrics = (await response.text()).splitlines()
    labels = f'{{neardup_namespace="{namespace}",role="worker"}}'
    assert f"neardup_dashboard_role_lag_records{labels} 5.0" in metrics
    assert f"neardup_dashboard_role_processes{labels} 0.0" in metrics
    lag = await client.get("/api/v1/lag", role="worker", range="all")
    assert [each["role"] for each in lag["roles"]] == ["worker", "judge", "dashboard"]
    assert max(filter(None, lag["roles"][0]["lag_records"])) == 5
    assert max(filter(None, lag["roles"][0]["lag_seconds"])) > 0
    most = {each["partition"]: max(filter(None, each["lag_records"])) for each in lag["partitions"]}
    assert (most, lag["partitions_behind"]) == ({0: 4, 1: 1}, 2)


@pytest.mark.night
async def test_every_answer_is_as_documented_and_every_refusal_says_why(settings: Settings) -> None:
    await decide(settings, VerdictMaker().some(30))
    await publish(settings, [page(f"http://a.example/{i}", i) for i in range(4)])
    await publish(settings, [page("http://b.example/", 3)], partition=1)
    async with dashboard(settings) as client:
        await client.counted(30)
        await _says_which_partitions_are_behind(client, settings.namespace)
        contract = await client.get("/api/openapi.json")
        clusters = (await client.get("/api/v1/clusters"))["clusters"]
        for path, methods in contract["paths"].items():
            if "get" in methods and path != "/api/v1/events":
                if path.endswith("/comparison"):
                    continue  # these verdicts have no pages; another test compares some that do
                found = await client.get(
                    path.replace("{cluster}", clusters[0]["cluster"]),
                    **({"host": "a.example"} if path.endswith("/neighbours") else {}),
                )
                _hold(contract, methods["get"]["responses"]["200"]["content"]["application/json"], found)
        for path, status, query in (
            ("/api/v1/figures", 400, {"range": "soon"}),
            ("/api/v1/figures", 400, {"range": "1h", "from": "5"}),
            ("/api/v1/figures", 400, {"from": "20", "to": "10"}),
            ("/api/v1/lag", 400, {"role": "king"}),
            ("/api/v1/hosts", 400, {"format": "xlsx"}),
            ("/api/v1/figures", 400, {"part": "hosts"}),
            ("/api/v1/hosts", 400, {"limit": "201"}),
            ("/api/v1/hosts", 400, {"limit": "-1"}),
            ("/api/v1/verdicts", 400, {"verdict": "maybe"}),
            ("/api/v1/verdicts", 400, {"host": "h" * 300}),
            ("/api/v1/clusters/none", 404, {}),
            ("/api/v1/clusters/none/comparison", 404, {"one": "a", "other": "b"}),
            ("/api/v1/neighbours", 400, {}),
            ("/api/v1/nothing", 404, {}),
        ):
            problem = await client.get(path, status, **query)
            assert problem["status"] == status
            assert problem["detail"]
        await _is_exported(client)
        await _refuses_bad_look_ups(client)
        await _pages_through(client)
        async with client.session.get(client.url) as response:
            assert "script-src 'self'" in response.headers["Content-Security-Policy"]
            assert response.headers["X-Content-Type-Options"] == "nosniff"

        async def ready() -> bool:
            async with client.session.get(client.url + "/readyz") as response:
                return response.status == 200

        await until(ready)


async def _is_exported(client: Client) -> None:
    """What is shown is there as a file, too."""
    shown = await client.get("/api/v1/hosts", range="all", limit=200)
    url = f"{client.url}/api/v1/hosts?range=all&limit=200&format="
    async with client.session.get(url + "csv") as response:
        assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
        assert re.fullmatch(
            r'attachment; filename="[\w.-]+-hosts\.csv"', response.headers["Content-Disposition"]
        )
        header, *rows = csv.reader((await response.text()).splitlines())
    assert header[:2] == ["host", "pages"]
    assert [row[0] for row in rows] == [each["host"] for each in shown["hosts"]]
    async with client.session.get(url + "json") as response:
        assert response.headers["Content-Disposition"].endswith('-hosts.json"')
        assert (await response.json())["hosts"] == shown["hosts"]


async def _refuses_bad_look_ups(client: Client) -> None:
    for body, status in (
        ({}, 400),
        ({"text": "a", "html": "b"}, 400),
        ({"text": 5}, 400),
        ({"colour": "red"}, 400),
        ({"url": "http://a.example/", "compare": {"text": "a"}}, 400),
        ({"text": "a", "compare": {}}, 400),
        ({"text": "a", "compare": {"text": "a", "html": "b"}}, 400),
        ({"text": "a", "compare": {"url": "http://a.example/"}}, 400),
        ({"text": "x" * (3 << 20), "compare": {"text": "x" * (3 << 20)}}, 413),
        ({"text": "x" * (5 << 20)}, 413),
    ):
        assert (await client.post("/api/v1/lookup", body, status))["detail"]
    async with client.session.post(client.url + "/api/v1/lookup", data=b"text=a") as response:
        assert response.status == 415


async def _pages_through(client: Client) -> None:
    everything = (await client.get("/api/v1/verdicts", limit=200))["verdicts"]
    assert len(everything) == 30
    seen, before = [], {}
    while True:
        answer = await client.get("/api/v1/verdicts", limit=7, **before)
        seen += answer["verdicts"]
        if answer["next"] is None:
            break
        before = {"before": answer["next"]}
    assert seen == everything
    hosts, offset = [], 0
    while offset is not None:
        answer = await client.get("/api/v1/hosts", range="all", limit=3, offset=offset)
        hosts += answer["hosts"]
        offset = answer["next"]
    assert len({each["host"] for each in hosts}) == len(hosts) == answer["total"]


def _hold(contract: dict[str, Any], content: dict[str, Any], found: Any) -> None:
    schema = {**content["schema"], "components": contract["components"]}
    jsonschema.validate(found, schema, jsonschema.Draft202012Validator)


@pytest.mark.night
async def test_a_page_is_not_read_from_a_topic_that_was_recreated_meanwhile(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dashboard compares pages of a cluster by their messages."""
    names = TopicNames(settings.namespace)
    await publish(settings, [page("http://old/", 1)])
    source = MessagePosition(names.pages, await topic_id(settings), 0, 0)
    assert b"http://old/" in await page_message(settings, source)
    log_bounds = broker_metadata.log_bounds

    async def recreated(*arguments: Any, **options: Any) -> Any:
        bounds = await log_bounds(*arguments, **options)
        await recreate(settings, names.pages)
        await publish(settings, [page("http://new/", 1)])
        return bounds

    monkeypatch.setattr(broker_metadata, "log_bounds", recreated)
    with pytest.raises(PageGoneError, match="not a message of the present topic"):
        await page_message(settings, source)
