"""Checkpoints of a large state: what an upload costs the judge, what is uploaded, how long a restore takes.

    python -m tests.bench.checkpoints --directory DIRECTORY [--batches 40]

DIRECTORY is one of `python -m tests.bench.growth`, whose state grows by what is judged here. Batches are
judged in turns while everything is uploaded and while nothing is.
"""

from __future__ import annotations

import json
import secrets
import shutil
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import click

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.digests import DigestCache
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.restoring import restore
from stream.checkpoints.uploads import LinkedState, UploadProgress, Uploads, linked
from stream.ops.runtime_tuning import batch_process_tuning
from stream.roles.judge.checkpoints import SHARE
from stream.tables.store.scrub_child import Throttle
from tests.bench.growth import Growth, Setup

TURNS: Final = 3
INTERVAL: Final = 4
"""Batches from one incremental checkpoint to the next."""


class StopUploadError(Exception):
    """Ends an upload that is measured no longer."""


def upload_everything(
    catalogue: Catalogue, state: LinkedState, digests: DigestCache, stop: threading.Event
) -> None:
    """Upload a state again and again, as a judge does. Files are hashed once."""
    throttle = Throttle(SHARE, stop.wait)

    def go_on() -> None:
        if stop.is_set():
            raise StopUploadError

    def turn() -> None:
        throttle.turn()
        go_on()

    try:
        while True:
            uploads = Uploads(catalogue, JUDGE, secrets.token_hex(16), 1)
            uploads._digests = digests
            uploads.upload(state, turn, go_on=go_on)
    except StopUploadError:
        pass


def rows_per_second(growth: Growth, batches: int) -> float:
    """Judge some batches."""
    rows = seconds = 0.0
    for batch, _ in zip(growth._batches(), range(batches), strict=False):
        began = time.perf_counter()
        decided = growth.judge.decide(batch)
        growth.judge.apply(batch, decided.record())
        seconds += time.perf_counter() - began
        rows += len(decided.batch)
    return rows / seconds


def slowdown(growth: Growth, objects: Path, batches: int) -> dict[str, Any]:
    rates: dict[bool, list[float]] = {False: [], True: []}
    digests = DigestCache()
    with linked(growth.state.store, JUDGE) as state:
        assert state is not None
        for place in range(2 * TURNS):
            uploading, stop = place % 2 == 1, threading.Event()
            catalogue = Catalogue(str(objects))
            thread = threading.Thread(target=upload_everything, args=(catalogue, state, digests, stop))
            if uploading:
                thread.start()
            rates[uploading].append(rows_per_second(growth, batches))
            stop.set()
            if uploading:
                thread.join()
                shutil.rmtree(objects, ignore_errors=True)
    alone, beside = (round(median(rates[each])) for each in (False, True))
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
        rows_per_second(growth, INTERVAL)
    return {"grown_bytes": size - before, "uploaded_bytes": uploaded}


@click.command("checkpoints")
@click.option("--directory", required=True, type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--batches", default=40, show_default=True, help="Batches a turn.")
def command(directory: Path, batches: int) -> None:
    """Measure checkpoints of a state that `tests.bench.growth` made."""
    setup = Setup(**json.loads((directory / "setup.json").read_text()))
    objects, restored = directory / "objects", directory / "restored"
    for each in (objects, restored):
        shutil.rmtree(each, ignore_errors=True)
    growth = Growth(directory, setup)
    with batch_process_tuning():
        rows_per_second(growth, batches)
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
