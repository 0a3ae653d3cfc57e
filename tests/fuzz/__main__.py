"""`python -m tests.fuzz`: feed numbered inputs to decoders, and report the results.

Exit code 1 if an input is a fault, whose bytes are then in `build/fuzz`.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from stream.ops.logging import configure
from tests.fuzz.decoder import Outcome, fuzz, made
from tests.fuzz.decoders import DECODERS
from tests.waiting import HANG_SECONDS

FINDS: Final = Path("build/fuzz")
LARGEST: Final = 1 << 20
"""Bytes of an input by coverage."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description="Fuzz every decoder.")
    parser.add_argument("--minutes", type=float, default=60.0, help="for all decoders together (60)")
    parser.add_argument("--inputs", type=int, help="for each decoder, instead of a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=[each.name for each in DECODERS])
    parser.add_argument("--at", type=int, help="run this input of --only alone, with its traceback")
    parser.add_argument("--guided", action="store_true", help="by coverage, with Atheris")
    asked = parser.parse_args()
    chosen = [each for each in DECODERS if not asked.only or each.name in asked.only]
    if asked.at is not None:
        for kind in chosen:
            with kind() as decoder:
                click.echo(decoder.check(made(decoder, asked.seed, asked.at)))
        return 0
    inputs = asked.inputs or sys.maxsize
    seconds = float("inf") if asked.inputs else asked.minutes * 60 / len(chosen)
    configure("text", "fuzz", logging.CRITICAL)  # what decoders say of hostile input is not looked at here
    checked = "compiled loops check their bounds" if os.environ.get("NUMBA_BOUNDSCHECK") == "1" else ""
    if asked.guided:
        free = [each.name for each in chosen if each.bytes_alone]
        return max([_guided(name, asked.seed, asked.inputs, seconds) for name in free], default=0)
    click.echo(f"==> fuzzing {len(chosen)} decoders, seed {asked.seed} {checked}")
    total = faults = 0
    for kind in chosen:
        with kind() as decoder:
            found = fuzz(decoder, asked.seed, inputs, seconds, lambda each: click.echo(_line(each)))
        click.echo(_line(found))
        for fault in found.faults:
            FINDS.mkdir(parents=True, exist_ok=True)
            path = FINDS / f"{found.name.replace(' ', '-')}-{found.seed}-{fault.number}"
            path.write_bytes(fault.data)
            click.echo(f"  FAULT at input {fault.number}, kept as {path}: {fault.error[:300]}")
        total, faults = total + found.inputs, faults + len(found.faults)
    click.echo(f"{total:,} inputs, {faults} faults")
    return 1 if faults else 0


def _guided(name: str, seed: int, inputs: int | None, seconds: float) -> int:
    """Run one decoder in a process of its own. Returns its exit code."""
    FINDS.mkdir(parents=True, exist_ok=True)
    bound = f"-runs={inputs}" if inputs else f"-max_total_time={seconds:.0f}"
    keep = f"-artifact_prefix={FINDS}/{name.replace(' ', '-')}-"
    click.echo(f"==> {name}")
    bounds = [bound, f"-max_len={LARGEST}", f"-timeout={HANG_SECONDS:.0f}", "-print_final_stats=1"]
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.guided",
        name,
        *bounds,
        keep,
        f"-seed={seed}",
        "-verbosity=0",
    ]
    return subprocess.run(command, check=False).returncode


def _line(found: Outcome) -> str:
    speed = found.inputs / found.seconds if found.seconds else 0
    came = ", ".join(f"{what} {count:,}" for what, count in found.came.most_common(6))
    return f"{found.name}: {found.inputs:,} inputs, {speed:,.0f}/s; {came}"


if __name__ == "__main__":
    sys.exit(main())
