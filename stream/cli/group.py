"""Commands and groups of ours: help in sections, and suggestions for mistyped names."""

from __future__ import annotations

from typing import Any, Final

import click

from stream.suggest import meant

_FIRST: Final = "Options"
_SOURCES: Final = "How sources are read"
_ALIKE: Final = "What counts as alike"
_LIMITS: Final = "Limits of time and memory"
_SECTIONS: Final = {
    _FIRST: (),
    _SOURCES: (
        *("url_column", "id_column", "text_column", "html_column", "fetched_at_column", "quality_column"),
        "count_by",
        *("place_ids", "id_prefix", "source_format", "base_url", "base_urls", "strict_sources"),
    ),
    _ALIKE: ("mode", "distance", "similarity", "given", "scheme"),
    _LIMITS: (
        *("worker_processes", "worker_memory", "page_deadline", "page_bytes", "child_memory", "reject_limit"),
        *("judge_rows", "flush_seconds", "tables_memory", "tables_generation", "tables_cache"),
        *("session_seconds", "shutdown_seconds", "scrub_hours"),
    ),
}
"""Sections of a command's help, in their order, with the names of their options; the first has all others."""
_SECTION_OF: Final = {name: section for section, names in _SECTIONS.items() for name in names}


class SectionCommand(click.Command):
    """A command whose help lists its options by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, in the order of the sections."""
        listed: dict[str, list[tuple[str, str]]] = {section: [] for section in _SECTIONS}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                listed[_SECTION_OF.get(parameter.name or "", _FIRST)].append(record)
        for section, records in listed.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)


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
