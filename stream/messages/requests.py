"""Records of the `requests` topic: what is to be forgotten. Their schema is in `schemas/`.

They have keyed digests, never URLs: the topic outlives what was forgotten.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from stream.errors import RecordError

VERSION: Final = 1

What = Literal["url", "host", "domain"]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]


class ForgetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request to forget all pages of a URL, of a host, or of a host and the hosts below it, that are
    judged before it is decided."""

    v: int = VERSION
    journal: Digest
    """UUID of the journal, whose seed keys the digest."""
    forget: What
    digest: Digest
    """`url`: keyed digest of the URL key, as in the journal. `host`, `domain`: keyed digest of the host."""

    @property
    def words(self) -> bytes:
        """The digest as bytes."""
        return bytes.fromhex(self.digest)


def encode_request(request: ForgetRequest) -> bytes:
    """Encode a record as JSON."""
    return _ENCODER.encode(request)


def decode_request(value: bytes | None, offset: int) -> ForgetRequest:
    """Decode the record at `offset` of the requests topic. Raises RecordError."""
    try:
        request = _DECODER.decode(value or b"")
        if request.v != VERSION:
            raise ValueError(f"version {request.v}, but this program reads version {VERSION} only")
    except (msgspec.DecodeError, ValueError) as error:
        raise RecordError(f"requests offset {offset}: {error}") from error
    return request


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(ForgetRequest)
