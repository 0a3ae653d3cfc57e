"""`neardup audit`."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import click

from stream.cli.options import CONNECTION, with_settings
from stream.extras import needs_export
from stream.ops import logging
from stream.settings import Settings


@click.command("audit")
@with_settings(*CONNECTION)
@click.option("--recompute", is_flag=True, help="Also decide the whole journal again and compare.")
@click.option("--rows", "directories", multiple=True,
              type=click.Path(file_okay=False),
              help="Also check that each row of this directory, which was loaded, has exactly one verdict."
              " Only the manifest is read; may be repeated.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON line.")
def command(settings: Settings, recompute: bool, directories: tuple[str, ...], as_json: bool) -> None:
    """Check that every page on the pages topic has exactly one verdict. Exit with code 1 if not.

    The deployment may be running. Pages that are not judged yet are missing, too; `waiting` says how many
    of the missing these are.
    """
    from rich.console import Console
    from rich.table import Table

    from stream.roles.auditor import audit
    from stream.roles.auditor.recompute import recompute as decide_again

    logging.configure(settings.log_format, "audit")
    rows = _rows(directories)
    console = Console(stderr=as_json)
    started = time.monotonic()
    with console.status("reading pages and verdicts") as status:

        def progress(topic: str, records: int) -> None:
            status.update(f"{topic}: {records:,} records")

        findings = asyncio.run(audit.audit(settings, progress, rows))
        differences = asyncio.run(decide_again(settings, progress)) if recompute else []
    seconds = time.monotonic() - started
    if as_json:
        print(  # noqa: T201
            json.dumps(
                {
                    "pages": findings.pages,
                    "verdicts": dict(findings.verdicts),
                    "missing": findings.missing,
                    "waiting": findings.waiting,
                    "repeated": findings.repeated,
                    "unexplained": findings.unexplained,
                    "earlier": findings.earlier,
                    "compacted": findings.compacted,
                    "loaded": findings.loaded,
                    "lost": findings.lost,
                    "different": len(differences) if recompute else None,
                    "seconds": round(seconds, 3),
                }
            )
        )
    else:
        table = Table("", "count", title=f"audit of {settings.namespace}")
        for name in (
            *("pages", "missing", "waiting", "repeated", "unexplained"),
            *("earlier", "compacted", "loaded", "lost"),
        ):
            table.add_row(name, f"{getattr(findings, name):,}")
        for verdict, count in sorted(findings.verdicts.items()):
            table.add_row(f"verdict {verdict}", f"{count:,}")
        if recompute:
            table.add_row("different when recomputed", f"{len(differences):,}")
        console.print(table)
        for line in (*findings.examples, *differences):
            console.print(line)
        console.print("every page has exactly one verdict" if findings.clean else "[bold red]not clean")
        if findings.waiting:
            console.print(f"{findings.waiting:,} of {findings.missing:,} missing pages are not judged yet")
        if findings.loaded:
            console.print("the manifests of loaded rows were not named: --rows DIRECTORY checks them too")
    sys.exit(0 if findings.clean and not differences else 1)


def _rows(directories: tuple[str, ...]) -> dict[str, int]:
    """Return the numbers of rows of directories, by digest. Raises RowsError and SettingsError."""
    if not directories:
        return {}
    from stream.objects import path_of

    with needs_export("--rows"):
        from stream.rows.manifest import manifest_alone
    manifests = [manifest_alone(path_of(each)) for each in directories]
    return {each.digest: each.rows for each in manifests}
