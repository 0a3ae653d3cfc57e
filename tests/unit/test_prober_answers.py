"""A prober hands to threads what takes long, answers the rest itself, and closes all that it holds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stream.errors import DiskError
from stream.fingerprint.scheme import Scheme
from stream.judge.decision.candidates_compared import FingerprintedPages
from stream.judge.rule import Rule
from stream.judge.segments.answer import Run, Segment
from stream.messages.verdict_options import VerdictOptions
from stream.roles.prober.role import FEW, SLOW_SECONDS, ProberRole
from stream.roles.prober.schedule import Reason, Task
from stream.roles.prober.undecided_pages import RecordPages, UndecidedPages
from stream.settings import load

RULE = Rule(VerdictOptions(), Scheme())


class Sender:
    """Takes down what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def encode(self, segment: Any, answer: Any) -> list[bytes]:
        return [str(answer.run).encode()]

    async def send(self, partition: int, values: list[bytes]) -> None:
        self.sent += values


class Pool(ThreadPoolExecutor):
    """Counts what is submitted."""

    submitted = 0

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        self.submitted += 1
        return super().submit(call, *arguments, **named)


def record(offset: int, rows: int) -> RecordPages:
    numbers, bits = np.zeros((rows, 1), np.uint64), np.zeros((rows, 0), np.uint8)
    sketches = np.zeros((rows, RULE.scheme.sketch_bytes // 8), np.uint64)
    pages = FingerprintedPages(numbers, bits, sketches, np.zeros(rows, np.uint8))
    return RecordPages(offset, np.arange(rows), pages, rows)


@pytest.mark.parametrize(
    ("rows", "segments", "took", "threads"),
    [
        ([FEW], 1, 0.0, 0),
        ([FEW, 1], 1, 0.0, 1),
        ([1], 2, 0.0, 2),
        ([FEW + 1], 2, 0.0, 2),
        ([1], 1, SLOW_SECONDS, 1),
    ],
)
async def test_threads_are_for_many_rows_several_segments_and_slow_ones(
    tmp_path: Path, rows: list[int], segments: int, took: float, threads: int
) -> None:
    role = ProberRole(load(checkpoints=str(tmp_path), state_dir=tmp_path))
    role._took, role._pages = took, UndecidedPages(RULE)
    run, sender, noted = Run(5, 5 + len(rows)), Sender(), []
    for number, each in enumerate(rows):
        role._pages.add(record(5 + number, each))
    tasks = [Task(Segment(at, at + 1), run, 8, Reason.NEW) for at in range(segments)]
    for task in tasks:
        held = SimpleNamespace(answer=lambda run, *_: SimpleNamespace(run=run, cut=np.zeros(0)))
        role._held[task.segment] = SimpleNamespace(partition=0), held  # type: ignore[assignment]
    schedule = SimpleNamespace(note_answered=lambda answer, _: noted.append(answer.run))
    with Pool(1) as pool:
        await role._answer(schedule, tasks, sender, pool)  # type: ignore[arg-type]
        assert pool.submitted == threads
    assert noted == [run] * segments
    assert sender.sent == [str(run).encode()] * segments


async def test_all_segments_are_closed_though_the_disk_fails_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    role, closed = ProberRole(load(checkpoints=str(tmp_path), state_dir=tmp_path)), list[int]()

    def close(number: int) -> None:
        closed.append(number)
        if number < 2:
            raise DiskError("state directory: Input/output error")

    for number in range(3):
        held = SimpleNamespace(close=partial(close, number))
        role._held[Segment(number, number + 1)] = SimpleNamespace(), held  # type: ignore[assignment]
    await role._close_held()
    assert closed == [0, 1, 2]
    assert capsys.readouterr().out.count("segment_not_closed") == 2
