"""Checkpoints of a large state: what an upload costs the judge, what is uploaded, how long a restore takes.

    python -m tests.bench.checkpoints --directory DIRECTORY [--batches 40]

DIRECTORY is one of `python -m tests.bench.growth`, whose state grows by what is judged here. Batches are
judged in short turns while everything is uploaded and while nothing is.
"""

from __future__ import annotations

import json
import secrets
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import click

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.restoring import restore
from stream.checkpoints.uploads import LinkedState, UploadProgress, Uploads, linked, yield_processors
from stream.ops.runtime_tuning import batch_process_tuning
from stream.tables.store.scrub_child import Throttle
from tests.bench.growth import Growth, Setup

TURN: Final = 2
"""Batches judged in a turn. Short turns, or a run that is frozen in one of them would look like an upload."""
INTERVAL: Final = 4
"""Batches from one incremental checkpoint to the next."""


class StopUploadError(Exception):
    """Ends an upload that is measured no longer."""


class Uploading:
    """Uploads a state again and again in a thread, as a judge does, and pauses in every other turn."""

    def __init__(self, objects: Path, state: LinkedState) -> None:
        self._objects, self._state = objects, state
        self._goes_on, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._goes_on.set()
        self._thread.join()
        shutil.rmtree(self._objects, ignore_errors=True)

    def set(self, uploading: bool) -> None:
        """Go on, or pause."""
        (self._goes_on.set if uploading else self._goes_on.clear)()

    def _run(self) -> None:
        yield_processors()
        throttle = Throttle(sleep=self._stop.wait)

        def go_on() -> None:
            nonlocal throttle
            if not self._goes_on.is_set():
                self._goes_on.wait()
                throttle = Throttle(sleep=self._stop.wait)  # a pause is no work
            if self._stop.is_set():
                raise StopUploadError

        def turn(share: float) -> None:
            throttle.turn(share)
            go_on()

        with suppress(StopUploadError):
            while True:
                catalogue = Catalogue(str(self._objects))
                Uploads(catalogue, JUDGE, secrets.token_hex(16), 1).upload(self._state, turn, go_on=go_on)
                shutil.rmtree(self._objects, ignore_errors=True)


def judge_batches(growth: Growth, batches: int) -> tuple[int, float]:
    """Judge some batches; returns rows and seconds."""
    rows, seconds = 0, 0.0
    for batch, _ in zip(growth._batches(), range(batches), strict=False):
        began = time.perf_counter()
        decided = growth.judge.decide(batch)
        growth.judge.apply(batch, decided.record())
        seconds += time.perf_counter() - began
        rows += len(decided.batch)
    return rows, seconds


def slowdown(growth: Growth, objects: Path, batches: int) -> dict[str, Any]:
    rows, seconds = {False: 0, True: 0}, {False: 0.0, True: 0.0}
    with linked(growth.state.store, JUDGE) as state:
        assert state is not None
        with Uploading(objects, state) as thread:
            for place in range(2 * batches // TURN):
                uploading = place % 4 in (1, 2)  # so that growth concerns both alike
                thread.set(uploading)
                judged, took = judge_batches(growth, TURN)
                rows[uploading] += judged
                seconds[uploading] += took
    alone, beside = (round(rows[each] / seconds[each]) for each in (False, True))
    return {"rows_per_second": alone, "while_uploading": beside, "share": round(beside / alone, 3)}


def increments(growth: Growth, objects: Path, batches: int) -> dict[str, Any]:
    """Checkpoints as the state grows: bytes uploaded by those after the first, and by how much it grew."""
    uploads, uploaded, before = Uploads(Catalogue(str(objects)), JUDGE, "ab" * 16, 3), 0, 0
    for place in range(1 + batches // INTERVAL):
        with linked(growth.state.store, JUDGE) as state:
            assert state is not None
            sent: list[UploadProgress] = []
            size = uploads.upload(state, report=sent.append).bytes
        if place:
            uploaded += sum(each.uploaded for each in sent)
        else:
            before = size
        judge_batches(growth, INTERVAL)
    return {"grown_bytes": size - before, "uploaded_bytes": uploaded}


@click.command("checkpoints")
@click.option("--directory", required=True, type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--batches", default=40, show_default=True, help="Batches with and without an upload.")
def command(directory: Path, batches: int) -> None:
    """Measure checkpoints of a state that `tests.bench.growth` made."""
    setup = Setup(**json.loads((directory / "setup.json").read_text()))
    objects, restored = directory / "objects", directory / "restored"
    for each in (objects, restored):
        shutil.rmtree(each, ignore_errors=True)
    growth = Growth(directory, setup)
    with batch_process_tuning():
        judge_batches(growth, batches)
        figures = {"anchors": growth.state.tables.anchors, **slowdown(growth, objects, batches)}
        figures |= increments(growth, objects, batches)
    growth.close()
    catalogue = Catalogue(str(objects))
    manifest = catalogue.read(next(iter(catalogue.kept(setup.genesis().journal, JUDGE))))
    began = time.perf_counter()
    restore(catalogue, manifest, restored / "state")
    middle = time.perf_counter()
    state, _ = setup.open(restored)
    figures |= {
        "bytes": manifest.bytes,
        "seconds_to_restore": round(middle - began, 1),
        "seconds_to_open": round(time.perf_counter() - middle, 1),
        "restored_anchors": state.tables.anchors,
    }
    state.close()
    click.echo(json.dumps(figures, indent=1))


if __name__ == "__main__":
    command()
