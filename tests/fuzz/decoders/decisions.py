"""Decision records: those that decode and match their journal records can be applied; others are refused by
name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from stream.errors import RecordError, StateError
from stream.judge.batch import Entry, digest_of
from stream.judge.judge import Judge
from stream.judge.ledger_records import misfit_ledger
from stream.messages.decision import (
    Decisions,
    LedgerPart,
    decode_decisions,
    encode_decisions,
    ledger_record,
)
from stream.messages.journal import Rows, decode_journal
from tests.fuzz.decoder import Decoder
from tests.fuzz.decoders.journal import GENESIS, empty_state, record
from tests.fuzz.mutate import damaged, packed

RECORDS = 16
"""Journal records that decisions are about, each the first of its journal."""


class DecisionRecords(Decoder):
    """`decode_decisions`, the part of applying that changes nothing, and the verdicts that are said."""

    name: ClassVar = "decisions"

    def __enter__(self) -> DecisionRecords:
        directory = self.directory()
        opened = empty_state(directory)
        self.stack.callback(opened.close)
        self._judge = Judge(opened, GENESIS)
        self._entries: list[list[Entry]] = []
        self._records: list[bytes] = []
        for number in range(RECORDS):
            data = record(random.Random(number))
            rows = decode_journal(data, 1)
            assert isinstance(rows, Rows)
            entries = [Entry(1, 0, digest_of(data), rows)]
            self._entries.append(entries)
            decisions = self._judge.decide(entries).record()
            self._records.append(encode_decisions(decisions if number % 4 else _ledger_record(decisions)))
        return self

    def whole(self, number: int) -> dict[str, Any]:
        """The fields of one of the records from which the others are derived."""
        tree: dict[str, Any] = msgspec.msgpack.decode(self._records[number])
        return tree

    def make(self, rng: random.Random) -> bytes:
        number = rng.randrange(RECORDS)
        data = packed(rng, self._records[number], rng.choice((0, 1, 1, 1, 2)))
        return bytes([number]) + (damaged(rng, data) if rng.random() < 0.2 else data)

    def check(self, data: bytes) -> str:
        entries: Sequence[Entry] = self._entries[data[0] % RECORDS]
        try:
            decisions = decode_decisions(data[1:], 0)
        except RecordError:
            return "refused"
        if decisions.ledger is not None:
            why = misfit_ledger(decisions, decisions.ledger, self._judge.state, GENESIS)
            return "does not fit" if why else "fits"
        try:
            self._judge.prepare(entries, decisions)
        except StateError:
            return "does not fit"
        for each in self._judge.json(entries, decisions):
            msgspec.json.decode(each)
        return "fits"


def _ledger_record(decisions: Decisions) -> Decisions:
    """A ledger record with the sources of these decisions."""
    return ledger_record(
        GENESIS.journal,
        GENESIS.options.id,
        0,
        b"",
        0,
        decisions.sources,
        LedgerPart(0, len(decisions.sources)),
    )
