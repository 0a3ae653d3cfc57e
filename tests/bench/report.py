"""Benchmark results kept in the documentation, and a fresh run compared with them.

Machines differ and are noisy: ratios within one run are what is compared, never seconds.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench import pictures
from tests.bench.costs import cost
from tests.bench.goals import judged

FELL = 0.85
"""A ratio below this share of the kept one has fallen."""


def machine() -> str:
    """One line about where this ran."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    return f"{os.cpu_count()} cores of {model}, {memory} GiB, Python {platform.python_version()}"


def keep(path: Path, part: str, found: dict[str, Any]) -> None:
    """Put a part's results into the file at `path`, and write the page beside it anew."""
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    kept[part] = {"date": datetime.now(UTC).date().isoformat(), "machine": machine(), "found": found}
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")
    path.with_suffix(".md").write_text(_page(path, kept), "utf-8")


def fallen(path: Path, part: str, found: dict[str, Any]) -> list[str]:
    """What is worse in `found` than in the file at `path`, a sentence each."""
    kept = json.loads(path.read_text("utf-8")).get(part)
    if kept is None:
        return []
    now = dict(ratios(found))
    return [
        f"{part}: {name} was {before}, is {now[name]}"
        for name, before in ratios(kept["found"])
        if name in now and now[name] < FELL * before
    ]


def ratios(found: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Names and values of all figures that are ratios, where more is better."""
    for name, value in found.items():
        if isinstance(value, dict):
            yield from ratios(value, f"{prefix}{name}: ")
        elif isinstance(value, (int, float)) and _is_ratio(name):
            yield f"{prefix}{name}", value


def _is_ratio(name: str) -> bool:
    return name.endswith("ratio") or name.startswith("times_simhash") or name == "f1"


def _page(path: Path, kept: dict[str, Any]) -> str:
    lines = [
        "# Benchmarks",
        "",
        f"Written by `python -m tests.bench --keep docs/{path.name}`;"
        f" `python -m tests.bench --compare docs/{path.name}`",
        "measures again and names what fell. Peers and ours run interleaved, in one run.",
        "",
        *_all_goals(kept),
        *_peers(path, kept),
        *cost(kept),
    ]
    for part, each in sorted(kept.items()):
        lines += [f"## {part.replace('_', ' ')}", "", f"{each['date']}, {each['machine']}.", ""]
        if "note" in each:  # of a comparison that is kept, though no part measures it again
            lines += [each["note"], ""]
        if part == "growth":
            lines += [f"![growth]({_curve(path, each['found']['curve'])})", ""]
        lines += _tables(each["found"])
    return "\n".join(lines)


def _all_goals(kept: dict[str, Any]) -> list[str]:
    """A row a figure that has a goal: the goal, what was measured, whether that meets it, or why not."""
    rows = []
    for part, each in sorted(kept.items()):
        for goal in judged(part, each["found"]):
            met = "met" if goal.met else f"**not met**: {goal.why}" if goal.why else "**not met**"
            rows.append(
                f"| {part.replace('_', ' ')} | {goal.what} | {goal.goal} | {goal.measured:,} | {met} |"
            )
    head = ["## Goals", "", "| part | figure | goal | measured | |", "|---|---|---|---|---|"]
    return [*head, *rows, ""] if rows else []


def _peers(path: Path, kept: dict[str, Any]) -> list[str]:
    """A picture of how many times faster than each peer, where any was measured."""
    rows = [
        (goal.what.removeprefix("times "), goal.measured)
        for part, each in sorted(kept.items())
        for goal in judged(part, each["found"])
        if goal.what.startswith("times ") and goal.measured > 0
    ]
    rows += [
        (f"PyPI simhash, fingerprint of a text, {language}", row["times_simhash"])
        for language, row in kept.get("fingerprint", {"found": {}})["found"].items()
    ]
    if not rows:
        return []
    name = f"{path.stem}-peers.svg"
    pictures.bars(path.with_name(name), "Ours to each peer, times as fast (log scale)", rows)
    return [f"![times as fast as each peer]({name})", ""]


def _tables(found: dict[str, Any]) -> list[str]:
    """Plain figures in one table; dicts of like dicts in one with a column a key; the rest below."""
    plain = {name: value for name, value in found.items() if not isinstance(value, dict)}
    nested = {name: value for name, value in found.items() if isinstance(value, dict)}
    lines = []
    if plain:
        lines += ["| figure | value |", "|---|---|"]
        lines += [f"| {name.replace('_', ' ')} | {_written(value)} |" for name, value in plain.items()]
        lines.append("")
    alike = [
        value for value in nested.values() if not any(isinstance(inner, dict) for inner in value.values())
    ]
    if alike and len(alike) == len(nested):
        columns = list(dict.fromkeys(name for value in alike for name in value))
        lines += ["| | " + " | ".join(name.replace("_", " ") for name in columns) + " |"]
        lines += ["|---" * (len(columns) + 1) + "|"]
        for name, value in nested.items():
            cells = (_written(value.get(column, "")) for column in columns)
            lines.append(f"| {name.replace('_', ' ')} | " + " | ".join(cells) + " |")
        lines.append("")
    else:
        for name, value in nested.items():
            lines += [f"**{name.replace('_', ' ')}**", "", *_tables(value)]
    return lines


def _written(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value).replace("|", "\\|")
    return f"{value:,}"


def _curve(path: Path, curve: dict[str, dict[str, Any]]) -> str:
    """Draw speed, memory and disk over anchors; the picture's name."""
    points = list(curve.values())
    name = f"{path.stem}-growth.svg"
    shown = {
        "rows a second": "rows_per_second",
        "RAM, MiB": "ram_mib",
        "disk, bytes an anchor": "disk_bytes_an_anchor",
    }
    lines = {title: [each[column] for each in points] for title, column in shown.items()}
    pictures.curve(path.with_name(name), "anchors", [each["anchors"] for each in points], lines)
    return name
