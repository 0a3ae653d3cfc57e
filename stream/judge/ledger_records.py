"""Ledger records: the progress of all sources, as it stands in the decisions topic from time to time.

Decisions name only the sources that they moved. Who reads them from a ledger record on knows all sources, so
that older decisions may be deleted.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from stream.judge.state.state import State
from stream.messages.decision import Decisions, LedgerPart, encode_decisions, ledger_record
from stream.messages.journal import Genesis

_LENGTH_BYTES: Final = 64
"""By how much the lengths and numbers in a record may grow with what is in it."""


def ledger_records(state: State, genesis: Genesis, limit: int) -> list[Decisions]:
    """Return the ledger of a state as records of at most `limit` bytes: one, or its parts in order."""
    sources, meta = state.ledger.in_order(), state.meta

    def part(first: int, end: int) -> Decisions:
        return ledger_record(
            journal=genesis.journal,
            options=genesis.options.id,
            applied=meta.applied,
            last=meta.last,
            time=state.time,
            sources=sources[first:end],
            part=LedgerPart(first, len(sources)),
        )

    room = limit - len(encode_decisions(part(0, 0))) - _LENGTH_BYTES
    ends = np.cumsum([len(msgspec.msgpack.encode(each)) for each in sources], dtype=np.int64)
    records, first, before = list[Decisions](), 0, 0
    while first < len(sources):
        end = max(first + 1, int(np.searchsorted(ends, before + room, "right")))
        records.append(part(first, end))
        first, before = end, int(ends[end - 1])
    return records or [part(0, 0)]


def misfit_ledger(record: Decisions, part: LedgerPart, state: State, genesis: Genesis) -> str | None:
    """Return why a ledger record is not of a state, or None."""
    ours = state.ledger.in_order()
    if why := misfit_place(record, state, genesis):
        return why
    if part.total != len(ours):
        return f"has number of sources {part.total}, but the state has {len(ours)}"
    same = ours[part.first : part.first + len(record.sources)]
    for source, own in zip(record.sources, same, strict=True):
        if source != own:
            return f"has {source}, but the state has {own}"
    return None


def misfit_place(record: Decisions, state: State, genesis: Genesis) -> str | None:
    """Return why a record without rows does not stand where a state is, or None."""
    meta = state.meta
    for name, value, here in (
        ("journal", record.journal, genesis.journal),
        ("verdict options", record.options, genesis.options.id),
        ("journal offset", record.start, meta.applied),
        ("last journal record", record.last.hex(), meta.last.hex()),
        ("log time", record.time, state.time),
    ):
        if value != here:
            return f"has {name} {value}, but the state has {here}"
    return None
