"""Turns: what happens between journal records where pages have a lifetime (rule 23).

A turn is decided and recorded like a batch, and applied without deciding again. It stands before a journal
record, whose log time is its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stream.judge.batch import Entry
from stream.judge.log_time import binding, log_times
from stream.judge.state.state import State
from stream.messages.decision import Decisions, Turn, turn_record
from stream.messages.journal import Genesis
from stream.tables.arrays import I64


def turn_time(state: State, entry: Entry, cap: int | None) -> int | None:
    """Return the log time of the turn that is due before a journal record, or None if none is due."""
    if state.window is None:
        return None
    time = int(log_times(state.time, [entry.time], cap)[0])
    return time if state.window.is_due(time) else None


def decide_turn(state: State, genesis: Genesis, entry: Entry, cap: int | None) -> Decisions | None:
    """Decide the turn that is due before a journal record, without changing the state. None if none is due.
    No batch may be ahead of the store."""
    time, meta = turn_time(state, entry, cap), state.meta
    if time is None:
        return None
    return turn_record(
        journal=genesis.journal,
        options=genesis.options.id,
        applied=meta.applied,
        last=meta.last,
        time=time,
        cap=binding(state.time, [entry.time], cap),
        turn=state.expiring(time),
    )


def misfit_turn(record: Decisions, turn: Turn, state: State, genesis: Genesis) -> str | None:
    """Return why a turn does not follow a state, or None. Which pages are carried is compared by a
    recomputation alone."""
    meta, window = state.meta, state.window
    if window is None:
        return "turns, but no lifetime was given"
    for name, value, here in (
        ("journal", record.journal, genesis.journal),
        ("verdict options", record.options, genesis.options.id),
        ("journal offset", record.start, meta.applied),
        ("last journal record", record.last.hex(), meta.last.hex()),
        ("next numbers", tuple(turn.next), tuple(state.next)),
    ):
        if value != here:
            return f"has {name} {value}, but the state has {here}"
    most = window.oldest_after(record.time)
    for first, oldest, end in zip(state.first, turn.oldest, most, strict=True):
        if not first <= oldest <= end:
            return (
                f"has oldest numbers {turn.oldest}, which are not from {tuple(state.first)} to {tuple(most)}"
            )
    if record.time < state.time or record.time != max(state.time, record.cap or record.time):
        return f"has log time {record.time} and cap {record.cap}, but the state has log time {state.time}"
    if not window.is_due(record.time):
        return f"is not due at log time {record.time}"
    for name, carried, first in zip(
        ("anchor", "duplicate"), (turn.anchors, turn.duplicates), state.first, strict=True
    ):
        if carried and (number := int(np.frombuffer(carried, "<i8")[0])) < first:
            return f"carries {name} {number}, which had expired"
    anchors: I64 = np.frombuffer(turn.anchors, "<i8").astype(np.int64)
    if len(dead := anchors[~state.tables.is_alive(anchors)]):
        return f"carries anchor {dead[0]}, which was superseded"
    return None


def misfit_times(entries: Sequence[Entry], decisions: Decisions, judged: I64, state: State) -> str | None:
    """Return why the log time of decisions about records is not theirs, or why a turn should stand between
    these, or None. `judged` is the running total of their judged rows (n,)."""
    window, cap, appended = state.window, decisions.cap, [entry.time for entry in entries]
    times = log_times(state.time, appended, cap)
    if cap != (None if window is None else binding(state.time, appended, cap)):
        return f"a cap of {cap}, which binds nothing"
    if decisions.time != times[-1]:
        return f"log time {decisions.time}; the records have {times[-1]}"
    if window is None:
        return None
    if window.is_due(int(times[0])):
        return "a turn is due before them"
    until = min(window.before_turn(times), window.rows_until(judged))
    return None if until == len(entries) else f"a turn is due before journal offset {entries[until].offset}"
