"""`neardup demo`."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from contextlib import nullcontext
from logging import WARNING
from pathlib import Path
from typing import Any

import click

from stream.cli.printable import as_markup
from stream.cli.quantity import quantity
from stream.ops import logging
from stream.scratch import ScratchDirectory

BEST = 5
"""How many near-duplicates are shown, and how many clusters."""


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Print a summary as one JSON line at the end.")
@click.option("--keep", is_flag=True, help="Leave everything running until interrupted.")
def command(as_json: bool, keep: bool) -> None:
    """Run the whole system on a real crawl and a real broker, and audit the result.

    Downloads a crawl with package clients (once), starts a broker unless NEARDUP_BOOTSTRAP_SERVERS names one,
    runs two workers, a judge and a dashboard, publishes the crawl, and checks that every page has exactly one
    verdict.
    """
    from rich.console import Console

    from stream.brokers.broker import start_broker
    from stream.demo.crawl import prepare

    logging.configure("auto", "demo", WARNING)  # the start of each role is in its own log
    console = Console(stderr=as_json, soft_wrap=True)

    def report_line(line: str) -> None:
        console.print(line, highlight=False, markup=False)

    crawl = prepare(report_line)
    with (
        start_broker(progress=report_line) as broker,
        ScratchDirectory("demo") as directory,
    ):
        outcome = asyncio.run(
            _run(broker.bootstrap_servers, crawl, Path(directory), console, report_line, keep)
        )
    if as_json:
        sys.stdout.write(json.dumps(outcome.summary()) + "\n")
    sys.exit(0 if outcome.findings.clean else 1)


async def _run(servers: str, crawl: Any, directory: Path, console: Any, report_line: Any, keep: bool) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from stream.demo.show import demo_settings, show
    from stream.ops.signals import stop_event_on_signals

    settings = demo_settings(servers, f"demo-{uuid.uuid4().hex[:8]}", directory)
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    # With --keep, Ctrl-C ends the wait. Without, it ends the demo and its processes at any time.
    waiting = stop_event_on_signals() if keep else nullcontext()
    bars = Progress(*columns, console=console)
    # Their times begin with the first page, as that of the outcome does.
    published = bars.add_task("published", total=len(crawl), start=False)
    judged = bars.add_task("judged", total=len(crawl), start=False)

    def progress(pages: int, verdicts: int) -> None:
        for task in (published, judged):
            bars.start_task(task)
        bars.update(published, completed=pages)
        bars.update(judged, completed=verdicts)

    def report_outcome(outcome: Any) -> None:
        bars.stop()
        report(outcome, console)

    with waiting as stop, bars:
        return await show(
            settings,
            [crawl],
            directory,
            report_line=report_line,
            progress=progress,
            report_outcome=report_outcome,
            stop=stop,
        )


def show_swapped(swapped: Any, console: Any) -> None:
    """Print the clusters of which another page than the first one is kept: the largest ones."""
    console.print(
        f"{quantity(len(swapped), 'cluster')} of which a longer page than the first one is kept:",
        highlight=False,
    )
    for each in sorted(swapped, key=lambda each: (-each.members, each.cluster))[:BEST]:
        console.print(
            f"  {quantity(each.members, 'page'):>9}, kept at {each.best.length:>6,} characters"
            f"  {as_markup(each.best.url)}",
            highlight=False,
        )


def report(outcome: Any, console: Any) -> None:
    """Print the verdicts, the best near-duplicates, the throughput and the audit."""
    from rich.table import Table

    table = Table("verdict", "pages", "share", title="verdicts")
    for verdict, count in outcome.verdicts.most_common():
        table.add_row(verdict, f"{count:,}", f"{count / outcome.published:.1%}")
    console.print(table)
    best = sorted(
        (each for each in outcome.duplicates if each.distance),
        key=lambda each: (-(each.similarity or 0.0), each.distance, each.id),
    )
    console.print(f"near-duplicates, the {min(BEST, len(best))} best that are no exact copies:")
    for each in best[:BEST]:
        console.print(
            f"  similarity {each.similarity:.3f}  distance {each.distance:>2}  {as_markup(each.url)}\n"
            f"  {'':31}= {as_markup(each.duplicate_of.url)}",
            highlight=False,
        )
    findings = outcome.findings
    console.print(
        f"{quantity(outcome.published, 'page')} in {outcome.seconds:.1f} s: "
        f"{outcome.pages_per_second:,.0f} pages/s, from the first publish to the last verdict",
        highlight=False,
    )
    show_swapped(outcome.swapped, console)
    console.print(
        f"audit: {quantity(findings.pages, 'page')}: every page has exactly one verdict"
        if findings.clean
        else f"audit: NOT CLEAN: {quantity(findings.pages, 'page')}, {findings.waiting} waiting,"
        f" {findings.missing} missing, {findings.repeated} repeated, {findings.lost} lost",
        highlight=False,
    )
