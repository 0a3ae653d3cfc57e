"""The bounds of a chunk of pages, the unit of work for a child."""

from typing import Final

CHUNK_PAGES: Final = 64
CHUNK_BYTES: Final = 1 << 20
"""They are large enough to hide the latency of the pipe, and small enough to distribute the work."""
