"""The `neardup` command: one sub-command a file, imported only when it is called."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import NoReturn

import click

from stream import output
from stream.children.confine import hide_memory
from stream.cli.group import Group
from stream.errors import EXIT_ERROR, ClosedPipeError, NeardupError

SECTIONS = {
    "Start here": {
        "demo": "the whole system on a real crawl and a real broker",
        "scan": "offline: pages in, verdicts out, no broker",
    },
    "Run a deployment": {
        "topics": "create or describe the topics",
        "run": "all roles in one process tree: workers, a judge, a dashboard",
        "worker": "fingerprint pages into the journal",
        "judge": "decide the journal, publish verdicts",
        "dashboard": "show the verdicts on a web page",
    },
    "Use one": {
        "publish": "publish pages from files to the pages topic",
        "tail": "follow the verdicts",
        "verdicts": "export the verdicts to DuckDB, Parquet or PostgreSQL",
        "query": "which anchors match, nothing inserted",
        "audit": "check that every page has exactly one verdict",
        "schema": "print the contracts of the topics: JSON Schema, Avro, AsyncAPI",
    },
    "Look closer, without a broker": {
        "fingerprint": "show fingerprints of pages",
        "explain": "why two pages are near-duplicates, or are not",
        "match": "all pairs of a batch and a corpus within a Hamming distance",
        "index": "export and import compressed fingerprints",
        "plan": "which tables for how many pages and how much memory",
        "bench": "measure, side by side with peers",
    },
}
COMMANDS = {name: what for section in SECTIONS.values() for name, what in section.items()}
ROLES = ("run", "worker", "judge", "dashboard")
"""Commands that a supervisor keeps running: their exit code tells it whether to try again."""


class LazyGroup(Group):
    """Lists commands without importing them: `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the sections."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in ROLES:  # whoever stops it while it is still being imported has stopped it in order
            signal.signal(signal.SIGTERM, _end_in_order)
        command: click.Command = import_module(f"stream.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands with a line each."""
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
    neardup topics create --dev && neardup run --dev             with a broker of one's own
    neardup publish crawl.warc.gz; neardup tail                  pages in, verdicts out

    Options of a deployment come from flags, environment variables NEARDUP_* and a TOML file named by
    NEARDUP_CONFIG, in this order; `neardup COMMAND --help` lists a command's. Exit codes: 1 when an
    audit, `topics describe` or a scan found something wrong, 2 for an error; of roles also 74 when a disk is
    full or fails, 78 when starting again would end in the same way.
    """


def main() -> None:
    """Entry point: errors of ours are one line on stderr and an exit code."""
    hide_memory()
    # Whoever is told to stop removes its unfinished files first. Roles say themselves what SIGTERM means.
    role = len(sys.argv) > 1 and sys.argv[1] in ROLES
    signal.signal(signal.SIGTERM, _end_in_order if role else lambda *_: sys.exit(128 + signal.SIGTERM))
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
    """End a role that has begun nothing yet. No exception: what is under way might take it for its own."""
    os._exit(0)


def _say_what_is_left() -> None:
    if output.interrupted:
        click.echo(f"neardup: interrupted: {'; '.join(output.interrupted)}", err=True)


def _end(message: str, code: int) -> NoReturn:
    click.echo(f"neardup: {message}", err=True)
    output.give_up_stdout()
    sys.exit(code)
