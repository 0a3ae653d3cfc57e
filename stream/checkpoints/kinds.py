"""Kinds of state that checkpoints are made of: a judge's, and that of each elector.

A kind is the name that the state directory has below its namespace: `judge`, `elector` or `elector-NAME`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from stream.elector import state as elector
from stream.judge.state import meta as judge
from stream.judge.state.state import State
from stream.messages.journal import Genesis
from stream.settings import MIB, NAME
from stream.tables.store.rocks import ELECTOR, Store

JUDGE: Final = "judge"
ELECTOR_KIND: Final = rf"elector(?:-{NAME})?"
"""Regular expression of the kinds of electors."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a state belongs to, and how far it has come, whatever its kind is."""

    kind: str = JUDGE
    format: int
    """Format version of the state."""
    cluster: str
    """The Kafka cluster's id."""
    journal: str
    scheme: str
    options: str
    generation: int = 0
    """Of a judge, its setting `tables_generation`."""
    elect: str = ""
    """Of an elector, its policy."""
    applied: int
    """The next journal offset to apply."""
    last: str
    """Digest of the journal record at `applied - 1`, in hexadecimal digits."""
    decided: int
    """The next offset of the decisions topic to apply."""
    ledger: int = 0
    """Offset of the newest ledger record that was applied, in the decisions topic; 0 before any."""
    erased: int = 0
    """What decisions before this offset forgot is erased from the state."""
    forgetting: judge.Forgetting | None = None
    """How far requests have come; None of an elector."""


_KIND: Final = re.compile(rf"{JUDGE}|{ELECTOR_KIND}")


def is_kind(text: str) -> bool:
    """Whether a text is the name of a kind."""
    return _KIND.fullmatch(text) is not None


def format_of(kind: str) -> int:
    """The format version of states of this kind that this program reads."""
    return judge.VERSION if kind == JUDGE else elector.FORMAT


def summary_of(directory: Path, kind: str) -> Summary | None:
    """Describe the state in a directory, which another process may have open; None before the first flush.
    Raises StateError, and DamagedStateError."""
    meta = judge.meta_of(directory) if kind == JUDGE else elector.meta_of(directory)
    if meta is None:
        return None
    return Summary(
        kind=kind,
        format=meta.version,
        cluster=meta.cluster,
        journal=meta.journal,
        scheme=meta.scheme,
        options=meta.options,
        generation=meta.generation if isinstance(meta, judge.Meta) else 0,
        elect="" if isinstance(meta, judge.Meta) else meta.elect,
        applied=meta.applied,
        last=meta.last.hex(),
        decided=meta.decided,
        ledger=meta.ledger,
        erased=meta.erased,
        forgetting=meta.forgetting if isinstance(meta, judge.Meta) else None,
    )


def open_store(directory: Path, kind: str) -> Store:
    """Open the store in a directory that has a state of this kind. Raises StateError if it has none."""
    summary_of(directory, kind)  # refuses a directory of another version, before it is opened to be written
    if kind == JUDGE:
        return Store(directory, MIB)
    return Store(directory, MIB, layout=ELECTOR)


def open_once(directory: Path, summary: Summary, genesis: Genesis) -> None:
    """Open a state as its role would, and close it. Raises StateError if that fails."""
    if summary.kind == JUDGE:
        State(directory, genesis, summary.cluster, memory=0, generation=summary.generation, cache=MIB).close()
    else:
        elector.State.open(directory, genesis, summary.cluster, summary.elect, cache=MIB).close()
