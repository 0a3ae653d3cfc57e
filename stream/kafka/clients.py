"""Creates, starts and closes all Kafka clients, with the settings for addresses and security in one place."""

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
from stream.kafka.aiokafka_internals import (
    client_of,
    connections_closed_on_error,
    end_commits,
    keep_commits,
    raise_offset_errors,
    retrieve_errors,
)
from stream.kafka.outage import retry_until_answered
from stream.settings import OAUTHBEARER, Settings

P = ParamSpec("P")
T = TypeVar("T")
Client: TypeAlias = AIOKafkaConsumer | AIOKafkaProducer | AIOKafkaAdminClient | AIOKafkaClient
C = TypeVar("C", AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient, AIOKafkaClient)
CLIENT_ID: Final = "neardup"
PROBE_MS: Final = 5_000
"""Time-out for finding out why a broker refuses us."""
TOKEN_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 3.0
"""Time-out for closing a client, which may hang without a broker. Nothing depends on its completion."""
ACKNOWLEDGED_SECONDS: Final = 120.0
"""Time-out for acknowledgements, longer than a leader election or a restart of a broker."""
DOCUMENTED: Final = "`neardup help access` lists what each role needs"


def consumer(settings: Settings, *topics: str, **options: Any) -> AIOKafkaConsumer:
    """Create a consumer, not started."""
    client = AIOKafkaConsumer(*topics, **(arguments(settings) | options))
    raise_offset_errors(client_of(client))
    return client


def reader(settings: Settings, *topics: str, **options: Any) -> AIOKafkaConsumer:
    """Create a consumer without a group, which reads committed records and commits nothing, not started."""
    fixed = {"group_id": None, "isolation_level": "read_committed", "enable_auto_commit": False}
    return consumer(settings, *topics, **fixed, **options)


def producer(settings: Settings, **options: Any) -> AIOKafkaProducer:
    """Create a producer, not started."""
    return AIOKafkaProducer(**(arguments(settings) | options))


def admin(settings: Settings) -> AIOKafkaAdminClient:
    """Create an admin client, not started."""
    client = AIOKafkaAdminClient(**arguments(settings))
    raise_offset_errors(client_of(client))
    return client


def client(settings: Settings) -> AIOKafkaClient:
    """Create a bare client, not bootstrapped."""
    return AIOKafkaClient(**arguments(settings))


def arguments(settings: Settings) -> dict[str, Any]:
    """Return the arguments for any aiokafka object. Raises SettingsError for unusable files."""
    return {"bootstrap_servers": settings.bootstrap_servers, "client_id": CLIENT_ID, **_security(settings)}


def tls(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context, or None without TLS. Raises SettingsError that names the file at fault."""
    if "SSL" not in settings.security_protocol:
        return None
    with _errors_naming("ssl_cafile", settings.ssl_cafile):
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
    if settings.ssl_certfile:
        secret = settings.ssl_password
        # Without a password, OpenSSL would prompt for one on the terminal.
        password = secret.get_secret_value() if secret else ""
        with _errors_naming("ssl_certfile, ssl_keyfile, ssl_password", settings.ssl_certfile):
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, lambda: password)
    return context


def _security(settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {"security_protocol": settings.security_protocol, "ssl_context": tls(settings)}
    if settings.security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = settings.sasl_mechanism
        if settings.sasl_mechanism == OAUTHBEARER:
            options["sasl_oauth_token_provider"] = OAuthTokens(settings)
        else:
            options["sasl_plain_username"] = settings.sasl_username
            secret = settings.sasl_password
            options["sasl_plain_password"] = secret.get_secret_value() if secret else None
    return options


@contextmanager
def _errors_naming(options: str, file: object) -> Iterator[None]:
    try:
        yield
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"{options}: {file}: {error}") from None


class OAuthTokens(AbstractTokenProvider):  # type: ignore[misc]
    """Provides tokens for OAUTHBEARER, from a file that another program renews, or from a command."""

    def __init__(self, settings: Settings) -> None:
        self._file = settings.sasl_token_file
        self._command = settings.sasl_token_command

    async def token(self) -> str:
        """Return the current token. Raises SettingsError if there is none."""
        if self._file:
            with _errors_naming("sasl_token_file", self._file):
                text = await asyncio.to_thread(self._file.read_text, "ascii")
        else:
            text = await self._run_command(self._command.get_secret_value() if self._command else "")
        if not text.strip():
            raise SettingsError("sasl_token_file, sasl_token_command: the token is empty")
        return text.strip()

    async def _run_command(self, command: str) -> str:
        """Return the output of the command. Its stderr may contain secrets too and is discarded."""
        try:
            process = await asyncio.create_subprocess_exec(
                *(shlex.split(command) or [""]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise SettingsError(f"sasl_token_command: {error}") from None
        except ValueError as error:  # unbalanced quotes, or a NUL
            raise SettingsError(f"sasl_token_command: not a valid command line: {error}") from None
        try:
            async with asyncio.timeout(TOKEN_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            raise SettingsError(f"sasl_token_command: took longer than {TOKEN_SECONDS:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise SettingsError(
                f"sasl_token_command: exit code {process.returncode}; run it manually to see its output"
            )
        return output.decode("ascii", "replace")


@asynccontextmanager
async def open_client(settings: Settings, client: C, *, patiently: bool = False) -> AsyncIterator[C]:
    """Start a client, and close it in any case, even if it was only partly started.

    Raises BrokerError, which says why no broker admits us. With `patiently`, waits while brokers are
    unreachable and raises SecurityError only.
    """
    try:
        if patiently:
            await retry_until_answered("a broker", lambda: start(settings, client))
        else:
            await start(settings, client)
        yield client
    finally:
        await end(client)


async def end(client: Client) -> None:
    """Leave the group and close all connections, ignoring errors.

    aiokafka's `stop` may raise the CancelledError of an internal task that had not started, and then leaves
    its connections open. Without a broker it may hang forever.
    """
    if isinstance(client, AIOKafkaConsumer):
        await end_commits(client)
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
async def acknowledgement_limit(what: str) -> AsyncIterator[None]:
    """Limit the wait for acknowledgements, because aiokafka's idempotent producer retries forever.

    Raises BrokerError, whose message starts with `what`.
    """
    try:
        async with asyncio.timeout(ACKNOWLEDGED_SECONDS):
            yield
    except TimeoutError:
        raise BrokerError(
            f"{what}: not acknowledged within {ACKNOWLEDGED_SECONDS:g} s: brokers are unreachable, or too "
            "few replicas are in sync"
        ) from None


async def start(settings: Settings, client: Client) -> None:
    """Start a client, which the caller must close by `end`. Raises BrokerError like `open_client`."""
    if _uses_tokens(settings):
        # aiokafka ignores the rejection of a token, and treats later responses as empty ones.
        cause = await _find_cause(settings)
        if isinstance(cause, SecurityError):
            raise cause
    try:
        with connections_closed_on_error():
            await (client.bootstrap() if isinstance(client, AIOKafkaClient) else client.start())
    except KafkaConnectionError as error:
        raise await refusal(settings) from error
    if isinstance(client, AIOKafkaConsumer):
        keep_commits(client)


def _uses_tokens(settings: Settings) -> bool:
    return settings.security_protocol.startswith("SASL") and settings.sasl_mechanism == OAUTHBEARER


# Diagnosis of failed connections.


async def refusal(settings: Settings) -> BrokerError:
    """Connect once more to find out why no broker admits us, which aiokafka does not report."""
    servers = settings.bootstrap_servers
    cause = await _find_cause(settings)
    return cause or BrokerError(f"bootstrap_servers: no broker answered at {servers}, but one does now")


async def _find_cause(settings: Settings) -> BrokerError | None:
    """Return the first security error of a broker, else the last error, or None if a broker admits us."""
    cause: BrokerError | None = None
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
            if _uses_tokens(settings) and not answer.brokers:
                raise SaslAuthenticationFailed("invalid token")
            return None
        except (OSError, KafkaError) as error:
            cause = _explain(settings, where, await _alert(settings, host, port) or error)
            if isinstance(cause, SecurityError):
                return cause
    return cause


def _explain(settings: Settings, where: str, error: Exception) -> BrokerError:
    """Convert an error to one that names the option at fault, if possible."""
    protocol = settings.security_protocol
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            return SecurityError(
                f"bootstrap_servers: the certificate of {where} is for another host: {error}"
            )
        trusted = settings.ssl_cafile or "the system's certificate authorities"
        return SecurityError(
            f"ssl_cafile: the certificate of {where} is not trusted by {trusted}: {error.verify_message}"
        )
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if "ALERT" in reason:
            options = "ssl_certfile, ssl_keyfile"
            return SecurityError(f"{options}: {where} refuses the certificate, or requires one: {reason}")
        return SecurityError(
            f"security_protocol: {where} does not speak TLS as {protocol} requires: {reason}"
        )
    if isinstance(error, ConnectionResetError) and "SSL" in protocol:
        return SecurityError(f"security_protocol: {where} does not speak TLS for {protocol}")
    if isinstance(error, UnsupportedSaslMechanismError):
        return SecurityError(f"sasl_mechanism: {where} does not offer {settings.sasl_mechanism}: {error}")
    if isinstance(error, SaslAuthenticationFailed | AuthenticationFailedError):
        by_token = _uses_tokens(settings)
        options = "sasl_token_file, sasl_token_command" if by_token else "sasl_username, sasl_password"
        return SecurityError(f"{options}: {where} refuses the credentials: {error}")
    if isinstance(error, KafkaError):
        return BrokerError(
            f"bootstrap_servers: no broker answers at {where} ({error}); it may require another "
            f"security_protocol than {protocol}"
        )
    return BrokerError(f"bootstrap_servers: no broker answers at {where}")


async def _alert(settings: Settings, host: str, port: int) -> Exception | None:
    """Return the TLS error of a broker, if any. aiokafka hides alerts that arrive after the handshake."""
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
    except OSError:  # including a time-out
        return None
    return None


_OTHER_HOST: Final = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


@contextmanager
def translated_errors(*, when_fenced: str = "this one ends, and stands by when restarted") -> Iterator[None]:
    """Convert errors of Kafka to ours, unless they indicate a bug.

    A missing ACL becomes an AccessError that names the resource, a fenced producer a StaleError with what is
    said `when_fenced`, and an unreachable or temporarily failing broker a BrokerError.
    """
    try:
        yield
    except DENIED as error:
        kind = next(kind for of, kind in _DENIED.items() if isinstance(error, of))
        named = " ".join(str(each) for each in error.args) or "of this namespace"
        raise AccessError(f"{kind} {named}: an ACL is missing; {DOCUMENTED}") from error
    except _FENCED as error:
        raise StaleError(
            f"fenced ({type(error).__name__}): another process uses this transactional id now; {when_fenced}"
        ) from error
    except KafkaError as error:
        if not (error.retriable or isinstance(error, _AWAY) or _is_unknown(error)):
            raise
        raise BrokerError(f"bootstrap_servers: a broker failed: {error!r}") from error


def _is_unknown(error: KafkaError) -> bool:
    """Return whether a broker reported "unknown server error", as a coordinator does while its partition
    moves.

    In the coordination of groups and transactions, aiokafka wraps unexpected errors in a bare KafkaError.
    """
    return isinstance(error, UnknownError) or (
        type(error) is KafkaError and repr(UnknownError()) in str(error)
    )


def with_translated_errors(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a coroutine function with `translated_errors`."""

    @functools.wraps(function)
    async def translating(*args: P.args, **kwargs: P.kwargs) -> T:
        with translated_errors():
            return await function(*args, **kwargs)

    return translating


_DENIED: Final[dict[type[KafkaError], str]] = {
    TopicAuthorizationFailedError: "topic",
    GroupAuthorizationFailedError: "group",
    TransactionalIdAuthorizationFailed: "transactional id",
    ClusterAuthorizationFailedError: "cluster",
}
DENIED: Final = tuple(_DENIED)
"""Errors of aiokafka for a missing ACL."""
_FENCED: Final = (ProducerFenced, InvalidProducerEpoch)
_AWAY: Final = (KafkaConnectionError, KafkaTimeoutError)
