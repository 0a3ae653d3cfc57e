"""The static member id under which a role joins its group, kept beside its state."""

from __future__ import annotations

import uuid
from pathlib import Path

from stream.private import tighten
from stream.tables.failures import Explained


def member_id(path: Path) -> str:
    """The id in the file `path`, made at the first call and kept there with the file's inode number.

    Not derived from names: two machines may share host name and path, and would throw each other out. So
    would a state directory and its copy: in a copied file, the inode is another's. Raises StateError or
    DiskError where the file cannot be read or written.
    """
    with Explained(path.parent):
        path.touch(mode=0o600)
        tighten(path)
        inode = str(path.stat().st_ino)
        name, _, of = path.read_text(encoding="ascii").partition(" ")
        if of != inode:
            name = uuid.uuid4().hex
            path.write_text(f"{name} {inode}", encoding="ascii")
        return name
