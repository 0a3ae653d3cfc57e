"""`neardup plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stream.cli.options import DURATION
from stream.output import write_json

if TYPE_CHECKING:
    from rich.console import Console

    from stream.offline.log_planner import LogPlan
    from stream.offline.planner import TablePlan


@click.command("plan")
@click.option("--pages", help="Number of pages to remember, e.g. 8e9.")
@click.option(
    "--lifetime", type=DURATION, help="In place of --pages: how long they are remembered, e.g. 90d."
)
@click.option("--pages-a-day", help="Pages judged a day, with --lifetime, e.g. 1e8.")
@click.option("-k", "--distance", type=int, default=3, show_default=True, help="Largest Hamming distance.")
@click.option("--memory", default="64GiB", show_default=True, help="RAM of one machine, e.g. 64GiB.")
@click.option("--width", type=int, default=64, show_default=True, help="Bits per fingerprint: 32, 64 or 128.")
@click.option(
    "--tables-memory", default="1GiB", show_default=True, help="RAM of the tables of a judge, e.g. 8GiB."
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    help="Days in which the pages come, for what brokers hold.  [default: 365, or the lifetime]",
)
@click.option(
    "--keep", type=DURATION, default="7d", show_default=True, help="What `neardup trim` keeps of the logs."
)
@click.option("--strict", is_flag=True, help="Also compare table designs of mode strict and of `match`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    pages: str | None,
    lifetime: float | None,
    pages_a_day: str | None,
    distance: int,
    memory: str,
    width: int,
    tables_memory: str,
    days: float | None,
    keep: float,
    strict: bool,
    as_json: bool,
) -> None:
    """Say what a number of pages takes: RAM, disk and speed of a judge in the default mode, and its logs.

    With --strict it also compares the table designs of mode strict and of `match`, of which each finds all
    pairs within the distance, and recommends one with reasons; figures are those of random fingerprints.
    """
    import msgspec
    from rich.console import Console

    from stream.offline.judge_planner import pages_in_window, plan_judge
    from stream.offline.log_planner import DAY, plan_logs
    from stream.offline.planner import duration, number, parse_memory, parse_pages, plan, size

    if lifetime is None or pages_a_day is None:
        if pages is None or lifetime is not None or pages_a_day is not None:
            raise click.UsageError("name either --pages, or both --lifetime and --pages-a-day")
        remembered = judged = parse_pages(pages)
        days = days or 365
    else:
        if pages is not None or days is not None:
            raise click.UsageError("--lifetime and --pages-a-day say how many --pages come in which --days")
        days = lifetime / DAY
        judged = round(parse_pages(pages_a_day) * days)
        remembered = pages_in_window(judged)
    plans = plan(remembered, distance, parse_memory(memory), width)
    judge = plan_judge(plans.pages, parse_memory(tables_memory))
    logs = plan_logs(judged, judge.judges * judge.disk, days, keep)
    if as_json:
        both = msgspec.to_builtins(plans) | {
            "judge": msgspec.to_builtins(judge),
            "logs": msgspec.to_builtins(logs),
        }
        write_json(msgspec.json.encode(both))
        return
    of = "" if lifetime is None else f" at a time, of {judged:,} in {days:g} days"
    console = Console(highlight=False, soft_wrap=True)
    of_each = "" if judge.judges == 1 else f"{judge.judges} judges, a namespace each, of them one "
    console.print(
        f"{remembered:,} pages{of}, in the default mode: {of_each}with {judge.anchors:,} anchors",
        f"RAM: {size(judge.memory)}, with NEARDUP_TABLES_MEMORY={size(judge.tables_memory).replace(' ', '')};"
        f" a page that is like no other reads {number(judge.groups)} groups",
        f"disk: {size(judge.disk)}, {duration(judge.start_seconds)} to start",
        f"speed: {number(judge.rows_per_second)} pages a second on two cores, with"
        f" {size(judge.page_cache)} of page cache",
        f"logs: {_describe_logs(logs, days, keep, for_ever=lifetime is not None)}",
        sep="\n",
    )
    if strict:
        _show_designs(console, plans)


def _describe_logs(logs: LogPlan, days: float, keep: float, *, for_ever: bool) -> str:
    """What brokers hold of journal and decisions, and a store of checkpoints."""
    from stream.offline.log_planner import DAY
    from stream.offline.planner import size

    if for_ever:
        hold = f"{size(logs.brokers)} more in {days:g} days on {logs.replicas} replicas, for ever"
    else:
        hold = f"{size(logs.brokers)} on {logs.replicas} replicas"
    return (
        f"{hold}; at most {size(logs.trimmed)} with `neardup trim` and {keep / DAY:g} days kept"
        f"{'' if for_ever else f', if the pages come in {days:g} days'}; checkpoints take up to"
        f" {size(logs.store)}"
    )


def _show_designs(console: Console, plans: TablePlan) -> None:
    """Print the table designs of mode strict, and the one that is recommended, with reasons."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from stream.offline.planner import duration, number, size
    from stream.tables.search.pair_collector import MOST_ANCHORS

    table = Table(
        title=f"{plans.pages:,} pages, {plans.width} bits, distance {plans.distance}, {size(plans.memory)}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=0,
    )
    for head in ("design", "probes", "prefix\nbits", "candidates\na probe", "bytes", "com-\npressed",
                 "blocks\nread", "a query", "com-\npressed"):  # fmt: skip
        table.add_column(head, justify="left" if head == "design" else "right", no_wrap=True)
    for design in plans.designs:
        low, high = design.prefix_bits
        chosen = design.layout == plans.recommended
        table.add_row(
            design.layout,
            str(design.tables),
            str(low) if low == high else f"{low}-{high}",
            number(design.candidates),
            size(design.bytes),
            size(design.compressed_bytes),
            number(design.reads),
            duration(design.query_seconds),
            duration(design.compressed_query_seconds),
            style="bold green" if chosen else "",
        )
    console.print(table)
    where = "" if plans.machines == 1 else f", which {size(plans.memory)} cannot hold"
    console.print(f"[bold]Recommended: {plans.recommended}, {plans.storage}{where}[/]")
    for reason in plans.reasons:
        console.print(f"  - {escape(reason)}")
    console.print(f"  - {escape(plans.batch)}")
    best = next(design for design in plans.designs if design.layout == plans.recommended)
    if plans.pages > MOST_ANCHORS:
        console.print(f"  - A judge has at most {MOST_ANCHORS:,} unique pages at a time.")
    elif best.judge_bytes is not None:
        blocks, choose = plans.recommended.split(" choose ")
        options = f"--option distance={plans.distance} --option blocks={blocks} --option choose={choose}"
        console.print(
            f"  - For the judge: neardup topics create --mode strict {options}, and"
            f" NEARDUP_TABLES_MEMORY={int(min(best.judge_bytes, plans.memory))}"
            + (
                "."
                if best.judge_bytes <= plans.memory
                else ": filters have fewer bits, and more groups are read."
            )
        )
