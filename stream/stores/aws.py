"""Where an S3 bucket is, and with which credentials: of the environment, a profile in ~/.aws or the machine.

obstore reads no profiles and finds no bucket's region. botocore signs in, as it does for AWS's own programs.
"""

from __future__ import annotations

import errno
import os
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
_ASK_AGAIN: Final = timedelta(minutes=5)
"""How long obstore uses credentials before it asks again. botocore renews them ten minutes before they
expire."""


class S3Options(NamedTuple):
    """What obstore is told of a bucket, beside what it reads from the environment."""

    config: S3Config
    client: ClientConfig
    credentials: Callable[[], S3Credential] | None


def s3_options(bucket: str) -> S3Options:
    """Options for a bucket. Raises SettingsError, and OSError if its region cannot be found."""
    from botocore.session import Session

    session: Any = Session()
    # AWS_ENDPOINT_URL names where objects are, which need not be where roles are taken.
    is_elsewhere = not os.environ.get("AWS_ENDPOINT_URL_STS")
    session.set_config_variable("ignore_configured_endpoint_urls", is_elsewhere)
    with _translated_errors(session):
        profile: Mapping[str, str] = session.get_scoped_config()
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
    credentials = None if asks_machine else _credentials(session)
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


def _credentials(session: Any) -> Callable[[], S3Credential] | None:
    """What asks for credentials of the environment, a profile or the machine; None if there are none."""
    with _translated_errors(session):
        if (credentials := session.get_credentials()) is None:
            return None
        credentials.get_frozen_credentials()

    def ask() -> S3Credential:
        current = credentials.get_frozen_credentials()
        return {
            "access_key_id": current.access_key,
            "secret_access_key": current.secret_key,
            "token": current.token,
            "expires_at": datetime.now(UTC) + _ASK_AGAIN,
        }

    return ask


@contextmanager
def _translated_errors(session: Any) -> Iterator[None]:
    """Translate errors of botocore, whose own words may quote what a program printed."""
    from botocore.exceptions import BotoCoreError, ClientError, PartialCredentialsError, ProfileNotFound

    profile = session.get_config_variable("profile") or "default"
    try:
        yield
    except ProfileNotFound:
        raise SettingsError(f"AWS_PROFILE: there is no profile {profile}") from None
    except PartialCredentialsError as error:
        raise SettingsError(f"{error.kwargs['cred_var']}: missing") from None
    except (BotoCoreError, ClientError, OSError, ValueError) as error:
        raise SettingsError(
            f"AWS_PROFILE: profile {profile} gives no credentials ({type(error).__name__}); `aws sts"
            f" get-caller-identity --profile {profile}` says more"
        ) from None


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
