"""Compile and cache the inner loops of all roles and of `neardup match`: `python -m stream.precompile`.

Otherwise they are compiled at first use, and again by each process if several start together. Takes one or
two minutes the first time, and 3 s if the cache is complete.
"""

from __future__ import annotations

import numpy as np

from stream.dashboard import verdict_fields_compiled
from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.scheme import Scheme
from stream.judge.rehearse import rehearse
from stream.kafka import record_batches
from stream.messages.journal import Genesis
from stream.messages.verdict_options import VerdictOptions
from stream.offline.batch_tables import BatchTables
from stream.offline.verified_match import Sketched, SketchedFile, Verified, default_rule


def main() -> None:
    """Compile everything that the default options need."""
    scheme = Scheme()
    Fingerprinter(scheme).warm()
    options = VerdictOptions()
    rehearse(
        Genesis(journal="0" * 32, scheme=scheme, scheme_id=scheme.id, options=options, seed=scheme.seed())
    )
    record_batches.rehearse()
    verdict_fields_compiled.rehearse()
    fingerprint = np.zeros(1, np.uint64)
    BatchTables(fingerprint, scheme.width, 0).scan(fingerprint)
    page = Sketched.of(fingerprint.reshape(1, 1), np.zeros((1, scheme.sketch_bytes // 8), np.uint64), [""])
    list(Verified(SketchedFile(iter([page])), None, default_rule(scheme), threads=1).records())


if __name__ == "__main__":
    main()
