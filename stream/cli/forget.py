"""`neardup forget`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream.cli.group import SectionCommand
from stream.cli.options import CONNECTION, PATH, with_settings
from stream.cli.printable import printable
from stream.ops import logging
from stream.settings import Settings

if TYPE_CHECKING:
    from stream.roles.forgetter.status import Status


@click.command("forget", cls=SectionCommand)
@with_settings(*CONNECTION, "dev", "state_dir", "checkpoints", "verdict_routes")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Forget all pages of this host alone.")
@click.option(
    "--domain",
    "domains",
    multiple=True,
    metavar="HOST",
    help="Forget all pages of this host and of the hosts below it.",
)
@click.option("--file", type=PATH, metavar="FILE", help="Forget the URLs in this file, one a line.")
@click.option("--status", is_flag=True, help="Show what was requested, and what delays it.")
@click.option("--json", "as_json", is_flag=True, help="Print the status as one JSON object.")
def command(
    settings: Settings,
    urls: tuple[str, ...],
    hosts: tuple[str, ...],
    domains: tuple[str, ...],
    file: str | None,
    status: bool,
    as_json: bool,
) -> None:
    """Forget the pages of URLs or hosts that were judged so far, in all their versions.

    Requests have keyed digests, never URLs. The leading judge decides them between batches: from then on no
    verdict names the pages. Then every role erases them. What other topics still have ends with their
    retention, journal and decisions with a trim, and checkpoints with those that are made after it. With
    --status, exits with code 1 while something delays it.
    """
    from stream.errors import SettingsError
    from stream.kafka.clients import with_translated_errors

    logging.configure(settings.log_format, "forget")
    named = (*urls, *hosts, *domains)
    if status and (named or file):
        raise SettingsError("--status: shows all requests; leave URLs, --host, --domain and --file out")
    if as_json and not status:
        raise SettingsError("--json: needs --status")
    if status:
        outcome = asyncio.run(with_translated_errors(_status)(settings))
        _show(outcome, as_json=as_json)
        if outcome.delays:
            sys.exit(1)
        return
    if not named and file is None:
        raise SettingsError("name URLs, --host, --domain or --file, or ask for --status")
    count = asyncio.run(with_translated_errors(_request)(settings, urls, hosts, domains, file))
    click.echo(f"requested: {count:,}; `neardup forget --status` shows how far they are", err=True)


async def _request(
    settings: Settings,
    urls: tuple[str, ...],
    hosts: tuple[str, ...],
    domains: tuple[str, ...],
    file: str | None,
) -> int:
    from stream.kafka import topics
    from stream.roles.forgetter.request import names_in, names_of, request

    genesis = await topics.wait_for_genesis(settings, timeout=10)
    names = names_of(urls, hosts, domains, genesis.scheme.url_rules)
    if file is not None:
        names += names_in(Path(file), genesis.scheme.url_rules)
    return await request(settings, genesis, names)


async def _status(settings: Settings) -> Status:
    from stream.roles.forgetter.status import status

    return await status(settings)


def _show(outcome: Status, *, as_json: bool) -> None:
    import msgspec

    if as_json:
        click.echo(msgspec.json.encode(outcome))
        return
    for line in outcome.lines():
        click.echo(printable(line))
