"""The benchmarks: `python -m tests.bench`, in a source checkout; `make bench` installs the peers first."""

from __future__ import annotations

import json
import sys
import traceback
from importlib import import_module
from inspect import signature
from logging import WARNING
from pathlib import Path

import click

from stream.errors import NeardupError, SettingsError
from stream.ops import logging
from tests.bench import report
from tests.bench.busyness import sample_others

STAGES = {
    "fingerprint": ("fingerprint",),
    "extract": ("extract", "extract_quality"),
    "tables": ("tables", "table_peers"),
    "judge": ("judge", "judge_hostile"),
    "dashboard": ("dashboard",),
    "worker": ("worker",),
    "end-to-end": ("end_to_end",),
    "latency": ("latency",),
    "growth": ("growth",),
    "lifetime": ("lifetime",),
    "batch": ("match",),
    "backfill": ("backfill",),
    "dedup": ("dedup",),
    "start": ("start",),
    "quality": ("quality", "templates"),
}
"""Stage -> its parts. Each part is a module `tests.bench.bench_PART` with a function `run()`."""


@click.command("tests.bench")
@click.argument("stages", nargs=-1, type=click.Choice(list(STAGES)))
@click.option(
    "--data", type=click.Path(path_type=Path, exists=True), help="Directory with real text to measure on."
)
@click.option(
    "--picture", type=click.Path(path_type=Path), help="SVG file for the curves of the stage quality."
)
@click.option("--hostile", is_flag=True, help="Run only the parts with hostile input.")
@click.option(
    "--with", "sizes", multiple=True, metavar="NAME=NUMBER",
    help="Argument of the parts' `run`, such as anchors=60000.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per part.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Store results in this JSON file, and as a page beside it.",
)
@click.option(
    "--compare",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Report ratios that are lower than in this file; exit with code 1 if there are any.",
)
def command(
    stages: tuple[str, ...],
    data: Path | None,
    picture: Path | None,
    hostile: bool,
    sizes: tuple[str, ...],
    as_json: bool,
    keep: Path | None,
    compare: Path | None,
) -> None:
    """Run the benchmarks of STAGES (default: all) on this machine, side by side with other libraries.

    Stages that fail or could not be measured are listed at the end; the exit code is then 1. Peers are
    those that `make bench` installs.
    """
    logging.configure("auto", "bench", WARNING)
    chosen = stages or tuple(STAGES)
    fallen: list[str] = []
    unmeasured: list[str] = []
    parts = [(stage, part) for stage in chosen for part in STAGES[stage] if not hostile or "hostile" in part]
    if not parts:
        raise SettingsError(
            f"--hostile: {' and '.join(stages)} have no hostile part; the stage judge has one"
        )
    given = {"data": data, "picture": picture} | _numbers(sizes, [part for _, part in parts])
    for stage, part in parts:
        click.echo(f"measuring {part}", err=True)
        try:
            module = import_module(f"tests.bench.bench_{part}")
            takes = signature(module.run).parameters
            others = sample_others() if keep else 0.0
            figures = module.run(**{name: each for name, each in given.items() if each and name in takes})
        except NeardupError as error:
            unmeasured.append(str(error))
            continue
        except Exception as error:
            traceback.print_exc()
            unmeasured.append(f"bench {stage}: {part} failed: {error!r}")
            continue
        if compare:
            fallen += report.fallen(compare, part, figures)
        if keep:
            report.keep(keep, part, figures, max(others, sample_others()))
        if as_json:
            click.echo(json.dumps({"stage": stage, "part": part, **figures}))
        else:
            click.echo("\n".join([f"## {part}", "", *report.tables(figures)]))
    for each in unmeasured + fallen:
        click.echo(each, err=True)
    sys.exit(1 if fallen or unmeasured else 0)


def _numbers(sizes: tuple[str, ...], parts: list[str]) -> dict[str, int]:
    """Arguments by name. Raises SettingsError for what no part takes, and for what is no number."""
    numbers = {}
    for name, _, number in (each.partition("=") for each in sizes):
        takes = (signature(import_module(f"tests.bench.bench_{part}").run).parameters for part in parts)
        if not number.isdecimal() or not any(name in each for each in takes):
            raise SettingsError(f"--with {name}={number}: no number, or no argument of {', '.join(parts)}")
        numbers[name] = int(number)
    return numbers


if __name__ == "__main__":
    try:
        command(prog_name="python -m tests.bench")
    except NeardupError as error:
        sys.exit(f"bench: {error}")
