"""The packages of these examples have a lock of their own, requirements.lock beside it: `make examples`."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("datasets") else ["test_*.py"]
