"""`python -m tests.mutants`: put each fault of the table into a copy of this tree, and run its tests there.

Results are kept in `build/mutants`, so that a run goes on where the last one was stopped: a mutant that was
caught is tried again only when its entry, its file or its tests have changed. Exit code 1 if one is not
caught.
"""

from __future__ import annotations

import argparse
import collections
import os
import queue
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import click
import msgspec

from stream.locks import try_lock
from tests.mutants.copy import CAUGHT, FAILS_WITHOUT, STOPPED, Copy, Result
from tests.mutants.table import ROOT, Mutant, read

BUILD: Final = ROOT / "build" / "mutants"
AT_ONCE: Final = 25
"""Mutants whose tests are run without them in one process."""


def main() -> int:
    """Try the chosen mutants that were not caught before."""
    parser = argparse.ArgumentParser(prog="make mutants", description="Put faults into a copy of the tree.")
    parser.add_argument("beginnings", nargs="*", help="of names or files, such as stream/judge/ (all)")
    parser.add_argument("--tier", choices=["day", "night"], help="of one tier alone")
    parser.add_argument("--jobs", type=int, default=2, help="processes, each with a copy of its own (2)")
    options = parser.parse_args()
    chosen = [each for each in read() if _is_chosen(each, tuple(options.beginnings), options.tier)]
    if not chosen:
        parser.error("no such mutant")
    results = {each.name: result for each in chosen if (result := _stored(each)) and result.outcome == CAUGHT}
    mutants = [each for each in chosen if each.name not in results]
    click.echo(f"{len(mutants)} of {len(chosen)} mutants to try; results are in {BUILD.relative_to(ROOT)}")
    BUILD.mkdir(parents=True, exist_ok=True)
    if not try_lock(os.open(BUILD, os.O_RDONLY | os.O_DIRECTORY)):
        parser.error(f"another run has {BUILD}")
    results |= _try_all(mutants, max(1, min(options.jobs, len(mutants))))
    results |= _confirm([each for each in chosen if results[each.name].outcome == CAUGHT], results)
    return _report(chosen, results)


def _is_chosen(mutant: Mutant, beginnings: tuple[str, ...], tier: str | None) -> bool:
    named = mutant.name.startswith(beginnings) or mutant.file.startswith(beginnings)
    return (named or not beginnings) and tier in (None, mutant.tier)


def _try_all(mutants: list[Mutant], jobs: int) -> dict[str, Result]:
    results: dict[str, Result] = {}
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for number in range(jobs):
        copies.put(Copy(BUILD / f"copy-{number}"))

    def judge(mutant: Mutant) -> None:
        copy = copies.get()
        try:
            results[mutant.name] = result = copy.judge(mutant)
            _keep(mutant, copy.root, result)
        finally:
            copies.put(copy)
        click.echo(f"{len(results)}/{len(mutants)} {_line(mutant, result)}")

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for each in [pool.submit(judge, mutant) for mutant in mutants]:
                each.result()
        except BaseException:
            STOPPED.set()
            pool.shutdown(cancel_futures=True)
            raise
    return results


def _confirm(caught: list[Mutant], results: dict[str, Result]) -> dict[str, Result]:
    """Run the tests that caught mutants without these, many in one process. Returns the results of those that
    were not confirmed before."""
    todo = [each for each in caught if not results[each.name].is_confirmed]
    confirmed: dict[str, Result] = {}
    for first in range(0, len(todo), AT_ONCE):
        some, copy = todo[first : first + AT_ONCE], Copy(BUILD / "copy-0")
        click.echo(f"{first + len(some)}/{len(todo)}: tests run without a fault")
        failures = copy.failures(
            sorted({test for each in some for test in results[each.name].witnesses(each)})
        )
        for mutant in some:
            result = results[mutant.name]
            fails = any(
                test.startswith(each) or each.startswith(test)
                for test in result.witnesses(mutant)
                for each in failures
            )
            outcome = FAILS_WITHOUT if fails else CAUGHT
            confirmed[mutant.name] = msgspec.structs.replace(result, outcome=outcome, is_confirmed=True)
            _keep(mutant, copy.root, confirmed[mutant.name])
    return confirmed


def _file(mutant: Mutant, root: Path) -> Path:
    return BUILD / "results" / f"{mutant.name}-{mutant.key(root)[:16]}.json"


def _stored(mutant: Mutant) -> Result | None:
    try:
        return msgspec.json.decode(_file(mutant, ROOT).read_bytes(), type=Result)
    except OSError:
        return None


def _keep(mutant: Mutant, root: Path, result: Result) -> None:
    path = _file(mutant, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".part").write_bytes(msgspec.json.encode(result))
    path.with_suffix(".part").replace(path)


def _line(mutant: Mutant, result: Result) -> str:
    return f"{result.outcome:14} {result.seconds:6.1f} s  {mutant.tier:5} {mutant.name}  {result.failed}"


def _report(chosen: list[Mutant], results: dict[str, Result]) -> int:
    """Print all results. Returns the exit code."""
    click.echo()
    for each in chosen:
        click.echo(_line(each, results[each.name]))
    counts = collections.Counter(each.outcome for each in results.values())
    median = statistics.median(each.seconds for each in results.values())
    click.echo(", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + f"; median {median} s")
    return int(counts[CAUGHT] < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
