"""`neardup schema`."""

from __future__ import annotations

import click


@click.command("schema")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Print the schema NAME, which describes the records of a topic. Without NAME, list all schemas.

    There are JSON Schemas, Avro schemas (to register by hand where crawlers may not register any), an
    AsyncAPI document and descriptions of the binary records.
    """
    from stream.contracts import contract, contracts

    click.echo("\n".join(contracts()) if name is None else contract(name), nl=name is None)
