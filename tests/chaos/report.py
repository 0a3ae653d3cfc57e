"""The report of a run: text for people, JSON for programs."""

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
    """The command that repeats the schedule."""
    seconds: float = 0.0
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """Configuration, pages and findings of each epoch."""
    faults: Counter[str] = field(default_factory=Counter)
    """Number of faults by kind."""
    kills: Counter[str] = field(default_factory=Counter)
    """Number of SIGKILLs by what was killed, including those of other faults."""
    failpoints: Counter[str] = field(default_factory=Counter)
    """Number of those SIGKILLs that were at a failpoint, by its name."""
    pages: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    repeated: int = 0
    different: int = 0
    """Verdicts that differ from the oracle's, or from those of `neardup audit --recompute`."""
    lost: int = 0
    """Pages lost to retention, as the journal declares."""
    gone: int = 0
    """Pages deleted with their topic before they were judged."""
    cured: int = 0
    """Damaged states that were refused and deleted, or moved aside by the judge itself."""
    ends: Counter[str] = field(default_factory=Counter)
    """Number of exits other than by faults, by role and exit code."""
    unexplained: list[str] = field(default_factory=list)
    """Refusals that no fault explains, and other events that would need a person."""
    examples: list[str] = field(default_factory=list)
    longest_stall: float = 0.0
    """Longest time in seconds without a verdict while pages waited, including faults."""

    @property
    def wrong(self) -> int:
        """Number of pages without exactly one right verdict, and of unexplained events."""
        return self.missing + self.repeated + self.different + len(self.unexplained)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    @property
    def progress(self) -> str:
        """One line about the progress of the run."""
        faults, kills = self.faults.total(), self.kills.total()
        return f"{faults} faults, {kills} kills, {self.pages} pages, {self.wrong} wrong"

    def as_json(self) -> dict[str, Any]:
        """Return the report as a value for JSON."""
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "total_kills": self.kills.total(),
            "total_faults": self.faults.total(),
            "clean": self.is_clean,
        }

    def write(self, file: Path | None) -> None:
        """Write the report as JSON to a file, unless it is None."""
        if file is not None:
            file.write_text(json.dumps(self.as_json(), indent=1))

    def __str__(self) -> str:
        epochs = len(self.epochs)
        lines = [
            f"chaos: seed {self.seed}, {self.brokers} brokers, {epochs} epochs, {self.seconds:.0f} s",
            f"faults {self.faults.total()}: {_listed(self.faults)}",
            f"kills {self.kills.total()}: {_listed(self.kills)}",
            f"of these at failpoints {self.failpoints.total()}: {_listed(self.failpoints)}",
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
