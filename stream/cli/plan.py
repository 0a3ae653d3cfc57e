"""`neardup plan`."""

from __future__ import annotations

import click

from stream.cli.options import DURATION
from stream.output import write_json


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
    as_json: bool,
) -> None:
    """Compare table designs for a number of pages, and recommend one with reasons.

    This concerns the tables of `match` and of mode strict, where each design finds all pairs within the
    distance. Figures are computed for random fingerprints. The default mode uses tables of minima, whose
    design does not depend on the number of pages; the last lines say what a judge takes for it, and what
    brokers and a store of checkpoints hold.
    """
    import msgspec
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from stream.offline.judge_planner import pages_in_window, plan_judge
    from stream.offline.log_planner import DAY, plan_logs
    from stream.offline.planner import duration, number, parse_memory, parse_pages, plan, size
    from stream.tables.search.pair_collector import MOST_ANCHORS

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
    console = Console(highlight=False)
    table = Table(
        title=f"{plans.pages:,} pages{of}, {width} bits, distance {distance}, {size(plans.memory)} of RAM",
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
        options = f"--option distance={distance} --option blocks={blocks} --option choose={choose}"
        console.print(
            f"  - For the judge: neardup topics create --mode strict {options}, and"
            f" NEARDUP_TABLES_MEMORY={int(min(best.judge_bytes, plans.memory))}"
            + ("." if best.judge_bytes <= plans.memory else ": older anchors are probed in RocksDB.")
        )
    of_each = "" if judge.judges == 1 else f"{judge.judges} judges, a namespace each, of them one with "
    console.print(
        f"  - In the default mode: {of_each}{judge.anchors:,} anchors and NEARDUP_TABLES_MEMORY="
        f"{size(judge.tables_memory).replace(' ', '')} takes {size(judge.memory)} of RAM,"
        f" {size(judge.disk)} of disk and {duration(judge.start_seconds)} to start; {judge.packed:,} anchors"
        f" are in RAM, and a page that is like no other reads {number(judge.groups)} groups. With"
        f" {size(judge.page_cache)} of page cache, two cores judge {number(judge.rows_per_second)} pages a"
        " second."
    )
    if lifetime is None:
        hold = f"Brokers hold {size(logs.brokers)} of journal and decisions, on {logs.replicas} replicas"
        come = f"the pages come in {days:g} days and "
    else:
        hold = (
            f"Journal and decisions grow by {size(logs.brokers)} in {days:g} days, on {logs.replicas}"
            " replicas, for ever"
        )
        come = ""
    console.print(
        f"  - {hold}; with neardup trim, brokers hold at most {size(logs.trimmed)}, if {come}{keep / DAY:g}"
        f" days of them are kept. Checkpoints take up to {size(logs.store)} of their store."
    )
