"""Kinds of state that checkpoints are made of: a judge's, and those of each elector and dashboard.

A kind is called as its directory is below its namespace: `judge`, `elector`, `elector-NAME`, `dashboard` or
`dashboard-NAME`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec

from stream import figures
from stream.elector import state as elector
from stream.figures import KIND_OF_DASHBOARD
from stream.judge.state import meta as judge
from stream.judge.state.state import State
from stream.messages.journal import Genesis
from stream.settings import MIB, NAME
from stream.tables.store import rocks
from stream.tables.store.meta_record import stored_below
from stream.tables.store.rocks import Layout, Store

JUDGE: Final = "judge"
KIND: Final = rf"(?:{JUDGE}|elector(?:-{NAME})?|{KIND_OF_DASHBOARD})"
"""Regular expression of all kinds."""

Meta: TypeAlias = judge.Meta | elector.Meta | figures.Meta
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
    scheme: str = ""
    options: str = ""
    generation: int = 0
    """Of a judge, its setting `tables_generation`."""
    elect: str = ""
    """Of an elector, its policy."""
    topic: str = ""
    """Of a dashboard, the id of the topic of verdicts."""
    offsets: Offsets
    last: bytes = b""
    """Digest of the journal record before the next one; of no dashboard."""
    ledger: int = 0
    """Offset of the newest ledger record that was applied, in the decisions topic; 0 before any."""
    erased: int = 0
    """What was forgotten before this offset is erased from the state: an offset of decisions, or of requests
    if it is a dashboard's."""
    forgetting: judge.Forgetting | None = None
    """How far requests have come in a judge's."""

    @property
    def applied(self) -> int:
        """The next journal offset to apply."""
        return self.offsets["journal"][0]

    @property
    def decided(self) -> int:
        """The next offset of the decisions topic to apply."""
        return self.offsets["decisions"][0]

    @property
    def is_begun(self) -> bool:
        """Whether anything was applied."""
        return bool(self.last or self.offsets.get("verdicts"))

    @property
    def progress(self) -> tuple[Offsets, int, int]:
        """What makes another checkpoint worth while. Decisions alone do not: each one brings some."""
        others = {topic: each for topic, each in self.offsets.items() if topic != "decisions"}
        return others, self.ledger, self.erased

    @property
    def impossible(self) -> str | None:
        """Which values no state has, if there are some."""
        if is_dashboard(self.kind):
            return None if self.offsets.keys() == {"verdicts"} else f"has offsets {self.offsets}"
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


def is_dashboard(kind: str) -> bool:
    """Whether states of a kind are dashboards', which hold no logs."""
    return re.fullmatch(KIND_OF_DASHBOARD, kind) is not None


class Form(NamedTuple):
    """How this program stores states of a kind."""

    format: int
    """Version of it."""
    decoder: msgspec.msgpack.Decoder[Any]
    """Of the metadata."""
    layout: Layout


def form_of(kind: str) -> Form:
    """How states of this kind are stored."""
    if is_dashboard(kind):
        return Form(figures.FORMAT, figures.META_DECODER, figures.LAYOUT)
    if kind == JUDGE:
        return Form(judge.VERSION, judge.META_DECODER, rocks.JUDGE)
    return Form(elector.FORMAT, elector.META_DECODER, rocks.ELECTOR)


def directory_of(home: Path, kind: str) -> Path:
    """The state directory of a kind, below that of a namespace."""
    return home / kind / figures.FIGURES if is_dashboard(kind) else home / kind


def described(kind: str, meta: Meta) -> Summary:
    """What the metadata of a state say of it."""
    if isinstance(meta, figures.Meta):
        offsets: Offsets = {"verdicts": meta.positions}
    else:
        offsets = {"journal": {0: meta.applied}, "decisions": {0: meta.decided}}
    names = set(meta.__struct_fields__).intersection(Summary.__struct_fields__)
    of_both = {name: getattr(meta, name) for name in names}
    own = {"kind": kind, "format": meta.version, "offsets": offsets, "erased": meta.erased}
    return Summary(**of_both | own)


def meta_of(directory: Path, kind: str) -> Any:
    """Read the metadata of the state in a directory, which another process may have open; None before the
    first flush. Raises StateError, and DamagedStateError."""
    form = form_of(kind)
    return stored_below(directory, form.decoder, form.format)


def summary_of(directory: Path, kind: str) -> Summary | None:
    """What the metadata of the state in a directory say of it. Raises as `meta_of` does."""
    meta = meta_of(directory, kind)
    return None if meta is None else described(kind, meta)


def open_store(directory: Path, kind: str) -> Store:
    """Open the store in a directory that has a state of this kind. Raises StateError if it has none."""
    meta_of(directory, kind)  # refuses a directory of another version, before it is opened to be written
    return Store(directory, MIB, layout=form_of(kind).layout)


def open_once(directory: Path, summary: Summary, genesis: Genesis) -> None:
    """Open a state of a judge or elector as its role would, and close it. Raises StateError if that fails."""
    if summary.kind == JUDGE:
        State(directory, genesis, summary.cluster, memory=0, generation=summary.generation, cache=MIB).close()
    else:
        elector.State.open(directory, genesis, summary.cluster, summary.elect, cache=MIB).close()
