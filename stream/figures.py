"""What a dashboard's state says of itself: what it belongs to, and how far it has counted and erased."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from stream.settings import MIB, NAME
from stream.tables.store.rocks import CLUSTERS, DEFAULT, URLS, Layout

FIGURES: Final = "figures"
"""Name of the state's directory within that of its dashboard."""
EARLIER: Final = "v1"
"""Name of the directory that an earlier version, with changelog topics, had in its place. Nobody reads it."""
FORMAT: Final = 2
"""Format version of the state."""
KIND_OF_DASHBOARD: Final = rf"dashboard(?:-{NAME})?"
"""Regular expression of the kinds of dashboards."""
LAYOUT: Final = Layout(
    "a dashboard's",
    (DEFAULT, "totals", "hosts", CLUSTERS, "blocks", URLS),
    frozenset({"totals", "blocks"}),
    write_buffer=4 * MIB,  # a fold has about as much; with 16, the process takes 390 MiB in place of 300
)
"""Families of the state."""


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What a state belongs to, and how far it has come."""

    version: int = FORMAT
    cluster: str
    """The Kafka cluster's id."""
    journal: str
    topic: str
    """Id of the topic of verdicts."""
    positions: dict[int, int] = {}
    """Partition of that topic -> the offset before which its verdicts are counted."""
    since: int = 0
    """Verdicts that were decided before this time, in seconds since the epoch, were gone before they could be
    counted; 0 if all are counted."""
    decided: int = 0
    """The next offset of `decisions` to read."""
    requested: int = 0
    """The offset of `requests` before which all are decided."""
    forgotten: int = 0
    """The offset after that of the last decision that forgot something, in `decisions`; 0 before any."""
    forgotten_before: int = 0
    """The journal offset before which pages may be forgotten."""
    cleared: int = 0
    """Such an offset as `forgotten`: nothing is left of what decisions before it forgot."""

    @property
    def erased(self) -> int:
        """The offset of `requests` before which nothing is left of what was requested."""
        return self.requested if self.cleared == self.forgotten else 0


META_DECODER: Final = msgspec.msgpack.Decoder(Meta)


def kind_of_dashboard(name: str) -> str:
    """What the directory of the dashboard with this name is called, below the namespace's."""
    return f"dashboard{name and f'-{name}'}"


def figures_below(home: Path) -> list[Path]:
    """Directories of the states of all dashboards, below a namespace's."""
    return sorted(each.parent for each in home.glob(f"dashboard*/{FIGURES}/CURRENT"))
