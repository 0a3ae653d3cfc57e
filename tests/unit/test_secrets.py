"""No role or command prints a secret, even if brokers send garbage."""

from __future__ import annotations

import asyncio
import os
import random
import struct
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import msgspec
import pytest

from stream.children.pool import configuration_of
from stream.errors import NeardupError, SettingsError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.kafka.clients import OAuthTokens
from stream.settings import load
from stream.sinks.open import open_sink
from stream.supervisor import dashboard, deployment
from tests.genesis import genesis_of
from tests.night import by_night
from tests.waiting import HANG_SECONDS

PASSWORD, TOKEN, LOGIN, REGISTRY, KEY = (
    f"{name}-hush-31415926" for name in ("password", "token", "login", "registry", "key")
)
SEED: Final = "0123456789abcdef" * 2
SECRETS: Final = (
    PASSWORD, TOKEN, LOGIN, REGISTRY, KEY, "hush-31415926", SEED, repr(bytes.fromhex(SEED))[2:-1],
)  # fmt: skip
Kind = Literal["rubbish", "rubbish inside", "refusal"]
API_VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA = 18, 17, 36, 3
OFFERED: Final = {API_VERSIONS: 0, HANDSHAKE: 1, AUTHENTICATE: 0, METADATA: 1}
REFUSED: Final = 58
"""Kafka's error code SASL_AUTHENTICATION_FAILED."""
ATTEMPTS: Final = 2
"""After these a process that keeps on trying has shown what it logs."""
LINGER_SECONDS: Final = 1.0
"""For the log of the last attempt."""


@dataclass
class FakeBroker:
    """Speaks enough of Kafka's protocol to admit or refuse clients, and then sends garbage."""

    kind: Kind
    address: str = ""
    connections: int = 0
    attempts: int = 0
    """Connections, and requests of those that were let in."""
    _answered: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    _random: random.Random = field(default_factory=lambda: random.Random(17))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._count_attempt()
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                key, _, correlation = struct.unpack_from(">hhi", request)
                answer = struct.pack(">i", correlation) + self._answer(key)
                writer.write(struct.pack(">i", len(answer)) + answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _count_attempt(self) -> None:
        self.attempts += 1
        if self.attempts >= ATTEMPTS:
            self.enough.set()

    def _answer(self, key: int) -> bytes:
        if self.kind == "rubbish":
            return self._rubbish()
        if key == API_VERSIONS:
            offered = b"".join(struct.pack(">hhh", key, 0, most) for key, most in OFFERED.items())
            return struct.pack(">hi", 0, len(OFFERED)) + offered
        if key == HANDSHAKE:
            mechanisms = ("PLAIN", "OAUTHBEARER")
            named = b"".join(struct.pack(">h", len(each)) + each.encode() for each in mechanisms)
            return struct.pack(">hi", 0, len(mechanisms)) + named
        if key == AUTHENTICATE:
            code = REFUSED if self.kind == "refusal" else 0
            return struct.pack(">hh", code, 2) + b"no" + struct.pack(">i", 0)
        self._count_attempt()
        return self._rubbish()

    def _rubbish(self) -> bytes:
        self._answered += 1
        return b"\xff" * 40 if self._answered % 2 else self._random.randbytes(40)


@asynccontextmanager
async def fake_broker(kind: Kind) -> AsyncIterator[FakeBroker]:
    broker = FakeBroker(kind)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    broker.address = f"{host}:{port}"
    try:
        yield broker
    finally:
        server.close()


def options(directory: Path, address: str, log_format: str, by_token: bool) -> dict[str, str]:
    """Environment with every secret that there is."""
    told = directory / "told"
    told.write_text(f"print({TOKEN!r}); import sys; print({TOKEN!r}, file=sys.stderr)\n")
    proof = {"SASL_MECHANISM": "PLAIN", "SASL_USERNAME": "somebody", "SASL_PASSWORD": PASSWORD}
    token = {"SASL_MECHANISM": "OAUTHBEARER", "SASL_TOKEN_COMMAND": f"{sys.executable} {told} --id {KEY}"}
    named = {
        "BOOTSTRAP_SERVERS": address,
        "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        **(token if by_token else proof),
        "SCHEMA_REGISTRY_URL": f"http://{address}",
        "SCHEMA_REGISTRY_USER": "somebody",
        "SCHEMA_REGISTRY_PASSWORD": REGISTRY,
        "VERDICT_FORMAT": "avro",
        "DASHBOARD_TOKEN": LOGIN,
        "DASHBOARD_PORT": "0",
        "STATE_DIR": str(directory / "state"),
        "LOG_FORMAT": log_format,
    }
    return {f"NEARDUP_{name}": value for name, value in named.items()}


async def output(environment: dict[str, str], broker: FakeBroker, *arguments: str) -> str:
    """All that `neardup` writes until it ends, or is told to once it has tried often enough."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "stream.cli", *arguments, env=os.environ | environment,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    told = asyncio.create_task(process.communicate())
    enough = asyncio.create_task(broker.enough.wait())
    try:
        async with asyncio.timeout(HANG_SECONDS):
            await asyncio.wait({told, enough}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({told}, timeout=LINGER_SECONDS)
            if process.returncode is None:
                process.terminate()
            said, _ = await told
    finally:
        enough.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()
    return said.decode()


ROLES: Final = (("worker",), ("judge",), ("dashboard",), ("run", "--workers", "1"))
COMMANDS: Final = (
    ("topics", "create", "--scheme", "seed_file={seed}"),
    ("topics", "seed", "{directory}/seed"),
    ("topics", "describe"),
    ("publish", "{pages}"),
    ("tail",),
    ("audit",),
    ("trim", "--checkpoints", "{directory}/none"),
    ("query", "{pages}"),
    ("verdicts", "export", "{directory}/verdicts.duckdb"),
)


@pytest.mark.parametrize(
    ("kind", "by_token", "log_format", "commands"),
    [
        ("rubbish inside", True, "json", ()),
        ("refusal", False, "json", COMMANDS[:4]),
        *by_night(
            [
                ("refusal", False, "json", COMMANDS[4:]),
                ("rubbish", False, "json", ()),
                ("rubbish inside", False, "text", COMMANDS),
                ("refusal", True, "text", ()),
            ]
        ),
    ],
)
async def test_no_secret_is_printed(
    kind: Kind, by_token: bool, log_format: str, commands: tuple[tuple[str, ...], ...], tmp_path: Path
) -> None:
    pages = tmp_path / "pages.jsonl"
    pages.write_text('{"url": "http://a/", "text": "words"}\n')
    seed = tmp_path / "seed-file"
    seed.write_text(SEED)
    at_once = asyncio.Semaphore(2)

    async def check(arguments: tuple[str, ...]) -> None:
        directory = tmp_path / "-".join(arguments[:2])
        directory.mkdir()
        named = [each.format(pages=pages, directory=directory, seed=seed) for each in arguments]
        async with at_once, fake_broker(kind) as broker:
            said = await output(options(directory, broker.address, log_format, by_token), broker, *named)
        assert broker.connections, f"{arguments} never asked the broker: {said}"
        assert [secret for secret in SECRETS if secret in said] == [], arguments

    await asyncio.gather(*map(check, (*ROLES, *commands)))


@pytest.mark.parametrize(
    "target",
    [
        f"mysql://user:{PASSWORD}@127.0.0.1/crawl",
        f"postgresql:/user:{PASSWORD}@127.0.0.1/crawl",
        f"host=127.0.0.1 user=somebody password={PASSWORD}",
        f"postgresql://user:{PASSWORD}@127.0.0.1:1/crawl",
        f"postgresql://user:x%{PASSWORD}@127.0.0.1:1/crawl",
        f"postgresql://user:x@{PASSWORD}@127.0.0.1:1/crawl",
        f"postgresql://user:x/{PASSWORD}@127.0.0.1:1/crawl",
        f"postgresql://user:x {PASSWORD}@127.0.0.1:1/crawl",
        f"postgresql://user:{PASSWORD}@[::1/crawl",
        f"postgresql://127.0.0.1:1/crawl?user=somebody&password={PASSWORD}&unknown=1",
    ],
)
def test_the_target_of_an_export_is_not_quoted(target: str) -> None:
    with pytest.raises(NeardupError) as raised, open_sink(target):
        pass
    assert PASSWORD not in "".join(traceback.format_exception(raised.value))
    assert "target" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bootstrap_servers", f"user:{PASSWORD}@127.0.0.1:9092"),
        ("schema_registry_url", f"http://user:{PASSWORD}@127.0.0.1:8081"),
        ("dashboard_roles", f"judge=http://user:{PASSWORD}@127.0.0.1:9100"),
    ],
)
def test_an_address_with_a_password_is_refused_and_not_quoted(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} holds a user or password") as raised:
        load(**{name: value})
    assert PASSWORD not in "".join(traceback.format_exception(raised.value))


def test_no_representation_holds_a_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in options(tmp_path, "127.0.0.1:9092", "json", by_token=True).items():
        monkeypatch.setenv(name, value)
    settings = load()
    roles = deployment(settings, 1)
    seed = bytes.fromhex(SEED)
    scheme = Scheme().with_seed(seed)
    genesis = msgspec.structs.replace(genesis_of(scheme.with_seed(PUBLIC_SEED)), scheme=scheme, seed=seed)
    seeded = genesis, configuration_of(settings, scheme, seed)
    shown = repr((settings, roles, dashboard(settings, roles), seeded))
    assert [secret for secret in SECRETS if secret in shown] == []
    assert roles[0].environment["NEARDUP_SASL_TOKEN_COMMAND"].endswith(KEY)


async def test_a_token_command_that_fails_is_named_and_not_quoted(tmp_path: Path) -> None:
    for command, complaint in (
        (f"false {KEY}", "exit code 1"),
        (f"sh -c '{KEY}", "not a valid command line"),
    ):
        settings = load(
            security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_token_command=command
        )
        with pytest.raises(SettingsError, match=f"sasl_token_command: {complaint}") as raised:
            await OAuthTokens(settings).token()
        assert KEY not in "".join(traceback.format_exception(raised.value))
