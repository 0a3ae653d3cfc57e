"""URL keys: two URLs with equal keys are the address of the same page."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Final, NamedTuple
from urllib.parse import unquote

from stream.errors import PageError

MAX_URL: Final = 8192
"""Longest URL, in characters. Crawlers fetch nothing longer, and journal rows must stay small."""

_SEGMENT: Final = "[A-Za-z0-9_~-][A-Za-z0-9._~-]*+"
_PARAMETER: Final = "[A-Za-z0-9._~-]++(?:=[A-Za-z0-9._~-][A-Za-z0-9._~=-]*+)?+"
_NORMAL = re.compile(
    rf"https?://(?:[a-z0-9_-]++\.)+[a-z][a-z0-9_-]*+/(?:{_SEGMENT}/)*+(?:{_SEGMENT})?+"
    rf"(?:\?{_PARAMETER}(?:&{_PARAMETER})*+)?"
)
"""Fast path: matches URLs that are their own keys, with nothing to encode, no dot segments and no numeric
address. Most are. yarl takes 15 us for the same answer, a tenth of the cost of a page of plain text."""
_PLAIN_HOST: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://((?:[a-z0-9_-]++\.)+[a-z][a-z0-9_-]*+)(?:[/?#]|\Z)"
)
"""Fast path of `host_of`: URLs whose host is that of their key."""
_PORT: Final = re.compile(r":[0-9]*\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_AT_ENDS: Final = "".join(map(chr, range(0x21)))
"""C0 controls and space, which browsers strip at both ends."""
_ANYWHERE: Final = str.maketrans("", "", "\t\n\r")
"""What browsers remove from the inside."""
_AUTHORITY: Final = re.compile(
    r"(https?|wss?|ftp):[/\\]*+((?:[^/\\?#]*@)?+)(\[[^/\\?#\]]*+\]|[^/\\?#:]*+)([^/\\?#]*+)", re.IGNORECASE
)
"""Scheme, user information, host and port as the standard divides them for these schemes, whatever the number
of slashes."""
_BEFORE_PARAMETER: Final = re.compile(r"&(?:(?:amp|#38|#x26);)++(?=[^&=#])", re.IGNORECASE)
_QUERY: Final = re.compile(r"([^?#]*+\?)((?:[^#&]|&(?:#(?:38|x26);)?+)*+)", re.IGNORECASE)
"""A URL up to its fragment, if it has a query. The `#` of an escaped `&` begins no fragment."""
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+", re.IGNORECASE)
_NOT_IN_HOST = re.compile(r"""[\s"<>\\^`{|}%]""")
_DIVIDES: Final = re.compile(r"[\x00-\x20#/:?@\[\\\]\x7f]")
"""Characters that would end a host, or be dropped from it, if they were not percent-encoded."""
_ROUTES: Final = ("!", "/")
"""Fragments that begin so are addresses within an application of one page: `#!/news/7`, `#/news/7`."""
URL_RULES: Final = ("routes", "sorted", "tracking")
"""Names of the rules by which spellings of a URL have one key."""
RULES: Final = (*URL_RULES, "redirected", "canonical", "anywhere")
"""Names of all rules, as in the scheme option `url_key`."""
_WEB: Final = ("http://", "https://")


class UrlRules(NamedTuple):
    """Which differences between URLs count."""

    routes: bool
    """Fragments that begin with `!` or `/` count; all others never do."""
    sorted: bool
    """The order of query parameters of different names does not count."""
    tracking: bool
    """The query parameters of `tracking_parameters.txt` do not count."""
    redirected: bool = False
    """A page reached by a redirect has the key of the URL that was asked for."""
    canonical: bool = False
    """A page has the key of the canonical URL that it names, if that is of the page's own host."""
    anywhere: bool = False
    """Canonical URLs of other hosts count, too."""


PLAIN: Final = UrlRules(routes=False, sorted=False, tracking=False)
COARSEST: Final = UrlRules(routes=False, sorted=True, tracking=True)
"""URLs that are equal by any rules for URLs are equal by these."""


def url_rules(option: str) -> UrlRules:
    """The rules of a scheme option: names of RULES, separated by commas. Raises ValueError."""
    names = option.split(",") if option else []
    if unknown := sorted(set(names) - set(RULES)):
        raise ValueError(f"url_key={option}: unknown rule {unknown[0]!r}; there are {', '.join(RULES)}")
    if "anywhere" in names and "canonical" not in names:
        raise ValueError(f"url_key={option}: anywhere is a rule for canonical URLs, and canonical is missing")
    return UrlRules(*(rule in names for rule in RULES))


def url_key(url: str, rules: UrlRules) -> str:
    """The key of a URL: the URL without its fragment and default port, scheme and host in lower case (IDNA),
    percent-encoding normalised (RFC 3986 section 6.2.2, by yarl), blanks, control characters, backslashes,
    hosts and parameters of the query read as browsers do (WHATWG URL), an `&amp;` before a parameter read as
    `&`, and what the rules say.

    Raises PageError `bad_url` for a URL without scheme or host, with lone surrogates, or longer than MAX_URL.
    """
    if len(url) > MAX_URL:
        raise PageError("bad_url", f"{len(url)} characters, at most {MAX_URL}: {url[:80]}")
    key = url if _NORMAL.fullmatch(url) else normalised(url, routes=rules.routes)
    return _by_parameters(key, rules) if "?" in key and (rules.sorted or rules.tracking) else key


LONGEST_HOST: Final = 253
"""Longest name of a host in DNS."""


def host_of(url: str) -> str:
    """The host of a URL as its key has it, without port, and without the dot at the end that a full domain
    name may have; empty if there is none."""
    if plain := _PLAIN_HOST.match(url):
        return plain[1]
    try:
        host, _ = _host_and_rest(normalised(url, routes=False))
    except PageError:
        return ""
    return _PORT.sub("", host).removesuffix(".")


def page_key(own: str, redirected_from: str | None, canonical: str | None, rules: UrlRules) -> str:
    """The key of a page whose URL has the key `own`: that of its canonical URL or of the URL that was asked
    for, if the rules follow it, or its own.

    What a page says of itself is not trusted. A canonical URL is not followed if it is malformed, of another
    host or port (default ports count as one) unless the rules say `anywhere`, or the front page of a host
    while the page has another path: sites that name their front page on every page would be one page.
    """
    if rules.canonical and canonical is not None:
        key = _key_or_none(canonical, rules)
        if key is not None and key.startswith(_WEB):
            (host, rest), (its_host, its_rest) = _host_and_rest(own), _host_and_rest(key)
            is_front_page_of_another = not its_rest and rest[:1] not in ("", "?", "#")
            if not is_front_page_of_another and (rules.anywhere or its_host == host):
                return key
    if rules.redirected and redirected_from is not None:
        return _key_or_none(redirected_from, rules) or own
    return own


def _key_or_none(url: str, rules: UrlRules) -> str | None:
    try:
        return url_key(url, rules)
    except PageError:
        return None


def _host_and_rest(key: str) -> tuple[str, str]:
    """Host and port of a key, which has no default port, and what follows the first slash of its path."""
    authority, _, rest = key.partition("://")[2].partition("/")
    return authority.rpartition("@")[2], rest


def _by_parameters(key: str, rules: UrlRules) -> str:
    rest, hash_sign, route = key.partition("#")
    path, mark, query = rest.partition("?")
    if not mark:
        return key
    parameters = query.split("&")
    if rules.tracking:
        is_tracking = _tracking().match
        parameters = [each for each in parameters if not is_tracking(each)]
    if rules.sorted:
        parameters.sort(key=_name_of)  # stable: the values of one name keep their order
    left = "&".join(parameters)
    return path + ("?" + left if left else "") + hash_sign + route


def _name_of(parameter: str) -> str:
    return parameter.partition("=")[0]


@functools.cache
def _tracking() -> re.Pattern[str]:
    """Matches a tracking parameter."""
    lines = files("stream.text").joinpath("tracking_parameters.txt").read_text("utf-8").splitlines()
    listed = [line.split(maxsplit=1)[0] for line in lines if line and not line.startswith("#")]
    names = "|".join(re.escape(name).replace(r"\*", "[^=]*") for name in listed)
    return re.compile(rf"(?:{names})(?:=|\Z)", re.ASCII | re.IGNORECASE)


def normalised(url: str, *, routes: bool) -> str:
    """The reference implementation of `url_key` before its rules for queries, by yarl, without the limit on
    length."""
    from yarl import URL  # which takes a while, and schemes need the rules alone

    if _SURROGATE.search(url):
        raise PageError("bad_url", f"lone surrogate in {url[:200]!r}")
    url = _as_in_browsers(url)
    try:
        parsed = URL(_with_host(url))
        host = parsed.raw_host
        if not parsed.scheme or not host:
            raise PageError("bad_url", f"no scheme or no host in {url[:200]!r}")
        if _NOT_IN_HOST.search(host):
            raise ValueError("malformed host")
        if parsed.explicit_port is not None and parsed.is_default_port():
            parsed = parsed.with_port(None)
        route = parsed.raw_fragment if routes and parsed.raw_fragment.startswith(_ROUTES) else ""
        parsed = parsed.with_fragment(None)
        key, mark, query = str(parsed).partition("?")
        # An empty path is "/" (RFC 3986 section 6.2.3); yarl adds it only before a query.
        if parsed.raw_path == "/" and not mark and not key.endswith("/"):
            key += "/"
        query = "&".join(_parameters(query))
        return key + ("?" + query if query else "") + ("#" + route if route else "")
    except (ValueError, TypeError, IndexError) as error:
        raise PageError("bad_url", f"{error} in {url[:200]!r}") from None


def _parameters(query: str) -> Iterator[str]:
    """The parameters of a query as `application/x-www-form-urlencoded` (WHATWG URL, 5.1): `%20` is a blank as
    `+` is, a name without a value has the empty one, and nothing between two `&` is no parameter."""
    for parameter in query.replace("%20", "+").split("&"):
        name, _, value = parameter.partition("=")
        if parameter:
            yield parameter if value or not name else name


def _with_host(url: str) -> str:
    """A URL with its authority as the host parser of the WHATWG URL standard (3.5) reads it, if its scheme is
    one of those that have hosts there."""
    parts = _AUTHORITY.match(url)
    if not parts:
        return url
    user, host, port = parts[2], parts[3], parts[4]
    if not host.startswith("["):
        if "%" in host:
            host = unquote(host, errors="strict")
        if not host.isascii():
            import idna

            host = idna.uts46_remap(host, std3_rules=False)
        if _DIVIDES.search(host):
            raise ValueError("malformed host")
        host = _address(host)
    return f"{parts[1]}://{user}{host}{port}{url[parts.end() :]}"


def _address(host: str) -> str:
    """A host, in decimal if it is an IPv4 address in whatever notation (WHATWG URL, 3.5). Raises ValueError
    for a host that ends with a number and is none."""
    numbers = host.removesuffix(".").split(".")
    if not _NUMBER.fullmatch(numbers[-1]):
        return host
    values = [_number(each) for each in numbers]
    last = values.pop()
    if len(values) > 3 or max(values, default=0) > 255 or last >= 256 ** (4 - len(values)):
        raise ValueError("malformed IPv4 address")
    whole = sum(value << 8 * (3 - place) for place, value in enumerate(values)) + last
    return ".".join(map(str, whole.to_bytes(4, "big")))


def _number(digits: str) -> int:
    """A number of an IPv4 address: hexadecimal after `0x`, octal after `0`. Raises ValueError."""
    if not _NUMBER.fullmatch(digits):
        raise ValueError("malformed IPv4 address")
    if digits[:2].lower() == "0x":
        return int(digits[2:] or "0", 16)
    return int(digits, 8 if digits[:1] == "0" else 10)


def _as_in_browsers(url: str) -> str:
    """White space, control characters and backslashes as in the WHATWG URL standard, 4.4; and `&` in place of
    the references by which links that were copied from HTML have it."""
    url = url.strip(_AT_ENDS).translate(_ANYWHERE)
    if query := _QUERY.match(url):
        url = query[1] + _BEFORE_PARAMETER.sub("&", query[2]) + url[query.end() :]
    url = _CONTROL.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), url)
    if "\\" in url and url[:6].lower().startswith(("http:", "https:")):
        ends = min((at for at in (url.find("?"), url.find("#")) if at >= 0), default=len(url))
        url = url[:ends].replace("\\", "/") + url[ends:]
    return url
