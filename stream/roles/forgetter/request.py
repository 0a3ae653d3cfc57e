"""Requests that the pages of URLs and hosts be forgotten."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from aiokafka.errors import KafkaError

from stream.errors import BrokerError, PageError, SettingsError
from stream.fingerprint.seed import host_hasher, url_hasher
from stream.kafka import acl_check, clients, topics
from stream.kafka.names import TopicNames
from stream.messages.journal import Genesis
from stream.messages.requests import ForgetRequest, What, encode_request
from stream.settings import Settings
from stream.text.url import LONGEST_HOST, UrlRules, host_of, url_key

WAITING: Final = 1000
"""Requests whose acknowledgements are awaited together."""
_HOST: Final = re.compile(r"[^/?#@:\[\]\\\s*]+|\[[0-9a-fA-F:.]+\]")
"""A host without a port; that of IPv6 in brackets, as in URLs."""


class Name(NamedTuple):
    """What is to be forgotten."""

    what: What
    name: str
    """The key of a URL, or a host in lower case."""


def names_of(
    urls: Iterable[str], hosts: Iterable[str], domains: Iterable[str], rules: UrlRules
) -> list[Name]:
    """Return what arguments name. Raises SettingsError that names the argument at fault."""
    return [
        *(Name("url", _url(each, rules, "URL")) for each in urls),
        *(Name("host", _host(each, "--host")) for each in hosts),
        *(Name("domain", _host(each, "--domain")) for each in domains),
    ]


def names_in(file: Path, rules: UrlRules) -> list[Name]:
    """Return the URLs in a file, one a line; empty lines are left out. Raises SettingsError that names the
    line at fault, also if there is no URL."""
    try:
        lines = file.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    except OSError as error:
        raise SettingsError(f"--file {file}: {error.strerror}") from None
    if names := list(_names_in(file, lines, rules)):
        return names
    raise SettingsError(f"--file {file}: has no URL")


def _names_in(file: Path, lines: list[bytes], rules: UrlRules) -> Iterator[Name]:
    for number, line in enumerate(lines, 1):
        where = f"--file {file}: line {number}"
        try:
            url = line.decode().strip()
        except UnicodeDecodeError:
            raise SettingsError(f"{where}: is not UTF-8") from None
        if any("://" in each for each in url.split()[1:]):
            raise SettingsError(f"{where}: has several URLs; write one a line")
        if url:
            yield Name("url", _url(url, rules, where))


def _url(url: str, rules: UrlRules, where: str) -> str:
    try:
        return url_key(url, rules)
    except PageError as error:
        raise SettingsError(f"{where}: {error}") from None


def _host(host: str, where: str) -> str:
    name = host_of(f"http://{host}/") if _HOST.fullmatch(host) else ""
    if host.startswith((".", "*.")):
        raise SettingsError(f"{where} {host}: is no host; `--domain` names a host and all below it")
    if not name or len(name) > LONGEST_HOST:
        raise SettingsError(f"{where} {host}: is no host, as in `{where} www.example.com`")
    return name


@clients.with_translated_errors
async def request(settings: Settings, genesis: Genesis, names: Iterable[Name]) -> int:
    """Append requests that these be forgotten, and return how many these are. Raises AccessError for a
    principal that may not, and BrokerError if one was not acknowledged; asking again does no harm."""
    await acl_check.check(settings, "forget")
    await topics.check(settings, "forget")
    digest_url, digest_host = url_hasher(genesis.seed), host_hasher(genesis.seed)
    topic, count = TopicNames(settings.namespace).requests, 0
    producer = clients.producer(settings, acks="all", enable_idempotence=True)
    async with clients.open_client(settings, producer):
        sent = []
        for what, name in dict.fromkeys(names):
            digest = (digest_url if what == "url" else digest_host)(name).hex()
            value = encode_request(ForgetRequest(journal=genesis.journal, forget=what, digest=digest))
            sent.append(await producer.send(topic, value, digest.encode(), 0))
            count += 1
            if len(sent) == WAITING:
                await _acknowledged(topic, sent)
                sent = []
        await _acknowledged(topic, sent)
    return count


async def _acknowledged(topic: str, sent: Iterable[object]) -> None:
    for each in sent:
        try:
            await each  # type: ignore[misc]  # a future
        except clients.DENIED:
            raise
        except KafkaError as error:
            raise BrokerError(
                f"topic {topic}: a request was not acknowledged ({error!r}); ask again"
            ) from None
