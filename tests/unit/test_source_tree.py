"""docs/source-tree.md names every room, and every module beside the rooms."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "source-tree.md").read_text("utf-8")


def test_the_page_lists_every_room_and_every_module_beside_them() -> None:
    stream = ROOT / "stream"
    rooms = {f"stream/{each.parent.name}/" for each in stream.glob("*/__init__.py")}
    modules = {f"stream/{each.name}" for each in stream.glob("*.py")} - {"stream/__init__.py"}
    listed = re.findall(r"^\| `(stream/[^`]*)` \|", PAGE, re.MULTILINE)
    assert len(rooms) > 15
    assert sorted(listed) == sorted(rooms | modules)


def test_a_room_within_a_room_is_named_in_its_line() -> None:
    for inner in (ROOT / "stream").glob("*/*/__init__.py"):
        (line,) = re.findall(rf"^\| `stream/{inner.parent.parent.name}/` \|.*", PAGE, re.MULTILINE)
        assert f"`{inner.parent.name}/`" in line, inner
