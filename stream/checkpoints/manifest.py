"""The manifest of a checkpoint: whose state it is, how far it has come, and its files.

Everything of a journal is below its UUID. A judge's manifest is
`JOURNAL/checkpoints/APPLIED-LEDGER-ERASED-CHAIN.json`, a file of it `JOURNAL/CHAIN/files/DIGEST`, where
LEDGER is the ledger record that it names, ERASED the offset before which all that decisions forgot is erased,
and CHAIN the state directory that made them. ERASED and its hyphen are left out as long as it is 0, and then
LEDGER as well, as version 1 always did: so manifests of version 1 are found, and refused by name. An
elector's are the same below `JOURNAL/elector` or `JOURNAL/elector-NAME`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn

import msgspec

from stream.checkpoints.kinds import ELECTOR_KIND, JUDGE, Summary
from stream.errors import DamagedCheckpointError
from stream.pages.times import to_the_second

VERSION: Final = 2
MANIFEST_BYTES: Final = 16 << 20
"""Size at most. One of a state with 1e8 anchors, of some thousand files, has less than a MiB."""
_FILE: Final = re.compile(r"\d{6,}\.sst|MANIFEST-\d{6,}|CURRENT")
"""Files of RocksDB that make a state. The others are logs, options that a program brings, and locks."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_BYTES: Final = re.compile(r"([0-9a-f]{2})*")
_LATEST: Final = 253_402_300_800_000
"""Milliseconds since the epoch at which the year 10000 begins."""
_KEPT: Final = "checkpoints"
_PRUNED: Final = "pruned"
_VERIFIED: Final = "verified"
_IN_KIND: Final = rf"(?:({ELECTOR_KIND})/)?"
"""Prefix of the names of what is of an elector; a judge's have none."""
_CHECKPOINT: Final = r"((\d{20})(?:-(\d{20})(?:-(\d{20}))?)?-([0-9a-f]{32}))"
_NAME: Final = re.compile(_IN_KIND + _CHECKPOINT)
_OBJECT: Final = rf"([0-9a-f]{{32}})/{_IN_KIND}%s/{_CHECKPOINT}\.%s"
_MANIFEST: Final = re.compile(_OBJECT % (f"(?:{_KEPT}|{_PRUNED})", "json"))
_MARK: Final = re.compile(_OBJECT % (_VERIFIED, "json"))
_ATTEMPT: Final = re.compile(_OBJECT % (_VERIFIED, "attempt"))
_STATE_FILE: Final = re.compile(rf"([0-9a-f]{{32}}/{_IN_KIND}[0-9a-f]{{32}})/files/([0-9a-f]{{64}})")


class CheckpointName(NamedTuple):
    """The name of a checkpoint. Of two of the same journal and kind, the greater one has come further in the
    journal."""

    journal: str
    kind: str
    """Which state it is of: `judge`, `elector` or `elector-NAME`."""
    applied: int
    ledger: int
    """The newest ledger record that it has. Without it in the name, the first checkpoint at a journal offset
    would stay when the next one has a newer record, and logs could not be trimmed to that."""
    erased: int
    """What decisions before this offset forgot is erased from it. So a judge to which nothing comes any more
    makes another one after it erased something."""
    chain: str
    """The state directory that made it, by its random id."""

    def __str__(self) -> str:
        return self._in_kind(self.text)

    @property
    def text(self) -> str:
        """The name among those of its journal and kind."""
        erased = f"-{self.erased:020d}" if self.erased else ""
        ledger = f"-{self.ledger:020d}" if self.ledger or erased else ""
        return f"{self.applied:020d}{ledger}{erased}-{self.chain}"

    def _in_kind(self, name: str) -> str:
        return name if self.kind == JUDGE else f"{self.kind}/{name}"

    def _object(self, name: str) -> str:
        return f"{self.journal}/{self._in_kind(name)}"

    @property
    def object(self) -> str:
        """Name of its manifest."""
        return self._object(f"{_KEPT}/{self.text}.json")

    @property
    def pruned_object(self) -> str:
        """Name of its manifest after it was pruned."""
        return self._object(f"{_PRUNED}/{self.text}.json")

    @property
    def mark_object(self) -> str:
        """Name of the object that says that it was verified."""
        return self._object(f"{_VERIFIED}/{self.text}.json")

    @property
    def attempt_object(self) -> str:
        """Name of the object that says that its verification has begun."""
        return self._object(f"{_VERIFIED}/{self.text}.attempt")

    @property
    def home(self) -> str:
        """Prefix of the names of all files of its directory."""
        return self._object(self.chain)

    def file(self, digest: str) -> str:
        """Name of the object that a file of this checkpoint is."""
        return f"{self.home}/files/{digest}"


class CheckpointFile(msgspec.Struct, frozen=True):
    """A file of a checkpoint."""

    name: str
    """In the state directory."""
    digest: str
    """SHA-256 of its content, in hexadecimal digits."""
    size: int


class Manifest(Summary, frozen=True, kw_only=True):
    """A checkpoint: what its state says of itself, and its files."""

    version: int = VERSION
    chain: str
    time: int
    """When it was made, in milliseconds since the epoch."""
    files: list[CheckpointFile]

    @classmethod
    def of(cls, state: Summary, chain: str, time: int, files: list[CheckpointFile]) -> Manifest:
        """The manifest of a state."""
        return cls(**msgspec.structs.asdict(state), chain=chain, time=time, files=files)

    @property
    def name(self) -> CheckpointName:
        """The name of the checkpoint."""
        return CheckpointName(self.journal, self.kind, self.applied, self.ledger, self.erased, self.chain)

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
    return _FILE.fullmatch(name) is not None


def kept_prefix(journal: str, kind: str) -> str:
    """Prefix of the manifests of a journal's checkpoints of one kind."""
    return f"{journal}/{_KEPT}" if kind == JUDGE else f"{journal}/{kind}/{_KEPT}"


def checkpoint_of(journal: str, text: str) -> CheckpointName | None:
    """The checkpoint of a journal that is called so; None for other texts."""
    match = _NAME.fullmatch(text)
    return _named(journal, *match.groups()) if match else None


def checkpoint_of_object(name: str) -> CheckpointName | None:
    """The checkpoint whose manifest an object is, pruned or not; None for other objects."""
    return _checkpoint(_MANIFEST, name)


def checkpoint_of_mark(name: str) -> CheckpointName | None:
    """The checkpoint that an object marks as verified; None for other objects."""
    return _checkpoint(_MARK, name)


def checkpoint_of_attempt(name: str) -> CheckpointName | None:
    """The checkpoint whose verification an object says has begun; None for other objects."""
    return _checkpoint(_ATTEMPT, name)


def _checkpoint(pattern: re.Pattern[str], name: str) -> CheckpointName | None:
    match = pattern.fullmatch(name)
    return _named(*match.groups()) if match else None


def _named(journal: str, kind: str | None, text: str, *numbers: str | None) -> CheckpointName | None:
    """The checkpoint that is called so. None if it would be called otherwise: what is 0 is left out."""
    *offsets, chain = numbers
    applied, ledger, erased = (int(each or 0) for each in offsets)
    name = CheckpointName(journal, kind or JUDGE, applied, ledger, erased, str(chain))
    return name if name.text == text else None


def home_and_digest(name: str) -> tuple[str, str] | None:
    """The `home` and the digest of the file of checkpoints that an object is; None for other objects."""
    match = _STATE_FILE.fullmatch(name)
    return (match[1], match[3]) if match else None


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
    except msgspec.DecodeError as error:
        refuse(f"cannot be read: {error}")
    names = {each.name for each in manifest.files}
    if len(names) < len(manifest.files) or "CURRENT" not in names:
        refuse("lists a file twice, or no CURRENT")
    for each in manifest.files:
        if not is_state_file(each.name) or not _DIGEST.fullmatch(each.digest) or each.size < 0:
            refuse(f"lists {each.name!r} with the digest {each.digest!r} and the size {each.size}")
    if not _BYTES.fullmatch(manifest.last):
        refuse(f"has the digest {manifest.last!r}")
    if not 0 <= manifest.time < _LATEST or manifest.applied < 0:
        refuse(f"has time {manifest.time}, applied {manifest.applied}")
    if manifest.decided < 0 or not 0 <= manifest.ledger < max(1, manifest.decided):  # it was applied
        refuse(f"has decided {manifest.decided}, ledger {manifest.ledger}")
    if not 0 <= manifest.erased <= manifest.decided:
        refuse(f"has decided {manifest.decided}, erased {manifest.erased}")
    if manifest.name != name:
        refuse(f"is of {manifest.name}")
    return manifest


class _VersionOnly(msgspec.Struct):
    version: int


# Made here, as msgspec prepares a type when it is first used, and two threads must not do so at once.
_VERSION_DECODER: Final = msgspec.json.Decoder(_VersionOnly)
_DECODER: Final = msgspec.json.Decoder(Manifest)
