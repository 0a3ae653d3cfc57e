"""`neardup audit`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from stream.cli.options import CONNECTION, with_settings
from stream.cli.quantity import quantity
from stream.ops import logging
from stream.settings import Settings

if TYPE_CHECKING:
    from stream.checkpoints.manifest import Manifest
    from stream.roles.auditor.audit import Findings

HOUR: Final = 3600
FINDINGS: Final = {
    "pages": "on the topic, and rows of --rows",
    "rows": "how many of these are loaded rows",
    "waiting": "not judged yet",
    "missing": "judged, but without a verdict: a fault",
    "hidden": "judged, verdict hidden by an open transaction: not checked",
    "repeated": "verdicts beyond the first one of a page: a fault",
    "unexplained": "verdicts that are of no page: a fault",
    "lost": "deleted by retention before they were read",
    "superseded": "judged, verdict compacted away: not checked",
    "trimmed": "judged, verdict deleted by retention: not checked",
    "earlier": "verdicts on pages that were deleted since",
    "compacted": "verdicts on pages that compaction removed",
    "loaded": "verdicts on rows that no --rows names: not checked",
}
"""The rows of the table, and what each counts."""
ALWAYS: Final = ("pages", "waiting", "missing", "repeated", "unexplained", "lost")
"""Rows that are shown even if they are 0."""
EXIT_HIDDEN: Final = 3
TIMEOUT: Final = 600.0
LINE_SECONDS: Final = 10.0
"""Interval of progress lines where stderr is not a terminal."""
STALLED_SECONDS: Final = 30.0
"""Time without progress after which the audit asks whether roles run."""


@click.command("audit")
@with_settings(*CONNECTION, "checkpoints")
@click.option("--wait", is_flag=True, help="First wait until the pages that are there are judged.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS",
              help=f"Longest time for --wait, after which it audits.  [default: {TIMEOUT:g}]")  # fmt: skip
@click.option("--recompute", is_flag=True,
              help="Also decide the journal again and compare. If it was trimmed, that begins at the oldest"
              " checkpoint in --checkpoints.")  # fmt: skip
@click.option("--rows", "directories", multiple=True,
              type=click.Path(file_okay=False),
              help="Also check that each row of this directory, which was loaded, has exactly one verdict."
              " Only the manifest is read; may be repeated.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON line.")
def command(
    settings: Settings,
    wait: bool,
    timeout: float | None,
    recompute: bool,
    directories: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check that every page on the pages topic has exactly one verdict. Exit with code 1 if not, and with 3
    if an open transaction hides verdicts, so that it cannot be seen.

    The deployment may be running. Pages that are not judged yet are `waiting`; only pages that were judged
    and have no verdict are `missing`. With --wait, the audit waits for the judge first.
    """
    from rich.console import Console

    from stream.roles.auditor import audit
    from stream.roles.auditor.recompute import recompute as decide_again

    if timeout is not None and not wait:
        raise click.UsageError("--timeout is for --wait")
    logging.configure(settings.log_format, "audit")
    rows = _rows(directories)
    started = time.monotonic()
    with Console(stderr=True).status("reading pages and verdicts") as status:

        def progress(topic: str, records: int) -> None:
            status.update(f"{topic}: {records:,} records")

        findings = asyncio.run(
            audit.audit(
                settings,
                progress,
                rows,
                wait_seconds=(TIMEOUT if timeout is None else timeout) if wait else 0.0,
                report_waiting=_Waiting(status.update),
            )
        )
        begun: list[Manifest] = []
        differences = asyncio.run(decide_again(settings, progress, begun.append)) if recompute else []
    seconds = time.monotonic() - started
    if as_json:
        counts = {name: getattr(findings, name) for name in FINDINGS}
        print(  # noqa: T201
            json.dumps(
                counts
                | {
                    "verdicts": dict(findings.verdicts),
                    "waiting_since": findings.waiting_since,
                    "hidden_by": findings.hidden_by,
                    "different": len(differences) if recompute else None,
                    "recomputed_from": (begun[0].applied if begun else 0) if recompute else None,
                    "seconds": round(seconds, 3),
                }
            )
        )
    else:
        _show(settings.namespace, findings, differences if recompute else None)
        if begun:
            print(  # noqa: T201
                f"decided again from journal offset {begun[0].applied} on, with checkpoint {begun[0].name}:"
                " older records were trimmed, and verdicts on their pages are counted only"
            )
    if findings.hidden and not findings.faults and not differences:
        sys.exit(EXIT_HIDDEN)
    sys.exit(0 if findings.clean and not differences else 1)


class _Waiting:
    """Reports the number of waiting pages on stderr: in the status of a terminal, or in some lines."""

    def __init__(self, update: Callable[[str], None]) -> None:
        self._update = update
        self._least: int | None = None
        self._moved = self._printed = time.monotonic()

    def __call__(self, pages: int) -> None:
        now = time.monotonic()
        if self._least is None or pages < self._least:
            self._least, self._moved = pages, now
        line = f"waiting for the judge: {quantity(pages, 'page')} not judged yet"
        if now - self._moved > STALLED_SECONDS:
            line += f", the same as {now - self._moved:.0f} s ago: do workers and a judge run?"
        self._update(line)
        if pages and not sys.stderr.isatty() and now - self._printed > LINE_SECONDS:
            self._printed = now
            click.echo(line, err=True)


def _show(namespace: str, findings: Findings, differences: list[str] | None) -> None:
    """Print the table, examples of faults, and what it comes to."""
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=True, highlight=False)
    table = Table("", "count", "", title=f"audit of {namespace}")
    table.columns[1].justify = "right"
    for name, meaning in FINDINGS.items():
        if (count := getattr(findings, name)) or name in ALWAYS:
            table.add_row(name, f"{count:,}", meaning)
    for verdict, count in sorted(findings.verdicts.items()):
        table.add_row(f"verdict {verdict}", f"{count:,}", "")
    if differences is not None:
        table.add_row(
            "different", f"{len(differences):,}", "decisions or verdicts that do not follow: a fault"
        )
    console.print(table, soft_wrap=False)
    for line in (*findings.examples, *findings.hidden_by, *(differences or ())):
        console.print(line, markup=False)
    if findings.faults or differences:
        console.print("[bold red]not clean")
    elif not findings.pages:
        console.print(f"{namespace} has no pages")
    elif findings.clean:
        gone = [("retention", findings.trimmed), ("compaction", findings.superseded)]
        named = " or ".join(name for name, count in gone if count)
        still = f" that {named} has not deleted" if named else ""
        console.print(f"every page has exactly one verdict{still}")
    if findings.waiting:
        since = findings.waiting_since
        oldest = "" if since is None else f", the oldest published {_age(since)} ago"
        waiting = quantity(findings.waiting, "page")
        console.print(f"{waiting} not judged yet{oldest}; `neardup audit --wait` waits for the judge")
    if findings.hidden:
        console.print("a transaction hides verdicts: audit again when it has ended")
    if findings.superseded:
        console.print(
            f"{namespace}.verdicts is compacted, which keeps the newest verdict of each key; the required"
            " cleanup.policy is delete"
        )
    if findings.loaded:
        console.print("the manifests of some loaded rows were not named: --rows DIRECTORY checks them too")


def _age(milliseconds: int) -> str:
    seconds = max(0, round(time.time() - milliseconds / 1000))
    return f"{seconds:,} s" if seconds < HOUR else f"{seconds / HOUR:,.1f} h"


def _rows(directories: tuple[str, ...]) -> dict[str, int]:
    """Return the numbers of rows of directories, by digest. Raises RowsError and SettingsError."""
    if not directories:
        return {}
    from stream.rows.manifest import manifest_alone
    from stream.stores.objects import path_of

    manifests = [manifest_alone(path_of(each)) for each in directories]
    return {each.digest: each.rows for each in manifests}
