"""The manifest of a checkpoint: whose state it is, how far it has come, and its files.

Everything of a journal is below its UUID: `checkpoints/NAME.json` is a manifest, `files/DIGEST` a file.
NAME is `KIND/TIME-ERASED-DIRECTORY`: of which kind the state is, when it was linked, what is erased from it,
and the random id of the state directory. So what must go is known of a manifest that cannot be read, too.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple, NoReturn

import msgspec
from msgspec import Meta

from stream.checkpoints.kinds import KIND, Summary
from stream.errors import DamagedCheckpointError
from stream.pages.times import LATEST, rfc3339, to_the_second

VERSION: Final = 3
MANIFEST_BYTES: Final = 16 << 20
"""Size at most. One of a state with 1e8 anchors, of some thousand files, has less than a MiB."""
STORED: Final = "checkpoints"
"""Manifests of checkpoints as they were made."""
VERIFIED: Final = "verified"
"""Copies of those that a trim has verified."""
PRUNED: Final = "pruned"
"""Copies of those that were pruned, whose files stay for a while."""
_FILE: Final = r"\A(\d{6,}\.sst|MANIFEST-\d{6,}|CURRENT)\Z"
"""Files of RocksDB that make a state. The others are logs, options that a program brings, and locks."""
_NAME: Final = re.compile(rf"({KIND})/(\d{{8}}T\d{{6}}\.\d{{3}}Z)-(\d{{1,20}})-([0-9a-f]{{32}})")
_MANIFEST: Final = re.compile(rf"([0-9a-f]{{32}})/({STORED}|{VERIFIED}|{PRUNED})/({_NAME.pattern})\.json")
_EARLIER: Final = re.compile(r"[0-9a-f]{32}/(?:(elector[^/]*)/)?checkpoints/\d{20}-[0-9a-f-]+\.json")
"""Manifests of earlier versions, with the kind of an elector."""


class CheckpointName(NamedTuple):
    """The name of a checkpoint. Of two of the same journal and kind, the greater one was made later."""

    journal: str
    kind: str
    """Which state it is of, such as `judge` or `elector-NAME`."""
    time: str
    """When it was made, by the clock of its machine."""
    erased: int
    """What was to be erased before this offset is erased from it."""
    directory: str
    """The state directory that made it, by its random id."""

    def __str__(self) -> str:
        return f"{self.kind}/{self.time}-{self.erased}-{self.directory}"

    def object(self, part: str) -> str:
        """Name of its manifest in STORED, VERIFIED or PRUNED."""
        return f"{self.journal}/{part}/{self}.json"


class CheckpointFile(msgspec.Struct, frozen=True):
    """A file of a checkpoint."""

    name: Annotated[str, Meta(pattern=_FILE)]
    """In the state directory."""
    digest: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    """SHA-256 of its content, in hexadecimal digits."""
    size: Annotated[int, Meta(ge=0)]


class Manifest(Summary, frozen=True, kw_only=True):
    """A checkpoint: what its state says of itself, and its files."""

    version: int = VERSION
    directory: str
    time: Annotated[int, Meta(ge=0, le=LATEST)]
    """When it was made, in milliseconds since the epoch."""
    files: list[CheckpointFile]

    @classmethod
    def of(cls, state: Summary, directory: str, time: int, files: list[CheckpointFile]) -> Manifest:
        """The manifest of a state."""
        return cls(**msgspec.structs.asdict(state), directory=directory, time=time, files=files)

    @property
    def name(self) -> CheckpointName:
        """The name of the checkpoint."""
        time = rfc3339(self.time).replace("-", "").replace(":", "")
        return CheckpointName(self.journal, self.kind, time, self.erased, self.directory)

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(each.size for each in self.files)

    @property
    def made(self) -> str:
        """When it was made, to be read."""
        return to_the_second(self.time / 1000)

    def difference(self, state: Summary) -> str | None:
        """Name a field in which a state differs from this manifest, with both values, or return None."""
        for name, value in msgspec.structs.asdict(state).items():
            if getattr(self, name) != value:
                return f"{name} {value}, but its manifest says {getattr(self, name)}"
        return None


def is_state_file(name: str) -> bool:
    """Whether a file of this name in a RocksDB directory is part of its content."""
    return re.search(_FILE, name) is not None


def checkpoint_of(journal: str, text: str) -> CheckpointName | None:
    """The checkpoint of a journal that is called so; None for other texts."""
    if (match := _NAME.fullmatch(text)) is None:
        return None
    kind, time, erased, directory = match.groups()
    name = CheckpointName(journal, kind, time, int(erased), directory)
    return name if str(name) == text else None


def manifest_in(name: str) -> tuple[str, CheckpointName] | None:
    """The part of a store and the checkpoint whose manifest an object is; None for other objects."""
    match = _MANIFEST.fullmatch(name)
    checkpoint = checkpoint_of(match[1], match[3]) if match else None
    return (match[2], checkpoint) if match and checkpoint else None


def kind_of_earlier(name: str) -> str | None:
    """The kind of the state of which an object is an earlier version's manifest; None for other objects."""
    match = _EARLIER.fullmatch(name)
    return (match[1] or "judge") if match else None


def file_object(journal: str, digest: str) -> str:
    """Name of the object that a file of checkpoints is."""
    return f"{journal}/files/{digest}"


def encode(manifest: Manifest) -> bytes:
    """Encode a manifest as JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(content: bytes, name: CheckpointName) -> Manifest:
    """Decode the manifest of a checkpoint. Raises DamagedCheckpointError for one that cannot be read, is of
    another version or of another checkpoint."""

    def refuse(why: object) -> NoReturn:
        raise DamagedCheckpointError(f"checkpoint {name}: its manifest {why}") from None

    if len(content) > MANIFEST_BYTES:
        refuse(f"has more than {MANIFEST_BYTES} bytes")
    try:
        version = _VERSION_DECODER.decode(content).version
        if version != VERSION:
            refuse(f"has version {version}; this program reads {VERSION}")
        manifest = _DECODER.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        refuse(f"cannot be read: {error}")
    names = {each.name for each in manifest.files}
    if len(names) < len(manifest.files) or "CURRENT" not in names:
        refuse("lists a file twice, or no CURRENT")
    if why := manifest.impossible:
        refuse(why)
    if manifest.name != name:
        refuse(f"is of {manifest.name}")
    return manifest


class _VersionOnly(msgspec.Struct):
    version: int


# Made here, as msgspec prepares a type when it is first used, and two threads must not do so at once.
_VERSION_DECODER: Final = msgspec.json.Decoder(_VersionOnly)
_DECODER: Final = msgspec.json.Decoder(Manifest)
