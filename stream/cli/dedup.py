"""`neardup dedup`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from stream import failpoints
from stream.cli.group import SectionCommand
from stream.cli.options import (
    with_same_pages,
    with_scheme,
    with_settings,
    with_sources,
    with_verdict_options,
)
from stream.cli.printable import printable
from stream.cli.quantity import quantity
from stream.errors import SettingsError
from stream.interpreted import interpret_loops
from stream.ops import logging
from stream.output import if_interrupted
from stream.scratch import ScratchDirectory
from stream.settings import Settings
from stream.sources.small import are_small

if TYPE_CHECKING:
    from stream.dedup.election import Election
    from stream.dedup.outputs import Outputs
    from stream.dedup.run import Request, Run
    from stream.elector.policy import Policy
    from stream.local.corpus import CorpusCounts
    from stream.sources.row_warnings import RowWarnings
    from stream.sources.rows import RowsSource
    from stream.sources.source import Source
    from stream.stores.objects import AnyPath

EXAMPLES: Final = 3


class Choice(NamedTuple):
    """Which page of which cluster is kept."""

    keep: Policy
    clusters: str
    """stars, chains or texts."""
    counted: bool
    """Whether kept pages get the counts of their clusters."""


_STEP: Final = 1000
"""Pages between two updates of a bar."""


@click.command("dedup", cls=SectionCommand)
@with_settings("worker_processes", "page_deadline", "page_bytes", "tables_memory", "tables_generation")
@partial(with_sources, counted=True)
@click.option("-o", "--output", type=click.Path(), required=True,
              help="File for the pages of one source, or of several if its name tells their format, such as"
              " kept.parquet; else a directory, with a file of the same name for each. Compressed if the name"
              " ends in .gz, .bz2, .xz or .zst. May be s3://bucket/name, as SOURCES may.")  # fmt: skip
@click.option("--dropped", type=click.Path(),
              help="Write each page that is left out, why, and which is kept in its place, to NAME.parquet,"
              " NAME.csv, or else as JSON Lines, compressed like the output; - for stdout.")  # fmt: skip
@click.option("--cluster-counts", is_flag=True,
              help="Add to each page that is kept cluster_size and cluster_sources: how many pages its"
              " cluster has in this run, and how many came from which source. Pages of web archives and saved"
              " pages have no place for them.")  # fmt: skip
@click.option("--keep", metavar="first|longest|newest|quality|hosts=HOST,...", default="first",
              show_default=True, help="Which page of a cluster is kept: longest by its text, newest by"
              " fetched_at or --fetched-at-column, quality by quality or --quality-column, hosts=... for the"
              " longest one of the first of these hosts that has one.")  # fmt: skip
@click.option("--clusters", type=click.Choice(["stars", "chains", "texts"]), default="stars",
              show_default=True,
              help="stars: pages like the first one of a cluster, as verdicts say; chains: also those"
              " that are alike through others, in 0.3 kB of memory for each page; texts: pages with the same"
              " text alone, in one run.")  # fmt: skip
@click.option("--index", "index_directory", type=click.Path(path_type=Path, file_okay=False),
              help="Continue the index in this directory, or make it: pages like those it has are dropped,"
              " and a run that was killed is resumed.  [default: a new one, removed at the end]")  # fmt: skip
@with_same_pages
@with_verdict_options
@with_scheme
@click.option("--json", "as_json", is_flag=True, help="Print a summary as one JSON line at the end.")
def command(
    settings: Settings,
    opened: list[Source],
    output: str,
    dropped: str | None,
    cluster_counts: bool,
    keep: str,
    clusters: str,
    index_directory: Path | None,
    same_pages: bool,
    options: Any,
    scheme: Any,
    as_json: bool,
) -> None:
    """Write SOURCES without their near-duplicates: one page of each cluster, in the format of its source.

    Lines of JSON, rows of CSV and records of web archives stay as they are, byte for byte; Parquet keeps all
    columns, and saved pages are copied as files. Pages that cannot be judged, such as those without a URL or
    text, are left out and named in --dropped: each page is either in OUTPUT or there. OUTPUT appears when it
    is complete, and replaces a file then. Exits with code 1 when all pages are rejected, a source is damaged,
    or all that it has is passed over.
    """
    if index_directory is None and are_small(opened):
        interpret_loops()
    from stream.cli.progress import nothing_read
    from stream.dedup.copies import refuse_counts
    from stream.dedup.outputs import Outputs, refuse_report
    from stream.dedup.run import Request, open_run
    from stream.elector.policy import Policy
    from stream.stores.objects import path_of

    logging.configure(settings.log_format, "dedup")
    if clusters == "chains" and options.strict:
        raise SettingsError("clusters: chains join pages by similarity, which --mode strict does not have")
    if clusters == "texts" and index_directory:
        raise SettingsError(
            "clusters: texts are those of one run; leave --index out, and name all dumps as sources"
        )
    if cluster_counts:
        refuse_counts(opened)
    outputs = Outputs(output, opened, index_directory)
    report = path_of(dropped) if dropped else None
    if report:
        refuse_report(report, outputs.output, opened, index_directory)
    choice = Choice(Policy.parse(keep, "keep"), clusters, cluster_counts)
    started = time.monotonic()
    request = Request(settings, scheme, options, opened, same_pages)
    with (
        ScratchDirectory("dedup") as temporary,
        open_run(Path(temporary), index_directory, request) as run,
        if_interrupted(lambda: _describe_rest(index_directory)),
    ):
        outputs.refuse_others(run.directory, run.name(str(outputs.output), *choice))
        summary, warnings = _dedup(run, request, outputs, choice, report)
    summary["seconds"] = round(time.monotonic() - started, 3)
    _show(summary, warnings, opened, outputs.output, as_json)
    if (
        summary["damaged"]
        or nothing_read(opened)
        or (summary["pages"] and summary["dropped"].get("rejected") == summary["pages"])
    ):
        sys.exit(1)


async def _judge(
    run: Run, sources: Sequence[Source], counts: CorpusCounts, *, judged: bool
) -> tuple[RowsSource, Counter[str]]:
    """Return the rows of all pages, with verdicts in the run if `judged`, and the counts of
    `JudgedBatch.crowding`."""
    from stream.cli.progress import counting, reading

    with reading(sources) as reader:
        rows = await run.fingerprint(counts, reader.advance)
    crowding = Counter(full_buckets=0, cut_lists=0)
    if judged:
        with counting("judged", rows.count) as progress:
            await run.judge(rows, progress, crowding)
    return rows, crowding


def _dedup(
    run: Run, request: Request, outputs: Outputs, choice: Choice, dropped: AnyPath | None
) -> tuple[dict[str, Any], RowWarnings]:
    """Judge the sources, elect pages, write them, and return the summary, and what is odd about pages."""
    from stream.cli.progress import counting
    from stream.dedup.election import open_election
    from stream.local.corpus import CorpusCounts

    sources, counts = request.sources, CorpusCounts()
    rows, crowding = asyncio.run(_judge(run, sources, counts, judged=choice.clusters != "texts"))
    with open_election(run.directory) as election:
        with counting("electing", None):
            _elect(election, run, request, rows, choice)
        with counting("written", rows.count) as progress:
            size = _write(election, run, sources, outputs, choice, dropped, progress)
        summary = _summary(election, sources, size) | crowding
        return summary | counts.warnings.summary(), counts.warnings


def _elect(election: Election, run: Run, request: Request, rows: RowsSource, choice: Choice) -> None:
    """Decide which pages are kept."""
    arguments = {each.name: each.argument for each in request.sources}
    verdicts = None if choice.clusters == "texts" else run.verdicts
    election.read(run.rows, verdicts, rows.digest, arguments)
    if choice.clusters == "chains":
        from stream.dedup.chains import find_chains
        from stream.judge.rule import Rule

        rule = Rule(request.options, request.scheme)
        threads = request.settings.worker_processes
        election.add_chains(*find_chains(rows, request.scheme, rule, election.links(), threads))
    election.elect(choice.keep, chains=choice.clusters == "chains")


def _write(
    election: Election,
    run: Run,
    sources: Sequence[Source],
    outputs: Outputs,
    choice: Choice,
    dropped: AnyPath | None,
    progress: Callable[[int], None],
) -> int:
    """Write the pages that are kept, and the file that names the others, and return how many bytes the former
    take. The run is finished before the output appears: whoever is killed then has the output, or may run the
    command again."""
    from stream.dedup.copies import copy, size_of
    from stream.dedup.election import NO_PAGES
    from stream.dedup.kept_pages import KeptPages
    from stream.sinks.report import format_of, writing_report

    parts, passed, size = election.parts(), 0, 0

    def advance() -> None:
        nonlocal passed
        passed += 1
        if passed % _STEP == 0:
            progress(passed)

    def kept_of(group: Sequence[Source]) -> Iterator[tuple[Source, KeptPages]]:
        for source in group:
            part = parts.get(source.name, NO_PAGES)
            if source.damages and not part.pages:
                continue  # nothing of it could be read, perhaps not even its columns
            run.refuse_changed(source)
            counts = election.counts(part) if choice.counted else None
            yield source, KeptPages(source.name, election.positions(part), part.pages, advance, counts)
            run.refuse_changed(source)

    with outputs.writing(
        run.directory, run.name(str(outputs.output), *choice), resumed=run.resumable
    ) as target:
        for group in outputs.groups:
            if (written := target.size(group[0])) is not None:  # by a process that was killed
                run.refuse_changed(group[0])
                passed += parts.get(group[0].name, NO_PAGES).pages
                size += written
                continue
            with target.writing(group[0]) as path:
                copy(kept_of(group), path)
                size += size_of(path)
            failpoints.reach("dedup.copied")
        if dropped:
            election.add_no_pages(each for source in sources for each in source.no_pages())
            with writing_report(dropped) as file:
                election.report(file, format_of(dropped))
        run.finish()
    failpoints.reach("dedup.written")
    return size


def _summary(election: Election, sources: Sequence[Source], size: int) -> dict[str, Any]:
    from stream.cli.progress import damages_of, passed_over_by

    return {
        "pages": election.pages(),
        "kept": election.kept(),
        "dropped": election.why(),
        "reasons": election.reasons(),
        "examples": [each._asdict() for each in election.examples(EXAMPLES)],
        "rejected": election.rejected(),
        "bytes": size,
        "source_bytes": sum(each.total_bytes or 0 for each in sources),
        "passed_over": dict(passed_over_by(sources)),
        "damaged": damages_of(sources),
    }


def _describe_rest(index: Path | None) -> str:
    if index is None:
        return "nothing is kept of this run; with --index DIR, it could be resumed"
    return "run the same command again to go on"


def _show(
    summary: dict[str, Any], warnings: RowWarnings, sources: Sequence[Source], output: AnyPath, as_json: bool
) -> None:
    """Print the summary, for people or as JSON."""
    from stream.cli.progress import (
        list_counts,
        show_crowding,
        show_damages,
        show_passed_over,
        show_repeated_ids,
        show_warnings,
    )

    if as_json:
        sys.stdout.write(json.dumps(summary) + "\n")
    else:
        dropped = summary["dropped"]
        listed = f"; dropped: {', '.join(f'{count:,} {why}' for why, count in dropped.items())}"
        click.echo(
            f"{quantity(summary['pages'], 'page')}: {summary['kept']:,} kept{listed if dropped else ''};"
            f" {summary['seconds']:,.0f} s",
            err=True,
        )
        click.echo(
            f"{output}: {_megabytes(summary['bytes'])} of {_megabytes(summary['source_bytes'])}", err=True
        )
        for each in summary["examples"]:
            one, other = printable(each["url"]), printable(each["kept_url"])
            click.echo(f"  {each['similarity']:.2f} alike: {one}, dropped for {other}", err=True)
        if summary["reasons"]:
            click.echo(
                f"rejected for {list_counts(Counter(summary['reasons']))};"
                " `neardup help reasons` explains the reasons",
                err=True,
            )
            for reason, example in summary["rejected"].items():
                click.echo(f"  {reason}: {printable(example)}", err=True)
        show_passed_over(Counter(summary["passed_over"]))
        show_crowding(summary)
        show_warnings(warnings)
    show_repeated_ids(sources)
    show_damages(sources)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
