"""`python -m tests.fuzz.guided NAME [libFuzzer's options]`: inputs that reach new branches are mutated
further.

The same decoders and changes as everywhere in this package; libFuzzer, through Atheris, chooses what to keep.
An input that is a fault is written to `-artifact_prefix`, and the exit code is not 0.
"""

from __future__ import annotations

import logging
import pkgutil
import random
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import atheris

import stream

NEW: Final = 0.2
"""Share of inputs that are made anew instead of out of kept ones."""


def main() -> None:
    with atheris.instrument_imports(include=["stream"], exclude=list(_compiled())):
        from stream.ops.logging import configure
        from tests.fuzz.decoders import DECODERS
        from tests.fuzz.mutate import damaged

    configure("text", "fuzz", logging.CRITICAL)
    named = sys.argv.pop(1)
    (kind,) = (each for each in DECODERS if each.name == named)
    decoder = kind().__enter__()  # libFuzzer ends the process, so nothing is left to leave

    def check(data: bytes) -> None:
        if data:  # libFuzzer's first input is none of ours
            decoder.check(data)

    def change(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        changed = decoder.make(rng) if rng.random() < NEW else damaged(rng, bytes(data))
        return changed[:most]

    atheris.Setup(sys.argv, check, custom_mutator=change)
    atheris.Fuzz()


def _compiled() -> Iterator[str]:
    """Modules with compiled loops, which cannot be compiled once instrumented."""
    for found in pkgutil.walk_packages(stream.__path__, "stream."):
        spec = find_spec(found.name)
        if spec and spec.origin and "stream.compiled" in Path(spec.origin).read_text("utf-8"):
            yield found.name


if __name__ == "__main__":
    main()
