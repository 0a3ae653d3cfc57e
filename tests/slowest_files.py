"""The slowest test files: processor time of their tests, and of the children that these waited for."""

from __future__ import annotations

import json
import resource
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

SHOWN: Final = 10
MOST_SECONDS: Final = 60.0
"""Processor time of a file in `make test`, beyond which the summary warns."""
_SPENT: Final = "processor seconds"


class SlowestFiles:
    """A plugin that adds the slowest files to the summary, whichever process ran them."""

    def __init__(self, kept: Path | None) -> None:
        """The seconds of all files go to `kept` as well."""
        self._kept = kept
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._elapsed: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        item.stash[_BEGAN] = _processor_seconds()
        item.stash[_IS_LAST] = nextitem is None
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = _processor_seconds()
        # With the last test end the broker and the fork server that many others used.
        if not (report.when == "teardown" and item.stash.get(_IS_LAST, False)):
            report.user_properties.append((_SPENT, now - item.stash.get(_BEGAN, now)))
        item.stash[_BEGAN] = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._elapsed[file] += report.duration
        self._seconds[file] += dict(report.user_properties).get(_SPENT, 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        slowest = sorted(self._seconds.items(), key=lambda each: -each[1])
        if len(slowest) > 1:
            terminalreporter.section("slowest files (processor seconds, with children)")
        for file, seconds in slowest[:SHOWN] if len(slowest) > 1 else []:
            warning = f"  WARNING: more than {MOST_SECONDS:.0f} s" if seconds > MOST_SECONDS else ""
            terminalreporter.write_line(f"{seconds:8.1f}  {file}{warning}")
        if self._kept is not None:
            kept = {file: [round(self._elapsed[file], 1), round(seconds, 1)] for file, seconds in slowest}
            self._kept.write_text(json.dumps(kept, indent=0))


_BEGAN: Final = pytest.StashKey[float]()
_IS_LAST: Final = pytest.StashKey[bool]()


def _processor_seconds() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
