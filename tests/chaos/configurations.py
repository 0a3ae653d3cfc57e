"""The options and settings of a namespace, drawn for each epoch by seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PARTITIONS: Final = 4
DASHBOARDS: Final = 0.25
"""Fraction of epochs with a dashboard."""
TRIMMERS: Final = 0.5
"""Fraction of epochs in which journal and decisions are trimmed."""
ELECTOR_EVERY: Final = 2
"""Of so many epochs, one has an elector, the first one of a run among them."""
TRIM: Final = "trim --every 2s --keep 30s"
"""The trimmer's command. The checker reads the journal while it is written, and must be at most so late."""


@dataclass(frozen=True, slots=True)
class Options:
    """Verdict options, as `neardup topics create` takes them and as the oracle does."""

    name: str
    create: tuple[str, ...] = ()
    oracle: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A namespace's verdict options, and NEARDUP_* of its roles."""

    options: Options
    settings: Mapping[str, float | str]
    dashboard: bool
    """Whether a dashboard counts along: it takes as much of the processors as the others together."""
    trimmer: bool
    """Whether journal and decisions are trimmed."""
    elector: bool
    """Whether an elector tells which pages are kept."""


_EXPIRING: Final = ("--option", "lifetime=60s"), {"lifetime": 60_000}
"""With a lifetime, which an epoch outlasts (`neardup.py` allows it)."""

OPTIONS: Final = (
    Options("minima", *_EXPIRING),
    Options(
        "strict",
        ("--mode", "strict", *_EXPIRING[0]),
        {"strict": True, "distance": 3, **_EXPIRING[1]},
    ),
    Options(
        "small-cap",
        ("--option", "bucket_cap=2", "--option", "compared=2"),
        {"bucket_cap": 2, "compared": 2},
    ),
)


def configuration(seed: int, epoch: int) -> Configuration:
    """Return the configuration of an epoch: verdict options in turn, sizes of tables and batches at
    random."""
    rng = random.Random(f"{seed}/{epoch}/configuration")
    settings: dict[str, float | str] = {
        "rebuild_damaged": rng.random() < 0.5,
        "tables_memory": rng.choice((0, 0, 64 << 20)),
        "tables_generation": rng.choice((48, 256, 1024)),
        "tables_cache": 8 << 20,
        "judge_rows": rng.choice((16, 256, 32_768)),
        "flush_seconds": rng.choice((0.3, 1.0, 3.0)),
        "scrub_hours": rng.choice((0.0, 0.005)),
        "checkpoint_interval": rng.choice((0.5, 3.0)),
    }
    dashboard, trimmer = rng.random() < DASHBOARDS, rng.random() < TRIMMERS
    if trimmer:  # a state that is older than the logs is restored, not refused
        settings["rebuild_damaged"] = True
    if elector := epoch % ELECTOR_EVERY == 0:
        settings |= {"elect": "longest", "elect_seconds": rng.choice((0.0, 1.0))}
    return Configuration(OPTIONS[(seed + epoch) % len(OPTIONS)], settings, dashboard, trimmer, elector)
