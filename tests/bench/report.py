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
from typing import Any, Final

from tests.bench import pictures
from tests.bench.busyness import BUSY
from tests.bench.costs import cost
from tests.bench.goals import figure_at, judged

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


def keep(path: Path, part: str, found: dict[str, Any], others: float = 0.0) -> None:
    """Put a part's results into the file at `path`, in their order, and write the page beside it anew.
    `others` is the share of the machine that other programs took before or after it."""
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    date = datetime.now(UTC).date().isoformat()
    kept[part] = {"date": date, "machine": machine(), "others": round(others, 3), "found": found}
    path.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    path.with_suffix(".md").write_text(page(path, kept), "utf-8")


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


FINGERPRINTS: Final = {
    "simhash": "PyPI simhash, fingerprint",
    "rensa": "rensa, minima alone",
    "fast_dedup_minhash": "fast-dedup, minima alone",
    "fast_dedup_simhash": "fast-dedup, fingerprint alone",
}
"""Peers of fingerprints, and what they make."""


def ratios(found: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Names and values of all figures that are ratios, where more is better."""
    for name, value in found.items():
        if isinstance(value, dict):
            yield from ratios(value, f"{prefix}{name}: ")
        elif isinstance(value, (int, float)) and _is_ratio(name):
            yield f"{prefix}{name}", value


def _is_ratio(name: str) -> bool:
    return (
        name.endswith("ratio")
        or name.startswith(tuple(f"times_{peer}" for peer in FINGERPRINTS))
        or name == "f1"
    )


def page(path: Path, kept: dict[str, Any]) -> str:
    """The page of the results that are kept at `path`; writes its picture beside it."""
    lines = [
        "# Benchmarks",
        "",
        *_summary(kept),
        *_peers(path, kept),
        *cost(kept),
        *_all_goals(kept),
        "## How it is measured",
        "",
        f"`python -m tests.bench --keep docs/{path.name}` measures and writes this page;"
        f" `python -m tests.bench --compare docs/{path.name}`",
        "measures again and names what has become slower. Ours and the peers run in turn, within one run."
        " The sections below have all figures of each part.",
        "",
    ]
    for part, each in sorted(kept.items()):
        lines += [
            f"## {part.replace('_', ' ')}",
            "",
            f"{each['date']}, {each['machine']}.{_describe_others(each)}",
            "",
        ]
        if "note" in each:  # of a comparison that is kept, though no part measures it again
            lines += [each["note"], ""]
        lines += tables(each["found"])
    return "\n".join(lines)


def _describe_others(each: dict[str, Any]) -> str:
    """Say that the machine was busy, or that nobody knows."""
    if "others" not in each:
        return " How busy the machine was is not known."
    busy = each["others"] > BUSY
    return f" **On a busy machine**: others took {each['others']:.0%} of it." if busy else ""


SUMMARY: Final = (
    ("a batch, on one core, text", "backfill", ("text", "fingerprint_and_decide_us_a_page"),
     lambda us: f"{1e6 / us:,.0f} pages a second ({us} us a page)"),
    ("a batch, on one core, HTML", "backfill", ("html", "fingerprint_and_decide_us_a_page"),
     lambda us: f"{1e6 / us:,.0f} pages a second ({us} us a page)"),
    ("a stream with its broker and crawler, text", "end_to_end", ("text", "pages_per_second"),
     lambda pages: f"{pages:,} pages a second"),
    ("a stream with its broker and crawler, HTML", "end_to_end", ("html", "pages_per_second"),
     lambda pages: f"{pages:,} pages a second"),
    ("the judge alone, which is one process", "judge", ("verdicts_per_second",),
     lambda verdicts: f"{verdicts:,} verdicts a second"),
    ("from publishing a page to its verdict, at half the load that is sustained", "latency",
     ("at_50%", "p50_ms"), lambda ms: f"{ms} ms (median)"),
    ("disk of the judge for each anchor", "growth", ("disk_bytes_an_anchor",), lambda size: f"{size} bytes"),
    ("restart of a judge with 20 million anchors", "growth", ("seconds_to_start",),
     lambda seconds: f"{seconds} s"),
)  # fmt: skip
"""What a reader wants first: its name, the part that measures it, where it stands in the part's results, and
how it is written."""


def _summary(kept: dict[str, Any]) -> list[str]:
    """The figures that a reader wants first, of the parts that were measured."""
    rows = []
    for what, part, path, written in SUMMARY:
        value = figure_at(kept.get(part, {}).get("found"), path)
        if value is not None:
            mark = ", on a busy machine" if kept[part].get("others", 0.0) > BUSY else ""
            rows.append(f"| {what} | {written(value)}{mark} |")
    if not rows:
        return []
    machines = sorted({each["machine"] for part, each in kept.items() if part in {row[1] for row in SUMMARY}})
    head = [f"In short, on {' and on '.join(machines)}, which everything shares:", "", "| what | measured |"]
    unknown = [
        part
        for part in dict.fromkeys(row[1] for row in SUMMARY)
        if "others" not in kept.get(part, {"others": 0})
    ]
    note = (
        [f"How busy other programs kept the machine is not known for: {', '.join(unknown)}.", ""]
        if unknown
        else []
    )
    return [*head, "|---|---|", *rows, "", *note]


def _all_goals(kept: dict[str, Any]) -> list[str]:
    """A row a figure that has a goal: the goal, what was measured, whether that meets it, or why not; those
    that are not met come first."""
    rows = []
    for part, each in sorted(kept.items()):
        for goal in judged(part, each["found"]):
            met = "met" if goal.met else f"**not met**: {goal.why}" if goal.why else "**not met**"
            rows.append(
                f"| {part.replace('_', ' ')} | {goal.what} | {goal.goal} | {goal.measured:,} | {met} |"
            )
    rows.sort(key=lambda row: "**not met**" not in row)
    missed = sum("**not met**" in row for row in rows)
    share = f"{len(rows) - missed} of {len(rows)} goals are met."
    head = ["## Goals", "", f"{share} Those that are not stand first, with the reason."]
    head += ["", "| part | figure | goal | measured | |", "|---|---|---|---|---|"]
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
        (f"{peer}, of a text, {language}", row[f"times_{name}"])
        for language, row in kept.get("fingerprint", {"found": {}})["found"].items()
        for name, peer in FINGERPRINTS.items()
    ]
    if not rows:
        return []
    name = f"{path.stem}-peers.svg"
    pictures.bars(path.with_name(name), "Ours to each peer, times as fast (log scale)", rows)
    return [f"![times as fast as each peer]({name})", ""]


def tables(found: dict[str, Any]) -> list[str]:
    """Plain figures in one table; dicts of like dicts in one with a column a key; the rest below."""
    plain = {name: value for name, value in found.items() if not isinstance(value, (dict, list))}
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
            lines.append(f"| {str(name).replace('_', ' ')} | " + " | ".join(cells) + " |")
        lines.append("")
    else:
        for name, value in nested.items():
            lines += [f"**{str(name).replace('_', ' ')}**", "", *tables(value)]
    return lines


def _written(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value).replace("|", "\\|")
    return f"{value:,}"
