"""A client of a schema registry: fetches schemas by id and registers our own.

It uses Confluent's REST API, which Karapace and Apicurio (`/apis/ccompat/v7`) implement as well.
"""

from __future__ import annotations

import base64
import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import IO, Final, TypeVar

import msgspec

from stream.errors import PageError, RefusedError
from stream.pages.outside.errors import UnavailableError
from stream.pages.outside.recently_used import RecentlyUsed
from stream.pages.outside.schema import KEPT, REFUSED_SECONDS, Registered
from stream.settings import Settings

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
SECONDS: Final = 10.0
"""Timeout of a request, and of reading its whole answer."""
MAX_ANSWER: Final = 8 << 20
MAX_SCHEMA: Final = 1 << 20
"""Most characters of a schema together with all that it refers to."""
MAX_ERROR: Final = 64 << 10
MAX_REFERENCES: Final = 100
NOT_FOUND: Final = range(40_400, 40_500)
"""Confluent's error codes for unknown subjects, versions and schemas. Any other 404 means a wrong URL."""
REFUSALS: Final = (400, 401, 403, 409, 422)
"""HTTP statuses that refuse a schema for good: retrying would not help."""
_T = TypeVar("_T")


class _Reference(msgspec.Struct):
    subject: str
    version: int


class _Registered(msgspec.Struct):
    id: int


class _Answer(msgspec.Struct, rename="camel"):
    schema: str
    schema_type: str | None = "AVRO"
    references: list[_Reference] | None = None


class _Error(msgspec.Struct):
    error_code: int = 0
    message: str = ""


class Registry:
    """A schema registry. The schema of an id never changes, so answers are cached."""

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Accept": f"{MEDIA_TYPE}, application/json"}
        if user is not None:
            token = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._usable: RecentlyUsed[int, Registered] = RecentlyUsed(KEPT)
        self._refused: RecentlyUsed[int, tuple[Registered, float]] = RecentlyUsed(KEPT)
        self._opener = urllib.request.build_opener(_Redirects)

    def schema(self, number: int) -> Registered:
        """Return the schema with that id, or the reason why it cannot be used. May take seconds. Raises
        UnavailableError."""
        if registered := self._usable.get(number):
            return registered
        refusal = self._refused.get(number)
        if refusal and time.monotonic() < refusal[1]:
            return refusal[0]
        try:
            registered = self._fetch(number)
        except PageError as error:
            registered = Registered.from_error(error)
            self._refused.put(number, (registered, time.monotonic() + REFUSED_SECONDS))
        else:
            self._usable.put(number, registered)
        return registered

    def _fetch(self, number: int) -> Registered:
        answer = self._ask(f"/schemas/ids/{number}")
        if answer is None:
            raise PageError("unknown_schema", f"the schema registry knows no id {number}")
        kind = answer.schema_type or "AVRO"
        if kind == "JSON":
            return Registered(kind)
        if kind != "AVRO":
            raise PageError("unsupported_schema", f"schemas of type {kind[:40]!r} hold no pages")
        referred: dict[tuple[str, int], str] = {}
        self._collect(answer, referred)
        _refuse_large([answer.schema, *referred.values()])
        return Registered(kind, answer.schema, list(referred.values()))

    def _collect(self, answer: _Answer, referred: dict[tuple[str, int], str], depth: int = 0) -> None:
        """Fetch the schemas that `answer` refers to into `referred`, transitively, leaves first."""
        for each in answer.references or ():
            key = (each.subject, each.version)
            if key in referred:
                continue
            if len(referred) >= MAX_REFERENCES or depth > MAX_REFERENCES:
                raise PageError("unsupported_schema", f"more than {MAX_REFERENCES} references")
            subject = urllib.parse.quote(each.subject, safe="")
            below = self._ask(f"/subjects/{subject}/versions/{each.version}")
            if below is None:
                missing = f"refers to {each.subject} version {each.version}, which does not exist"
                raise PageError("unsupported_schema", missing)
            self._collect(below, referred, depth + 1)
            referred[key] = below.schema
            _refuse_large(referred.values())

    def _ask(self, path: str) -> _Answer | None:
        """GET a schema; None if the registry does not have it.

        Raises UnavailableError, and PageError `unsupported_schema` if the answer is too large.
        """
        try:
            return self._call(path, _Answer)
        except _NotThereError:
            return None
        except _TooLargeError as error:
            raise PageError("unsupported_schema", str(error)) from None
        except _StatusError as error:
            raise UnavailableError(str(error)) from None

    def register(self, subject: str, schema: str) -> int:
        """Return the id of an Avro schema in a subject. Registers the schema if the subject does not have it.

        The look-up comes first, so that a client with read permission can use a schema that was registered by
        another. Raises UnavailableError, and RefusedError if the registry refuses the schema.
        """
        place = f"/subjects/{urllib.parse.quote(subject, safe='')}"
        content = {"schema": schema}
        try:
            try:
                return self._call(place, _Registered, content).id
            except _NotThereError:
                return self._call(f"{place}/versions", _Registered, content).id
        except _TooLargeError as error:
            raise RefusedError(str(error)) from None
        except _StatusError as error:
            kind = RefusedError if error.status in REFUSALS else UnavailableError
            raise kind(f"{error}: {error.message}") from None

    def _call(self, path: str, answer: type[_T], content: object = None) -> _T:
        """GET a path, or POST `content` to it, and decode the answer.

        Raises UnavailableError, _StatusError, _TooLargeError, and _NotThereError for an unknown schema or
        subject.
        """
        where = f"schema_registry_url {self._url}: {path}"
        data = None if content is None else msgspec.json.encode(content)
        headers = self._headers if data is None else {**self._headers, "Content-Type": MEDIA_TYPE}
        request = urllib.request.Request(self._url + path, data, headers)  # noqa: S310 (the setting's scheme)
        try:
            with self._opener.open(request, timeout=SECONDS) as response:
                return msgspec.json.decode(_content(response, where), type=answer)
        except urllib.error.HTTPError as error:
            with error:
                failure = _error(error.read(MAX_ERROR))
            if error.code == 404 and failure.error_code in NOT_FOUND:
                raise _NotThereError from None
            raise _StatusError(f"{where}: {error.code} {error.reason}", error.code, failure.message) from None
        except (OSError, http.client.HTTPException, msgspec.DecodeError, ValueError) as error:
            raise UnavailableError(f"{where}: {error}") from None


def _refuse_large(texts: Iterable[str]) -> None:
    if sum(map(len, texts)) > MAX_SCHEMA:
        raise PageError("unsupported_schema", f"more than {MAX_SCHEMA} characters")


def registry_of(settings: Settings) -> Registry | None:
    """Return the schema registry of the deployment, or None."""
    if settings.schema_registry_url is None:
        return None
    password = settings.schema_registry_password
    return Registry(
        settings.schema_registry_url,
        settings.schema_registry_user,
        password.get_secret_value() if password else None,
    )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but sends credentials only to the origin they are meant for."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and _origin(newurl) != _origin(req.full_url):
            request.remove_header("Authorization")
        return request


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _content(response: http.client.HTTPResponse, where: str) -> bytes:
    """Read the whole answer. Raises TimeoutError (an OSError) if it takes too long, _TooLargeError."""
    pieces, size, until = [], 0, time.monotonic() + SECONDS
    while piece := response.read1(1 << 16):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER:
            raise _TooLargeError(f"{where}: the answer is over {MAX_ANSWER} bytes")
        if time.monotonic() > until:
            raise TimeoutError(f"the answer takes longer than {SECONDS:g} s")
    return b"".join(pieces)


class _TooLargeError(Exception):
    """The registry's answer is larger than MAX_ANSWER."""


class _NotThereError(Exception):
    """The registry does not have the schema or subject."""


class _StatusError(Exception):
    """The registry answered with an error status."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(what)
        self.status, self.message = status, message


def _error(body: bytes) -> _Error:
    try:
        return msgspec.json.decode(body, type=_Error)
    except msgspec.DecodeError:
        return _Error()
