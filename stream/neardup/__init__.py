"""The public names of neardup: `from neardup import Index`.

They are those of the package `stream`, whose name a program may have for a file of its own. This room is
installed as a package beside it (pyproject.toml).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stream import *  # noqa: F403
else:
    _spec = find_spec("stream")
    if _spec and not Path(_spec.origin or "").with_name("fingerprint").is_dir():
        raise ImportError(
            f"{_spec.origin} hides the package `stream` of neardup: rename it, or run the program from"
            " another directory"
        )
    from stream import __all__ as __all__

    def __getattr__(name: str) -> object:
        """Import a name on first access."""
        import stream

        return getattr(stream, name)

    def __dir__() -> list[str]:
        return __all__
