"""Where an S3 bucket is, and with which credentials: of the environment, a profile in ~/.aws or the machine.

obstore reads variables and asks the machine. It reads no profiles, finds no bucket's region, and waits long
for a machine that has no credentials.
"""

from __future__ import annotations

import configparser
import errno
import json
import os
import shlex
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from stream.errors import SettingsError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Credential

_MACHINE: Final = ("169.254.169.254", 80)
"""Where a machine of EC2 tells its credentials."""
_MACHINE_SECONDS: Final = 1.0
_ASK_SECONDS: Final = 30.0
"""For a program that prints credentials, and for the region of a bucket."""
_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_OF_MACHINE: Final = (
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
)


class S3Options(NamedTuple):
    """What obstore is told of a bucket, beside what it reads from the environment."""

    config: S3Config
    client: ClientConfig
    credentials: Callable[[], S3Credential] | None


def s3_options(bucket: str) -> S3Options:
    """Options for a bucket. Raises SettingsError, and OSError if its region cannot be found."""
    profile = _profile()
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
    credentials = None
    if any(os.environ.get(name) for name in _KEYS):
        for name in _KEYS:
            if not os.environ.get(name):
                raise SettingsError(f"{name}: missing")
    elif command := profile.get("credential_process"):
        credentials = _printed_by(command)
    elif given := _given_by(profile):
        config.update(given)
    elif not any(os.environ.get(name) for name in _OF_MACHINE) and not _is_machine_of_aws():
        config["skip_signature"] = True
    return S3Options(config, client, credentials)


def profile_times() -> tuple[int, ...]:
    """Changes when a file with profiles does."""
    times = []
    for file in _profile_files():
        with suppress(OSError):
            times.append(file.stat().st_mtime_ns)
    return tuple(times)


def _profile_files() -> tuple[Path, Path]:
    env = os.environ
    config = env.get("AWS_CONFIG_FILE") or "~/.aws/config"
    credentials = env.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return Path(config).expanduser(), Path(credentials).expanduser()


def _profile() -> Mapping[str, str]:
    """The profile that the environment names, or the one named `default`, or nothing."""
    named = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    name = named or "default"
    config, credentials = _profile_files()
    sections = [(config, f"profile {name}"), (credentials, name)]
    if name == "default":
        sections.insert(0, (config, name))
    settings: dict[str, str] = {}
    is_there = False
    for file, section in sections:
        if (parsed := _parsed(file)).has_section(section):
            is_there = True
            settings |= parsed[section]
    if named and not is_there:
        raise SettingsError(f"AWS_PROFILE: no profile {named} in {config} or {credentials}")
    return settings


def _parsed(file: Path) -> configparser.RawConfigParser:
    """Sections of a file, which may be missing. Raises SettingsError."""
    parser = configparser.RawConfigParser(strict=False, default_section="")
    try:
        parser.read_string(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError, configparser.Error):  # which quotes lines
        raise SettingsError(f"{file}: cannot be read as profiles") from None
    return parser


def _given_by(profile: Mapping[str, str]) -> S3Config:
    """Credentials of a profile, if it has any. Raises SettingsError for those that are not read here."""
    if key := profile.get("aws_access_key_id"):
        if not (secret := profile.get("aws_secret_access_key")):
            raise SettingsError("profile: has aws_access_key_id without aws_secret_access_key")
        config: S3Config = {"access_key_id": key, "secret_access_key": secret}
        if token := profile.get("aws_session_token"):
            config["session_token"] = token
        return config
    role, token_file = profile.get("role_arn"), profile.get("web_identity_token_file")
    if role and token_file:
        return {
            "role_arn": role,
            "web_identity_token_file": token_file,
            "role_session_name": profile.get("role_session_name", "neardup"),
        }
    if foreign := next((name for name in profile if name == "role_arn" or name.startswith("sso_")), None):
        raise SettingsError(
            f"profile: has {foreign}, which is not read here; name another that has credential_process ="
            " aws configure export-credentials --profile NAME, with the name of this one"
        )
    return {}


def _printed_by(command: str) -> Callable[[], S3Credential]:
    """What asks a program for credentials: it is run now, and each time that these expire."""
    first = [_run(command)]
    return lambda: first.pop() if first else _run(command)


def _run(command: str) -> S3Credential:
    try:
        printed = subprocess.run(
            shlex.split(command),
            capture_output=True,
            check=True,
            timeout=_ASK_SECONDS,
            stdin=subprocess.DEVNULL,
        ).stdout
        answer = json.loads(printed)
        expires = answer.get("Expiration")
        return {
            "access_key_id": answer["AccessKeyId"],
            "secret_access_key": answer["SecretAccessKey"],
            "token": answer.get("SessionToken"),
            "expires_at": datetime.fromisoformat(expires) if expires else None,
        }
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, AttributeError, TypeError) as error:
        # The error itself would quote the command and what it printed.
        why = getattr(error, "returncode", type(error).__name__)
        raise SettingsError(f"profile: its credential_process gave no credentials ({why})") from None


def _is_machine_of_aws() -> bool:
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    with suppress(OSError), socket.create_connection(_MACHINE, _MACHINE_SECONDS):
        return True
    return False


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
