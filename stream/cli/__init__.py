"""The `neardup` command. Each subcommand has a file of its own, imported only when it is called."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from stream import output
from stream.children.confine import hide_memory
from stream.cli.group import CommandGroup
from stream.cli.printable import printable
from stream.errors import EXIT_ERROR, ClosedPipeError, NeardupError
from stream.interpreted import interpret_loops

SECTIONS = {
    "Start here": {
        "scan": "judge pages from files, without a broker",
        "dedup": "write files without the near-duplicates in them",
        "explain": "explain why two pages are near-duplicates, or are not",
        "demo": "run the whole system on a real crawl and a real broker",
    },
    "Run a deployment": {
        "broker": "start a Kafka broker on this machine, to try a deployment with",
        "topics": "create or describe the topics",
        "run": "run workers, a judge and a dashboard under one supervisor",
        "worker": "fingerprint pages and append them to the journal",
        "judge": "decide the pages of the journal and publish verdicts",
        "elector": "say which page of each cluster is kept",
        "checkpoint": "make, list, verify or restore checkpoints of the judge's state",
        "trim": "delete the beginning of journal and decisions that checkpoints replace",
        "dashboard": "show verdicts and progress on a web page",
    },
    "Use a deployment": {
        "publish": "publish pages from files to the pages topic",
        "load": "bring fingerprinted pages into a running deployment",
        "tail": "follow the verdicts",
        "verdicts": "export the verdicts to DuckDB, Parquet or PostgreSQL",
        "query": "find the anchors that match given pages, without inserting them",
        "forget": "forget the pages of URLs or hosts, and show what delays it",
        "best": "show the page of a cluster that is kept",
        "audit": "check that every page has exactly one verdict",
        "schema": "print the schemas of the topics: JSON Schema, Avro, AsyncAPI",
        "help": "explain the reasons of rejected pages, and what each role must be allowed",
    },
    "Analyse, without a broker": {
        "fingerprint": "fingerprint pages: show them, or write rows for scan and load",
        "match": "find all near-duplicate pairs in a batch, or between a batch and a corpus",
        "compress": "write the fingerprints of pages, a state or an index to a compressed file",
        "decompress": "read the fingerprints of a compressed file",
        "plan": "choose tables for a number of pages and a memory size",
    },
}
COMMANDS = {name: what for section in SECTIONS.values() for name, what in section.items()}
RENAMED = {
    "index": "`neardup compress SOURCE FILE` and `neardup decompress FILE OUTPUT`",
    "bench": "`make bench`, `python -m tests.bench` or `python -m tests.bench.growth`, in a source checkout",
}
"""Commands of earlier versions, and what to call instead."""
ROLES = ("run", "worker", "judge", "elector", "trim", "dashboard")
"""Commands that run unattended: programs read their logs, and their exit code tells a supervisor whether to
restart them."""
INTERPRETED = ("explain",)
"""Commands that compare one pair of pages, for which Python's loops take less than loading machine code, and
12 s less than compiling it."""


class LazyGroup(CommandGroup):
    """A group that lists its commands without importing them, so that `--help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all command names, in the order of the sections."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, or return None if the name is unknown."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in ROLES:  # SIGTERM during the import is an orderly stop
            signal.signal(signal.SIGTERM, _end_in_order)
        command: click.Command = import_module(f"stream.cli.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Resolve a command, or say what one of an earlier version is called now."""
        if args and args[0] in RENAMED and not ctx.resilient_parsing:
            ctx.fail(f"`neardup {args[0]}` is now {RENAMED[args[0]]}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, with one line each."""
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), what) for name, what in commands.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="neardup-stream", prog_name="neardup")
def cli() -> None:
    """Near-duplicate detection for web crawls, as an exactly-once Kafka stream.

    \b
    neardup scan pages.jsonl crawl.warc.gz -o verdicts.jsonl     without Kafka
    neardup topics create --dev && neardup run --dev             with your own broker
    neardup publish crawl.warc.gz; neardup tail                  pages in, verdicts out

    Settings come from flags, environment variables NEARDUP_* and the TOML file named by NEARDUP_CONFIG, in
    this order of precedence. `neardup COMMAND --help` lists the flags of a command.

    Exit codes: 1 when an audit, `topics describe` or a scan found a problem, or a source is damaged; 2 for
    any other error. Roles also exit with 74 when a disk is full or fails, and with 78 when a restart would
    fail in the same way.
    """


def main() -> None:
    """Entry point. An expected error becomes one line on stderr and an exit code."""
    hide_memory()
    # SIGTERM raises SystemExit, so that unfinished files are removed. Roles install a handler of their own.
    role = len(sys.argv) > 1 and sys.argv[1] in ROLES
    signal.signal(signal.SIGTERM, _end_in_order if role else lambda *_: sys.exit(128 + signal.SIGTERM))
    if sys.argv[1:2] and sys.argv[1] in INTERPRETED:
        interpret_loops()
    output.take_stdout()
    if "_NEARDUP_COMPLETE" in os.environ:
        import_module("stream.cli.completion").add_bash()
    try:
        try:
            cli(standalone_mode=False)
        finally:
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _say_what_is_left()
        sys.exit(130)
    except SystemExit as end:
        if end.code == 128 + signal.SIGTERM:
            _say_what_is_left()
        raise
    except ClosedPipeError as error:
        output.give_up_stdout()
        sys.exit(error.exit_code)
    except NeardupError as error:
        _end(str(error), error.exit_code if role else EXIT_ERROR)
    except OSError as error:
        if role:
            raise
        _end(f"{error.filename}: {error.strerror}" if error.filename else str(error), EXIT_ERROR)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)


def _end_in_order(*_: object) -> None:
    """Exit a role that has not started work. Not by an exception: a running import might swallow it."""
    os._exit(0)


def _say_what_is_left() -> None:
    if output.interrupted:
        click.echo(f"neardup: interrupted: {'; '.join(output.interrupted)}", err=True)


def _end(message: str, code: int) -> NoReturn:
    lines = map(printable, message.splitlines())  # names of pages and files may be in it
    click.echo("neardup: " + "\n".join(lines), err=True)
    output.give_up_stdout()
    sys.exit(code)
