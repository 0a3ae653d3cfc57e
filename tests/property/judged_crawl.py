"""A crawl that is judged in a combination of circumstances, with what is claimed of any judged crawl."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stream.judge import forgetting
from stream.judge.batch import Entry
from stream.judge.decision.decide import Effort
from stream.judge.forgetting import Search
from stream.judge.ids import INDEX_BITS, show
from stream.judge.judge import Judge
from stream.judge.judged_batch import JudgedBatch
from stream.judge.ledger_records import ledger_records
from stream.judge.state import forgotten_pages, page_log
from stream.judge.state.state import Prepared, State
from stream.judge.state.window import Expiry
from stream.judge.turns import turn_time
from stream.messages.decision import Decisions, decode_decisions, encode_decisions
from stream.roles.judge.watch import JudgeWatch
from tests.forgetting import erase, forget, ids_of, request
from tests.judged_crawls import expected, number_late, open_state, turn_if_due, verdicts_of
from tests.oracle import Oracle, OraclePage
from tests.property.dimensions import Combination
from tests.url_digests import digest_of_url

LEDGER_BYTES = 4 << 20


class JudgedCrawl:
    """A leader judges a crawl, a follower applies what it decides, and an oracle judges page by page."""

    def __init__(self, chosen: Combination, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chosen, self.path, self.rng = chosen, path, random.Random(chosen.seed)
        self.pages = chosen.pages()
        self.entries, self.clock = chosen.entries(self.pages)
        self.of_record: dict[int, list[OraclePage]] = defaultdict(list)
        for page in self.pages:
            self.of_record[page.id >> INDEX_BITS].append(page)
        self.oracle: Oracle = chosen.oracle(monkeypatch)
        if chosen["numbers"]:
            number_late(self.oracle)
        self.first = self.oracle.oldest.total()
        self.leader, self.follower = self.open("leader"), self.open("follower", other_memory=True)
        self.unwritten: tuple[Prepared, int] | None = None
        """What the leader decided last, if that is in RAM alone, and the offset after it."""
        self.position, self.json, self.gone = 0, list[bytes](), set[object]()
        self.ended = set[str]()
        """The keys on the topic `clusters` whose last record is no tombstone."""
        self.search: Search | None = None
        self.watch, self.counts = JudgeWatch(), Counter[str]()
        self.effort = Effort(on_iteration=lambda: self.counts.update(["iteration"]), **chosen["effort"])
        chosen["search"](monkeypatch)
        monkeypatch.setattr(forgetting, "READ_AT_ONCE", 64)
        monkeypatch.setattr(forgotten_pages, "BLANKED_AT_ONCE", 7)
        if chosen["effort"]:
            monkeypatch.setattr(page_log, "GROUPS_AT_ONCE", 2)
            monkeypatch.setattr(page_log, "PART_BYTES", 10_000)
            monkeypatch.setattr(page_log, "LEAST_KEPT", 0)

    def open(self, name: str, *, other_memory: bool = False) -> Judge:
        memory, generation = self.chosen["tables"]
        state, genesis = open_state(
            self.path / name,
            self.chosen.options,
            memory=(1 << 20 if memory == 0 else 0) if other_memory else memory,
            generation=generation,
            scheme=self.chosen.scheme,
            late=self.chosen["numbers"],
        )
        return Judge(state, genesis)

    @property
    def judges(self) -> tuple[Judge, Judge]:
        return self.leader, self.follower

    def close(self) -> None:
        for judge in self.judges:
            judge.state.close()

    def run(self) -> None:
        """Judge all records."""
        done, planned = 0, self.interruptions()
        while done < len(self.entries):
            while planned and planned[0][0] * len(self.entries) <= done:
                self.settle()
                planned.pop(0)[1]()
            size = min(self.rng.choice(self.chosen["cut"]), 1 + len(self.entries) // 4)
            done += self.judge(self.entries[done : done + size])
            if self.chosen["ledgers"] and self.rng.random() < 0.3:
                self.note_ledger(self.leader, self.follower)
            for judge in self.judges:
                if not judge.state.meta.forgetting.is_erased and self.rng.random() < 0.3:
                    self.settle()
                    judge.state.blank()
                    if self.rng.random() < 0.5:
                        erase(judge.state)
        self.settle()

    def interruptions(self) -> list[tuple[float, Callable[[], None]]]:
        """What is done after a share of the records."""
        planned: list[tuple[float, Callable[[], None]]] = []
        if self.chosen["forgetting"]:
            planned += [(0.2, self.begin_search), (0.35, self.forget)]
            planned += [(0.6, self.begin_search), (0.8, self.forget)]
        if self.chosen["restart"] == "reopened":
            planned += [(0.5, self.reopen)]
        elif self.chosen["restart"] == "taken over":
            planned += [(0.5, self.take_over)]
        return sorted(planned, key=lambda each: each[0])

    def judge(self, part: list[Entry]) -> int:
        """Judge records, or the first of them, and return how many."""
        leader, cap = self.leader, self.clock(part[0])
        if self.unwritten and turn_time(leader.state, part[0], cap) is not None:
            self.settle()
        turn = turn_if_due(leader, part[0], cap, self.position)
        if turn is not None:
            self.end_clusters(turn)
            self.follower.apply_apart(turn, self.position)
            self.position += 1
        decided = leader.decide(part, self.effort, cap)
        part = list(decided.entries)
        recorded = decode_decisions(encode_decisions(decided.record()), self.position)
        assert recorded == decided.record()
        assert self.follower.json(part, recorded) == decided.json(), "journal and decisions say every verdict"
        self.check_verdicts(decided, recorded)
        self.json += decided.json()
        self.position += 1
        if self.chosen["writes"]:
            prepared = leader.prepare(part, recorded, decided.batch)
            if self.rng.random() < 0.3:
                leader.state.flush()
            self.settle()
            leader.state.advance(prepared)
            self.unwritten = prepared, self.position
        else:
            leader.apply(part, recorded, self.position)
            leader.state.maintain(wait=self.rng.random() < 0.3)
        self.follower.apply(part, recorded, self.position)
        self.follower.state.maintain(wait=self.rng.random() < 0.3)
        return len(part)

    def settle(self) -> None:
        """Write what the leader has in RAM alone."""
        if self.unwritten:
            self.leader.state.write(*self.unwritten)
            self.leader.state.maintain(wait=self.rng.random() < 0.3)
        self.unwritten = None

    def check_verdicts(self, decided: JudgedBatch, recorded: Decisions) -> None:
        """Verdicts, crowding and skipped buckets are those of the oracle; all are counted."""
        want, crowding, skipped = list[tuple[object, ...]](), list[tuple[bool, bool]](), list[int]()
        for entry in decided.entries:
            self.oracle.begin(entry.time, recorded.cap)
            for page in self.of_record.pop(entry.offset, []):
                want += expected(self.oracle, [page])
                crowding.append(self.oracle.crowding.get(page.id, (False, False)))
                skipped.append(skipped_by(self.oracle, page))
        found = verdicts_of(decided)
        different = [(f, w) for f, w in zip(found, want, strict=True) if f != w]
        assert not different, different[:3]
        verdicts = decided.verdicts
        assert [*zip(verdicts.full.tolist(), verdicts.cut.tolist(), strict=True)] == crowding
        assert [verdicts.skipped.get(row, 0) for row in range(len(found))] == skipped
        for record, digest in decided.cluster_records():
            assert digest == digest_of_url(record.url)
            self.ended.add(record.cluster)
        assert self.ended == self.shown(self.oracle.ended)
        self.watch.note_batch(decided, gaps=0)
        full, cut = (sum(each) for each in zip(*crowding, strict=True)) if crowding else (0, 0)
        self.counts.update({"full": full, "cut": cut, "skipped": sum(map(bool, skipped))})
        self.counts.update(str(each[1]) for each in want)
        self.counts["nearest"] += sum(each[9] != -1 for each in want)
        self.counts["superseded"] += sum(each[-1] is not None for each in want)
        self.counts["capped"] += recorded.cap is not None
        metrics = self.watch.metrics
        assert metrics.full_buckets._value.get() == self.counts["full"]
        assert metrics.cut_lists._value.get() == self.counts["cut"]

    def end_clusters(self, record: Decisions) -> None:
        """Publish the tombstones of a turn or of pages that are forgotten."""
        ended = set(self.follower.ended_clusters(record))
        assert ended <= self.ended | self.shown(self.gone), "no live anchor has a record"
        self.ended -= ended

    def shown(self, pages: set[object]) -> set[str]:
        return {show(self.leader.genesis.journal, int(str(page))) for page in pages}

    def begin_search(self) -> None:
        """Search for the pages of some URLs, beside what is judged until they are forgotten."""
        urls = sorted({page.url for page in self.pages if page.url})
        named = self.rng.sample(urls, 4)
        numbers = range(9 * self.position, 9 * self.position + 9)
        asked = zip(numbers, (request(self.leader, "url", url) for url in sorted(named)), strict=False)
        self.search = Search(self.leader.state, self.leader.genesis, [*asked], numbers.stop)
        self.search.run()
        self.named = named

    def forget(self) -> None:
        assert self.search is not None
        for record in forget(self.leader, self.search, self.position):
            assert record.forgotten is not None
            ids = ids_of(self.leader.state, record.forgotten)
            assert record.forgotten.page_ids.tolist() == sorted(ids), "all are named by URL"
            self.oracle.forget(ids)
            self.gone |= ids
            self.end_clusters(record)
            self.follower.apply_apart(record, self.position)
            self.position += 1
        assert not any(self.leader.state.baselines(digest_of_url(url)) for url in self.named)
        self.search = None

    def reopen(self) -> None:
        self.leader.state.close()
        self.leader = self.open("leader", other_memory=True)

    def take_over(self) -> None:
        """The leader is lost, and a new follower catches up from a copy of its state."""
        self.leader, self.follower = self.follower, self.leader

    def note_ledger(self, *judges: Judge) -> None:
        """Publish a ledger record, and let judges apply it."""
        self.settle()
        (written,) = ledger_records(self.leader.state, self.leader.genesis, LEDGER_BYTES)
        record = decode_decisions(encode_decisions(written), 0)
        (source,) = record.sources
        assert (source.expected, source.lost) == (len(self.json), 0)
        for judge in judges:
            assert record.ledger is not None
            judge.apply_apart(record, self.position)
        self.position += 1

    def check_states(self) -> None:
        """Leader and follower have equal states, whose content is the oracle's."""
        for judge in self.judges:
            erase(judge.state)
        assert self.leader.state.digest() == self.follower.state.digest()
        check_state(self.leader.state, self.oracle, self.gone)

    def check_judged_at_once(self) -> None:
        """Verdicts and state do not depend on where batches ended, on how hard the judge tried, nor on
        ledger records."""
        if self.chosen["forgetting"] or self.counts["capped"]:
            return
        judge = self.open("at once", other_memory=True)
        try:
            assert judge_at_once(judge, self.entries, self.leader.state.meta.decided) == self.json
            if self.chosen["ledgers"]:
                self.note_ledger(self.leader, self.follower, judge)
            assert judge.state.digest() == self.leader.state.digest()
        finally:
            judge.state.close()

    def check_circumstances(self) -> None:
        """What the combination is about took place."""
        chosen, counts, oracle = self.chosen, self.counts, self.oracle
        names, strict = {*chosen.names.values()}, chosen.options.strict
        assert min(counts[each] for each in ("unique", "duplicate", "recrawl", "iteration")) > 0, counts
        assert (counts["nearest"] > 0) == (not strict and chosen["evidence"] != "1") or chosen[
            "evidence"
        ] == "0.5"
        if names & {"cap-1", "cap-2"} and names & {"skewed", "crowd", "templates", "mixed"}:
            assert (counts["skipped"] > 10) == (not strict)
        if names & {"1-compared", "3-compared"} and "crowd" in names:
            assert (counts["cut"] > 10) == (not strict)
        if "mirrors" in names and not chosen.expiry:
            assert oracle.orphans
        if chosen.expiry:
            assert oracle.oldest.total() - self.first > len(self.pages) // 18
            if not chosen.expiry.ahead:
                assert not counts["capped"]
            elif "large-records" not in names:  # few records, of which perhaps none is ahead
                assert counts["capped"]
        elif chosen["forgetting"]:
            assert self.gone


def judge_at_once(judge: Judge, entries: list[Entry], decided: int) -> list[bytes]:
    """Judge as many records at a time as there are between turns."""
    found, i = list[bytes](), 0
    while i < len(entries):
        turn_if_due(judge, entries[i], None, decided)
        batch = judge.decide(entries[i:])
        found += batch.json()
        judge.apply(batch.entries, batch.record(), decided)
        i += len(batch.entries)
    return found


def skipped_by(oracle: Oracle, page: OraclePage) -> int:
    """The mask of unusual buckets of a page that just became an anchor: the first ones that it did not enter,
    and the reserves that it entered. 0 if it became none."""
    if oracle.strict or not oracle.anchors or oracle.anchors[-1].page is not page:
        return 0
    return sum(1 << table for table in {*range(9)} ^ {table for table, *_ in oracle.anchors[-1].entered})


def check_state(state: State, oracle: Oracle, gone: set[object]) -> None:
    """What has neither expired nor been forgotten is what the oracle keeps, by the same numbers."""
    assert state.next == (oracle.counts["unique"], oracle.counts["duplicate"])
    if state.window is not None:
        assert state.first == (oracle.oldest["unique"], oracle.oldest["duplicate"])
        check_expiry(state.window.expiry, oracle)
    stored = sorted(oracle.numbers.keys() - gone)
    for page in random.Random(1).sample(stored, min(40, len(stored))):
        found = state.by_page(page)
        assert found is not None
        assert found.number == oracle.numbers[page]
        if found.cluster in oracle.live or (oracle.lifetime is None and found.cluster not in gone):
            assert found.cluster_anchor == oracle.numbers[found.cluster]
    for url, known in oracle.baselines.items():
        kept = state.baselines(digest_of_url(url))
        assert [(each.page, each.cluster, each.number) for each in kept] == [
            (page.id, cluster, oracle.numbers[page.id]) for page, cluster in known
        ]
        assert [each.url for each in kept] == [page.url for page, _ in known]
        live = state.tables.is_alive(np.array([each.cluster_anchor for each in kept], np.int64))
        assert live.tolist() == [each.cluster in oracle.live for each in kept]


def check_expiry(expiry: Expiry, oracle: Oracle) -> None:
    """What is told of expiry is what the oracle has after the last turn."""
    kinds = ("unique", "duplicate")
    passed = [
        time for time, counts in oracle.marks if all(counts[kind] <= oracle.oldest[kind] for kind in kinds)
    ]
    due = [each for each in oracle.marks if each[0] <= oracle.turned - oracle.lifetime]
    late = sum(max(0, due[-1][1][kind] - oracle.oldest[kind]) for kind in kinds) if due else 0
    assert expiry == (passed[-1], late, due[-1][0] - passed[-1] if late else 0)
    assert (late > 0) == oracle.is_behind
