"""A copy of the tree, in which the tests of one mutant at a time are run with its fault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.mutants.table import ROOT, Mutant

MOST_SECONDS: Final = 1500.0
"""A run of tests that takes longer is killed, and catches nothing."""
STOPPED: Final = threading.Event()
"""Once it is set, all runs of tests are killed."""
CAUGHT, MISSED, HUNG = "caught", "missed", "tests hang"
NOT_FOUND, NO_TESTS, FAILS_WITHOUT = "text not found", "no such tests", "tests fail without it"
_OUTCOMES: Final[dict[int, str]] = {
    pytest.ExitCode.OK: MISSED,
    pytest.ExitCode.USAGE_ERROR: NO_TESTS,
    pytest.ExitCode.NO_TESTS_COLLECTED: NO_TESTS,
}


class Result(msgspec.Struct, frozen=True):
    """What became of one mutant."""

    outcome: str
    seconds: float
    failed: str = ""
    """The test that caught it; empty if the process that ran the tests ended before it could say."""
    is_confirmed: bool = False
    """Whether that test passes without the fault."""

    def witnesses(self, mutant: Mutant) -> Sequence[str]:
        """The tests that caught it."""
        return [self.failed] if self.failed else mutant.tests


class Copy:
    """A copy of the files that git has or would take, which replaces what is at `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.rmtree(root, ignore_errors=True)
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.check_output(command, cwd=ROOT, text=True).split("\0"):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        self._failed = root / ".pytest_cache" / "v" / "cache" / "lastfailed"
        # Child processes, too, import from the copy. Compiled loops are cached by their code, so that those
        # with a fault are compiled, and no others.
        ours = {"PYTHONPATH": str(root), "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(root.parent)}
        self._environment = os.environ | ours

    def judge(self, mutant: Mutant) -> Result:
        """Run the mutant's tests with its fault, up to the first that fails."""
        began = time.monotonic()
        try:
            with self._applied(mutant):
                code = self._run(mutant.name, ["-x", *mutant.tests])
        except ValueError:
            return Result(NOT_FOUND, 0.0)
        except TimeoutError:
            return Result(HUNG, MOST_SECONDS)
        failed = next(iter(self._failed_tests()), "")
        return Result(_OUTCOMES.get(code, CAUGHT), round(time.monotonic() - began, 1), failed)

    def failures(self, tests: list[str]) -> list[str]:
        """Return which of these fail without any fault; all of them if they cannot be run."""
        with suppress(TimeoutError):
            if self._run("without", tests) in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                return self._failed_tests()
        return tests

    def _failed_tests(self) -> list[str]:
        return list(json.loads(self._failed.read_text())) if self._failed.exists() else []

    @contextmanager
    def _applied(self, mutant: Mutant) -> Iterator[None]:
        path = self.root / mutant.file
        content, original, status = mutant.apply(self.root), path.read_bytes(), path.stat()
        try:
            path.write_text(content, "utf-8")
            # Python knows its bytecode by size and seconds of the source: no other version has these.
            os.utime(path, (status.st_atime, int(mutant.key(self.root)[:7], 16)))
            yield
        finally:
            path.write_bytes(original)
            os.utime(path, (status.st_atime, status.st_mtime))

    def _run(self, name: str, arguments: Sequence[str]) -> int:
        """Run pytest, and return its exit code. Raises TimeoutError, or InterruptedError if all is
        stopped."""
        self._failed.unlink(missing_ok=True)
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)  # examples that other mutants failed
        with self.root.with_name(f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [ROOT / "tests" / "in_memory", sys.executable, "-m", "pytest", "-q", "-p", "no:randomly",
                 "--hypothesis-seed=0", "-o", "timeout=600", *arguments],
                cwd=self.root, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + MOST_SECONDS
        try:
            while process.poll() is None:
                if STOPPED.wait(0.1):
                    raise InterruptedError
                if time.monotonic() > deadline:
                    raise TimeoutError
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):  # the first lets temporary directories be removed
                if process.poll() is None:
                    os.killpg(process.pid, number)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(30)
        return process.returncode
