"""A schema registry: schemas by id, and the ids of our own.

The REST calls are Confluent's, which Karapace and Apicurio (`/apis/ccompat/v7`) answer too.
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
from stream.pages.outside.errors import AwayError
from stream.pages.outside.recent import Recent
from stream.pages.outside.schema import KEPT, REFUSED_SECONDS, Registered
from stream.settings import Settings

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
SECONDS: Final = 10.0
"""How long an answer may take."""
MAX_ANSWER: Final = 8 << 20
MAX_SCHEMA: Final = 1 << 20
"""Characters of a schema and all that it refers to."""
MAX_ERROR: Final = 64 << 10
MAX_REFERENCES: Final = 100
NOT_FOUND: Final = range(40_400, 40_500)
"""Confluent's codes of what is not there; any other 404 is a wrong URL."""
REFUSALS: Final = (400, 401, 403, 409, 422)
"""Statuses of a schema that is not taken: asking again would not help."""
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
    """Schemas by id; an id means the same for ever, so each is asked for once while it is kept."""

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Accept": f"{MEDIA_TYPE}, application/json"}
        if user is not None:
            token = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._known: Recent[int, Registered] = Recent(KEPT)
        self._refused: Recent[int, tuple[Registered, float]] = Recent(KEPT)
        self._opener = urllib.request.build_opener(_Redirects)

    def schema(self, number: int) -> Registered:
        """The schema of that id, or why it is of no use; takes seconds. Raises AwayError."""
        if found := self._known.get(number):
            return found
        refused = self._refused.get(number)
        if refused and time.monotonic() < refused[1]:
            return refused[0]
        try:
            found = self._registered(number)
        except PageError as error:
            found = Registered.refused(error)
            self._refused.put(number, (found, time.monotonic() + REFUSED_SECONDS))
        else:
            self._known.put(number, found)
        return found

    def _registered(self, number: int) -> Registered:
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

    def _collect(self, answer: _Answer, found: dict[tuple[str, int], str], depth: int = 0) -> None:
        """Everything that a schema refers to, leaves first."""
        for each in answer.references or ():
            key = (each.subject, each.version)
            if key in found:
                continue
            if len(found) >= MAX_REFERENCES or depth > MAX_REFERENCES:
                raise PageError("unsupported_schema", f"more than {MAX_REFERENCES} references")
            subject = urllib.parse.quote(each.subject, safe="")
            below = self._ask(f"/subjects/{subject}/versions/{each.version}")
            if below is None:
                raise PageError("unsupported_schema", f"refers to {each.subject} {each.version}: not there")
            self._collect(below, found, depth + 1)
            found[key] = below.schema
            _refuse_large(found.values())

    def _ask(self, path: str) -> _Answer | None:
        """The answer; None where the registry says that there is no such thing.

        Raises AwayError, and PageError `unsupported_schema` of an answer that is too large.
        """
        try:
            return self._call(path, _Answer)
        except _NotThereError:
            return None
        except _TooLargeError as error:
            raise PageError("unsupported_schema", str(error)) from None
        except _StatusError as error:
            raise AwayError(str(error)) from None

    def register(self, subject: str, schema: str) -> int:
        """The id of an Avro schema of that subject, to which it is added where it is not there.

        Looked up first: who may only read can use what somebody else registered. Raises AwayError, and
        RefusedError when the registry does not take the schema.
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
            kind = RefusedError if error.status in REFUSALS else AwayError
            raise kind(f"{error}: {error.said}") from None

    def _call(self, path: str, answer: type[_T], content: object = None) -> _T:
        """GET, or POST with a content.

        Raises AwayError, _StatusError, _TooLargeError, and _NotThereError of nothing.
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
                said = _error(error.read(MAX_ERROR))
            if error.code == 404 and said.error_code in NOT_FOUND:
                raise _NotThereError from None
            raise _StatusError(f"{where}: {error.code} {error.reason}", error.code, said.message) from None
        except (OSError, http.client.HTTPException, msgspec.DecodeError, ValueError) as error:
            raise AwayError(f"{where}: {error}") from None


def _refuse_large(texts: Iterable[str]) -> None:
    if sum(map(len, texts)) > MAX_SCHEMA:
        raise PageError("unsupported_schema", f"more than {MAX_SCHEMA} characters")


def registry_of(settings: Settings) -> Registry | None:
    """The deployment's registry, if it has one."""
    if settings.schema_registry_url is None:
        return None
    password = settings.schema_registry_password
    return Registry(
        settings.schema_registry_url,
        settings.schema_registry_user,
        password.get_secret_value() if password else None,
    )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows them, and tells credentials only to whom they were meant for."""

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
    """The whole answer. Raises OSError of one that takes too long, _TooLargeError."""
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
    """The registry's answer is over MAX_ANSWER."""


class _NotThereError(Exception):
    """The registry knows no such thing."""


class _StatusError(Exception):
    """The registry answered, with an error."""

    def __init__(self, what: str, status: int, said: str) -> None:
        super().__init__(what)
        self.status, self.said = status, said


def _error(said: bytes) -> _Error:
    try:
        return msgspec.json.decode(said, type=_Error)
    except msgspec.DecodeError:
        return _Error()
