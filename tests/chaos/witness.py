"""A witness that shares no code with the judge: it reads the topics and says what should have come out.

The journal is unpacked and re-deliveries are trimmed as in the account of `make chaos`, the oracle judges
page by page, and the verdicts are read with `read_committed` like any consumer reads them. Shingles are those
of the published texts, so that similarities are held against the texts rather than against what the worker
made of them.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from stream.kafka.names import TopicNames
from stream.settings import Settings
from tests.bench.quality.truth import shingles
from tests.chaos.checker.account import due_fields, given_fields
from tests.chaos.checker.records import JournalContent
from tests.kafka.worker_helpers import read_all
from tests.oracle import Oracle

ONE_SHINGLE = 0.02
"""More than the similarity grows by one common shingle more, of pages of 60 words or more."""


@dataclass
class Statement:
    pages: int = 0
    missing: list = field(default_factory=list)
    repeated: list = field(default_factory=list)
    different: list = field(default_factory=list)
    inexact: list = field(default_factory=list)
    """Similarities that are too high by a common shingle: of those that are counted, at most 1 in 1,000."""
    verdicts: Counter = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.pages} pages: missing {len(self.missing)}, repeated {len(self.repeated)}, "
            f"different {len(self.different)}, inexact {len(self.inexact)}; {dict(self.verdicts)}"
        )


async def bear_witness(settings: Settings) -> Statement:
    """Compare pages, journal and verdicts of a deployment whose pages have one topic id."""
    names, oracle = TopicNames(settings.namespace), Oracle()
    pages = {
        (each.partition, each.offset): _shingles(each.value) for each in await read_all(settings, names.pages)
    }
    given: dict[tuple, list] = {}
    said = Statement(pages=len(pages))
    for record in await read_all(settings, names.verdicts):
        verdict = json.loads(record.value)
        said.verdicts[verdict["verdict"]] += 1
        source = verdict["source"]
        given.setdefault((source["topic_id"], source["partition"], source["offset"]), []).append(verdict)
    said.missing = sorted(pages.keys() - {place[1:] for place in given})
    said.repeated = sorted(place for place, verdicts in given.items() if len(verdicts) > 1)

    (genesis,) = await read_all(settings, names.genesis)
    content = JournalContent(msgspec.msgpack.decode(genesis.value)["journal"])
    records = await read_all(settings, names.journal)
    for place, page, *_ in (row for each in records for row in content.admit_rows(each.value, each.offset)):
        page.shingles = pages.get(place[1:])
        want = oracle.judge(page)
        for got in given.get(place, ()):
            found, due = given_fields(got), due_fields(want)
            similarity = want.similarity and want.similarity / 10_000
            above = (got["similarity"] or 0) - (similarity or 0)
            if found == due and 1e-4 < above < ONE_SHINGLE:
                said.inexact.append((found, got["similarity"], similarity))
            elif found != due or abs(above) > 1e-4:
                said.different.append((found, due, got["similarity"], similarity))
    if len(said.inexact) > 2 + len(pages) / 1000:
        said.different += said.inexact
    return said


def _shingles(value):
    """Return the shingles of a page message with a plain text; None for others."""
    try:
        text = json.loads(value).get("text")
    except ValueError:
        return None
    return frozenset(shingles(text)) if isinstance(text, str) and text.isascii() else None
