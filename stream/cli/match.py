"""`neardup match`."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from stream.cli.options import PATH, SOURCE_FORMAT, with_output, with_scheme, with_settings
from stream.ops import logging
from stream.output import writing
from stream.settings import Settings


@click.command("match")
@with_settings("worker_processes", "page_deadline", "page_bytes")
@click.argument("batch", type=PATH)
@click.option("--against", "corpus", type=PATH,
              help="The corpus: a file or directory like BATCH.  [default: pairs within BATCH]")  # fmt: skip
@click.option("-k", "--distance", type=click.IntRange(0, 127), default=3, show_default=True,
              help="Largest Hamming distance.")  # fmt: skip
@with_output("matches")
@click.option("--layout", help="Tables of the batch, as `5 choose 2` or `4 then 4`.  [default: by its size]")
@click.option("--width", type=click.Choice(["32", "64", "128"]), help="Bits in a NumPy array's fingerprints.")
@click.option("--format", "source_format", type=SOURCE_FORMAT,
              default="auto", show_default=True, help="What both are, where they are pages.")  # fmt: skip
@click.option("--base-url",
              help="Stands before the relative paths of saved pages.  [default: file: URLs]")  # fmt: skip
@with_scheme
@click.option("--json", "as_json", is_flag=True, help="Matches as JSON, one a line; end with one of figures.")
def command(
    settings: Settings,
    batch: str,
    corpus: str | None,
    distance: int,
    output: Path | None,
    layout: str | None,
    width: str | None,
    source_format: str,
    base_url: str | None,
    scheme: Any,
    as_json: bool,
) -> None:
    """Find all pairs of BATCH and a corpus, or within BATCH, whose fingerprints are near each other.

    Near is a Hamming distance of at most --distance, as in the paper (mode strict), and nothing else: no
    similarity is verified. Pairs by the default rule are the verdicts of `scan`.

    Both are index files, NumPy arrays (.npy), lines of hex digits as `neardup fingerprint` prints them (also
    `-`), JSON Lines with a fingerprint (verdicts), a judge's state directory, or pages as for `scan`. Tables
    are made of the batch, so let it be the smaller one; the corpus is read once, on all cores.
    """
    from stream.match import find_matches, find_pairs, open_either

    logging.configure(settings.log_format, "match")
    options: dict[str, Any] = {
        "width": int(width) if width else None,
        "source_format": source_format,
        "base_url": base_url,
    }
    threads = settings.worker_processes
    with writing(output) if output else nullcontext() as sink:
        opened = open_either(settings, scheme, batch, **options)
        if corpus is None:
            found = find_pairs(opened, distance, layout=layout, threads=threads)
        else:
            against = open_either(settings, scheme, corpus, **options)
            with _bar(against.count) as advance:
                found = find_matches(
                    opened, against, distance, layout=layout, threads=threads, advance=advance
                )
        for record in found.records():
            if sink is not None:
                sink.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            elif as_json:
                sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
            else:
                other = record["match"]
                names = f"  {record['name'] or record['row']}  {other['name'] or other['row']}"
                click.echo(f"{record['distance']}  {record['fingerprint']}  {other['fingerprint']}{names}")
    summary = found.summary()
    if as_json:
        sys.stdout.write(json.dumps(summary) + "\n")
    else:
        click.echo(
            f"{summary['matches']:,} pairs of {summary['batch']:,} x {summary['corpus']:,} fingerprints"
            f" within {distance} bits, {summary['layout']}: tables {summary['build_seconds']} s, scan"
            f" {summary['scan_seconds']} s, {summary['compared']:,} compared; {summary['skipped']:,} pages"
            " without a fingerprint",
            err=True,
        )


def _bar(total: int | None) -> Any:
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress

    @contextmanager
    def bar() -> Any:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("scanning", total=total)
            yield lambda done: progress.update(task, completed=done)

    return bar()
