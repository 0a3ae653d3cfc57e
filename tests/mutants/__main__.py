"""`python -m tests.mutants`: put each fault of the table into a copy of this tree, and run its tests there.

Results are kept in `build/mutants`, so that a run goes on where the last one was stopped: a mutant is tried
again only when its entry, its file or its tests have changed, or if it was not caught. Exit code 1 if one is
not caught.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import json
import os
import queue
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click
import msgspec
import pytest

from tests.mutants.table import ROOT, Mutant, read

BUILD: Final = ROOT / "build" / "mutants"
MOST_SECONDS: Final = 1500.0
"""A run of tests that takes longer is killed, and catches nothing."""
AT_ONCE: Final = 25
"""Mutants whose tests are run without them in one process."""
CAUGHT, MISSED, HUNG = "caught", "missed", "tests hang"
NOT_FOUND, NO_TESTS, FAILS_WITHOUT = "text not found", "no such tests", "tests fail without it"


class Result(msgspec.Struct, frozen=True):
    """What became of one mutant."""

    outcome: str
    seconds: float
    failed: str = ""
    """The test that caught it; empty if the process that ran the tests ended before it could say."""
    is_confirmed: bool = False
    """Whether that test passes without the fault."""

    def witnesses(self, mutant: Mutant) -> list[str]:
        """The tests that caught it."""
        return [self.failed] if self.failed else list(mutant.tests)


def main() -> int:
    """Try the chosen mutants."""
    parser = argparse.ArgumentParser(prog="make mutants", description="Put faults into a copy of the tree.")
    parser.add_argument("patterns", nargs="*", help="names or files, such as 'stream/judge/*' (all)")
    parser.add_argument("--tier", choices=["day", "night"], help="of one tier alone")
    parser.add_argument("--jobs", type=int, default=2, help="processes, each with a copy of its own (2)")
    parser.add_argument("--again", action="store_true", help="also those with a result")
    parser.add_argument("--list", action="store_true", help="print results, and try nothing")
    options = parser.parse_args()
    chosen = [each for each in read() if _is_chosen(each, options.patterns, options.tier)]
    if not chosen:
        parser.error("no such mutant")
    stored = {each.name: result for each in chosen if (result := _stored(each))}
    caught = {name: each for name, each in stored.items() if each.outcome == CAUGHT}
    if options.list:
        return _report(chosen, stored)
    todo = [each for each in chosen if options.again or each.name not in caught]
    click.echo(f"{len(todo)} of {len(chosen)} mutants to try; results are in {BUILD.relative_to(ROOT)}")
    results = caught | _try_all(todo, min(options.jobs, len(todo)))
    return _report(chosen, results | _confirm(chosen, results))


def _is_chosen(mutant: Mutant, patterns: list[str], tier: str | None) -> bool:
    named = not patterns or any(
        fnmatch.fnmatch(each, pattern) for each in (mutant.name, mutant.file) for pattern in patterns
    )
    return named and tier in (None, mutant.tier)


def _try_all(mutants: list[Mutant], jobs: int) -> dict[str, Result]:
    results: dict[str, Result] = {}
    copies: queue.SimpleQueue[_Copy] = queue.SimpleQueue()
    for number in range(jobs):
        copies.put(_Copy(BUILD / f"copy-{number}"))

    def judge(mutant: Mutant) -> None:
        copy = copies.get()
        results[mutant.name] = result = copy.judge(mutant)
        _keep(mutant, copy.root, result)
        copies.put(copy)
        click.echo(f"{len(results)}/{len(mutants)} {_line(mutant, result)}")

    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        try:
            for each in [pool.submit(judge, mutant) for mutant in mutants]:
                each.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            _Copy.stop_all()
            raise
    return results


def _confirm(mutants: list[Mutant], results: dict[str, Result]) -> dict[str, Result]:
    """Run the tests that caught mutants once more without these, many in one process. Returns the results of
    those that were not confirmed before."""
    caught = [each for each in mutants if results[each.name].outcome == CAUGHT]
    todo = [each for each in caught if not results[each.name].is_confirmed]
    confirmed: dict[str, Result] = {}
    for first in range(0, len(todo), AT_ONCE):
        click.echo(f"{min(first + AT_ONCE, len(todo))}/{len(todo)} run without their fault")
        copy = _Copy(BUILD / "copy-0")
        some = {each: results[each.name].witnesses(each) for each in todo[first : first + AT_ONCE]}
        failures = copy.failures(sorted({test for tests in some.values() for test in tests}))
        for mutant, tests in some.items():
            fails = any(test.startswith(each) or each.startswith(test) for test in tests for each in failures)
            outcome = FAILS_WITHOUT if fails else CAUGHT
            result = msgspec.structs.replace(results[mutant.name], outcome=outcome, is_confirmed=True)
            confirmed[mutant.name] = result
            _keep(mutant, copy.root, result)
    return confirmed


class _Copy:
    """A copy of the tree, in which one mutant at a time is applied."""

    _running: Final[set[subprocess.Popen[str]]] = set()
    _is_stopped = False

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.rmtree(root, ignore_errors=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).exists():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        self._failed = root / ".pytest_cache" / "v" / "cache" / "lastfailed"
        # Child processes, too, import from the copy. Compiled loops are cached by their code, so that a loop
        # with a fault is compiled, and no other.
        self._environment = os.environ | {
            "PYTHONPATH": str(root), "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(BUILD),
        }  # fmt: skip

    def judge(self, mutant: Mutant) -> Result:
        """Whether the mutant's tests fail, and pass without it."""
        began = time.monotonic()
        outcome, failed = self._judge(mutant)
        return Result(outcome, round(time.monotonic() - began, 1), failed)

    def _judge(self, mutant: Mutant) -> tuple[str, str]:
        try:
            with self._applied(mutant):
                code = self._run(mutant.name, ["-x", *mutant.tests])
        except ValueError as error:
            return NOT_FOUND, str(error)
        except subprocess.TimeoutExpired:
            return HUNG, ""
        if code == 0:
            return MISSED, ""
        if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
            return NO_TESTS, ""
        failed = next(iter(self._failed_tests()), "")
        return CAUGHT, failed

    def failures(self, tests: list[str]) -> list[str]:
        """Which of these fail without any fault; all of them if they cannot be run."""
        with suppress(subprocess.TimeoutExpired):
            if self._run("without", tests) in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                return self._failed_tests()
        return tests

    def _failed_tests(self) -> list[str]:
        return list(json.loads(self._failed.read_text())) if self._failed.exists() else []

    @contextmanager
    def _applied(self, mutant: Mutant) -> Iterator[None]:
        path = self.root / mutant.file
        content, status = mutant.apply(self.root), path.stat()
        original = path.read_bytes()
        try:
            path.write_text(content, "utf-8")
            # Python knows its bytecode by size and seconds of the source: no other version has these.
            os.utime(path, (status.st_atime, int(mutant.key(self.root)[:7], 16)))
            yield
        finally:
            path.write_bytes(original)
            os.utime(path, (status.st_atime, status.st_mtime))

    def _run(self, name: str, arguments: list[str]) -> int:
        self._failed.unlink(missing_ok=True)
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)  # examples that other mutants failed
        with (BUILD / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [ROOT / "tests" / "in_memory", sys.executable, "-m", "pytest", "-q",
                 "-p", "no:randomly", "--hypothesis-seed=0", "-o", "timeout=600", *arguments],
                cwd=self.root, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                text=True, start_new_session=True,
            )  # fmt: skip
            self._running.add(process)
            try:
                code = process.wait(MOST_SECONDS)
            finally:
                self._running.discard(process)
                _end(process)
        if self._is_stopped:
            raise InterruptedError
        return code

    @classmethod
    def stop_all(cls) -> None:
        """End all runs of tests, which then have no result."""
        cls._is_stopped = True
        for each in list(cls._running):
            _end(each)


def _end(process: subprocess.Popen[str]) -> None:
    """End a run of tests, which removes its temporary directory if it is given the time."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)


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
    tried = [(each, results[each.name]) for each in chosen if each.name in results]
    click.echo()
    for each, result in tried:
        click.echo(_line(each, result))
    counts = collections.Counter(result.outcome for _, result in tried)
    counts["not tried"] = len(chosen) - len(tried)
    median = statistics.median([result.seconds for _, result in tried] or [0.0])
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    click.echo(f"{summary}; median {median} s")
    return int(counts[CAUGHT] < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
