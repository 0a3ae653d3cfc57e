"""Kinds of state that checkpoints are made of: a judge's, and that of each elector.

A kind is the name that the state directory has below its namespace: `judge`, `elector` or `elector-NAME`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec

from stream.elector import state as elector
from stream.judge.state import meta as judge
from stream.judge.state.state import State
from stream.messages.journal import Genesis
from stream.settings import MIB, NAME
from stream.tables.store.rocks import ELECTOR, Store

JUDGE: Final = "judge"
KIND: Final = rf"(?:{JUDGE}|elector(?:-{NAME})?)"
"""Regular expression of all kinds."""

Meta: TypeAlias = judge.Meta | elector.Meta
"""What a state says of itself, in its own record."""
Offsets: TypeAlias = dict[str, dict[int, Annotated[int, msgspec.Meta(ge=0)]]]
"""Topic -> partition -> the next offset to apply. Topics are named without their namespace."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a state belongs to, and how far it has come, whatever its kind is."""

    kind: str
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
    offsets: Offsets
    last: bytes
    """Digest of the journal record before the next one."""
    ledger: int = 0
    """Offset of the newest ledger record that was applied, in the decisions topic; 0 before any."""
    erased: int = 0
    """What decisions before this offset forgot is erased from the state."""
    forgetting: judge.Forgetting | None = None
    """How far requests have come; None of an elector."""

    @property
    def applied(self) -> int:
        """The next journal offset to apply."""
        return self.offsets["journal"][0]

    @property
    def decided(self) -> int:
        """The next offset of the decisions topic to apply."""
        return self.offsets["decisions"][0]

    @property
    def progress(self) -> tuple[Offsets, int, int]:
        """What makes another checkpoint worth while. Decisions alone do not: each one brings some."""
        others = {topic: each for topic, each in self.offsets.items() if topic != "decisions"}
        return others, self.ledger, self.erased

    @property
    def impossible(self) -> str | None:
        """Which values no state has, if there are some."""
        if {topic: [*each] for topic, each in self.offsets.items()} != {"journal": [0], "decisions": [0]}:
            return f"has offsets {self.offsets}"
        if not 0 <= self.ledger < max(1, self.decided):  # it was applied
            return f"has decided {self.decided}, ledger {self.ledger}"
        if not 0 <= self.erased <= self.decided:
            return f"has decided {self.decided}, erased {self.erased}"
        return None


def is_kind(text: str) -> bool:
    """Whether a text is the name of a kind."""
    return re.fullmatch(KIND, text) is not None


def format_of(kind: str) -> int:
    """The format version of states of this kind that this program reads."""
    return judge.VERSION if kind == JUDGE else elector.FORMAT


def described(kind: str, meta: Meta) -> Summary:
    """What the metadata of a state say of it."""
    return Summary(
        kind=kind,
        format=meta.version,
        cluster=meta.cluster,
        journal=meta.journal,
        scheme=meta.scheme,
        options=meta.options,
        generation=meta.generation if isinstance(meta, judge.Meta) else 0,
        elect="" if isinstance(meta, judge.Meta) else meta.elect,
        offsets={"journal": {0: meta.applied}, "decisions": {0: meta.decided}},
        last=meta.last,
        ledger=meta.ledger,
        erased=meta.erased,
        forgetting=meta.forgetting if isinstance(meta, judge.Meta) else None,
    )


def summary_of(directory: Path, kind: str) -> Summary | None:
    """Describe the state in a directory, which another process may have open; None before the first flush.
    Raises StateError, and DamagedStateError."""
    meta = judge.meta_of(directory) if kind == JUDGE else elector.meta_of(directory)
    return None if meta is None else described(kind, meta)


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
