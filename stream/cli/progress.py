"""Progress bars and summaries, on stderr so that results can be piped."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from stream.cli.printable import printable
from stream.cli.quantity import quantity
from stream.sources.rejections import Rejections
from stream.sources.row_warnings import RowWarnings
from stream.sources.rows import RowsSource
from stream.sources.source import PASSED_OVER, Source

LINE_SECONDS: Final = 30.0
"""Between two lines about the progress, where no bar is shown: in logs of batch jobs."""
LEAST_SECONDS: Final = 1.0
"""A rate is that of at least so long."""


def passed_over_by(sources: Sequence[Source]) -> Counter[str]:
    """Return counts, by reason, of the records and files that the sources skipped so far."""
    counted: Counter[str] = Counter()
    for source in sources:
        counted.update(source.passed_over)
    return counted


def show_passed_over(counted: Counter[str]) -> None:
    """Print one line about skipped records and files, if there are any."""
    if counted:
        listed = ", ".join(f"{count:,} {PASSED_OVER[why]}" for why, count in counted.most_common())
        click.echo(f"passed over: {listed}", err=True)


def show_rejections(rejections: Rejections) -> None:
    """Print why pages are rejected, with an example of each reason, if any are."""
    if rejections.counts:
        click.echo(
            f"rejected for {list_counts(rejections.counts)}; `neardup help reasons` explains the reasons",
            err=True,
        )
    for reason, example in rejections.examples.items():
        click.echo(f"  {reason}: {printable(example)}", err=True)


def show_crowding(crowding: Mapping[str, int]) -> None:
    """Print how many pages had too many anchors in their buckets for all to be compared, if there are any.
    The counts are those of `JudgedBatch.crowding`."""
    full, cut = crowding["full_buckets"], crowding["cut_lists"]
    if full or cut:
        click.echo(
            f"{quantity(max(full, cut), 'page')} or more look like very many others, as pages of one template"
            " do, so not all of these were compared: some copies among them may be missed",
            err=True,
        )


def show_warnings(warnings: RowWarnings) -> None:
    """Print how much of HTML pages is compared, and what is odd about pages."""
    if (share := warnings.compared_share) is not None:
        little = f"; less than a tenth of {quantity(warnings.little_compared, 'large page')}"
        click.echo(
            f"{share:.0%} of the visible text of HTML pages is compared"
            f"{little if warnings.little_compared else ''}",
            err=True,
        )
    if text := warnings.shared_text:
        click.echo(
            printable(
                f"{text.pages:,} of these have the same little text, such as {text.one} and {text.other}:"
                " `neardup explain` shows it; if they differ otherwise, they are no duplicates"
            ),
            err=True,
        )
    if pages := warnings.quality_ignored:
        click.echo(
            f"{quantity(pages, 'page')} with a quality that is no finite number: it counts as none", err=True
        )
    if pages := warnings.in_1970:
        click.echo(
            f"{quantity(pages, 'page')} with a time in 1970: numbers are milliseconds; if these are seconds,"
            " multiply them by 1,000",
            err=True,
        )
    if shared := warnings.shared_url:
        click.echo(
            printable(
                f"several texts of the same URL: {shared.url} is {shared.one} and {shared.other}, and their"
                " times do not differ, so the later counts as the same page fetched again; if they are"
                " different pages, name ids of their own with --id-column, or add --place-ids"
            ),
            err=True,
        )


def nothing_read(sources: Sequence[Source]) -> bool:
    """Return whether the sources had content, all of which was passed over, and print so."""
    passed = passed_over_by(sources).total()
    if not passed or any(source.pages or isinstance(source, RowsSource) for source in sources):
        return False
    click.echo(f"neardup: no page was read; records and files passed over: {passed:,}", err=True)
    return True


def list_counts(counted: Counter[str]) -> str:
    """Return names with their counts, the most frequent first."""
    return ", ".join(f"{name} ({count:,})" for name, count in counted.most_common())


def damages_of(sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Return what could not be read of the sources, for `--json`."""
    return [
        {"source": source.name, "error": damage.error, "pages": damage.pages}
        for source in sources
        for damage in source.damages
    ]


def show_damages(sources: Sequence[Source]) -> bool:
    """Print a line for each damage of the sources, and return whether there is any."""
    for source in sources:
        for damage in source.damages:
            read = quantity(damage.pages, "page")
            click.echo(f"damaged source: {damage.error}; {read} of {source.name} before it", err=True)
        if rest := source.damage_count - len(source.damages):
            click.echo(f"damaged source: {source.name}: {quantity(rest, 'more place')}", err=True)
    return any(source.damages for source in sources)


def show_repeated_ids(sources: Sequence[Source]) -> None:
    """Print a line if pages of the sources have one id, and so count as one page."""
    shared = {each.repeated_ids for each in sources if each.repeated_ids is not None}
    for each in filter(None, (ids.first for ids in shared)):
        click.echo(
            printable(
                f"repeated ids: {each.url} is {each.one} and {each.other}, so the later counts as the same"
                " page fetched again; if they are different pages, give each data set its own --id-prefix"
            ),
            err=True,
        )


class Reading:
    """The progress of reading sources to their end."""

    def __init__(self, sources: Sequence[Source], update: Callable[[str, int], None]) -> None:
        self._sources, self._update = sources, update
        self._first = self._last = (0, 0.0)

    def advance(self, pages: int, ahead: int = 0) -> None:
        """Show that `pages` are done. `ahead` more are read: their bytes do not count yet, so that the bar
        ends when the work does."""
        now = pages, time.monotonic()
        self._first, self._last = (self._first if self._first[0] else now), now
        read = sum(source.bytes_read for source in self._sources)
        self._update(quantity(pages, "page"), read * pages // max(1, pages + ahead))

    @property
    def rate(self) -> float | None:
        """Pages a second once the first ones were done, which may have waited for a compiler; None if the
        others took too little time to tell."""
        pages, seconds = (last - first for first, last in zip(self._first, self._last, strict=True))
        return pages / seconds if seconds >= LEAST_SECONDS else None

    def describe_rate(self) -> str:
        """Return the rate for the end of a summary; empty if there is none."""
        return "" if self.rate is None else f"; {self.rate:,.0f} pages/s"


@contextmanager
def reading(sources: Sequence[Source]) -> Iterator[Reading]:
    """Show a progress bar over the bytes of the sources."""
    sizes = [source.total_bytes for source in sources]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("0 pages", total=total)
        report, of = _reporting(console), "" if total is None else f" of {total / 1e6:,.0f}"

        def update(description: str, completed: int) -> None:
            progress.update(task, description=description, completed=completed)
            report(f"{description}, {completed / 1e6:,.0f}{of} MB")

        yield Reading(sources, update)


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar over a number of pages. Yields what is called with the number done so far."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        report, of = _reporting(console), "" if total is None else f" of {total:,}"

        def update(done: int) -> None:
            progress.update(task, completed=done)
            report(f"{what}: {done:,}{of}")

        yield update


def _reporting(console: Console) -> Callable[[str], None]:
    """Return what prints a line at most every LINE_SECONDS, where no bar is shown."""
    last = time.monotonic()

    def report(line: str) -> None:
        nonlocal last
        if not console.is_terminal and (now := time.monotonic()) - last >= LINE_SECONDS:
            last = now
            click.echo(line, err=True)

    return report
