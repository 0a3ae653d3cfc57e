"""TLS, SASL and ACLs: each role works with just its grants, and a refusal names what is missing."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from pydantic import SecretStr

from stream.brokers import embedded
from stream.errors import EXIT_REFUSED, AccessError, NeardupError, SecurityError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.kafka import acl_check, broker_metadata, topics
from stream.kafka.acls import ROLES, Grant, grants, table
from stream.kafka.log_starts import delete_records
from stream.kafka.names import TopicNames
from stream.messages.verdict_options import VerdictOptions
from stream.roles.auditor.audit import audit
from stream.roles.auditor.recompute import recompute
from stream.roles.elector.role import ElectorRole
from stream.roles.exporter import export
from stream.roles.forgetter.request import Name, request
from stream.roles.forgetter.status import status
from stream.roles.judge.role import JudgeRole
from stream.roles.loader.load import LoadProgress, load
from stream.roles.publisher import publish
from stream.roles.trimmer.role import trim_once
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from stream.sinks.duckdb import DuckSink
from stream.sources.open import open_source
from stream.sources.rows import RowsSource
from tests.commands import neardup_process, succeeded
from tests.kafka.dashboard_helpers import dashboard
from tests.kafka.judge_helpers import append, audited, page, part, record
from tests.kafka.judged_rounds import has_checkpoint
from tests.kafka.open_sockets import open_sockets
from tests.kafka.secured import PASSWORD, USER, SecuredBroker
from tests.kafka.worker_helpers import running
from tests.unit.test_rows import directory, fingerprint_batch
from tests.unit.test_rows import table as pages_table
from tests.waiting import HANG_SECONDS, until, until_answer

pytestmark = pytest.mark.broker
PAGES = [page("http://a/", 1), page("http://b/", 1), page("http://a/", 2), b"{"]
"""Unique, duplicate, changed (so that an anchor is superseded), rejected."""
ROUTES = ["duplicate"]
ROUTED = {"verdict_routes": ",".join(ROUTES), "elect": "longest"}


@pytest.fixture(autouse=True)
async def no_connection_half_closed() -> AsyncIterator[None]:
    async with open_sockets():
        yield


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    missing = embedded.missing()
    if missing is not None:
        pytest.skip(f"no broker to secure: {missing}")
    broker = SecuredBroker(tmp_path_factory.mktemp("secured"))
    yield broker
    broker.close()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return directory(tmp_path_factory.mktemp("corpus") / "rows", fingerprint_batch(pages_table(3)))


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crawl") / "crawl.jsonl"
    path.write_bytes(b"".join(each + b"\n" for each in PAGES))
    return path


async def create(settings: Settings) -> None:
    await topics.create(settings, Scheme(), VerdictOptions(), lambda _: None, seed=PUBLIC_SEED)


@pytest.fixture(scope="module")
def roles(secured: SecuredBroker, crawl: Path) -> dict[str, Settings]:
    """Settings of each role with exactly its grants, in a namespace where all roles have worked.

    Unread pages and unjudged journal records are left for the roles that must fail.
    """
    namespace = f"t{uuid.uuid4().hex[:10]}"
    principals = {role: f"{namespace}-{role.replace(' ', '-')}" for role in ROLES}
    by = {role: secured.by_token(namespace, principal, **ROUTED) for role, principal in principals.items()}
    by["judge"] = secured.by_certificate(namespace, principals["judge"], **ROUTED)
    sources = [open_source(str(crawl))]

    @open_sockets()
    async def work() -> None:
        for role in ROLES:
            await secured.grant(principals[role], grants(role, TopicNames(namespace), ROUTES))
        await create(by["topics create"])
        await topics.describe(by["topics describe"])
        assert await publish(by["publish"], sources) == len(PAGES)
        async with running(WorkerRole(by["worker"])):
            async with running(JudgeRole(by["judge"])):
                assert (await audited(by["audit"], len(PAGES))).clean
            before = await journal_end(by["worker"])
            await publish(by["publish"], sources)
            await until_answer(lambda: journal_end(by["worker"]), lambda end: end > before)
        await publish(by["publish"], sources)

    asyncio.run(work())
    return by


async def journal_end(settings: Settings) -> int:
    async with broker_metadata.connect(settings) as client:
        bounds = await broker_metadata.log_bounds(client, [TopicNames(settings.namespace).journal])
        return next(iter(bounds.values())).end


async def test_every_role_works_with_just_its_grants(roles: dict[str, Settings], crawl: Path) -> None:
    assert await recompute(roles["audit"]) == []
    _, genesis = await topics.describe(roles["topics describe"])
    assert genesis == await topics.wait_for_genesis(roles["topics seed"], timeout=10)
    for command in (["tail", "--from-beginning", "--limit", "4", "--json"], ["query", str(crawl), "--json"]):
        out, _ = await succeeded(roles[command[0]], *command)
        assert len(out.splitlines()) == len(PAGES)
    with closing(DuckSink(Path(":memory:"))) as sink:
        assert await export(roles["verdicts export"], sink) == len(PAGES)


@pytest.mark.night
async def test_rows_are_loaded_with_just_the_grants_for_it(roles: dict[str, Settings], rows: Path) -> None:
    loading = LoadProgress(3)
    under_way = asyncio.create_task(load(roles["load"], RowsSource(str(rows)), loading))
    await until(lambda: under_way.done() or loading.appended == 3)
    assert not under_way.done(), under_way.exception()  # it waits for the judge
    under_way.cancel()
    await asyncio.gather(under_way, return_exceptions=True)


@pytest.mark.night
async def test_the_dashboard_works_with_just_its_grants(roles: dict[str, Settings], tmp_path: Path) -> None:
    own = {"state_dir": tmp_path / "state"}
    async with dashboard(roles["dashboard"].model_copy(update=own)) as client:
        figures = await client.counted(len(PAGES))
        assert figures["verdicts"]["rejected"] == 1
        system = await client.until(
            "/api/v1/system", lambda found: found["error"] is None and found["anchors"] is not None
        )
        lags = {each["role"]: each["lag_records"] for each in system["groups"]}
        assert lags["dashboard"] == 0
        assert min(lags["worker"], lags["judge"]) > 0


@pytest.mark.night
async def test_logs_are_trimmed_with_just_the_grants_for_it_and_not_by_a_judge(
    secured: SecuredBroker, namespace: str, tmp_path: Path
) -> None:
    names, store = TopicNames(namespace), {"checkpoints": str(tmp_path / "objects")}
    await create(secured.everything(namespace))
    by = {}
    for role in ("judge", "trim"):
        await secured.grant(f"{namespace}-{role}", grants(role, names))
        own = {"state_dir": tmp_path / role, "checkpoint_interval": 0.1}
        by[role] = secured.by_token(namespace, f"{namespace}-{role}", **own, **store)
    everything = secured.everything(namespace)
    async with running(JudgeRole(by["judge"])):
        for start in range(0, 40, 10):
            end = await append_pages(everything, start, start + 10)
            await until(partial(has_checkpoint, by["judge"], end, ledger=bool(start)))
    async with broker_metadata.connect(by["judge"]) as client:
        for topic in (names.decisions, names.journal):
            with pytest.raises(TopicAuthorizationFailedError, match=r"Delete"):
                await delete_records(client, topic, 1)
    outcome = await trim_once(by["trim"], 0)
    assert not outcome.has_problem, outcome
    assert all(each.start > each.before == 0 for each in outcome.logs)


async def append_pages(settings: Settings, start: int, end: int) -> int:
    """Append a journal record with pages of one partition, and return the offset after it."""
    ours = settings.model_copy(update={"dev": True})
    appended = await append(ours, record(part(0, start, end, opening=not start)))
    return int(appended[-1].offset) + 1


async def attempt(role: str, settings: Settings, crawl: Path, rows: Path) -> None:
    """Do what the role does until it is refused."""
    match role:
        case "topics create":
            await create(settings)
            await create(settings)  # which reads the genesis
        case "topics describe":
            await topics.describe(settings)
        case "topics seed":
            await topics.wait_for_genesis(settings, timeout=10)
        case "worker":
            await WorkerRole(settings).run()
        case "judge":
            await JudgeRole(settings).run()
        case "elector":
            await ElectorRole(settings).run()
        case "load":
            await load(settings, RowsSource(str(rows)))
        case "forget":
            genesis = await topics.wait_for_genesis(settings, timeout=10)
            await request(settings, genesis, [Name("url", "http://example.com/")])
            await status(settings)
        case "trim":
            await trim_once(settings.model_copy(update={"checkpoints": str(crawl.parent / "none")}), 0)
        case "publish":
            await publish(settings, [open_source(str(crawl))])
        case "audit":
            await audit(settings)
            await recompute(settings)
        case "verdicts export":
            with closing(DuckSink(Path(":memory:"))) as sink:
                await export(settings, sink)
        case "dashboard":
            await acl_check.check(settings, role)  # what the role does first, as the next test shows
        case _:
            tail = ["tail", "--from-beginning", "--limit", "4"]
            code, _, error = await neardup_process(
                settings, *(tail if role == "tail" else ["query", str(crawl)])
            )
            if code:
                raise AccessError(error)


def without(role: str, names: TopicNames) -> Iterator[tuple[Grant, str, list[Grant]]]:
    """Yield the role's grants without one operation at a time, or without whole grants where topics are
    created.

    Configurations are read in one place, so it suffices to omit the first such grant.
    """
    all_of, seen = grants(role, names, ROUTES), set()
    for one in all_of:
        for left_out in [one.operations] if role == "topics create" else [(each,) for each in one.operations]:
            if left_out == ("DescribeConfigs",) and left_out in seen:
                continue
            seen.add(left_out)
            rest = tuple(each for each in one.operations if each not in left_out)
            fewer = dataclasses.replace(one, operations=rest)
            yield one, ", ".join(left_out), [fewer if each is one else each for each in all_of]


@pytest.mark.night
@pytest.mark.parametrize("role", ROLES)
async def test_without_one_grant_a_role_is_refused_and_says_which(
    secured: SecuredBroker,
    roles: dict[str, Settings],
    namespace: str,
    crawl: Path,
    rows: Path,
    tmp_path: Path,
    role: str,
) -> None:
    shared = roles[role].namespace
    for number, _ in enumerate(without(role, TopicNames(shared))):
        principal = f"{namespace}-{number}"
        used = principal if role == "topics create" else shared  # what one made, the next need not make
        missing, operation, rest = list(without(role, TopicNames(used)))[number]
        if operation == "Create":
            continue  # the topics are there: tried on their own
        await secured.grant(principal, rest)
        settings = secured.by_token(used, principal, state_dir=tmp_path / principal, **ROUTED)
        refused = await refused_access(role, settings, crawl, rows)
        assert refused, f"{operation} on {missing.kind} {missing.name} is granted for nothing"
        assert missing.name in refused, f"without {operation} on {missing.kind} {missing.name}"
        assert "neardup help access" in refused
    assert AccessError.exit_code == EXIT_REFUSED


@pytest.mark.night
async def test_who_may_not_read_the_genesis_gets_no_seed(
    secured: SecuredBroker, roles: dict[str, Settings], namespace: str, tmp_path: Path
) -> None:
    """Only its topic is described to such a principal."""
    shared = roles["topics seed"].namespace
    await secured.grant(
        namespace,
        [
            dataclasses.replace(each, operations=("Describe", "DescribeConfigs"))
            for each in grants("topics describe", TopicNames(shared), ROUTES)
        ],
    )
    settings, file = secured.by_token(shared, namespace, **ROUTED), tmp_path / "seed"
    code, _, error = await neardup_process(settings, "topics", "seed", str(file))
    assert (code, file.exists()) == (2, False), error
    assert f"{shared}.genesis" in error
    code, out, error = await neardup_process(settings, "topics", "describe")
    assert code == 1, error
    assert "the genesis cannot be read" in out
    assert PUBLIC_SEED.hex() not in out + error


async def refused_access(role: str, settings: Settings, crawl: Path, rows: Path) -> str | None:
    try:
        async with asyncio.timeout(HANG_SECONDS):
            await attempt(role, settings, crawl, rows)
    except AccessError as error:
        return str(error)
    return None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_password_lets_in_and_a_wrong_one_does_not(
    secured: SecuredBroker, namespace: str, mechanism: str
) -> None:
    async with broker_metadata.connect(secured.by_password(namespace, mechanism)) as client:
        assert await broker_metadata.cluster_id(client)
    wrong = secured.by_password(namespace, mechanism, sasl_password="battery-staple")  # noqa: S106
    said = await refusal(wrong)
    assert "sasl_username, sasl_password: 127.0.0.1:" in said
    assert "battery-staple" not in said
    assert "battery-staple" not in repr(wrong)


async def refusal(settings: Settings) -> str:
    """The error that each kind of client gives, which is one and the same."""
    said = set()
    for attempted in (create(settings), WorkerRole(settings).run(), publish(settings, [])):
        with pytest.raises(SecurityError) as refused:
            async with asyncio.timeout(HANG_SECONDS):
                await attempted
        said.add(str(refused.value))
    assert len(said) == 1
    return said.pop()


async def test_a_certificate_lets_in_and_its_lack_does_not(secured: SecuredBroker, namespace: str) -> None:
    async with broker_metadata.connect(secured.by_certificate(namespace, "someone")) as client:
        assert await broker_metadata.cluster_id(client)
    said = await refusal(secured.by_certificate(namespace, "someone", ssl_certfile=None, ssl_password=None))
    assert "ssl_certfile, ssl_keyfile: 127.0.0.1:" in said


def by_another_name(secured: SecuredBroker, namespace: str) -> Settings:
    settings = secured.by_password(namespace)
    return settings.model_copy(
        update={"bootstrap_servers": settings.bootstrap_servers.replace("127.0.0.1", "localhost")}
    )


@pytest.mark.night
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lambda secured, namespace: secured.by_password(namespace, ssl_cafile=secured.other_cafile),
            r"ssl_cafile: the certificate of 127.0.0.1:.*/other\.pem",
        ),
        (by_another_name, r"bootstrap_servers: the certificate of localhost:\d+ is for another host"),
        (
            lambda secured, namespace: secured.by_password(
                namespace, bootstrap_servers=secured.everything(namespace).bootstrap_servers
            ),
            r"security_protocol: 127.0.0.1:\d+ does not speak TLS",
        ),
    ],
    ids=["another authority", "another host", "a broker without TLS"],
)
async def test_what_is_wrong_with_tls_is_named(
    secured: SecuredBroker, namespace: str, wrong: Callable[[SecuredBroker, str], Settings], said: str
) -> None:
    assert re.search(said, await refusal(wrong(secured, namespace)))


@pytest.mark.night
async def test_a_token_command_is_asked_and_a_refused_token_is_named(
    secured: SecuredBroker, namespace: str, tmp_path: Path
) -> None:
    script = tmp_path / "token"
    good = secured.by_token(namespace, USER).sasl_token_file
    script.write_text(f"#!/bin/sh\ncat {good}\n")
    script.chmod(0o755)
    by_command = {"sasl_token_file": None, "sasl_token_command": SecretStr(str(script))}
    settings = secured.by_token(namespace, USER).model_copy(update=by_command)
    async with broker_metadata.connect(settings) as client:
        assert await broker_metadata.cluster_id(client)
    script.write_text("#!/bin/sh\necho no.token.\n")
    settings = secured.by_token(namespace, USER).model_copy(update=by_command)
    assert "sasl_token_file, sasl_token_command: 127.0.0.1:" in await refusal(settings)
    script.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(NeardupError, match="sasl_token_command: exit code 3"):
        await create(settings)


@pytest.mark.night
async def test_plain_text_with_a_broker_that_wants_tls_is_explained(
    secured: SecuredBroker, namespace: str
) -> None:
    servers = secured.by_password(namespace).bootstrap_servers
    with pytest.raises(NeardupError, match=r"another security_protocol than PLAINTEXT"):
        await create(secured.everything(namespace).model_copy(update={"bootstrap_servers": servers}))


def test_the_grants_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
    assert table() in text
    assert PASSWORD not in text


@pytest.mark.parametrize(
    ("topic", "writer"),
    [("clusters", "judge"), ("decisions", "judge"), ("best", "elector"), ("requests", "forget")],
)
def test_one_role_may_write_to_a_topic(topic: str, writer: str) -> None:
    names = TopicNames("crawl")
    may = {
        role
        for role in ROLES
        for each in grants(role, names, ROUTES)
        if each.kind == "topic" and each.name == f"crawl.{topic}" and "Write" in each.operations
    }
    assert may == {writer}
