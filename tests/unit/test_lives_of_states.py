"""The states of judge, elector and dashboard, each in the tests that all states pass."""

from __future__ import annotations

import random
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

import msgspec

from stream.checkpoints.manifest import Manifest
from stream.dashboard.counting import state as dashboard
from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.pending import Pending
from stream.dashboard.counting.restored import FiguresDirectory
from stream.dashboard.counting.state import BLOCKS
from stream.dashboard.counting.verdict_columns import batch_of, digest_of_url
from stream.dashboard.counting.view import View
from stream.elector import state as elector
from stream.elector.elector import Elector
from stream.figures import Meta
from stream.fingerprint.seed import url_hasher
from stream.judge.batch import Decided
from stream.judge.forgetting import Search
from stream.judge.judge import Judge
from stream.judge.state.state import State
from stream.kafka.broker_metadata import LogBounds
from stream.messages.decision import NamedDigests, decode_decisions, encode_decisions
from stream.messages.journal import Genesis
from stream.messages.verdict_options import VerdictOptions
from stream.ops.metrics import DashboardMetrics, ElectorMetrics, JudgeMetrics
from stream.settings import Settings
from stream.tables.store.rocks import CLUSTERS
from tests import judged_crawls
from tests.elected import decided_of, url_digest_of
from tests.forgetting import erase, forget, request
from tests.genesis import JOURNAL, genesis_of
from tests.judged_crawls import SCHEME, entries_of
from tests.kafka.dashboard_helpers import VerdictMaker
from tests.life_of_states import LifeOfAFollower, LifeOfAState, Unfit
from tests.property.best_oracle import crawl
from tests.property.test_elector_forgets import forgetting
from tests.url_digests import digest_of_url as keyed_digest_of_url

NOW = 1_700_000_000
FORGOTTEN = "http://site.example/3"


def owned(genesis: Genesis, owner: dict[str, str]) -> tuple[Genesis, str]:
    """A genesis and the id of a Kafka cluster, one of which is another one."""
    own = dict(owner)
    cluster = own.pop("cluster", "cluster")
    if own.pop("options", None):
        genesis = msgspec.structs.replace(genesis, options=VerdictOptions(baselines=3))
    return msgspec.structs.replace(genesis, **own), cluster


OWNERS = {
    "cluster": "belongs to cluster cluster, but bootstrap_servers says",
    "journal": f"belongs to journal {JOURNAL}, but namespace says",
    "scheme_id": "belongs to scheme .*, but scheme says",
    "options": "belongs to options .*, but verdict options says",
}


@cache
def judged() -> list[Decided]:
    """Journal records and what was decided about them."""
    entries, rng, found = entries_of(judged_crawls.crawl(7, 300, dense=True), 7), random.Random(7), []
    genesis = genesis_of(SCHEME)
    with (
        tempfile.TemporaryDirectory() as path,
        closing(
            State(Path(path), genesis, "cluster", memory=1 << 20, generation=1 << 16, cache=1 << 20)
        ) as state,
    ):
        judge, at = Judge(state, genesis), 0
        while at < len(entries):
            part = entries[at : at + rng.choice((1, 2, 7))]
            record = decode_decisions(encode_decisions(judge.decide(part).record()), len(found))
            found.append(Decided(part, record, len(found) + 1))
            judge.follow(found[-1:])
            at += len(part)
    return found


class TestJudge(LifeOfAFollower):
    kind, genesis, metrics = "judge", genesis_of(SCHEME), JudgeMetrics
    owners = OWNERS | {"generation": "belongs to generation 65536, but tables_generation says"}

    def open(self, path: Path, **owner: str) -> State:
        generation = 5000 if owner.pop("generation", None) else 1 << 16
        genesis, cluster = owned(self.genesis, owner)
        return State(path, genesis, cluster, memory=1 << 20, generation=generation, cache=1 << 20)

    def decided(self) -> list[Decided]:
        return judged()

    def content(self, state: State) -> str:
        return state.digest()

    def advance(self, state: State) -> bool:
        part = judged()[state.meta.decided :][:1]
        Judge(state, self.genesis).follow(part)
        return bool(part)

    def forget(self, state: State) -> bytes:
        judge, url = Judge(state, self.genesis), "http://host/2"
        forget(judge, Search(state, self.genesis, [(0, request(judge, "url", url))], 1), state.meta.decided)
        return keyed_digest_of_url(url)

    def erase(self, state: State) -> None:
        erase(state)


@cache
def elected() -> list[Decided]:
    return decided_of(crawl(1, 200), 1)


class TestElector(LifeOfAFollower):
    kind, genesis, metrics, owners = "elector", genesis_of(), ElectorMetrics, OWNERS

    def open(self, path: Path, **owner: str) -> elector.State:
        genesis, cluster = owned(self.genesis, owner)
        return elector.State.open(path, genesis, cluster, "longest", cache=1 << 20)

    def decided(self) -> list[Decided]:
        return elected()

    def advance(self, state: elector.State) -> bool:
        part = elected()[state.meta.decided :][:2]
        if part:
            Elector(state, self.genesis).follow(part)
        return bool(part)

    def forget(self, state: elector.State) -> bytes:
        gone = url_digest_of(3)
        Elector(state, self.genesis).follow([forgetting(elected()[-1], [gone])])
        return gone

    def erase(self, state: elector.State) -> None:
        electing = Elector(state, self.genesis)
        while due := electing.due(1000):
            electing.tell(due, {})
        state.compact()
        state.note_erased(state.erasable)
        state.store.flush()


@cache
def verdicts() -> list[bytes]:
    """Verdicts, as they are on a partition."""
    made = VerdictMaker(1, NOW)
    return [
        msgspec.json.encode(
            made.one(url=f"http://site.example/{number % 50}", id=f"{JOURNAL[:8]}.7.{number}")
        )
        for number in range(300)
    ]


class TestDashboard(LifeOfAState):
    kind, metrics = "dashboard", DashboardMetrics
    owners = {  # noqa: RUF012
        "cluster": "belongs to cluster cluster, but bootstrap_servers says",
        "journal": f"belongs to journal {JOURNAL}, but namespace says",
        "topic": "belongs to topic topic, but the topic of verdicts says",
    }
    fresh = Meta(cluster="cluster", journal=JOURNAL, topic="topic")

    def open(self, path: Path, **owner: str) -> dashboard.State:
        return dashboard.State.open(path, msgspec.structs.replace(self.fresh, **owner))

    def restoring(self, path: Path) -> FiguresDirectory:
        settings = Settings(rebuild_damaged=True, checkpoints=str(path.parent / "objects"))
        end = len(verdicts())
        return FiguresDirectory(settings, path, self.fresh, {0: LogBounds(0, end, end)})

    def unfit(self, made: Manifest) -> list[Unfit]:
        topic = {"topic": "other"}, "has topic other, but"
        return [
            *super().unfit(made),
            topic,
            ({"offsets": {"verdicts": {0: 10**6}}}, "0 up to 1000000, but it ends"),
        ]

    def advance(self, state: dashboard.State) -> bool:
        first = state.meta.positions.get(0, 0)
        if not (values := verdicts()[first : first + 20]):
            return False
        pending = Pending()
        pending.add(batch_of(0, range(first, first + len(values)), values), 0)
        state.fold(pending, View(state.host_counts), NOW)
        return True

    def forget(self, state: dashboard.State) -> bytes:
        digest = url_hasher(genesis_of().seed)(FORGOTTEN)
        ForgottenPages(genesis_of(), state)._forget(NamedDigests.of(urls=[digest]), 1 << 40, 1, 1)
        return int(digest_of_url(FORGOTTEN)).to_bytes(8, "big")

    def erase(self, state: dashboard.State) -> None:
        pages = ForgottenPages(genesis_of(), state)
        for family in (BLOCKS, CLUSTERS):
            start: bytes | None = b""
            while start is not None:
                _, start = state.erase_some(family, start, pages.names, pages.rewrite)
        state.compact()
        state.note_erased(state.erasable)
