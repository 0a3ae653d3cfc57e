"""The parts of `make nightly` have everything once, and `make fresh` finds the tests that a change added."""

from __future__ import annotations

import re

import pytest

from tests import fresh
from tests.nightly import JOBS, KAFKAS, ROOT, divide
from tests.seconds import TABLE


@pytest.mark.parametrize("count", [1, 12])
def test_each_file_and_job_is_in_one_part(count: int) -> None:
    parts = divide(count)
    files = [file for part in parts for file in part.unchecked]
    folders = ("unit", "property", "kafka", "browser", "chaos", "fuzz")
    assert sorted(files) == sorted(
        str(path.relative_to(ROOT)) for each in folders for path in ROOT.glob(f"tests/{each}/test_*.py")
    )
    jobs = [job.name for part in parts for job in part.jobs]
    assert sorted(jobs) == sorted(job.name for job in JOBS)
    by_night = [file for part in parts for file in part.checked]
    assert len(by_night) == len(set(by_night)) > 5
    assert set(by_night) <= set(files)


def test_every_file_with_known_seconds_is_there() -> None:
    for line in TABLE.read_text("utf-8").splitlines():
        file, seconds = line.split()
        assert (ROOT / file).is_file()
        assert float(seconds) >= 10


def test_the_versions_of_kafka_are_those_of_the_makefile() -> None:
    (listed,) = re.findall(r"^KAFKAS := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert tuple(listed.split()) == KAFKAS


def test_what_is_fresh_is_found_by_name() -> None:
    before = "def test_a(): ...\ndef helper(): ...\n"
    after = before + "async def test_b(): ...\nclass TestC:\n    def test_d(self): ...\n"
    assert fresh.tests_in(after) - fresh.tests_in(before) == {"test_b", "TestC::test_d"}
