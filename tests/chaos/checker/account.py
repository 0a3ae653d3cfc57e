"""The account of one namespace: every page that was sent, its expected verdict and its actual one."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from tests.chaos.checker.kept import JudgedPage, Turn
from tests.chaos.checker.oracle import IndexedOracle
from tests.chaos.checker.records import JournalContent, Place
from tests.chaos.load import SentPage, SentPages
from tests.oracle import OracleVerdict

EXAMPLES: Final = 20
ROUNDING: Final = 1e-4


@dataclass(slots=True)
class AccountFindings:
    """What is wrong, with at most EXAMPLES examples of each kind; empty if all is well."""

    missing: int = 0
    repeated: int = 0
    different: int = 0
    examples: list[str] = field(default_factory=list)

    def note(self, kind: str, text: str) -> None:
        """Count a finding, and keep it as an example if there are fewer than EXAMPLES of its kind."""
        setattr(self, kind, getattr(self, kind) + 1)
        if sum(example.startswith(kind) for example in self.examples) < EXAMPLES:
            self.examples.append(f"{kind}: {text}")


@dataclass(frozen=True, slots=True)
class ExpectedVerdict:
    """The expected verdict on a row of the journal."""

    verdict: tuple[object, ...]
    """Id, verdict, change, cluster, id of `duplicate_of`, distance, id of `nearest` and its similarity."""
    similarity: float
    url: str | None
    fingerprint: int
    page: JudgedPage
    """The page as electors see it."""


class JournalRecord(NamedTuple):
    """A record of the journal that is not decided, as far as is known."""

    offset: int
    value: bytes
    appended: int
    """In milliseconds since the epoch."""


class Decision(NamedTuple):
    """What is believed of a record of the decisions topic."""

    end: int
    """Up to where in the journal all is decided."""
    is_turn: bool
    """Whether it is a turn, before the record at `end`."""
    requests: int | None
    """The next offset of requests, if pages are forgotten."""


class Account:
    """Takes the records of journal, decisions, requests and verdicts. Those of one topic are in order; the
    topics may be interleaved in any way.

    Of decisions nothing is believed but their order: how much of the journal, and which turn, comes before
    requests are decided. Which pages these are is found by their URLs.
    """

    def __init__(self, options: Mapping[str, Any], sent: SentPages, journal: str) -> None:
        """`options` are the oracle's, `journal` is the UUID in the genesis."""
        self._oracle, self._journal, self._sent = IndexedOracle(**options), JournalContent(journal), sent
        self.findings = AccountFindings()
        self.verdicts: Counter[str] = Counter()
        self.orphans = 0
        """Pages that were fetched again and began a cluster, since theirs had ended."""
        self.judged: list[JudgedPage] = []
        """Pages that have their verdict."""
        self.lifetime: int | None = options.get("lifetime")
        """Milliseconds."""
        self.turns: list[Turn] = []
        """Turns so far."""
        self.forgotten: set[str] = set()
        """Ids of pages that are forgotten."""
        self._waiting: deque[JournalRecord] = deque()
        self._journal_end = 0
        self._decided: deque[Decision] = deque()
        """Decisions that wait for records of other topics."""
        self._requests: deque[tuple[int, str]] = deque()
        """Offsets of requests that are not decided, and digests of their URLs."""
        self._requests_end = 0
        """Up to where requests were read."""
        self._pages: dict[str, list[str]] = {}
        """Digest of a URL -> ids of its pages that are not forgotten."""
        self._judged: set[Place] = set()
        self._due: dict[Place, ExpectedVerdict] = {}
        self._early: dict[Place, dict[str, Any]] = {}
        """Verdicts that came before their journal records."""
        self._uncompared: deque[tuple[Place, dict[str, Any], int]] = deque()
        """Verdicts and fingerprints of pages that were not read back yet."""
        self._fingerprints: dict[str, int] = {}
        """By text: equal texts have equal fingerprints, whichever worker made them."""

    @property
    def expired(self) -> int:
        """Pages whose lifetime has ended, carried ones included."""
        return int(self._oracle.oldest.total())

    def unjudged(self) -> Iterator[tuple[Place, SentPage]]:
        """Pages that should have a verdict and have none yet."""
        for place, page in self._sent.stored_pages():
            if place not in self._judged and not self._sent.is_gone(place) and not self._is_lost(place):
                yield place, page

    def count_excused(self) -> tuple[int, int]:
        """Return the numbers of pages without a verdict that were lost to retention, as declared, and of
        those whose topic was deleted."""
        places = [place for place, _ in self._sent.stored_pages() if place not in self._judged]
        lost = sum(self._is_lost(place) for place in places)
        return lost, sum(self._sent.is_gone(place) and not self._is_lost(place) for place in places)

    def conclude(self) -> AccountFindings:
        """Return the findings. Called once all records are taken, so that missing verdicts stay missing."""
        self._compare_pages()
        for place, *_ in self._uncompared:
            self.findings.note("different", f"{place}: a verdict, but no such page was sent")
        for place, page in self.unjudged():
            self.findings.note("missing", f"{place} {page.url}")
        for place in self._early:
            self.findings.note("different", f"{place}: a verdict, but the journal admits no such page")
        return self.findings

    @property
    def requests_waiting(self) -> int:
        """How many requests are not decided."""
        return len(self._requests)

    def take_journal(self, value: bytes, offset: int, appended: int = 0) -> None:
        """Take a record of the journal, with the time when it was appended, in milliseconds since the
        epoch."""
        self._waiting.append(JournalRecord(offset, value, appended))
        self._journal_end = offset + 1
        self._go_on()

    def take_request(self, value: bytes, offset: int) -> None:
        """Take the next record of the requests topic."""
        request = json.loads(value)
        assert request["forget"] == "url", request
        self._requests.append((offset, request["digest"]))
        self.end_requests(offset + 1)

    def end_requests(self, end: int) -> None:
        """Note that all requests before an offset were taken. Markers of other programs' transactions, which
        no consumer sees, have offsets, too."""
        self._requests_end = max(end, self._requests_end)
        self._go_on()

    def take_decision(self, value: bytes) -> None:
        """Take a record of the decisions topic."""
        content = msgspec.msgpack.decode(value)
        assert content["version"] == 4
        forgotten = content.get("forgotten")
        self._decided.append(
            Decision(content["end"], content["turn"] is not None, forgotten and forgotten["requests"])
        )
        self._go_on()

    def _go_on(self) -> None:
        """Judge and forget as far as the topics were read."""
        while self._decided:
            decision = self._decided[0]
            needed = decision.end + decision.is_turn
            if self._journal_end < needed or self._requests_end < (decision.requests or 0):
                return
            self._decided.popleft()
            while self._waiting and self._waiting[0].offset < decision.end:
                self._judge(self._waiting.popleft())
            if decision.is_turn:
                self._begin(self._waiting[0])
            if decision.requests is not None:
                self._forget(decision.requests)

    def _forget(self, end: int) -> None:
        """Forget the pages of all requests before an offset."""
        urls = set[str]()
        while self._requests and self._requests[0][0] < end:
            urls.add(self._requests.popleft()[1])
        pages = {page for url in urls for page in self._pages.pop(url, ())}
        self._oracle.forget(pages)
        self.forgotten |= pages

    def _begin(self, record: JournalRecord) -> None:
        """Begin a record, before which a turn may be due. Again it changes nothing."""
        turned = self._oracle.turned
        self._oracle.begin(record.appended)
        if self._oracle.turned != turned:
            self.turns.append(Turn(record.offset, self._oracle.turned))

    def _judge(self, record: JournalRecord) -> None:
        self._begin(record)
        for place, page, url, length in self._journal.admit_rows(record.value, record.offset):
            if page.url is not None:
                self._pages.setdefault(page.url, []).append(str(page.id))
            want = self._oracle.judge(page)
            verdict = due_fields(want)
            cluster = verdict[3]
            _, at, row = str(want.id).split(".")
            seen = JudgedPage(
                (int(at), int(row)), str(want.id), page.url, want.verdict, cluster, length, self._oracle.time
            )
            self.orphans += want.verdict == "recrawl" and cluster == want.id
            self._due[place] = ExpectedVerdict(
                verdict, (want.similarity or 0) / 10_000, url, page.fingerprint, seen
            )
            if place in self._early:
                self._compare(place, self._early.pop(place))

    def take_verdict(self, value: bytes) -> None:
        """Take a record of the verdicts topic."""
        verdict = json.loads(value)
        self.verdicts[verdict["verdict"]] += 1
        source = verdict["source"]
        place = source["topic_id"], source["partition"], source["offset"]
        if place in self._judged:
            self.findings.note("repeated", f"{place} {verdict['id']}")
            return
        self._judged.add(place)
        if place in self._due:
            self._compare(place, verdict)
        else:
            self._early[place] = verdict

    def _is_lost(self, place: Place) -> bool:
        """Whether the journal declares a page lost to retention."""
        topic_id, partition, offset = place
        declared = self._journal.lost.get((topic_id, partition), ())
        return self._sent.is_deleted(place) and any(start <= offset < end for start, end in declared)

    def _compare(self, place: Place, verdict: dict[str, Any]) -> None:
        """Compare a verdict with the oracle's, and its page with what was sent."""
        due, similarity = self._due.pop(place), verdict["similarity"] or 0
        self.judged.append(due.page)
        got = given_fields(verdict)
        if got != due.verdict or abs(similarity - due.similarity) > ROUNDING:
            self.findings.note("different", f"{place}: {got} {similarity}, due {due}")
        if verdict["url"] != due.url:
            self.findings.note("different", f"{place}: url {verdict['url']}, in the journal {due.url}")
        self._uncompared.append((place, verdict, due.fingerprint))
        self._compare_pages()

    def _compare_pages(self) -> None:
        """Compare verdicts with what was sent, as far as the pages were read back."""
        while self._uncompared and (page := self._sent.page(self._uncompared[0][0])) is not None:
            place, verdict, fingerprint = self._uncompared.popleft()
            self._compare_page(place, verdict, page, fingerprint)

    def _compare_page(self, place: Place, verdict: dict[str, Any], page: SentPage, fingerprint: int) -> None:
        if (verdict["verdict"] == "rejected") != page.malformed:
            self.findings.note("different", f"{place}: {verdict['verdict']}, sent was {page}")
        elif not page.malformed and verdict["url"] != page.url:
            self.findings.note("different", f"{place}: url {verdict['url']}, sent was {page.url}")
        elif not page.malformed and self._fingerprints.setdefault(page.digest, fingerprint) != fingerprint:
            self.findings.note("different", f"{place}: an equal text has another fingerprint")


def given_fields(verdict: Mapping[str, Any]) -> tuple[Any, ...]:
    """What is compared of a verdict, but for its similarity."""
    other = verdict["duplicate_of"]
    nearest = verdict.get("nearest") or {"id": None, "similarity": None}
    return (
        verdict["id"], verdict["verdict"], verdict["change"], verdict["cluster"], other and other["id"],
        verdict["distance"], nearest["id"], nearest["similarity"],
    )  # fmt: skip


def due_fields(want: OracleVerdict) -> tuple[Any, ...]:
    """The same of what the oracle says."""
    cluster = want.cluster if want.verdict in ("unique", "duplicate", "recrawl") else None
    return (
        want.id, want.verdict, want.change, cluster, want.other, want.distance,
        want.nearest, want.nearest_similarity and want.nearest_similarity / 10_000,
    )  # fmt: skip
