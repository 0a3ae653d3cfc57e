"""Compile the inner loops of worker, judge and `neardup match`, and keep them: `python -m stream.precompile`.

They are compiled at their first use otherwise, by each of several processes that start together. Takes 20 s
once, and two where all is kept already.
"""

from __future__ import annotations

import numpy as np

from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.scheme import Scheme
from stream.judge.options import VerdictOptions
from stream.judge.rehearse import rehearse
from stream.kafka import record_batches
from stream.messages.journal import Genesis
from stream.tables.match import BatchTables


def main() -> None:
    """All that the default options need."""
    scheme = Scheme()
    Fingerprinter(scheme).warm()
    rehearse(Genesis(journal="0" * 32, scheme=scheme, scheme_id=scheme.id, options=VerdictOptions()))
    record_batches.rehearse()
    fingerprint = np.zeros(1, np.uint64)
    BatchTables(fingerprint, scheme.width, 0).scan(fingerprint)


if __name__ == "__main__":
    main()
