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
@click.option("-k", "--distance", type=int, help="With --strict: largest Hamming distance.  [default: 3]")
@click.option("--memory", help="With --strict: RAM of one machine, e.g. 16GiB.  [default: 64GiB]")
@click.option("--width", type=int, help="With --strict: bits per fingerprint, 32, 64 or 128.  [default: 64]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    pages: str | None,
    lifetime: float | None,
    pages_a_day: str | None,
    tables_memory: str,
    days: float | None,
    keep: float,
    strict: bool,
    distance: int | None,
    memory: str | None,
    width: int | None,
    as_json: bool,
) -> None:
    """Say what a number of pages takes: RAM, disk and speed of a judge in the default mode, and its logs.

    With --strict it also compares the table designs of mode strict and of `match`, of which each finds all
    pairs within the distance, and recommends one with reasons; figures are those of random fingerprints.
    """
    import msgspec
    from rich.console import Console

    from stream.offline.judge_planner import MOST_GROUPS, memory_for_few_reads, pages_in_window, plan_judge
    from stream.offline.log_planner import DAY, plan_logs
    from stream.offline.planner import duration, number, parse_memory, parse_pages, plan, size

    if lifetime is None or pages_a_day is None:
        if pages is None or lifetime is not None or pages_a_day is not None:
            raise click.UsageError("name either --pages, or both --lifetime and --pages-a-day")
        remembered = judged = parse_pages(pages, "pages")
        days = days or 365
    else:
        if pages is not None or days is not None:
            raise click.UsageError("--lifetime and --pages-a-day say how many --pages come in which --days")
        days = lifetime / DAY
        judged = round(parse_pages(pages_a_day, "pages-a-day") * days)
        remembered = pages_in_window(judged)
    if not strict and (distance, memory, width) != (None, None, None):
        raise click.UsageError("--distance, --memory and --width are of table designs: add --strict")
    of_tables = parse_memory(tables_memory, "tables-memory")
    judge = plan_judge(remembered, of_tables)
    designs = None
    if strict:
        ram = parse_memory(memory or "64GiB", "memory")
        designs = plan(remembered, 3 if distance is None else distance, ram, width or 64)
    logs = plan_logs(judged, judge.judges * judge.disk, days, keep)
    if as_json:
        answer = {"pages": remembered, "judge": judge, "logs": logs}
        write_json(msgspec.json.encode(answer | (msgspec.structs.asdict(designs) if designs else {})))
        return
    of = "" if lifetime is None else f" at a time, of {judged:,} in {days:g} days"
    console = Console(highlight=False, soft_wrap=True)
    divided = "" if judge.judges == 1 else f"divide them by host among {judge.judges} namespaces, each "
    advice = ""
    if judge.groups > MOST_GROUPS:
        more = size(memory_for_few_reads(remembered, of_tables)).replace(" ", "")
        advice = f": set {more} for less than {MOST_GROUPS:g}, or take a fast disk"
    console.print(
        f"{remembered:,} pages{of}, in the default mode: {divided}with {judge.anchors:,} anchors",
        f"RAM: {size(judge.memory)}, with NEARDUP_TABLES_MEMORY={size(judge.tables_memory).replace(' ', '')};"
        f" a page that is like no other reads {number(judge.groups)} groups{advice}",
        f"disk: {size(judge.disk)}, {duration(judge.start_seconds)} to start",
        f"speed: {number(judge.rows_per_second)} pages a second on two cores, with"
        f" {size(judge.page_cache)} of page cache",
        f"logs: {_describe_logs(logs, days, keep, for_ever=lifetime is not None)}",
        sep="\n",
    )
    if designs:
        _show_designs(console, designs)


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
