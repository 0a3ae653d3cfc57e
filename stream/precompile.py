"""Compile the inner loops of worker and judge, and keep them: `python -m stream.precompile`.

They are compiled at their first use otherwise, by each of several processes that start together. Takes 20 s
once, and two where all is kept already.
"""

from __future__ import annotations

from stream.fingerprint.fingerprinter import Fingerprinter
from stream.fingerprint.scheme import Scheme
from stream.judge.options import VerdictOptions
from stream.judge.rehearse import rehearse
from stream.kafka import record_batches
from stream.messages.journal import Genesis


def main() -> None:
    """All that the default options need."""
    scheme = Scheme()
    Fingerprinter(scheme).warm()
    rehearse(Genesis(journal="0" * 32, scheme=scheme, scheme_id=scheme.id, options=VerdictOptions()))
    record_batches.rehearse()


if __name__ == "__main__":
    main()
