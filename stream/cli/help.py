"""`neardup help`."""

from __future__ import annotations

import click

TOPICS = ("reasons", "access")


@click.command("help")
@click.argument("topic", type=click.Choice(TOPICS))
def command(topic: str) -> None:
    """Print what messages refer to: the reasons why pages are rejected, or what each role must be allowed.

    `neardup COMMAND --help` explains a command.
    """
    if topic == "access":
        from stream.kafka.acls import table

        click.echo(table(), nl=False)
        return
    from stream.messages.reasons import REASONS

    formatter = click.HelpFormatter(width=100)
    formatter.write_dl(list(REASONS.items()))
    click.echo(formatter.getvalue(), nl=False)
