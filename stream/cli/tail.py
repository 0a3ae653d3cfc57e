"""`neardup tail`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import click

from stream.cli.options import CONNECTION, with_settings
from stream.cli.printable import as_markup
from stream.ops import logging
from stream.output import write_json
from stream.settings import Settings


@click.command("tail")
@with_settings(*CONNECTION)
@click.option("--from-beginning", is_flag=True, help="Start with the oldest verdict instead of the next one.")
@click.option(
    "--verdict",
    "wanted",
    multiple=True,
    type=click.Choice(["unique", "duplicate", "recrawl", "insufficient", "rejected"]),
    help="Show only this verdict; may be repeated.",
)
@click.option("--limit", type=click.IntRange(1), help="End after this many verdicts.")
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON, one per line.")
def command(
    settings: Settings, from_beginning: bool, wanted: tuple[str, ...], limit: int | None, as_json: bool
) -> None:
    """Print new verdicts as they are published, until interrupted."""
    from rich.console import Console

    from stream.kafka.clients import with_translated_errors

    logging.configure(settings.log_format, "tail")
    console = Console(soft_wrap=True)
    colours = {"unique": "green", "duplicate": "yellow", "recrawl": "cyan", "rejected": "red"}

    def show(record: dict[str, object], raw: bytes) -> None:
        if as_json:
            write_json(raw)
            sys.stdout.flush()
            return
        verdict = str(record["verdict"])
        line = f"[{colours.get(verdict, 'magenta')}]{verdict:<12}[/] {as_markup(str(record['url']))}"
        other = record["duplicate_of"]
        if isinstance(other, dict) and verdict == "duplicate":
            likeness = [
                f"{name} {record[name]}" for name in ("distance", "similarity") if record[name] is not None
            ]
            line += f"\n{'':12} = {as_markup(str(other['url']))}  ({', '.join(likeness)})"
        if isinstance(nearest := record.get("nearest"), dict):
            line += f"\n{'':12} ~ {as_markup(str(nearest['url']))}  (similarity {nearest['similarity']})"
        if record["reason"]:
            line += f"  [red]{as_markup(str(record['reason']))}"
        console.print(line, highlight=False)

    asyncio.run(with_translated_errors(_follow)(settings, from_beginning, set(wanted), limit, show))


async def _follow(
    settings: Settings,
    from_beginning: bool,
    wanted: set[str],
    limit: int | None,
    show: Callable[[dict[str, object], bytes], None],
) -> None:
    import msgspec

    from stream.kafka import topics
    from stream.kafka.names import TopicNames
    from stream.kafka.open_transactions import hidden_records
    from stream.kafka.topic_subscription import TopicSubscription
    from stream.kafka.verdict_values import VerdictReader

    await topics.check(settings, "follow")
    topic = TopicNames(settings.namespace).verdicts
    reader, shown = VerdictReader(settings), 0

    def report_waiting(existing: bool) -> None:
        what = _awaited(topic, wanted, limit and limit - shown, existing)
        hint = "; --from-beginning shows those that are there" if existing and not from_beginning else ""
        click.echo(f"{what}{hint}", err=True)

    async with TopicSubscription(
        settings, topic, from_beginning=from_beginning, report_waiting=report_waiting
    ) as verdicts:
        for line in await hidden_records(settings, topic):
            click.echo(line, err=True)
        async for message in verdicts:
            value = reader.json(message)
            record = msgspec.json.decode(value)
            if wanted and record["verdict"] not in wanted:
                continue
            show(record, value)
            shown += 1
            if shown == limit:
                return


def _awaited(topic: str, wanted: set[str], remaining: int | None, existing: bool) -> str:
    """Return what the command waits for; `remaining` is the number of verdicts up to its limit."""
    count = "" if remaining is None else f"{remaining:,} "
    kinds = f"{' or '.join(sorted(wanted))} " if wanted else ""
    noun = "verdict" if remaining == 1 else "verdicts"
    if existing:
        return f"waiting for {count}more {kinds}{noun} on {topic}, until Ctrl-C"
    return (
        f"no verdicts on {topic} yet; waiting for {count}{kinds}{noun} of workers and a judge, until Ctrl-C"
    )
