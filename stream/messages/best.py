"""Records of the topic `best`: which page of a cluster is kept. Their schema is in `schemas/`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from stream.errors import RecordError
from stream.messages.verdict import PageRef
from stream.messages.versions import refuse_other_json_version

VERSION: Final = 1
ELECT_HEADER: Final = "elect"
"""Record header with the policy, as the setting `elect` has it."""
WAS_HEADER: Final = "was"
"""Record header as DIGEST_HEADER, of the page before; absent where the record has none. It does not follow
from that page's URL: a page may have the key of its canonical URL, or of the one that redirected to it."""

Because = Literal["joined", "left", "better", "grew", "expired", "forgotten"]
PageId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\.(0|[1-9][0-9]{0,18})\.(0|[1-9][0-9]{0,4})$")]
"""`journal.offset.index`, of an offset that Kafka may have."""
Count = Annotated[int, msgspec.Meta(ge=0)]


class KeptPage(msgspec.Struct, frozen=True):
    """The page of a cluster that is kept: the newest version of its URL, as of the record."""

    url: str
    id: PageId
    length: Count
    """Characters of the normalised text."""
    quality: float | None
    """As the crawler gave it; None for none."""
    fetched_at: str | None


class BestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The page of a cluster that is kept from now on. The topic is compacted by `cluster`.

    A cluster without a record keeps the page whose id is the cluster's id.
    """

    v: int = VERSION
    cluster: PageId
    best: KeptPage | None
    """None if no URL's newest version is in the cluster."""
    was: PageRef | None
    """The page of the record before; of the first record the page `cluster`; None if none was kept, or it was
    forgotten."""
    because: Because
    """What is different from the record before: `grew` if the URL is the same, and the cluster has at least
    twice the members told before; else `left`, `expired` or `forgotten` if the URL told before is no member
    any more; else `joined` if the new one came into the cluster after that record, or after the cluster's
    first page if there was none; else `better`, by a new version of a URL."""
    members: Count
    """Number of URLs whose newest version is in the cluster."""
    as_of: PageId
    """Id of the last page that was known. A record with a lower one than another before is a repetition."""
    decided_at: str
    """Log time, as in the verdict of `as_of`."""

    @property
    def place(self) -> tuple[int, int]:
        """`as_of` as offset and index, which sort in the order of judgement."""
        _, offset, index = self.as_of.split(".")
        return int(offset), int(index)


def encode_best(record: BestRecord) -> bytes:
    """Encode a record as JSON."""
    return _ENCODER.encode(record)


def decode_best(value: bytes, where: str) -> BestRecord:
    """Decode a record; `where` names it in errors. Raises RecordVersionError for another version, and
    RecordError for what is no such record."""
    try:
        record = _DECODER.decode(value)
        if record.v != VERSION:
            raise ValueError(f"version {record.v}")
        if (record.best is None) != (record.members == 0):
            raise ValueError(f"keeps {'no' if record.best is None else 'a'} page of {record.members} members")
    except (msgspec.DecodeError, ValueError) as error:
        refuse_other_json_version(value, VERSION, where)
        raise RecordError(f"{where}: {error}") from error
    return record


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(BestRecord)
