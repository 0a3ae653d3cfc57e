"""`neardup bench`."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from itertools import chain
from logging import WARNING
from pathlib import Path
from typing import Any

import click

from stream.errors import NeardupError
from stream.ops import logging

STAGES = ("fingerprint", "tables", "judge", "worker")
PARTS = {"tables": ("tables", "methods")}
"""Stages of several parts."""
ALONE = ("methods", "match")
"""Parts that may be asked for by themselves; `match` takes minutes and is never run unasked."""


@click.command("bench")
@click.argument("stages", nargs=-1, type=click.Choice((*STAGES, *ALONE)))
@click.option("--data", type=click.Path(path_type=Path, exists=True), help="Directory with real text.")
@click.option("--json", "as_json", is_flag=True, help="End every stage with one JSON line.")
def command(stages: tuple[str, ...], data: Path | None, as_json: bool) -> None:
    """Measure STAGES (all of them by default), side by side with peers, on this machine.

    Needs a source checkout (`tests/bench`); `fingerprint` needs the peers of `pip install .[bench]`.
    """
    from rich.console import Console

    logging.configure("auto", "bench", WARNING)
    console = Console(stderr=as_json)
    root = Path(__file__).parents[2]
    if not (root / "tests" / "bench").is_dir():
        raise NeardupError("bench: the benchmarks are not in the package; run it in a source checkout")
    sys.path.insert(0, str(root))
    for stage in chain.from_iterable(PARTS.get(asked, (asked,)) for asked in stages or STAGES):
        module = import_module(f"tests.bench.bench_{stage}")
        with console.status(f"measuring {stage}"):
            found = module.run(data=data) if data and stage in ("fingerprint", "worker") else module.run()
        if as_json:
            sys.stdout.write(json.dumps({"stage": stage, **found}) + "\n")
            sys.stdout.flush()
        elif hasattr(module, "show"):
            module.show(console, found)
        else:
            _show(console, stage, found)


def _show(console: Any, stage: str, found: dict[str, Any]) -> None:
    """A table a stage; a row a figure."""
    from rich.table import Table

    table = Table("figure", "value", title=stage)
    for name, value in _flat("", found):
        table.add_row(name, f"{value:,}" if isinstance(value, (int, float)) else str(value))
    console.print(table)


def _flat(prefix: str, found: dict[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in found.items():
        label = f"{prefix}{name.replace('_', ' ')}"
        rows += _flat(f"{label}: ", value) if isinstance(value, dict) else [(label, value)]
    return rows
