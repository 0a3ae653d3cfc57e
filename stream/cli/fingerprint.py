"""`neardup fingerprint`."""

from __future__ import annotations

import json
import sys
from itertools import chain
from typing import Any

import click

from stream.cli.options import with_scheme, with_settings, with_sources
from stream.settings import Settings


@click.command("fingerprint")
@with_settings("page_bytes")
@with_sources
@with_scheme
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per page.")
def command(settings: Settings, opened: list[Any], scheme: Any, as_json: bool) -> None:
    """Show the fingerprints of the pages in SOURCES, which may be whatever `neardup scan` reads."""
    from stream.fingerprint.fingerprinter import Fingerprinter
    from stream.fingerprint.row import Status

    fingerprinter = Fingerprinter(scheme)
    for message in chain.from_iterable(opened):
        row = fingerprinter.message(message.value, settings.page_bytes)
        ready = row.ready
        fields = {
            "url": row.url,
            "status": Status(row.status).name.lower(),
            "fingerprint": f"{row.fingerprint:0{scheme.width // 4}x}" if ready else None,
            "least_certain_bits": list(row.uncertain[:8]) if ready else None,
            "text_hash": row.text_hash.hex() if any(row.text_hash) else None,
            "scheme": scheme.id,
            "reason": row.reason,
        }
        if as_json:
            sys.stdout.write(json.dumps(fields) + "\n")
        else:
            shown = fields["fingerprint"] or f"({fields['status']}{': ' + row.reason if row.reason else ''})"
            click.echo(f"{shown}  {row.url or message.origin}")
