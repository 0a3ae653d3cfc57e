"""What a run did and what it found: text for people, JSON for programs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Report:
    """Sums over all epochs of a run."""

    seed: int
    brokers: int
    command: str
    """Repeats the schedule."""
    often: frozenset[str] = frozenset()
    """Kinds of faults that are dealt more often than usual."""
    seconds: float = 0.0
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """Each epoch's configuration, pages, and what it found."""
    faults: Counter[str] = field(default_factory=Counter)
    """By kind."""
    kills: Counter[str] = field(default_factory=Counter)
    """SIGKILL by what was killed; faults that kill on their way are in it."""
    pages: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    repeated: int = 0
    different: int = 0
    """From the oracle's, or from what `neardup audit --recompute` decides again."""
    lost: int = 0
    """Pages that retention took unread, as the journal declares."""
    gone: int = 0
    """Pages that went with a deleted topic before they were judged."""
    cured: int = 0
    """Damaged states that were refused and deleted, or moved aside by the judge itself."""
    ends: Counter[str] = field(default_factory=Counter)
    """Ends by themselves, by role and exit code."""
    unexplained: list[str] = field(default_factory=list)
    """Refusals that no fault explains, and whatever else a person would have to look at."""
    examples: list[str] = field(default_factory=list)
    longest_stall: float = 0.0
    """Seconds without a verdict while pages waited, faults included."""

    @property
    def wrong(self) -> int:
        """Pages without their one right verdict, and whatever needed a person without a reason."""
        return self.missing + self.repeated + self.different + len(self.unexplained)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    @property
    def progress(self) -> str:
        """In a few words."""
        faults, kills = self.faults.total(), self.kills.total()
        return f"{faults} faults, {kills} kills, {self.pages} pages, {self.wrong} wrong"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "often": sorted(self.often),
            "total_kills": self.kills.total(),
            "total_faults": self.faults.total(),
            "clean": self.clean,
        }

    def write(self, file: Path | None) -> None:
        """As JSON into a file, if there is one."""
        if file is not None:
            file.write_text(json.dumps(self.as_json(), indent=1))

    def __str__(self) -> str:
        epochs = len(self.epochs)
        lines = [
            f"chaos: seed {self.seed}, {self.brokers} brokers, {epochs} epochs, {self.seconds:.0f} s",
            f"faults {self.faults.total()}: {_listed(self.faults)}",
            f"kills {self.kills.total()}: {_listed(self.kills)}",
            f"pages {self.pages}, verdicts {self.verdicts.total()}: {_listed(self.verdicts)}",
            f"missing {self.missing}, repeated {self.repeated}, different {self.different}; "
            f"lost to retention {self.lost}, gone with their topic {self.gone}",
            f"damaged states refused and cured {self.cured}; "
            f"ends of roles by themselves {self.ends.total()}: {_listed(self.ends)}",
            f"longest stall {self.longest_stall:.1f} s",
            *(f"  {example}" for example in self.examples),
            *(f"  unexplained: {each}" for each in self.unexplained),
            f"repeat: {self.command}",
        ]
        return "\n".join(lines)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
