"""A command with sub-commands, which names the nearest one where somebody mistypes."""

from __future__ import annotations

from typing import Any

import click

from stream.suggest import meant


class Group(click.Group):
    """Click names the nearest option by itself, but not the nearest command."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """As Click does, with a better message."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            hint = meant(args[0], known) or f"; there are {', '.join(known)}"
            ctx.fail(f"no such command: {args[0]}{hint}")
        return super().resolve_command(ctx, args)
