"""Columns of data sets that have other names than the fields of page messages."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from stream.errors import SettingsError
from stream.pages.column_names import LONGEST, USUAL, ColumnNames, Fits, fits
from stream.pages.fields import FIELDS
from stream.pages.page import CONTENT, MESSAGE_CONTENT, NO_CONTENT
from stream.text.lenient_json import decode

Path = tuple[str, ...]
"""Names that lead to a column: its own, after those of the structs that it is nested in."""
ID_URL: Final = "id://localhost/"
"""What the URL of a page without one begins with; its percent-encoded id follows."""
_DOTS: Final = {".": "dot/", "..": "dot/dot/"}
"""Ids that are no name in the path of a URL. No other id gives these, as its slashes are encoded."""
_MESSAGE_ONLY: Final = ("content_encoding", "warc_filename", "warc_offset")
"""Fields that JSON messages have beside FIELDS."""
_NEEDED: Final = frozenset(("url", *MESSAGE_CONTENT))
"""Fields by which a JSON message has an address and a content."""
_FIELD_NAMES: Final = re.compile(rf"`(\$\.|)({'|'.join(('url', *CONTENT))})`")
"""Names of fields in details of rejections, and paths of msgspec's errors."""
JsonFields = dict[str, msgspec.Raw]
"""A JSON object, with its values as they are written."""
_FIELDS: Final = msgspec.json.Decoder(JsonFields)
_VALUE: Final = msgspec.json.Decoder()
_DECODE_STRING: Final = msgspec.json.Decoder(str).decode


MAX_LABEL: Final = 200
"""Most characters of a label; the rest is cut."""


class _Labelled(msgspec.Struct):
    label: msgspec.Raw = msgspec.Raw()


_LABEL: Final = msgspec.json.Decoder(_Labelled)


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns that a data set has for the URL, the content, the time and the quality of its pages, where
    they have other names.

    `link.href` is the field `href` of the column `link`, unless there is a column of that very name. The
    content is the named column alone. Of a data set without URLs, ids stand in for them: see `url_of_id`.

    Raises SettingsError for two names of one thing: `url` and `id`, or `text` and `html`; and for a prefix of
    ids without them.
    """

    url: str | None = None
    id: str | None = None
    text: str | None = None
    html: str | None = None
    fetched_at: str | None = None
    quality: str | None = None
    label: str | None = None
    """By what an index counts pages, in place of their source."""
    place_ids: bool = False
    """Of a data set without ids as well, file and number of a page are its id, such as `texts.jsonl#12`."""
    id_prefix: str = ""
    """Put before each id: other data sets may have the same ids."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        for one, other in (("url", "id"), ("text", "html")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise SettingsError(
                    f"{one}-column, {other}-column: name one of them; a page has one"
                    f" {'address' if one == 'url' else 'content'}"
                )
        for field, name in self.names.items():
            if not name:
                raise SettingsError(f"{option_of(field)}: an empty name")
        if self.place_ids and (self.url is not None or self.id is not None):
            raise SettingsError(
                "place-ids: stand in for URLs and ids; name a column of these, or leave it out"
            )
        if self.id_prefix and not self.has_ids:
            raise SettingsError("id-prefix: only ids have one; name their column with id-column")

    @property
    def has_ids(self) -> bool:
        """Whether ids stand in for URLs."""
        return self.id is not None or self.place_ids

    @property
    def names(self) -> dict[str, str]:
        """The names that are given, by field."""
        return {field: name for field in USUAL if (name := getattr(self, field)) is not None}

    @property
    def given(self) -> dict[str, str]:
        """What is given, by attribute."""
        given = self.names | ({"id_prefix": self.id_prefix} if self.id_prefix else {})
        return given | ({"place_ids": "true"} if self.place_ids else {})

    def url_of_place(self, file: str, number: int) -> str | None:
        """Return the URL that stands in for that of a page, the `number`-th of a file from 1; None unless
        places are ids."""
        return url_of_id(f"{file}#{number}", self.id_prefix) if self.place_ids else None

    @property
    def fields(self) -> list[str]:
        """The fields of messages that are read by their own names."""
        named = self.names
        hidden = {"fetched_at", "quality"} & named.keys()
        if "text" in named or "html" in named:
            hidden.update(CONTENT)
        if "url" in named or self.has_ids:
            hidden.add("url")
        return [each for each in FIELDS if each not in hidden]

    def label_of(self, message: bytes) -> str | None:
        """Return the label of a page message that was made with these names: its text, or the JSON of another
        value, cut to MAX_LABEL characters; empty if there is none. None unless labels have a column."""
        if self.label is None:
            return None
        try:
            label = bytes(decode(_LABEL, message).label)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ""
        if label[:1] == b'"':
            return (_string_or_none(label) or "")[:MAX_LABEL]
        return "" if label == b"null" else label.decode(errors="replace")[:MAX_LABEL]

    def translate(self, detail: str) -> str:
        """Return the detail of a rejection with the names of the columns in place of those of the fields of
        messages."""
        by_field = {"url" if field == "id" else field: name for field, name in self.names.items()}
        if content := self.text or self.html:
            by_field |= dict.fromkeys(CONTENT, content)
            detail = detail.replace(NO_CONTENT, f"`{content}` is missing")
        return _FIELD_NAMES.sub(lambda match: f"`{match[1]}{by_field.get(match[2], match[2])}`", detail)

    def message(self, line: bytes, url: str | None = None) -> tuple[bytes, str | None]:
        """Return the page message of a JSON object whose fields have other names, and its URL if that is a
        string: `url`, or the one that the object has. What is no object stays as it is, to be rejected."""
        named = (self.quality or "quality").rpartition(".")[2].encode()
        try:
            row = decode(_decoder(self), line, named)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return line, None
        parts = [] if url is None else [b'"url":' + msgspec.json.encode(url)]
        for prefix, field, places in _plan(self):
            value = next((raw for place in places if (raw := place.value(row)) is not None), None)
            if value is None:
                continue
            content = bytes(value)
            if field == "id":
                content = _json_url_of_id(content, self.id_prefix)
            if field in ("url", "id"):
                url = _string_or_none(content)
            parts.append(prefix + content)
        return b"{" + b",".join(parts) + b"}", url

    def locate(
        self,
        names: Sequence[str],
        nested: Callable[[str], Path | None] = lambda name: None,
        *,
        listed: Callable[[], Iterable[str]] | None = None,
        spelt: Callable[[dict[str, str]], str] | None = None,
        fits: Fits = lambda field, name: True,
    ) -> dict[str, Path]:
        """Return where the table with these columns has the fields of pages, `id` among them.

        `nested` finds a column in structs; `listed` lists those too. Names are equal whatever their case,
        unless several columns have them. Raises SettingsError for a column that does not exist or of which
        there are two, with what may be meant and fits, as `spelt`: by default as options of a command.
        """
        spelt = spelt or as_options
        by_name: dict[str, Path] = {}
        for field, name in self.names.items():
            path = one_of(names, name) or nested(name)
            if path is None:
                raise SettingsError(
                    _absent(field, name, ColumnNames((listed or (lambda: names))()), spelt, fits)
                )
            by_name[field] = path
        for field in self.fields:
            if path := one_of(names, field):
                by_name[field] = path
        if lacking := self.lacking(by_name, CONTENT):
            _refuse_text_as_body(
                lacking, by_name.keys() & CONTENT, lambda field, name: fits(field, ".".join(by_name[name]))
            )
            raise SettingsError(_missing(lacking, ColumnNames((listed or (lambda: names))()), spelt, fits))
        return by_name

    def lacking(self, names: Iterable[str], contents: Iterable[str]) -> list[str]:
        """Which of `url` and `text` have no column: neither named here, nor of those names."""
        named, names = self.names, set(names)
        address = "url" in named or self.has_ids or "url" in names
        content = "text" in named or "html" in named or not names.isdisjoint(contents)
        return [*([] if address else ["url"]), *([] if content else ["text"])]


NO_COLUMNS: Final = Columns()
"""The names of page messages."""


class MissingColumns:
    """What the JSON objects of a data set, looked at one by one, all lack: named columns, or what pages need
    while a column of a usual name may be meant."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._absent = columns.names
        self._fields: set[str] = set()
        self._names = ColumnNames()
        self._rows: list[JsonFields] = []

    def add(self, row: JsonFields) -> None:
        """Look at the next object."""
        self._rows.append(row)
        self._absent = {field: name for field, name in self._absent.items() if _value_at(row, name) is None}
        self._fields |= _NEEDED & row.keys()
        self._names.add(_names(row))

    @property
    def any(self) -> bool:
        """Whether something is missing so far. Of no object, all columns that are named."""
        lacking = self._lacking()
        return bool(self._absent or lacking == ["url"] or self._names.has_usual(lacking))

    def message(self) -> str | None:
        """Return what is missing, and what may be meant; None if it is nothing, or there is no object."""
        if not self._rows or not self.any:
            return None
        if self._absent:
            field, name = next(iter(self._absent.items()))
            return _absent(field, name, self._names, as_options, self._fits)
        lacking = self._lacking()
        _refuse_text_as_body(lacking, self._fields - {"url"}, self._fits)
        return _missing(lacking, self._names, as_options, self._fits)

    def _lacking(self) -> list[str]:
        return self._columns.lacking(self._fields, MESSAGE_CONTENT)

    def _fits(self, field: str, name: str) -> bool:
        values = (_value_at(row, name) for row in self._rows)
        return any(fits(field, json_value(value)) for value in values if value is not None)


def _refuse_text_as_body(lacking: list[str], contents: Set[str], fits: Fits) -> None:
    """Add the text to what is lacking if the only content is a `body` that is no base64."""
    if "text" not in lacking and contents == {"body"} and not fits("body", "body"):
        lacking.append("text")


def _absent(
    field: str, name: str, names: ColumnNames, spelt: Callable[[dict[str, str]], str], fits: Fits
) -> str:
    return f"{spelt({field: name})}: no such column{names.hint(field, name, fits)} it has {names}"


def _missing(
    lacking: Sequence[str], names: ColumnNames, spelt: Callable[[dict[str, str]], str], fits: Fits
) -> str:
    contents = [f"`{each}`" for each in CONTENT]
    needed = {
        ("url",): "column `url`",
        ("text",): f"column {', '.join(contents[:-1])} or {contents[-1]}",
        ("url", "text"): f"columns `url` and one of {', '.join(contents)}",
    }
    text = f"no {needed[tuple(lacking)]}; it has {names}"
    suggested = names.suggested(lacking, fits)
    options = [spelt(suggested)] if suggested else []
    has_content = "text" not in lacking or not suggested.keys().isdisjoint(("text", "html"))
    if (
        spelt is as_options
        and "url" in lacking
        and suggested.keys().isdisjoint(("url", "id"))
        and has_content
    ):
        options.insert(0, "--place-ids")
    return f"{text}; add {' '.join(options)}" if options else text


def as_options(names: dict[str, str]) -> str:
    """Return the options of a command that name columns."""
    return " ".join(f"--{option_of(field)} {_quoted(name)}" for field, name in names.items())


def option_of(field: str) -> str:
    """Return the option that names the column of a field."""
    if field == "label":
        return "count-by"
    return f"{field.replace('_', '-')}-column"


def as_argument(names: dict[str, str]) -> str:
    """Return the argument of a Python function that names columns."""
    return f"columns=Columns({', '.join(f'{field}={name!r}' for field, name in names.items())})"


def url_of_id(value: str, prefix: str = "") -> str:
    """Return the URL that stands in for that of a page with this id: `id://localhost/`, the prefix and the
    id, with all but letters, digits and `-._~` percent-encoded. Different ids have different URL keys."""
    value = prefix + value
    return ID_URL + (_DOTS.get(value) or quote(value, safe="", errors="replace"))


def one_of(names: Sequence[str], name: str) -> Path | None:
    """Return the column of this name, whose case, and white space and byte order marks around it, do not
    matter. Raises SettingsError if there are several."""
    alike = [each for each in names if each == name] or [
        each for each in names if _folded(each) == _folded(name)
    ]
    if len(alike) > 1:
        raise SettingsError(f"{len(alike)} columns {name!r}: {', '.join(alike)}; rename one of them")
    return (alike[0],) if alike else None


def _folded(name: str) -> str:
    return name.strip("\ufeff \t\r\n").lower()


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else "'" + name.replace("'", "'\\''") + "'"


class _Place(NamedTuple):
    """Where a decoded line has a field: in an attribute, or in the object that this is."""

    attribute: str
    nested: str | None = None

    def value(self, row: Any) -> msgspec.Raw | None:
        raw = getattr(row, self.attribute)
        if raw is None or self.nested is None:
            return None if raw is None else msgspec.Raw(raw)
        fields = json_fields(raw)
        return None if fields is None else _value_at(fields, self.nested)


@functools.cache
def _plan(columns: Columns) -> list[tuple[bytes, str, list[_Place]]]:
    """Return the fields of the message, each with what it begins with, and its places in a line."""
    places: dict[str, list[_Place]] = {}
    attributes = _attributes(columns)
    for field, name in columns.names.items():
        places[field] = [_Place(attributes[name])]
        if "." in name:
            root, _, rest = name.partition(".")
            places[field].append(_Place(attributes[root], rest))
    content = not {"text", "html"}.isdisjoint(columns.names)
    for field in (*columns.fields, *(() if content else _MESSAGE_ONLY)):
        places[field] = [_Place(attributes[field])]
    return [
        (f'"{"url" if field == "id" else field}":'.encode(), field, each) for field, each in places.items()
    ]


@functools.cache
def _attributes(columns: Columns) -> dict[str, str]:
    """Return the attributes of decoded lines, by the names of the fields that are decoded."""
    names = [*columns.names.values(), *(name.partition(".")[0] for name in columns.names.values())]
    return {
        name: f"f{number}"
        for number, name in enumerate(dict.fromkeys([*names, *columns.fields, *_MESSAGE_ONLY]))
    }


@functools.cache
def _decoder(columns: Columns) -> msgspec.json.Decoder[Any]:
    """Return a decoder that finds the fields in a line, and leaves their values as they stand there."""
    attributes = _attributes(columns)
    row = msgspec.defstruct(
        "Row",
        [(attribute, msgspec.Raw, msgspec.field(default=None)) for attribute in attributes.values()],
        rename={attribute: name for name, attribute in attributes.items()},
    )
    return msgspec.json.Decoder(row)


def _json_url_of_id(value: bytes, prefix: str) -> bytes:
    """Return the JSON of the URL for the JSON of an id: a string, or a number as it is written. An empty id
    is none; another type stays as it is, to be rejected."""
    if value[:1] == b'"':
        text = _string_or_none(value)
        if text is None:
            return value
        return msgspec.json.encode(url_of_id(text, prefix)) if text else b"null"
    if value[:1] in b"-0123456789":
        return msgspec.json.encode(url_of_id(value.decode("ascii"), prefix))
    return value


def _string_or_none(value: bytes) -> str | None:
    try:
        return _DECODE_STRING(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def json_value(value: msgspec.Raw) -> object:
    """Return a value as JSON has it, or None if it cannot be decoded."""
    try:
        return decode(_VALUE, bytes(value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def json_fields(value: bytes | msgspec.Raw) -> JsonFields | None:
    """Return the fields of a JSON object; None of anything else."""
    try:
        return decode(_FIELDS, bytes(value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _value_at(fields: JsonFields, name: str) -> msgspec.Raw | None:
    """Return the value of that name, or of that path through nested objects."""
    if (value := fields.get(name)) is not None:
        return value
    root, dot, rest = name.partition(".")
    inner = json_fields(fields[root]) if dot and root in fields else None
    return None if inner is None else _value_at(inner, rest)


def _names(fields: JsonFields) -> Iterator[str]:
    """Yield the names of an object and of the objects in it."""
    for name, value in fields.items():
        yield name
        if len(name) <= LONGEST and bytes(value)[:1] == b"{":
            for each in json_fields(value) or ():
                yield f"{name}.{each}"
