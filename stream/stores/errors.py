"""What a bucket's errors mean. Their own words are never shown: they quote requests, and may have the ids of
keys in them."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_CODE: Final = re.compile(r"<Code>\s*(\w+)\s*</Code>|\(code: (\w+)\)")
_STATUS: Final = re.compile(r"non-2xx status code: (\d{3})")

_DENIED: Final = (errno.EACCES, "access denied to these credentials")
_UNKNOWN: Final = (errno.EACCES, "the store does not know these credentials")
_WRONG_KEY: Final = (errno.EACCES, "the secret key is wrong")
_EXPIRED: Final = (errno.EACCES, "the credentials have expired")
_CLOCK: Final = (errno.EACCES, "the clocks of this machine and the store differ too much")
_NO_CREDENTIALS: Final = (errno.EACCES, "no credentials could be had")
_NO_BUCKET: Final = (errno.ENOENT, "no such bucket")
_NO_OBJECT: Final = (errno.ENOENT, "no such object")
_REGION: Final = (errno.EREMOTE, "the bucket is in another region")
_QUOTA: Final = (errno.EDQUOT, "the store's quota is used up")
_FULL: Final = (errno.ENOSPC, "the store is full")
_BUSY: Final = (errno.EAGAIN, "the store asks for fewer requests")
_SLOW: Final = (errno.ETIMEDOUT, "the store did not answer in time")
_AWAY: Final = (errno.EHOSTUNREACH, "the store cannot be reached, or closed the connection")
_REPLACED: Final = (errno.ESTALE, "the object was replaced while it was read")
_SLASHES: Final = (errno.EINVAL, "two slashes in a row in the key, which obstore does not read")
_ILLEGAL: Final = (
    errno.EINVAL,
    "a part . or .. or a control character in the key, which obstore does not read",
)
_UPLOAD: Final = (errno.EIO, "the upload failed; the reason is told if s3:AbortMultipartUpload is allowed")
_OTHER: Final = (errno.EIO, "the store answers with an error")

_CODES: Final = {
    "NoSuchBucket": _NO_BUCKET,
    "ContainerNotFound": _NO_BUCKET,
    "NoSuchKey": _NO_OBJECT,
    "AccessDenied": _DENIED,
    "InvalidAccessKeyId": _UNKNOWN,
    "InvalidClientTokenId": _UNKNOWN,
    "UnrecognizedClientException": _UNKNOWN,
    "AuthenticationFailed": _UNKNOWN,
    "InvalidToken": _UNKNOWN,
    "SignatureDoesNotMatch": _WRONG_KEY,
    "ExpiredToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "RequestTimeTooSkewed": _CLOCK,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "QuotaExceeded": _QUOTA,
    "XMinioAdminBucketQuotaExceeded": _QUOTA,
    "StorageFull": _FULL,
    "XMinioStorageFull": _FULL,
    "SlowDown": _BUSY,
    "ServiceUnavailable": _BUSY,
    "OperationAborted": _BUSY,
    "RequestTimeout": _SLOW,
    "InvalidBucketName": _NO_BUCKET,
    "InvalidObjectState": (errno.EIO, "the object is archived and must be restored first"),
    "NoSuchUpload": (errno.EIO, "the upload was aborted in the store"),
    "EntityTooLarge": (errno.EFBIG, "the object is too large for the store"),
}
"""Codes that say more than the status of the answer, or stand for one of many objects."""
_STATUSES: Final = {
    301: _REGION,
    307: _REGION,
    401: _UNKNOWN,
    403: _DENIED,
    404: _NO_OBJECT,
    408: _SLOW,
    429: _BUSY,
    503: _BUSY,
    504: _SLOW,
    507: _FULL,
}
_SIGNS: Final = {
    "contained empty path segment": _SLASHES,
    "illegal character sequence": _ILLEGAL,
    "Received redirect without LOCATION": _REGION,
    "kind: Timeout": _SLOW,
    "kind: TimedOut": _SLOW,
    "kind: Connect": _AWAY,
    "kind: Interrupted": _AWAY,
    "kind: Request": _AWAY,
    "169.254.169.254": _NO_CREDENTIALS,
}
"""What an error without an answer of the store has in it."""
_KINDS: Final = {
    "PreconditionError": _REPLACED,
    "FileNotFoundError": _NO_OBJECT,
    "PermissionDeniedError": _DENIED,
    "UnauthenticatedError": _UNKNOWN,
}


@contextmanager
def translated_errors(url: str, *, anonymous: bool = False) -> Iterator[None]:
    """Raise errors of obstore in this block as OSError, in our words, with `url` as the file's name."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, (OSError, ValueError)) and type(error).__module__ != "obstore.exceptions":
            raise
        number, words = meaning(error)
        if anonymous and number == errno.EACCES:
            words = "access denied, and no credentials were found"
        raise OSError(number, words, url) from None


def refuse_edge_slashes(key: str) -> None:
    """Raise ValueError for the key of an object that obstore would take for another one."""
    if key.startswith("/") or key.endswith("/"):
        raise ValueError("contained empty path segment")


def meaning(error: Exception) -> tuple[int, str]:
    """The errno of an error, and what to say."""
    text, kind = str(error), type(error).__name__
    if kind == "UnauthenticatedError" and "External" in text:
        return _NO_CREDENTIALS
    if "?uploadId=" in text and "Error performing DELETE" in text:
        return _UPLOAD  # obstore tells why it could not abort the upload, not why it tried
    for code in _CODE.findall(text):
        if cause := _CODES.get(code[0] or code[1]):
            return cause
    if kind in _KINDS:
        return _KINDS[kind]
    if cause := next((each for sign, each in _SIGNS.items() if sign in text), None):
        return cause
    status = _STATUS.search(text)
    return _STATUSES.get(int(status[1]), _OTHER) if status else _OTHER
