"""`neardup fingerprint`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from stream.cli.group import SectionCommand
from stream.cli.options import with_scheme, with_settings, with_sources
from stream.cli.printable import printable
from stream.cli.quantity import quantity
from stream.ops import logging
from stream.output import if_interrupted
from stream.settings import Settings

if TYPE_CHECKING:
    from stream.local.corpus import CorpusCounts
    from stream.rows.manifest import Manifest


@click.command("fingerprint", cls=SectionCommand)
@with_settings("worker_processes", "page_deadline", "page_bytes")
@partial(with_sources, counted=True)
@with_scheme
@click.option("-o", "--output", type=click.Path(file_okay=False),
              help="Write rows (Parquet) to this directory or s3://bucket/prefix, on all cores.")  # fmt: skip
@click.option("--order", type=click.Choice(["position", "fetched_at"]),
              default="position", show_default=True,
              help="Order in which rows are judged later: that of SOURCES, or by fetched_at.")  # fmt: skip
@click.option("--pages-per-file", type=click.IntRange(1, 1_000_000), default=65_536, show_default=True,
              help="Pages of a file of rows. An interrupted run resumes behind the last file.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True,
              help="Print one JSON object per page, or the counts with --output.")  # fmt: skip
def command(
    settings: Settings,
    opened: list[Any],
    scheme: Any,
    output: str | None,
    order: Any,
    pages_per_file: int,
    as_json: bool,
) -> None:
    """Show the fingerprints of the pages in SOURCES, which may be whatever `neardup scan` reads.

    With --output they become rows for `neardup scan` and `neardup load`. When it was interrupted or killed,
    run the same command again: it resumes behind the last file, and the rows are the same, byte for byte.
    """
    from stream.cli.progress import (
        damages_of,
        nothing_read,
        passed_over_by,
        reading,
        show_damages,
        show_passed_over,
        show_repeated_ids,
    )

    if output is None:
        _show(settings, opened, scheme, as_json)
        show_passed_over(passed_over_by(opened))
        show_repeated_ids(opened)
        if show_damages(opened) or nothing_read(opened):
            sys.exit(1)
        return
    from stream.local.corpus import CorpusCounts, RowsOptions, fingerprint_corpus
    from stream.sources.overlap import names_of, refuse_overlap
    from stream.stores.objects import path_of

    logging.configure(settings.log_format, "fingerprint")
    refuse_overlap("output", path_of(output), names_of(opened))
    started, counts = time.monotonic(), CorpusCounts()
    with (
        if_interrupted(lambda: "whole files are kept; run the same command again to continue"),
        reading(opened) as reader,
    ):
        manifest = asyncio.run(
            fingerprint_corpus(
                settings,
                scheme,
                opened,
                path_of(output),
                RowsOptions(order=order, pages_per_file=pages_per_file),
                counts=counts,
                progress=reader.advance,
            )
        )
    seconds = time.monotonic() - started
    size = sum(each.bytes for each in manifest.files)
    figures = {
        "rows": manifest.rows,
        "resumed": counts.resumed,
        "statuses": dict(counts.statuses),
        "reasons": dict(counts.rejections.counts),
        **counts.warnings.summary(),
        "examples": counts.rejections.examples,
        "files": len(manifest.files),
        "bytes": size,
        "bytes_per_page": round(size / manifest.rows, 1) if manifest.rows else None,
        "digest": manifest.digest,
        "scheme": manifest.scheme_id,
        "passed_over": dict(passed_over_by(opened)),
        "damaged": damages_of(opened),
        "seconds": round(seconds, 3),
    }
    if as_json:
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        _summarise(manifest, output, counts, reader.describe_rate())
        show_passed_over(passed_over_by(opened))
    show_repeated_ids(opened)
    if show_damages(opened) or nothing_read(opened):
        sys.exit(1)


def _summarise(manifest: Manifest, output: str, counts: CorpusCounts, rate: str) -> None:
    """Print the counts for people."""
    from stream.cli.progress import show_rejections, show_warnings

    size = sum(each.bytes for each in manifest.files)
    statuses = ", ".join(f"{count:,} {status}" for status, count in counts.statuses.most_common())
    click.echo(
        f"{quantity(manifest.rows, 'row')} in {output}, {size / max(manifest.rows, 1):.1f} bytes each"
        f"{f'; {counts.resumed:,} of them from before' if counts.resumed else ''}"
        f"{f'; {statuses}{rate}' if statuses else ''}",
        err=True,
    )
    show_rejections(counts.rejections)
    show_warnings(counts.warnings)


def _show(settings: Settings, opened: list[Any], scheme: Any, as_json: bool) -> None:
    """Print the fingerprint of each page."""
    from stream.fingerprint.row import Status
    from stream.page_rows.page_fingerprinter import PageFingerprinter, with_columns_named

    fingerprinter = PageFingerprinter(scheme)
    for message in chain.from_iterable(opened):
        row = with_columns_named(fingerprinter.message(message.value, settings.page_bytes), message.columns)
        ready = row.ready
        fields = {
            "url": row.url,
            "status": Status(row.status).name.lower(),
            "fingerprint": f"{row.fingerprint:0{scheme.width // 4}x}" if ready else None,
            "text_hash": row.text_hash.hex() if any(row.text_hash) else None,
            "scheme": scheme.id,
            "reason": row.reason,
            "detail": row.detail,
            "origin": {"file": message.file, "place": message.place},
        }
        if as_json:
            sys.stdout.write(json.dumps(fields) + "\n")
        else:
            why = ": ".join(filter(None, (str(fields["status"]), row.reason, row.detail)))
            click.echo(printable(f"{fields['fingerprint'] or f'({why})'}  {row.url or message.origin}"))
