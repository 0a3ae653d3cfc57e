"""`neardup schema`."""

from __future__ import annotations

import click


@click.command("schema")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Print a contract: what a topic holds, for programs in other languages. Without NAME, list them.

    JSON Schemas, Avro schemas (to register where crawlers may not do so themselves), AsyncAPI, and
    descriptions of the binary records.
    """
    from stream.contracts import contract, contracts

    click.echo("\n".join(contracts()) if name is None else contract(name), nl=name is None)
