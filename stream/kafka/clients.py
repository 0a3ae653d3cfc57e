"""Every Kafka client of ours is made here: one place knows where the cluster is and how it is secured."""

from __future__ import annotations

import asyncio
import functools
import shlex
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    InvalidProducerEpoch,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFenced,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnknownError,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from stream.errors import AccessError, BrokerError, SecurityError, SettingsError, StaleError
from stream.kafka.aiokafka_internals import client_of, heed_offset_errors, retrieve_errors
from stream.kafka.away import answered
from stream.settings import OAUTHBEARER, Settings

P = ParamSpec("P")
T = TypeVar("T")
Client: TypeAlias = AIOKafkaConsumer | AIOKafkaProducer | AIOKafkaAdminClient | AIOKafkaClient
C = TypeVar("C", AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient, AIOKafkaClient)
CLIENT_ID: Final = "neardup"
PROBE_MS: Final = 5_000
"""How long a broker may take to say why it refuses us."""
TOKEN_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 3.0
"""Without a broker a client may never be done with ending; nothing depends on it."""
ACKNOWLEDGED_SECONDS: Final = 120.0
"""How long a record may wait for its acknowledgement: longer than an election, or a broker's restart."""
DOCUMENTED: Final = "docs/operations.md lists what each role needs"


def consumer(settings: Settings, *topics: str, **options: Any) -> AIOKafkaConsumer:
    """A consumer that has not been started."""
    made = AIOKafkaConsumer(*topics, **(arguments(settings) | options))
    heed_offset_errors(client_of(made))
    return made


def producer(settings: Settings, **options: Any) -> AIOKafkaProducer:
    """A producer that has not been started."""
    return AIOKafkaProducer(**(arguments(settings) | options))


def admin(settings: Settings) -> AIOKafkaAdminClient:
    """An administrator that has not been started."""
    made = AIOKafkaAdminClient(**arguments(settings))
    heed_offset_errors(client_of(made))
    return made


def client(settings: Settings) -> AIOKafkaClient:
    """A bare client that has not been bootstrapped."""
    return AIOKafkaClient(**arguments(settings))


def arguments(settings: Settings) -> dict[str, Any]:
    """What any aiokafka object has to be told. Raises SettingsError for files that cannot be used."""
    return {"bootstrap_servers": settings.bootstrap_servers, "client_id": CLIENT_ID, **_security(settings)}


def tls(settings: Settings) -> ssl.SSLContext | None:
    """Certificates to trust and to show; None without TLS. Raises SettingsError that names the file."""
    if "SSL" not in settings.security_protocol:
        return None
    with _naming("ssl_cafile", settings.ssl_cafile):
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
    if settings.ssl_certfile:
        secret = settings.ssl_password
        # Without a password OpenSSL would ask for one on the terminal.
        password = secret.get_secret_value() if secret else ""
        with _naming("ssl_certfile, ssl_keyfile, ssl_password", settings.ssl_certfile):
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, lambda: password)
    return context


def _security(settings: Settings) -> dict[str, Any]:
    given: dict[str, Any] = {"security_protocol": settings.security_protocol, "ssl_context": tls(settings)}
    if settings.security_protocol.startswith("SASL"):
        given["sasl_mechanism"] = settings.sasl_mechanism
        if settings.sasl_mechanism == OAUTHBEARER:
            given["sasl_oauth_token_provider"] = Tokens(settings)
        else:
            given["sasl_plain_username"] = settings.sasl_username
            secret = settings.sasl_password
            given["sasl_plain_password"] = secret.get_secret_value() if secret else None
    return given


@contextmanager
def _naming(options: str, file: object) -> Iterator[None]:
    try:
        yield
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"{options}: {file}: {error}") from None


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens for OAUTHBEARER: a file that somebody keeps fresh, or a command that prints one."""

    def __init__(self, settings: Settings) -> None:
        self._file = settings.sasl_token_file
        self._command = settings.sasl_token_command

    async def token(self) -> str:
        """The present token. Raises SettingsError when there is none."""
        if self._file:
            with _naming("sasl_token_file", self._file):
                said = await asyncio.to_thread(self._file.read_text, "ascii")
        else:
            said = await self._printed(self._command.get_secret_value() if self._command else "")
        if not said.strip():
            raise SettingsError("sasl_token_file, sasl_token_command: gives no token")
        return said.strip()

    async def _printed(self, command: str) -> str:
        """What the command prints; its stderr may hold secrets too, and is nobody's."""
        try:
            process = await asyncio.create_subprocess_exec(
                *(shlex.split(command) or [""]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise SettingsError(f"sasl_token_command: {error}") from None
        except ValueError as error:  # of quotes, or of a NUL
            raise SettingsError(f"sasl_token_command: no command line: {error}") from None
        try:
            async with asyncio.timeout(TOKEN_SECONDS):
                said, _ = await process.communicate()
        except TimeoutError:
            raise SettingsError(f"sasl_token_command: took longer than {TOKEN_SECONDS:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise SettingsError(
                f"sasl_token_command: exit code {process.returncode}; run it by hand to see what it says"
            )
        return said.decode("ascii", "replace")


@asynccontextmanager
async def started(settings: Settings, made: C, *, patiently: bool = False) -> AsyncIterator[C]:
    """Start what was made here, and end it in any case, also when it was started by half.

    Raises BrokerError that says why no broker lets us in. `patiently`: waits for one that answers, and raises
    SecurityError alone.
    """
    try:
        if patiently:
            await answered("a broker", lambda: start(settings, made))
        else:
            await start(settings, made)
        yield made
    finally:
        await end(made)


async def end(client: Client) -> None:
    """Leave the group, and close all connections. What goes wrong is nobody's concern any more.

    `stop` of aiokafka lets the CancelledError of a task of its own out, where that had not begun, and leaves
    its connections open then; without a broker it may wait for ever.
    """
    if isinstance(client, AIOKafkaClient | AIOKafkaAdminClient):
        closings = [client.close]
    else:
        closings = [client.stop, client_of(client).close]
    for closing in closings:
        ending = asyncio.create_task(closing())
        try:
            await asyncio.wait({ending}, timeout=CLOSE_SECONDS)
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
    if isinstance(client, AIOKafkaProducer):
        retrieve_errors(client)


@asynccontextmanager
async def acknowledged(what: str) -> AsyncIterator[None]:
    """Bound a wait for acknowledgements, since aiokafka repeats what an idempotent producer sends for ever.

    Raises BrokerError that begins with `what`.
    """
    try:
        async with asyncio.timeout(ACKNOWLEDGED_SECONDS):
            yield
    except TimeoutError:
        raise BrokerError(
            f"{what}: not acknowledged within {ACKNOWLEDGED_SECONDS:g} s: brokers are away, or too few "
            "replicas are in sync"
        ) from None


async def start(settings: Settings, started: Client) -> None:
    """Start what was made here; whoever calls it calls `end`, too. Raises BrokerError like `started`."""
    if _by_token(settings):
        # aiokafka takes a token for accepted whatever the broker says, and its answers then for empty ones.
        found = await _why_not(settings)
        if isinstance(found, SecurityError):
            raise found
    try:
        await (started.bootstrap() if isinstance(started, AIOKafkaClient) else started.start())
    except KafkaConnectionError as error:
        raise await refusal(settings) from error


def _by_token(settings: Settings) -> bool:
    return settings.security_protocol.startswith("SASL") and settings.sasl_mechanism == OAUTHBEARER


# Why not.


async def refusal(settings: Settings) -> BrokerError:
    """Why no broker lets us in, found out by asking once more: aiokafka says only that none does."""
    servers = settings.bootstrap_servers
    found = await _why_not(settings)
    return found or BrokerError(f"bootstrap_servers: no broker answered at {servers}; now one does")


async def _why_not(settings: Settings) -> BrokerError | None:
    """What the first broker says that knows a reason, else the last; None when one lets us in."""
    found: BrokerError | None = None
    for host, port, _ in collect_hosts(settings.bootstrap_servers):
        where = f"{host}:{port}"
        try:
            connection = await create_conn(
                host, port, client_id=CLIENT_ID, request_timeout_ms=PROBE_MS, **_security(settings)
            )
            try:
                answer = await connection.send(MetadataRequest([]))
            finally:
                connection.close()
            if _by_token(settings) and not answer.brokers:
                raise SaslAuthenticationFailed("invalid token")
            return None
        except (OSError, KafkaError) as error:
            found = _explained(settings, where, await _alert(settings, host, port) or error)
            if isinstance(found, SecurityError):
                return found
    return found


def _explained(settings: Settings, where: str, error: Exception) -> BrokerError:
    """The option that is at fault, as far as the error tells."""
    protocol = settings.security_protocol
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            return SecurityError(f"bootstrap_servers: {where} has a certificate of another host: {error}")
        trusted = settings.ssl_cafile or "the system's certificate authorities"
        return SecurityError(
            f"ssl_cafile: the certificate of {where} is not trusted by {trusted}: {error.verify_message}"
        )
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if "ALERT" in reason:
            options = "ssl_certfile, ssl_keyfile"
            return SecurityError(f"{options}: {where} refuses the certificate, or wants one: {reason}")
        return SecurityError(
            f"security_protocol: {where} does not speak TLS as {protocol} means it: {reason}"
        )
    if isinstance(error, ConnectionResetError) and "SSL" in protocol:
        return SecurityError(f"security_protocol: {where} does not speak TLS for {protocol}")
    if isinstance(error, UnsupportedSaslMechanismError):
        return SecurityError(f"sasl_mechanism: {where} does not offer {settings.sasl_mechanism}: {error}")
    if isinstance(error, SaslAuthenticationFailed | AuthenticationFailedError):
        by_token = _by_token(settings)
        options = "sasl_token_file, sasl_token_command" if by_token else "sasl_username, sasl_password"
        return SecurityError(f"{options}: {where} refuses them: {error}")
    if isinstance(error, KafkaError):
        return BrokerError(
            f"bootstrap_servers: no broker answers at {where} ({error}); it may want another "
            f"security_protocol than {protocol}"
        )
    return BrokerError(f"bootstrap_servers: no broker answers at {where}")


async def _alert(settings: Settings, host: str, port: int) -> Exception | None:
    """How TLS itself fails with a broker; aiokafka hides alerts that come after the handshake."""
    context = tls(settings)
    if context is None:
        return None
    try:
        async with asyncio.timeout(PROBE_MS / 1000):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                writer.write(bytes(4))  # an empty request: brokers close the connection
                await reader.read(1)
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except (ssl.SSLError, ConnectionResetError) as error:
        return error
    except OSError:  # also a timeout
        return None
    return None


_OTHER_HOST: Final = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


@contextmanager
def explained_errors() -> Iterator[None]:
    """Turn Kafka's errors into ours, as far as they are no fault of this program.

    What an ACL refuses is an AccessError that names the resource, a producer that was fenced is a StaleError,
    and a broker that is away, or not able just now, a BrokerError.
    """
    try:
        yield
    except DENIED as error:
        kind = next(kind for of, kind in _DENIED.items() if isinstance(error, of))
        named = " ".join(str(each) for each in error.args) or "of this namespace"
        raise AccessError(f"{kind} {named}: an ACL is missing; {DOCUMENTED}") from error
    except _FENCED as error:
        raise StaleError(
            f"fenced ({type(error).__name__}): another process writes under this transactional id now; this "
            "one ends and stands by when restarted"
        ) from error
    except KafkaError as error:
        if not (error.retriable or isinstance(error, _AWAY) or _is_unknown(error)):
            raise
        raise BrokerError(f"bootstrap_servers: a broker does not answer as it should: {error!r}") from error


def _is_unknown(error: KafkaError) -> bool:
    """Whether a broker said "unknown server error", as a coordinator does whose partition is moving.

    Where aiokafka coordinates groups and transactions, it wraps what it does not expect in a bare KafkaError.
    """
    return isinstance(error, UnknownError) or (
        type(error) is KafkaError and repr(UnknownError()) in str(error)
    )


def explains_errors(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """A coroutine function whose errors are explained."""

    @functools.wraps(function)
    async def explaining(*args: P.args, **kwargs: P.kwargs) -> T:
        with explained_errors():
            return await function(*args, **kwargs)

    return explaining


_DENIED: Final[dict[type[KafkaError], str]] = {
    TopicAuthorizationFailedError: "topic",
    GroupAuthorizationFailedError: "group",
    TransactionalIdAuthorizationFailed: "transactional id",
    ClusterAuthorizationFailedError: "cluster",
}
DENIED: Final = tuple(_DENIED)
"""What aiokafka raises where an ACL is missing."""
_FENCED: Final = (ProducerFenced, InvalidProducerEpoch)
_AWAY: Final = (KafkaConnectionError, KafkaTimeoutError)
