"""All options of all roles, in one place: flags over environment `NEARDUP_*` over a TOML file over defaults.

Options that decide verdicts are not here: they are written into the journal once, by `neardup topics create`
(`stream.messages.verdict_options`, `stream.fingerprint.scheme`), and read from there.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args, get_origin

from pydantic import (
    BeforeValidator,
    ByteSize,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from stream.errors import SettingsError
from stream.suggest import meant, nearest

MIB: Final = 1 << 20
PLAINTEXT: Final = "PLAINTEXT"
OAUTHBEARER: Final = "OAUTHBEARER"
AVRO: Final = "avro"
TOKEN_LENGTH: Final = 16
"""Characters of the shortest `dashboard_token`."""
PREFIX: Final = "NEARDUP_"
"""Of environment variables."""
CONFIG: Final = "NEARDUP_CONFIG"
"""Environment variable with the path of a TOML file."""


SUPERVISOR: Final = "NEARDUP_SUPERVISOR"
"""Environment variable with the process id of whoever supervises a role."""
OWN_VARIABLES: Final = (CONFIG, "NEARDUP_BROKER", "NEARDUP_FAILPOINT", SUPERVISOR)
"""Variables that are no options."""
_TESTS: Final = "NEARDUP_TEST_"
_SERVICE: Final = re.compile(
    r".+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL: Final = re.compile(r"(tcp|udp|sctp)://\S+")
_VERDICT: Final = "unique|duplicate|recrawl|insufficient|rejected"


def _bytes(value: object) -> object:
    """A size in bytes, also of text with a unit. Raises ValueError."""
    if not isinstance(value, str):
        return value
    try:
        return int(_BYTE_SIZE.validate_python(value))
    except ValidationError:
        raise ValueError(f"{value!r} is no size; write 134217728 or 128MiB") from None


_BYTE_SIZE: Final = TypeAdapter(ByteSize)
Bytes = Annotated[int, BeforeValidator(_bytes)]


def networks(listed: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Networks of a list with commas; an address is one of its own. Raises ValueError."""
    return [ipaddress.ip_network(each.strip()) for each in listed.split(",") if each.strip()]


_PATTERN_MEANINGS: Final = {
    "namespace": "letters, digits, _ and - make it, at most 81; it begins with a letter or digit",
    "verdict_routes": f"write some of {_VERDICT.replace('|', ', ')}, with commas between",
    "schema_registry_url": "write http://host:port, or https://",
    "dashboard_user_header": "write the name of a header: letters, digits and -",
    "dashboard_roles": "write judge=http://host:port,worker=http://host:port",
}
"""What the pattern of an option means, for a person."""


class Settings(BaseSettings):
    """Options of a deployment. Sizes in bytes, or with a unit (`128MiB`, `2GB`); times in seconds."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    bootstrap_servers: str = Field("127.0.0.1:9092", min_length=1)
    """Kafka brokers, `host:port,host:port`."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = PLAINTEXT
    """How the brokers are spoken to: `SSL` and `SASL_SSL` with TLS, `SASL_...` with a name and a secret.

    These options have no flags: secrets would show in the list of processes.
    """
    ssl_cafile: Path | None = None
    """PEM file of the certificate authorities that brokers are trusted by; the system's without it."""
    ssl_certfile: Path | None = None
    """PEM file of our certificate and those between it and its authority, where brokers want one (mTLS)."""
    ssl_keyfile: Path | None = None
    """PEM file of its private key; without it, the key is in `ssl_certfile`."""
    ssl_password: SecretStr | None = None
    """Password of the private key, where it has one."""
    sasl_mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"] = "SCRAM-SHA-512"
    """How the name is proved: by a password, or by a token (`OAUTHBEARER`)."""
    sasl_username: str | None = None
    """Name at the brokers."""
    sasl_password: SecretStr | None = None
    """Its password; never logged."""
    sasl_token_file: Path | None = None
    """File with a token for OAUTHBEARER, read again for each connection: somebody else keeps it fresh."""
    sasl_token_command: SecretStr | None = None
    """Command that prints such a token; run for each connection, without a shell. Neither its arguments nor
    what it prints, on stderr too, are logged."""

    namespace: str = Field("neardup", pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_-]{0,80}$")
    """Prefix of topics, groups, transactional ids and state directories (rule 14)."""
    dev: bool = False
    """Accept topics that are not replicated: for one broker on one machine."""
    partitions: int = Field(8, ge=1, le=10_000)
    """Partitions of the topics keyed like the pages; used when topics are created."""
    verdict_routes: str = Field("", pattern=f"^(({_VERDICT})(,({_VERDICT}))*)?$")
    """Verdicts that go to a topic of their own as well, `NAMESPACE.verdicts.duplicate` and so on, in the same
    transaction; e.g. `duplicate,rejected`. The same for `topics create` and the judge."""
    verdict_format: Literal["json", "avro"] = "json"
    """What the judge writes verdicts in: `json`, or `avro`, whose schema it registers at
    `schema_registry_url`. Readers tell them apart."""
    state_dir: Path = Path(".neardup")
    """Directory that holds the judge's RocksDB, one sub-directory a namespace."""
    rebuild_damaged: bool = False
    """Move a damaged state directory aside and rebuild it from journal and decisions, instead of refusing."""
    scrub_hours: float = Field(24.0, ge=0)
    """How often the judge has its whole state read from disk, beside its work, to find damage; 0 is never."""

    worker_processes: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    """Child processes of a worker, which fingerprint; one a core unless told."""
    worker_memory: Bytes = Field(128 * MIB, ge=MIB)
    """Bytes of pages a worker holds at once; beyond it, its partitions are paused."""
    page_deadline: float = Field(10.0, gt=0)
    """Seconds of processor time that a page of `page_bytes` may take before its process is killed; a small
    one may take a tenth. Also the most that any page may take by the clock."""
    page_bytes: Bytes = Field(16 * MIB, ge=1024)
    """Largest page, after decompression."""
    child_memory: Bytes = Field(2048 * MIB, ge=256 * MIB)
    """Address space of one fingerprinting process."""
    reject_limit: float = Field(0.9, gt=0, le=1)
    """A worker waits while more than this share of the last pages would be rejected by a fault of their
    producer (docs/reasons.md), over all its partitions; it tries again by itself. 1 switches it off."""

    claim_root: Path | None = None
    """Directory of the web archives that page messages name by `warc_filename`; none may lead out of it."""
    schema_registry_url: str | None = Field(None, pattern=r"^https?://.+$")
    """Schema registry of framed messages, with the path of Confluent's REST calls if it has one."""
    schema_registry_user: str | None = None
    """Its user, for HTTP basic authentication."""
    schema_registry_password: SecretStr | None = None
    """Its password; better in the environment or the file than on a command line."""

    judge_rows: int = Field(32_768, ge=1, le=65_536)
    """Most pages judged in one transaction."""
    flush_seconds: float = Field(5.0, gt=0)
    """How often the state is made durable; a crash replays at most this much."""
    tables_memory: Bytes = Field(1024 * MIB, ge=0)
    """RAM for the newest anchors; beyond it, and always at 0, frozen anchors are probed in RocksDB. A
    sixteenth of it, at least 64 MiB, tells what is worth asking for there."""
    tables_generation: int = Field(1_000_000, ge=16)
    """Anchors frozen into RocksDB at once. Fixed when a state directory is made."""
    tables_cache: Bytes = Field(256 * MIB, ge=MIB)
    """RocksDB block cache, of all but the tables, which the page cache holds."""

    ops_host: str = Field("127.0.0.1", min_length=1)
    """Address that serves a role's `/metrics`, `/livez` and `/readyz`; loopback unless told otherwise."""
    ops_port: int = Field(0, ge=-1, le=65_535)
    """Its port; 0 takes a free one, which the log names, -1 serves none.

    `neardup run` gives the judge this one, and the workers those that follow.
    """

    dashboard_host: str = Field("127.0.0.1", min_length=1)
    """Address that the dashboard listens at; beyond loopback it wants `dashboard_token` or
    `dashboard_user_header`."""
    dashboard_port: int = Field(8787, ge=0, le=65_535)
    """Port of the dashboard; 0 takes a free one."""
    dashboard_token: SecretStr | None = None
    """What whoever looks at the dashboard must know, at least 16 characters; never logged. No flag."""
    dashboard_user_header: str | None = Field(None, pattern=r"^[A-Za-z0-9-]+$")
    """Header in which a reverse proxy that authenticates users names them, like `X-Forwarded-User`."""
    dashboard_trusted_proxies: str = ""
    """Addresses and networks of the proxies whose headers are believed, `10.0.0.7,192.168.8.0/24`."""
    dashboard_metrics_open: bool = False
    """Serve the dashboard's `/metrics` to whoever asks, also where it wants to know who looks."""
    dashboard_roles: str = Field("", pattern=r"^([a-z]+=https?://[^,\s]+(,[a-z]+=https?://[^,\s]+)*)?$")
    """Roles that the dashboard asks for their health, `judge=http://host:port,worker=...`; `neardup run`
    names its own."""

    session_seconds: float = Field(10.0, ge=1)
    """How long a silent member of a group counts as alive."""
    shutdown_seconds: float = Field(10.0, gt=0)
    """How long a role may take to finish its batch when told to stop or rebalance."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """`text` on a terminal and `json` elsewhere, unless told."""

    @model_validator(mode="after")
    def _dashboard_knows_whom_to_trust(self) -> Self:
        if self.dashboard_token and len(self.dashboard_token.get_secret_value()) < TOKEN_LENGTH:
            raise ValueError(f"dashboard_token has fewer than {TOKEN_LENGTH} characters")
        try:
            trusted = networks(self.dashboard_trusted_proxies)
        except ValueError as error:
            raise ValueError(f"dashboard_trusted_proxies: {error}") from None
        if self.dashboard_user_header and not trusted:
            raise ValueError(
                "dashboard_user_header wants dashboard_trusted_proxies: anybody can send a header"
            )
        return self

    @model_validator(mode="after")
    def _addresses_hold_no_secrets(self) -> Self:
        """Addresses are logged, and shown in the list of processes."""
        for name, cure in (
            ("bootstrap_servers", "sasl_username and sasl_password"),
            ("schema_registry_url", "schema_registry_user and schema_registry_password"),
            ("dashboard_roles", "an address that answers without them"),
        ):
            if "@" in (getattr(self, name) or ""):
                raise ValueError(f"{name} holds a user or password (an @): use {cure}")
        return self

    @model_validator(mode="after")
    def _avro_has_its_registry(self) -> Self:
        if self.verdict_format == AVRO and not self.schema_registry_url:
            raise ValueError("verdict_format avro wants schema_registry_url")
        return self

    @model_validator(mode="after")
    def _security_is_whole(self) -> Self:
        """Half a security is a mistake: say which option is missing, or has no effect."""
        tls, sasl = "SSL" in self.security_protocol, self.security_protocol.startswith("SASL")
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password"):
            if getattr(self, name) and not tls:
                raise ValueError(f"{name} has no effect with security_protocol {self.security_protocol}")
        if (self.ssl_keyfile or self.ssl_password) and not self.ssl_certfile:
            raise ValueError("ssl_keyfile and ssl_password want ssl_certfile")
        if not sasl:
            for name in ("sasl_username", "sasl_password", "sasl_token_file", "sasl_token_command"):
                if getattr(self, name):
                    raise ValueError(f"{name} has no effect with security_protocol {self.security_protocol}")
        elif self.sasl_mechanism == OAUTHBEARER:
            if bool(self.sasl_token_file) == bool(self.sasl_token_command):
                raise ValueError("sasl_mechanism OAUTHBEARER wants sasl_token_file or sasl_token_command")
        elif not (self.sasl_username and self.sasl_password):
            raise ValueError(f"sasl_mechanism {self.sasl_mechanism} wants sasl_username and sasl_password")
        return self

    @property
    def routes(self) -> list[str]:
        """The names in `verdict_routes`, each once."""
        return list(dict.fromkeys(filter(None, self.verdict_routes.split(","))))

    def environment(self) -> dict[str, str]:
        """Variables that make another process load the same settings; secrets are in them."""
        found = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                shown = value.get_secret_value() if isinstance(value, SecretStr) else value
                found[PREFIX + name.upper()] = str(shown)
        return found

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then environment, then the TOML file that NEARDUP_CONFIG names."""
        env_settings.env_vars = {  # type: ignore[attr-defined]
            name: value
            for name, value in env_settings.env_vars.items()  # type: ignore[attr-defined]
            if not is_service_variable(name, value or "")
        }
        path = os.environ.get(CONFIG)
        if path is None:
            return init_settings, env_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, Path(path))


def load(**flags: Any) -> Settings:
    """Settings from flags that are not None, environment and file. Raises SettingsError."""
    path = os.environ.get(CONFIG)
    if path is not None and not Path(path).is_file():
        raise SettingsError(f"{CONFIG}: no file {path}")
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        wrong = [(".".join(map(str, each["loc"])), _said(each)) for each in error.errors()]
        said = (f"{_origin(name, given)}: {message}" if name else message for name, message in wrong)
        raise SettingsError("; ".join(said)) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{CONFIG}, file {path}: {error}") from None
    except ValueError as error:
        raise SettingsError(f"settings: {error}") from None


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Variables `NEARDUP_*` that are no option, with the nearest one that is.

    None stops a role: an option of a later version may be among them, and they may be of other programs.
    """
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    return {
        name: nearest(name, (*known, CONFIG))
        for name, value in environment.items()
        if name.upper().startswith(PREFIX)
        and name.upper() not in (*known, *OWN_VARIABLES)
        and not name.startswith(_TESTS)
        and not is_service_variable(name, value)
    }


def is_service_variable(name: str, value: str) -> bool:
    """Whether Kubernetes sets it, for a service whose name begins with neardup: NEARDUP_DASHBOARD_PORT=tcp://..."""
    named = name.upper()
    return bool(_SERVICE.fullmatch(named) or (named.endswith("_PORT") and _SERVICE_URL.fullmatch(value)))


def choices(name: str) -> tuple[str, ...]:
    """The values that an option may have, where they can be listed."""
    field = Settings.model_fields[name]
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def _said(error: Any) -> str:
    """What is wrong with an option's value, without quoting it: it may be a secret."""
    name = str(error["loc"][-1]) if error["loc"] else ""
    match error["type"]:
        case "extra_forbidden":
            return f"no such option{meant(name, Settings.model_fields)}"
        case "literal_error":
            return f"none of {', '.join(choices(name))}{meant(str(error['input']), choices(name))}"
        case "string_pattern_mismatch":
            return _PATTERN_MEANINGS[name]
    return str(error["msg"].removeprefix("Value error, "))


def _origin(name: str, flags: Mapping[str, object]) -> str:
    """Where the value of an option came from, as a person would look for it."""
    if name in flags:
        return f"--{name.replace('_', '-')}"
    variable = PREFIX + name.upper()
    if variable in map(str.upper, os.environ):
        return variable
    return f"{name} in {os.environ.get(CONFIG, 'the defaults')}"
