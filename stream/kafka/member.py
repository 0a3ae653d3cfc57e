"""Static member ids for consumer groups (KIP-345), stored beside the state of a role."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Final

from stream.private import tighten
from stream.tables.store.failures import TranslatedErrors

_ID: Final = re.compile("[0-9a-f]{32}")


def member_id(path: Path) -> str:
    """Return the member id in the file `path`, creating it at the first call.

    The id is random, since two machines may share host name and path, and members with the same id fence each
    other. The inode number is stored with it: in a copy of the state directory it differs, and a new id is
    made; so it is where the file is damaged. Raises StateError or DiskError if the file cannot be read or
    written.
    """
    with TranslatedErrors(path.parent):
        path.touch(mode=0o600)
        tighten(path)
        inode = str(path.stat().st_ino)
        name, _, of = path.read_text(encoding="latin-1").partition(" ")
        if of != inode or not _ID.fullmatch(name):
            name = uuid.uuid4().hex
            path.write_text(f"{name} {inode}", encoding="ascii")
        return name
