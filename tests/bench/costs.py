"""What 1e9 pages cost: from kept processor times, beside what other programs' makers publish."""

from __future__ import annotations

from typing import Any, Final

PAGES: Final = 1_000_000_000
DOLLARS: Final = 0.05
"""Price of a core for an hour: what clouds ask for general machines on demand, 0.04 to 0.06."""
_ROLES: Final = ("broker", "children", "judge", "worker")
PEERS: Final = (
    (
        "SlimPajama (MinHash LSH)",
        "1.21e12 tokens, 2.5 days on 64 cores, at most 1.4 TB of RAM",
        64 * 2.5 * 24,
        "cleaning included; pages are not counted",
        "https://docs.cerebras.net/en/latest/wsc/port/prepare-data/slim_pajama.html",
    ),
    (
        "Data-Juicer 2.0 (MinHash LSH on Ray)",
        "terabytes, 3 hours on 8 nodes with 1,280 cores",
        1280 * 3,
        "neither the number of pages nor the exact size is given",
        "https://modelscope.github.io/data-juicer/en/v1.3.3/_sources/docs/Distributed.md.txt",
    ),
    (
        "datatrove (MinHash), stages 1 and 2 of 4",
        "4 TB, 71 minutes in 1,200 tasks and 25 minutes in 300",
        round((71 * 1200 + 25 * 300) / 60),
        "a user's measurement; one core a task is assumed; clustering and filtering are not included",
        "https://github.com/huggingface/datatrove/issues/298",
    ),
    (
        "NeMo Curator (MinHash LSH on GPUs)",
        "20 times as fast and 5 times as cheap as without GPUs",
        None,
        "no hours are published there; a paper that compares with it names 5.1 hours on 16 GPUs for 1.2e12"
        " tokens, of its own program",
        "https://developer.nvidia.com/blog/curating-trillion-token-datasets-introducing-nemo-data-curator/",
    ),
)
"""Program, what was run, core-hours, what is unlike ours, source."""


def cost(kept: dict[str, Any]) -> list[str]:
    """The section of the page, if a part of it was measured."""
    rows = list(_rows(kept))
    if not rows:
        return []
    lines = [
        "## Cost",
        "",
        f"1e9 pages, at ${DOLLARS} a core-hour, from the processor times below: `make bench ARGS=backfill`"
        " (batch) and `make bench ARGS=end-to-end` (stream, all processes and the broker). Storage and"
        " network are not counted.",
        "",
        "| pages | way | us a page | core-hours | dollars |",
        "|---|---|---|---|---|",
    ]
    for pages, way, each in rows:
        hours = each * PAGES / 1e6 / 3600
        lines.append(f"| {pages} | {way} | {each:,.0f} | {hours:,.0f} | {hours * DOLLARS:,.0f} |")
    lines += [
        "",
        "Others publish these figures, for other texts, machines, thresholds and steps:",
        "",
        "| program | run | core-hours | unlike ours |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| [{name}]({source}) | {run} | {'' if hours is None else f'{hours:,.0f}'} | {unlike} |"
        for name, run, hours, unlike, source in PEERS
    ]
    return [*lines, ""]


def _rows(kept: dict[str, Any]) -> Any:
    for kind, found in kept.get("backfill", {"found": {}})["found"].items():
        yield kind, "batch, fingerprint and decide alone", found["fingerprint_and_decide_us_a_page"]
        if fingerprinted := found.get("own_processes_us_a_page"):
            yield kind, "batch, our processes", fingerprinted + found["decide_us_a_page"]
    for kind, found in kept.get("end_to_end", {"found": {}})["found"].items():
        if isinstance(found, dict) and (spent := found.get("processor_us_a_page")):
            yield kind, "stream", sum(spent.get(role, 0) for role in _ROLES)
