"""`neardup match`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream.cli.group import SectionCommand
from stream.cli.options import PATH, SOURCE_FORMAT, with_columns, with_output, with_scheme, with_settings
from stream.cli.printable import printable
from stream.cli.quantity import quantity
from stream.ops import logging
from stream.output import STDOUT, write_json, writing
from stream.settings import Settings

if TYPE_CHECKING:
    from stream.fingerprint.scheme import Scheme
    from stream.offline.fingerprint_match import Matches
    from stream.offline.verified_match import Verified
    from stream.sources.source import Source


@click.command("match", cls=SectionCommand)
@with_settings("worker_processes", "page_deadline", "page_bytes")
@click.argument("batch", type=PATH)
@click.option("--against", "corpus", type=PATH,
              help="Corpus, a source like BATCH.  [default: pairs within BATCH]")  # fmt: skip
@click.option("--verified", is_flag=True,
              help="Match by similarity, as a deployment does by default.")  # fmt: skip
@click.option("-k", "--distance", type=click.IntRange(0, 127),
              help="Largest Hamming distance; not with --verified.  [default: 3]")  # fmt: skip
@with_output("matches")
@click.option("--layout", help="Table design, e.g. `5 choose 2` or `4 then 4`.  [default: by size of BATCH]")
@click.option(
    "--width", type=click.Choice(["32", "64", "128"]), help="Bits per fingerprint in a NumPy array."
)
@click.option("--format", "source_format", type=SOURCE_FORMAT,
              default="auto", show_default=True, help="Format of sources that hold pages.")  # fmt: skip
@click.option("--base-url",
              help="URL prefix for the relative paths of saved pages.  [default: file: URLs]")  # fmt: skip
@with_columns
@with_scheme
@click.option("--json", "as_json", is_flag=True, help="Print matches as JSON, one per line, then a summary.")
def command(
    settings: Settings,
    batch: str,
    corpus: str | None,
    verified: bool,
    distance: int | None,
    output: Path | None,
    layout: str | None,
    width: str | None,
    source_format: str,
    base_url: str | None,
    columns: Any,
    scheme: Scheme,
    as_json: bool,
) -> None:
    """Find all near-duplicate pairs within BATCH, or between BATCH and a corpus.

    By default, a pair matches if its Hamming distance is at most --distance, as in the paper (mode strict).
    No such pair is missed, and similarity is not considered. BATCH and the corpus may be compressed files,
    NumPy arrays (.npy), lines of hex digits as `neardup fingerprint` prints them (- for stdin), JSON Lines
    with a field `fingerprint` (such as verdicts), state directories, or pages or rows as for `neardup scan`.

    With --verified, a pair matches if a deployment would call it similar by default: one of nine pairs of
    minima is equal, and the similarity, which is printed too, is at least 0.8. About 1 in 1,000 pairs of
    similarity 0.8 shares none and is missed. Unlike a deployment, which compares pages with anchors only,
    this compares all pages. BATCH and the corpus must be pages, rows or state directories, since fingerprints
    alone do not suffice.

    Tables are built of BATCH, so BATCH should be the smaller side. The corpus is read once, on all cores.
    """
    from stream.errors import SettingsError
    from stream.sources.overlap import refuse_overlap

    logging.configure(settings.log_format, "match")
    if verified and (layout or width or distance is not None):
        raise SettingsError(
            "layout, width, distance: they apply to fingerprints only and have no effect with --verified"
        )
    from stream.cli.progress import nothing_read, passed_over_by, show_passed_over

    if output:
        refuse_overlap("output", output, filter(None, (batch, corpus)))
    matches: Matches | Verified
    files: dict[str, Any] = {"source_format": source_format, "base_url": base_url, "columns": columns}
    with writing(output) if output else nullcontext() as sink:
        if verified:
            matches, sources = _similar(settings, scheme, batch, corpus, files)
        else:
            files["width"] = int(width) if width else None
            matches, sources = _near(
                settings, scheme, batch, corpus, 3 if distance is None else distance, layout, files
            )
        # On a terminal, the printed pairs show the progress.
        with _bar(None, shown=verified and not _on_terminal(output)):
            for record in matches.records():
                if sink is not None:
                    sink.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
                elif as_json:
                    write_json(json.dumps(record, ensure_ascii=False).encode())
                else:
                    click.echo(_line(record))
    summary = matches.summary()
    if as_json:
        sys.stdout.write(json.dumps(summary) + "\n")
    else:
        click.echo(
            _summary_lines(summary, matches.rule, "page" if verified else "fingerprint", corpus), err=True
        )
        show_passed_over(passed_over_by(sources))
    if nothing_read(sources):
        sys.exit(1)


def _summary_lines(summary: dict[str, Any], rule: str, noun: str, corpus: str | None) -> str:
    """Return a line about the matches, and one about the work."""
    among = f"among {quantity(summary['batch'], noun)}"
    if corpus is not None:
        among = f"between {quantity(summary['batch'], noun)} and {summary['corpus']:,} of {corpus}"
    skipped = f"; {quantity(summary['skipped'], 'page')} without a fingerprint" if summary["skipped"] else ""
    return (
        f"{quantity(summary['matches'], 'pair')} {among}, each {rule}{skipped}\n"
        f"  tables of {summary['layout']}: built in {summary['build_seconds']} s, searched in"
        f" {summary['scan_seconds']} s, {quantity(summary['compared'], 'comparison')}"
    )


def _near(
    settings: Settings,
    scheme: Scheme,
    batch: str,
    corpus: str | None,
    distance: int,
    layout: str | None,
    files: dict[str, Any],
) -> tuple[Matches, list[Source]]:
    from stream.offline.fingerprint_match import find_matches, find_pairs, open_fingerprints_or_pages

    opened, threads = open_fingerprints_or_pages(settings, scheme, batch, **files), settings.worker_processes
    if corpus is None:
        return find_pairs(opened, distance, layout=layout, threads=threads), [*opened.sources]
    against = open_fingerprints_or_pages(settings, scheme, corpus, **files)
    with _bar(against.count) as advance:
        matches = find_matches(opened, against, distance, layout=layout, threads=threads, advance=advance)
    return matches, [*opened.sources, *against.sources]


def _similar(
    settings: Settings,
    scheme: Scheme,
    batch: str,
    corpus: str | None,
    files: dict[str, Any],
) -> tuple[Verified, list[Source]]:
    from stream.offline.verified_match import Verified, default_rule, open_sketched

    opened = open_sketched(settings, scheme, batch, **files)
    against = open_sketched(settings, scheme, corpus, **files) if corpus else None
    with _bar(None):
        verified = Verified(opened, against, default_rule(scheme), threads=settings.worker_processes)
    return verified, [*opened.sources, *(against.sources if against else ())]


def _line(record: dict[str, Any]) -> str:
    """Format a pair as a line of text."""
    other = record["match"]
    similarity = [f"{record['similarity']:.4f}"] if "similarity" in record else []
    names = [printable(str(side["name"] or side["row"])) for side in (record, other)]
    return "  ".join(
        [str(record["distance"]), *similarity, record["fingerprint"], other["fingerprint"], *names]
    )


def _on_terminal(output: Path | None) -> bool:
    return str(output or STDOUT) == STDOUT and sys.stdout.isatty()


@contextmanager
def _bar(total: int | None, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    hidden = not shown or not console.is_terminal
    with Progress(console=console, transient=True, redirect_stdout=False, disable=hidden) as progress:
        task = progress.add_task("scanning", total=total)
        yield lambda done: progress.update(task, completed=done)
