"""The genesis record of a journal that tests write themselves."""

from __future__ import annotations

from typing import Final

from stream.fingerprint.scheme import Scheme
from stream.messages.journal import Genesis
from stream.messages.verdict_options import VerdictOptions

JOURNAL: Final = "ab" * 16
"""The UUID of such a journal."""


def genesis_of(scheme: Scheme | None = None, options: VerdictOptions | None = None) -> Genesis:
    """A genesis with default scheme and options unless given."""
    scheme = scheme or Scheme()
    return Genesis(
        journal=JOURNAL,
        scheme=scheme,
        scheme_id=scheme.id,
        options=options or VerdictOptions(),
        seed=scheme.seed(),
    )
