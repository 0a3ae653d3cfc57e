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

FELL = 0.85
"""A ratio below this share of the kept one has fallen."""
GOALS = {
    "fingerprint": "PyPI simhash / ours: 20. Ours / segmentation and hashing alone: at most 1.4.",
    "extract": "HTML to fingerprint: 0.85 of the extraction library alone.",
    "tables": "At 5 M anchors in RAM: 700 k/s exact, 300 k/s at 40 probes, 150 k/s at 110.",
    "table_peers": "Ahead of every peer; FAISS at equal recall.",
    "judge": "100 k verdicts/s, or 0.40 of publishing alone.",
    "worker": "0.85 of the same children without Kafka.",
    "end_to_end": "5 times the plain Faust job.",
    "latency": "At half load p50 50 ms and p99 250 ms; at 90 % p99 2 s.",
    "growth": "At 20 M anchors 0.6 of the speed at 1 M; start within 5 s at 5 M; rebuild 5 times as fast.",
}
MEASURED: dict[str, tuple[tuple[str, tuple[str, ...], str, float], ...]] = {
    "tables": (
        ("rows a second, in RAM, exact", ("hot exact", "rows_per_second"), ">=", 700_000),
        ("rows a second, in RAM, 40 probes", ("hot 40 probes", "rows_per_second"), ">=", 300_000),
        ("rows a second, in RAM, 110 probes", ("hot 110 probes", "rows_per_second"), ">=", 150_000),
        ("rows a second, in RocksDB, exact", ("cold exact", "rows_per_second"), ">=", 60_000),
        ("rows a second, in RocksDB, 40 probes", ("cold 40 probes", "rows_per_second"), ">=", 25_000),
    ),
    "judge": (
        ("verdicts a second", ("verdicts_per_second",), ">=", 100_000),
        ("of publishing alone", ("ratio",), ">=", 0.4),
    ),
    "worker": (("of the same children", ("ratio",), ">=", 0.85),),
    "end_to_end": (
        ("times the plain job, text", ("text", "ratio"), ">=", 5),
        ("times the plain job, HTML", ("html", "ratio"), ">=", 5),
    ),
    "latency": (
        ("p50 at half load, ms", ("at 50%", "p50_ms"), "<=", 50),
        ("p99 at half load, ms", ("at 50%", "p99_ms"), "<=", 250),
        ("p99 at 90 %, ms", ("at 90%", "p99_ms"), "<=", 2000),
    ),
    "growth": (
        ("speed at the end to that at first", ("last_to_first",), ">=", 0.6),
        ("seconds to start", ("seconds_to_start",), "<=", 5),
        ("rebuilding to deciding", ("rebuild", "ratio"), ">=", 5),
    ),
}
"""Figures that have a goal: what it is, where it stands in a part's results, and the goal."""


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
    return name.endswith("ratio") or name.startswith("times_simhash") or name in ("last_to_first", "f1")


def _page(path: Path, kept: dict[str, Any]) -> str:
    lines = [
        "# Benchmarks",
        "",
        f"Written by `neardup bench --keep docs/{path.name}`; `neardup bench --compare docs/{path.name}`",
        "measures again and names what fell. Peers and ours run interleaved, in one run.",
        "",
    ]
    for part, each in sorted(kept.items()):
        lines += [f"## {part.replace('_', ' ')}", "", f"{each['date']}, {each['machine']}.", ""]
        if part in GOALS:
            lines += [f"Goal: {GOALS[part]}", ""]
            lines += _goals(part, each["found"])
        if part == "growth":
            lines += [f"![growth]({_curve(path, each['found']['curve'])})", ""]
        lines += _tables(each["found"])
    return "\n".join(lines)


def _goals(part: str, found: dict[str, Any]) -> list[str]:
    """A row a figure that has a goal: the goal, what was measured, and whether that meets it."""
    rows = []
    for what, path, sign, goal in MEASURED.get(part, ()):
        value: Any = found
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            met = value >= goal if sign == ">=" else value <= goal
            rows.append(f"| {what} | {sign} {goal:,} | {_written(value)} | {'met' if met else 'not met'} |")
    if part == "table_peers":
        for stream, peers in found.items():
            for peer, row in peers.items():
                if peer == "ours" or "missing" in row:
                    continue
                for kind in ("looked_up", "looked_up_and_inserted"):
                    ratio = row[f"ours_to_it_{kind}_ratio"]
                    met = "met" if ratio > 1 else "not met"
                    rows.append(
                        f"| {peer}, {stream}, {kind.replace('_', ' ')} | > 1 times | {ratio} | {met} |"
                    )
    return ["| | goal | measured | |", "|---|---|---|---|", *rows, ""] if rows else []


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
    """Draw rows a second over anchors; the picture's name."""
    from matplotlib.figure import Figure

    points = [
        (each["anchors"] / 1e6, each["rows_per_second"] / 1e3, each["rss_mib"]) for each in curve.values()
    ]
    anchors, speed, memory = zip(*points, strict=True)
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(anchors, speed, marker="o", color="#1f6f8b")
    axes.set(xlabel="anchors, millions", ylabel="rows/s, thousands", ylim=(0, None))
    right = axes.twinx()
    right.plot(anchors, memory, color="#c26a3d", linestyle="--")
    right.set(ylabel="RSS, MiB", ylim=(0, None))
    name = f"{path.stem}-growth.svg"
    figure.savefig(path.with_name(name), metadata={"Date": None})
    return name
