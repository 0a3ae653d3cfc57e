"""Where an S3 bucket is, and with which credentials: of the environment, a profile in ~/.aws or the machine.

obstore reads no profiles and finds no bucket's region. botocore signs in, as it does for AWS's own programs.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from stream.errors import SettingsError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Credential

_ASK_SECONDS: Final = 30.0
"""For the region of a bucket."""
_ASK_AGAIN: Final = timedelta(minutes=10)
"""What obstore takes for the life of credentials. It asks again five minutes before their end. botocore
renews them ten minutes before they expire, if they live for longer."""
_METADATA_ATTEMPTS: Final = 3
"""After which the machine counts as one without credentials."""
_PROGRAM_SECONDS: Final = 30.0
"""For a credential_process."""
_THROTTLED: Final = frozenset(
    {"Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException", "SlowDown"}
    | {"RequestTimeout", "RequestTimeoutException", "IDPCommunicationError"}
)
"""Codes of 4xx answers that another attempt may not get."""
_ENDPOINTS: Final = ("container-role", "iam-role", "Ec2InstanceMetadata")
"""Providers of botocore that ask the machine."""


class S3Options(NamedTuple):
    """What obstore is told of a bucket, beside what it reads from the environment."""

    config: S3Config
    client: ClientConfig
    credentials: Callable[[], S3Credential] | None


def s3_options(bucket: str) -> S3Options:
    """Options for a bucket. Raises SettingsError, and OSError if region or credentials cannot be had now."""
    from botocore.session import Session

    _refuse_half_a_key()
    session: Any = Session()
    # AWS_ENDPOINT_URL names where objects are, which need not be where roles are taken.
    is_elsewhere = not os.environ.get("AWS_ENDPOINT_URL_STS")
    session.set_config_variable("ignore_configured_endpoint_urls", is_elsewhere)
    with _translated_errors(bucket, _profile(session, "config_file")):
        profile: Mapping[str, str] = session.get_scoped_config()
        attempts = session.get_config_variable("metadata_service_num_attempts")
    session.set_config_variable("metadata_service_num_attempts", max(_METADATA_ATTEMPTS, attempts))
    config: S3Config = {}
    client: ClientConfig = {}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint := endpoint or profile.get("endpoint_url"):
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise SettingsError("AWS_ENDPOINT_URL: not such as https://store.example.com")
        config["endpoint"] = endpoint.rstrip("/")
        client["allow_http"] = parts.scheme == "http"
    if authorities := os.environ.get("AWS_CA_BUNDLE") or profile.get("ca_bundle"):
        try:
            client["root_certificate"] = Path(authorities).read_bytes()
        except OSError as error:
            raise SettingsError(f"AWS_CA_BUNDLE {authorities}: {error.strerror}") from None
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or profile.get("region")
    config["region"] = region or ("us-east-1" if endpoint else _region_of(bucket))
    session.set_config_variable("region", config["region"])
    asks_machine = bool(os.environ.get("AWS_METADATA_ENDPOINT"))  # which botocore does not know
    credentials = None if asks_machine else _credentials(session, bucket)
    if credentials is None and not asks_machine:
        config["skip_signature"] = True
    return S3Options(config, client, credentials)


def profile_times() -> tuple[int, ...]:
    """Changes when a file with profiles does."""
    env, times = os.environ, []
    config = env.get("AWS_CONFIG_FILE") or "~/.aws/config"
    credentials = env.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    for file in (config, credentials):
        with suppress(OSError):
            times.append(Path(file).expanduser().stat().st_mtime_ns)
    return tuple(times)


def _refuse_half_a_key() -> None:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    missing = [name for name in names if not os.environ.get(name)]
    if len(missing) == 1:
        raise SettingsError(f"{missing[0]}: missing")


def _credentials(session: Any, bucket: str) -> Callable[[], S3Credential] | None:
    """What asks for credentials of the environment, a profile or the machine; None if there are none."""
    for provider in _providers(session):
        with _translated_errors(bucket, _source(session, provider.METHOD)):
            if (credentials := provider.load()) is not None:
                credentials.get_frozen_credentials()
                break
    else:
        return None

    def ask() -> S3Credential:
        current = credentials.get_frozen_credentials()
        end = datetime.now(UTC) + _ASK_AGAIN
        return {
            "access_key_id": current.access_key,
            "secret_access_key": current.secret_key,
            "token": current.token,
            "expires_at": min(end, getattr(credentials, "_expiry_time", None) or end),
        }

    return ask


def _providers(session: Any) -> list[Any]:
    """Providers of botocore, in order, that ask no person and wait for no program for ever."""
    from botocore.credentials import ProcessProvider

    def of_a_program(profile: str) -> Any:
        return ProcessProvider(profile, lambda: session.full_config, popen=_Program)

    resolver = session.get_component("credential_provider")
    role = resolver.get_provider("assume-role")
    role._prompter = _refuse_prompt  # noqa: SLF001 - botocore has no public way
    role._profile_provider_builder._create_process_provider = of_a_program  # noqa: SLF001 - same
    resolver.get_provider("custom-process")._popen = _Program  # noqa: SLF001 - same
    providers: list[Any] = resolver.providers
    return providers


def _refuse_prompt(_: str) -> str:
    raise SettingsError("mfa_serial: a profile that asks a person for a code cannot be used")


class _Program(subprocess.Popen[bytes]):
    """A credential_process, which has no terminal."""

    def __init__(self, command: list[str], **pipes: Any) -> None:
        super().__init__(command, stdin=subprocess.DEVNULL, start_new_session=True, **pipes)

    def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:  # noqa: A002 - name of the base class
        try:
            return super().communicate(input, timeout or _PROGRAM_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            with self:  # closes its pipes
                raise


def _source(session: Any, method: str) -> str:
    """Where a provider of botocore has credentials from, for a message."""
    is_ours = bool(os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"))
    if method == "assume-role-with-web-identity" and is_ours:
        return "AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE"
    if method == "container-role":
        return "AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI"
    if method == "iam-role":
        return "the metadata service of this machine"
    is_key = method == "shared-credentials-file"
    return _profile(session, "credentials_file" if is_key else "config_file")


def _profile(session: Any, file: str) -> str:
    name = session.get_config_variable("profile") or "default"
    return f"{session.get_config_variable(file)}: profile {name}"


@contextmanager
def _translated_errors(bucket: str, source: str) -> Iterator[None]:
    """Raise errors of botocore, whose own words may quote what a program printed, as OSError if another
    attempt may succeed, and as SettingsError otherwise."""
    from botocore.exceptions import PartialCredentialsError, ProfileNotFound

    try:
        yield
    except SettingsError as error:
        raise SettingsError(f"{source}: {error}") from None
    except ProfileNotFound:
        raise SettingsError(f"AWS_PROFILE: {source}: there is no such profile") from None
    except PartialCredentialsError as error:
        raise SettingsError(f"{source}: {error.kwargs['cred_var']}: missing") from None
    except Exception as error:  # providers raise whatever an answer leads to
        words = f"no credentials ({type(error).__name__})"
        if _may_pass(error):
            url = f"s3://{bucket}"
            raise OSError(errno.EHOSTUNREACH, f"{source}: {words} for now", url) from None
        raise SettingsError(f"{source}: {words}; `aws sts get-caller-identity` says more") from None


def _may_pass(error: Exception) -> bool:
    """Whether another attempt may succeed without a change of settings."""
    from botocore.exceptions import ClientError, CredentialRetrievalError, HTTPClientError
    from botocore.exceptions import ConnectionError as UnreachableError

    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status >= 500 or status == 429 or error.response["Error"].get("Code") in _THROTTLED
    if isinstance(error, CredentialRetrievalError):
        return error.kwargs["provider"] in _ENDPOINTS
    return isinstance(error, (UnreachableError, HTTPClientError, subprocess.TimeoutExpired))


def _region_of(bucket: str) -> str:
    """The region that AWS says a bucket is in. Raises OSError."""
    request = Request(f"https://s3.amazonaws.com/{quote(bucket)}", method="HEAD")
    try:
        with urlopen(request, timeout=_ASK_SECONDS) as answer:  # noqa: S310 - https alone
            headers = answer.headers
    except HTTPError as error:
        headers = error.headers
        if error.code == 404:
            raise FileNotFoundError(errno.ENOENT, "no such bucket", f"s3://{bucket}") from None
    except (URLError, OSError):
        raise OSError(
            errno.EHOSTUNREACH,
            "the store cannot be reached to ask for the bucket's region; AWS_REGION names it",
            f"s3://{bucket}",
        ) from None
    region: str = headers.get("x-amz-bucket-region") or "us-east-1"
    return region
