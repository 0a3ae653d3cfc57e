"""Compile and cache the inner loops of all roles and of `neardup match`: `python -m stream.precompile`.

Otherwise they are compiled at first use. Takes about a minute the first time, in two processes, and 3 s
if the cache is complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from typing import Final

import numpy as np

from stream.compiled.code_cache import is_empty
from stream.fingerprint.scheme import Scheme
from stream.judge.rehearse import rehearse
from stream.kafka import record_batches
from stream.messages.journal import Genesis
from stream.messages.verdict_options import VerdictOptions
from stream.offline.batch_tables import BatchTables
from stream.offline.verified_match import Sketched, SketchedFile, Verified, default_rule
from stream.page_rows.page_fingerprinter import PageFingerprinter


def main() -> None:
    """Compile everything that the default options need."""
    first, *others = PARTS
    if is_empty():
        helper = get_context("spawn").Process(target=_compile_quietly, args=(others,), daemon=True)
        helper.start()
        PARTS[first]()
        helper.join()
    for part in PARTS.values():  # loads what is compiled
        part()


def _compile_quietly(parts: Sequence[str]) -> None:
    logging.disable()  # the other process tells the progress
    for part in parts:
        PARTS[part]()


def _judge() -> None:
    scheme, options = Scheme(), VerdictOptions()
    rehearse(
        Genesis(journal="0" * 32, scheme=scheme, scheme_id=scheme.id, options=options, seed=scheme.seed())
    )


def _fingerprint() -> None:
    PageFingerprinter(Scheme()).warm()


def _match() -> None:
    scheme, fingerprint = Scheme(), np.zeros(1, np.uint64)
    BatchTables(fingerprint, scheme.width, 0).scan(fingerprint)
    page = Sketched.of(fingerprint.reshape(1, 1), np.zeros((1, scheme.sketch_bytes // 8), np.uint64), [""])
    list(Verified(SketchedFile(iter([page])), None, default_rule(scheme), threads=1).records())


PARTS: Final[dict[str, Callable[[], None]]] = {
    "judge": _judge,
    "fingerprint": _fingerprint,
    "match": _match,
    "publish": record_batches.rehearse,
}
"""All take 85 s of processor time, the first one more than half of it."""


if __name__ == "__main__":
    main()
