"""`neardup compress`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from stream.cli.group import SectionCommand
from stream.cli.options import PATH, SOURCE_FORMAT, with_scheme, with_settings
from stream.cli.quantity import quantity
from stream.ops import logging
from stream.output import STDOUT
from stream.settings import Settings


@click.command("compress", cls=SectionCommand)
@with_settings("worker_processes", "page_deadline", "page_bytes")
@click.argument("source", type=PATH)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--block-bytes", type=click.IntRange(64, 65_536), default=1024, show_default=True,
              help="Bytes per compressed block, a multiple of 8.")  # fmt: skip
@click.option(
    "--width", type=click.Choice(["32", "64", "128"]), help="Bits per fingerprint in a NumPy array."
)
@click.option("--format", "source_format", type=SOURCE_FORMAT,
              default="auto", show_default=True, help="Format of SOURCE if it holds pages.")  # fmt: skip
@with_scheme
@click.option("--json", "as_json", is_flag=True, help="Print the figures as one JSON line.")
def command(
    settings: Settings,
    source: str,
    file: Path,
    block_bytes: int,
    width: str | None,
    source_format: str,
    scheme: Any,
    as_json: bool,
) -> None:
    """Write the fingerprints of SOURCE to FILE, sorted and compressed.

    SOURCE is anything that `neardup match` reads. Of a state directory (of a judge or a Python Index), the
    live anchors as of its last flush are exported; it may be in use. A source without any fingerprint is an
    error, unless it is an empty state directory.
    """
    from stream.errors import SettingsError
    from stream.offline.compressed_blocks import encode, expected_bytes, sort_words
    from stream.offline.compressed_file import write_compressed
    from stream.offline.fingerprint_match import gather, open_fingerprints_or_pages

    logging.configure(settings.log_format, "compress")
    if str(file) == STDOUT:
        raise SettingsError("FILE: a compressed file is binary and cannot be written to stdout; name a file")
    if block_bytes % 8:
        raise SettingsError(f"block-bytes: {block_bytes} is not a multiple of 8")
    opened = open_fingerprints_or_pages(
        settings,
        scheme,
        source,
        width=int(width) if width else None,
        source_format=source_format,
    )
    words = sort_words(gather(opened).words)
    if not len(words) and opened.count is None:
        raise SettingsError(f"source {source}: it has neither fingerprints nor pages; {file} was not written")
    size = write_compressed(file, encode(words, opened.width, block_bytes), opened.scheme)
    plain = len(words) * opened.width // 8
    expected = expected_bytes(len(words), opened.width, block_bytes)
    figures = {
        "fingerprints": len(words),
        "width": opened.width,
        "scheme": opened.scheme,
        "skipped": opened.skipped,
        "bytes": size,
        "plain_bytes": plain,
        "ratio": round(size / plain, 4) if plain else None,
        "expected_ratio": round(expected / plain, 4) if plain else None,
        "expected_ratio_at_8e9": round(
            expected_bytes(8e9, opened.width, block_bytes) / (opened.width * 1e9), 4
        ),
    }
    if as_json:
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    click.echo(
        f"{quantity(len(words), 'fingerprint')} of {opened.width} bits:"
        f" {size:,} bytes of {plain:,} ({_share(figures)})"
    )
    click.echo(
        "The ratio improves with the number of fingerprints: the paper's 8 billion would take"
        f' {figures["expected_ratio_at_8e9"]:.0%} by the same formula ("almost half").'
    )


def _share(figures: dict[str, Any]) -> str:
    if figures["ratio"] is None:
        return "nothing to compress"
    return f"{figures['ratio']:.1%}; {figures['expected_ratio']:.1%} expected of random fingerprints"
