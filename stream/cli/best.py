"""`neardup best`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from stream.cli.group import SectionCommand
from stream.cli.options import CONNECTION, with_settings
from stream.cli.printable import printable
from stream.ops import logging
from stream.output import write_json
from stream.settings import Settings

if TYPE_CHECKING:
    from stream.elector.kept import Answer


@click.command("best", cls=SectionCommand)
@with_settings(*CONNECTION, "state_dir", "elector_name")
@click.argument("named", nargs=-1, required=True, metavar="URL|CLUSTER...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per URL or cluster.")
def command(settings: Settings, named: tuple[str, ...], as_json: bool) -> None:
    """Show the page that is kept of the cluster that a URL is in, or of a cluster, given by its id.

    The command asks the state of an elector of this machine, as of its last flush. It exits with 1 if one of
    them is in no cluster.
    """
    from stream.kafka.clients import with_translated_errors

    logging.configure(settings.log_format, "best")
    if not asyncio.run(with_translated_errors(_show)(settings, named, as_json)):
        sys.exit(1)


async def _show(settings: Settings, named: tuple[str, ...], as_json: bool) -> bool:
    """Print the answers; whether all are in a cluster."""
    from stream.elector.kept import find_kept
    from stream.elector.state import State, kind_of_elector
    from stream.kafka import topics

    genesis = await topics.wait_for_genesis(settings, timeout=10)
    state = State.read(settings.state_dir / settings.namespace / kind_of_elector(settings.elector_name))
    try:
        answers = [find_kept(state, genesis, each) for each in named]
    finally:
        state.store.close()
    for name, answer in zip(named, answers, strict=True):
        if as_json:
            write_json(json.dumps(_fields(name, answer), ensure_ascii=False).encode())
        else:
            click.echo("\n".join(map(printable, _lines(name, answer))))
    return None not in answers


def _fields(name: str, answer: Answer | None) -> dict[str, Any]:
    import msgspec

    return {"asked": name, **(msgspec.to_builtins(answer) if answer else {"cluster": None})}


def _lines(name: str, answer: Answer | None) -> list[str]:
    if answer is None:
        return [name, "    in no cluster"]
    best, members = answer.best, f"{answer.members:,} {'page' if answer.members == 1 else 'pages'}"
    kept = f"kept: {best.url}  (id {best.id}, length {best.length:,})" if best else "no page is left"
    return [name, f"    {kept}", f"    cluster {answer.cluster}: {members}, by elect={answer.elect}"]
