"""`make nightly`: everything that can be tested on this machine, in parts that take about as long.

python -m tests.nightly --part 3/12

A part has files of tests, and jobs with a target of their own. What lacks its tool is named, and is no pass.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from tests.seconds import seconds_of_files

ROOT: Final = Path(__file__).parents[1]
PYTEST: Final = (
    *("tests/in_memory", sys.executable, "-m", "pytest"),
    *("--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder"),
)
CHECKED: Final = {"NUMBA_BOUNDSCHECK": "1"}
"""Compiled loops check each array access."""


def _lacking(*programs: str) -> Callable[[], str]:
    def lacking() -> str:
        return ", ".join(each for each in programs if shutil.which(each) is None)

    return lacking


def _lacking_for_images() -> str:
    if lacking := _lacking("apt-get")():
        return lacking
    return "" if os.getuid() == 0 else "root"


@dataclass(frozen=True)
class Job:
    """What one process does."""

    name: str
    command: tuple[str, ...]
    seconds: float
    """What it takes about, once its environment is installed."""
    environment: Mapping[str, str] = field(default_factory=dict)
    lacking: Callable[[], str] = lambda: ""
    """Returns what it needs and this machine does not have."""


KAFKAS: Final = ("3.7.2", "3.9.1", "4.1.0", "4.2.0", "4.3.0")
"""Those of the Makefile."""
JOBS: Final = (
    Job("chaos, three brokers", ("make", "chaos", "ARGS=--minutes 5 --epoch-seconds 100"), 420),
    Job("chaos, one broker", ("make", "chaos", "ARGS=--minutes 5 --epoch-seconds 60 --brokers 1"), 420),
    Job("fuzz", ("make", "fuzz", "ARGS=--minutes 4"), 260),
    Job("examples", ("make", "examples"), 180),
    Job("engines", ("make", "engines"), 400, lacking=_lacking("java")),
    Job("images", ("make", "images"), 600, lacking=_lacking_for_images),
    Job("kubernetes", ("make", "kubernetes"), 400, lacking=_lacking("go")),
    *(Job(f"Kafka {each}", ("make", "compat", f"ARGS={each}"), 90) for each in KAFKAS),
)
"""What has a target of its own."""


@dataclass
class Part:
    """Jobs and test files of about as many seconds as each other part has."""

    seconds: float = 0.0
    jobs: list[Job] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    """Files whose tests run with the code that a deployment has."""
    checked: list[str] = field(default_factory=list)
    """Files of which the tests that `make test` leaves out run with array accesses checked."""


def divide(count: int) -> list[Part]:
    """Divide everything into parts, the longest first, each to the part that has least."""
    files = seconds_of_files(ROOT)
    whole = [(job.seconds, job.name, job) for job in JOBS]
    whole += [(seconds, file, "unchecked") for file, seconds in files.items()]
    whole += [(seconds, file, "checked") for file, seconds in files.items() if _has_night(file)]
    parts = [Part() for _ in range(count)]
    for seconds, name, kind in sorted(whole, key=lambda each: (-each[0], each[1], str(each[2]))):
        part = min(parts, key=lambda each: each.seconds)
        part.seconds += seconds
        if isinstance(kind, Job):
            part.jobs.append(kind)
        else:
            getattr(part, kind).append(name)
    return parts


def _has_night(file: str) -> bool:
    source = (ROOT / file).read_text("utf-8")
    of_night = any(each in source for each in ("pytest.mark.night", "from tests.night import"))
    return of_night and file.startswith(("tests/unit/", "tests/property/"))


def _jobs(part: Part) -> Iterator[Job]:
    if part.unchecked:
        yield Job("tests", (*PYTEST, *part.unchecked), 0)
    if part.checked:
        yield Job("tests of the night, checked", (*PYTEST, "-m", "night", *part.checked), 0, CHECKED)
    yield from part.jobs


def run(part: Part) -> dict[str, str]:
    """Run a part. Returns what became of each job."""
    outcomes = {}
    for job in _jobs(part):
        if lacking := job.lacking():
            outcomes[job.name] = f"NOT RUN: needs {lacking}"
            continue
        began = time.monotonic()
        click.echo(f"\n==> {job.name}: {' '.join(job.command)[:160]}")
        code = subprocess.run(job.command, cwd=ROOT, env=os.environ | job.environment, check=False).returncode
        outcome = "passed" if code == 0 else f"FAILED with {code}"
        outcomes[job.name] = f"{outcome} after {time.monotonic() - began:.0f} s"
    return outcomes


@click.command("make nightly")
@click.option("--part", "chosen", metavar="I/N", help="One part of so many; by default all of twelve.")
@click.option("--show", is_flag=True, help="Print what each part has, and run nothing.")
def main(chosen: str | None, show: bool) -> None:
    """Run everything, or a part of it. Exit code 1 where something failed."""
    number, _, count = (chosen or "0/12").partition("/")
    if not (number + count).isascii() or not (number + count).isdigit() or not 0 <= int(number) <= int(count):
        raise click.UsageError(f"--part: {chosen} is not I/N, as in 3/12")
    parts = divide(int(count))
    failed = False
    for place, part in enumerate(parts, 1):
        if int(number) not in (0, place):
            continue
        names = ", ".join([f"{len(part.unchecked)} files of tests", *(job.name for job in part.jobs)])
        click.echo(f"part {place} of {count}, about {part.seconds / 60:.0f} minutes on two cores: {names}")
        if show:
            continue
        outcomes = run(part)
        click.echo(f"\npart {place} of {count}:")
        for name, outcome in outcomes.items():
            click.echo(f"  {name}: {outcome}")
        failed |= any(outcome.startswith("FAILED") for outcome in outcomes.values())
    sys.exit(failed)


if __name__ == "__main__":
    main()
