"""A command group that suggests the closest subcommand for a mistyped name."""

from __future__ import annotations

from typing import Any

import click

from stream.suggest import meant


class CommandGroup(click.Group):
    """Adds suggestions for commands to Click, which has them for options only."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Resolve a subcommand as Click does, with a more helpful error message."""
        commands = self.list_commands(ctx)
        if ctx.resilient_parsing:  # called for shell completion, where no error is shown
            return super().resolve_command(ctx, args)
        if args and args[0] not in commands and not args[0].startswith("-"):
            hint = meant(args[0], commands) or f"; choose from {', '.join(commands)}"
            ctx.fail(f"no such command: {args[0]}{hint}")
        return super().resolve_command(ctx, args)
