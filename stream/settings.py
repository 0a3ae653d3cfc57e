"""Settings of all roles and commands, from flags, `NEARDUP_*` variables, a TOML file or defaults, in this
order.

Options that affect verdicts are not here. `neardup topics create` writes them into the journal once, and
roles read them from there: see `stream.messages.verdict_options` and `stream.fingerprint.scheme`.
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
NAME: Final = r"[a-z0-9][a-z0-9-]{0,31}"
"""Regular expression of names of electors."""
PLAINTEXT: Final = "PLAINTEXT"
OAUTHBEARER: Final = "OAUTHBEARER"
AVRO: Final = "avro"
TOKEN_LENGTH: Final = 16
"""Minimum length of `dashboard_token`, in characters."""
PREFIX: Final = "NEARDUP_"
"""Prefix of environment variables that are settings."""
CONFIG: Final = "NEARDUP_CONFIG"
"""Environment variable with the path of a TOML file."""


SUPERVISOR: Final = "NEARDUP_SUPERVISOR"
"""Environment variable of a supervised role: the process id of its supervisor."""
OWN_VARIABLES: Final = (CONFIG, "NEARDUP_BROKER", "NEARDUP_FAILPOINT", "NEARDUP_KAFKA_VERSION", SUPERVISOR)
"""Environment variables with our prefix that are not settings."""
_TESTS: Final = "NEARDUP_TEST_"
_SERVICE: Final = re.compile(
    r".+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL: Final = re.compile(r"(tcp|udp|sctp)://\S+")
_VERDICT: Final = "unique|duplicate|recrawl|insufficient|rejected"
_HOST: Final = r"[a-z0-9_-]+(\.[a-z0-9_-]+)*"


def _bytes(value: object) -> object:
    """Convert a size, given as text with or without a unit, to bytes. Raises ValueError."""
    if not isinstance(value, str):
        return value
    try:
        return int(_BYTE_SIZE.validate_python(value))
    except ValidationError:
        raise ValueError(f"{value!r} is not a size; write 134217728 or 128MiB") from None


_BYTE_SIZE: Final = TypeAdapter(ByteSize)
Bytes = Annotated[int, BeforeValidator(_bytes)]


def seconds_of(value: object) -> object:
    """Convert a duration, given as text with or without a unit, to seconds. Raises ValueError."""
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value!r} is not a duration; write 3600, 90s, 15m, 1h or 7d")
    return float(match[1]) * _UNITS[match[2]]


_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?) ?([smhd]?)")
_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
Duration = Annotated[float, BeforeValidator(seconds_of)]
"""Seconds, or a number with a unit."""


def networks(listed: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Parse a comma-separated list of networks and addresses. Raises ValueError."""
    return [ipaddress.ip_network(each.strip()) for each in listed.split(",") if each.strip()]


_PATTERN_MEANINGS: Final = {
    "namespace": "use at most 81 letters, digits, _ and -, starting with a letter or digit",
    "verdict_routes": f"write a comma-separated list of {_VERDICT.replace('|', ', ')}",
    "elect": "write first, longest, newest, quality or hosts=a.example,b.example, hosts as URL keys have"
    " them: lower case, no port, xn--bcher-kva.example for bücher.example",
    "elector_name": "use at most 32 lower-case letters, digits and -, starting with a letter or digit",
    "dashboard_name": "use at most 32 lower-case letters, digits and -, starting with a letter or digit",
    "schema_registry_url": "write http://host:port, or https://",
    "dashboard_user_header": "write the name of a header: letters, digits and -",
    "dashboard_roles": "write judge=http://host:port,worker=http://host:port",
}
"""Error texts for options that are validated by a regular expression."""


class Settings(BaseSettings):
    """Settings of a deployment. Sizes are in bytes or have a unit (`128MiB`, `2GB`); times are in seconds."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    bootstrap_servers: str = Field("127.0.0.1:9092", min_length=1)
    """Kafka brokers to connect to first, as `host:port,host:port`."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = PLAINTEXT
    """Protocol of the brokers: `SSL` and `SASL_SSL` use TLS, `SASL_...` authenticates by user name and
    secret.

    The security settings have no flags, because flags show in the process list.
    """
    ssl_cafile: Path | None = None
    """PEM file of the certificate authorities to trust; by default those of the system."""
    ssl_certfile: Path | None = None
    """PEM file of the client certificate with its intermediate certificates, if brokers require one
    (mTLS)."""
    ssl_keyfile: Path | None = None
    """PEM file of the client's private key; by default the key is expected in `ssl_certfile`."""
    ssl_password: SecretStr | None = None
    """Password of the private key, if it is encrypted."""
    sasl_mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"] = "SCRAM-SHA-512"
    """SASL mechanism: by password, or by token (`OAUTHBEARER`)."""
    sasl_username: str | None = None
    """SASL user name."""
    sasl_password: SecretStr | None = None
    """SASL password; never logged."""
    sasl_token_file: Path | None = None
    """File with a token for OAUTHBEARER. It is read for each connection, so another program may renew it."""
    sasl_token_command: SecretStr | None = None
    """Command that prints a token for OAUTHBEARER, run for each connection without a shell. Neither its
    arguments nor its output, including stderr, are logged."""

    namespace: str = Field("neardup", pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_-]{0,80}$")
    """Prefix of topics, groups, transactional ids and state directories, which separates deployments (rule
    14)."""
    dev: bool = False
    """Accept topics without replication, for a single broker."""
    partitions: int = Field(8, ge=1, le=10_000)
    """Number of partitions of the pages and verdicts topics, used when topics are created."""
    verdict_routes: str = Field("", pattern=f"^(({_VERDICT})(,({_VERDICT}))*)?$")
    """Verdicts to publish to a topic of their own as well, in the same transaction. E.g. `duplicate,rejected`
    adds `NAMESPACE.verdicts.duplicate` and `NAMESPACE.verdicts.rejected`. `topics create` and the judge need
    the same value."""
    verdict_format: Literal["json", "avro"] = "json"
    """Format of the verdicts that the judge publishes. For `avro` it registers the schema at
    `schema_registry_url`. All commands that read verdicts read both."""
    state_dir: Path = Path(".neardup")
    """Directory of the judge's and the dashboard's state (RocksDB), with a subdirectory per namespace."""
    rebuild_damaged: bool = False
    """Move a damaged state directory aside and rebuild it from the topics, instead of refusing to start. One
    that trimmed logs do not reach any more is moved aside if a checkpoint will do in its place."""
    scrub_hours: float = Field(24.0, ge=0)
    """Hours between background scrubs, which read a role's whole state from disk to find damage; 0
    disables them."""

    checkpoints: str | None = Field(None, min_length=1)
    """Where judges, electors and dashboards keep checkpoints of their states: a directory, or
    `s3://bucket/prefix`, `gs://...` or `az://...`. An empty state directory is restored from there. Whoever
    may read it has all URLs of the crawl. Credentials are those of the provider's own clients, and not part
    of the URL."""
    checkpoint_interval: Duration = Field(3600.0, gt=0)
    """Seconds between checkpoints, or a time with a unit (`15m`, `6h`). Only files that are new since the
    last checkpoint are uploaded. A leading judge also records how far all sources were judged this often,
    with checkpoints or without."""
    checkpoints_kept: int = Field(3, ge=1)
    """Number of checkpoints that are kept of each state directory."""

    worker_processes: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    """Number of child processes that fingerprint pages; by default one per core."""
    worker_memory: Bytes = Field(128 * MIB, ge=MIB)
    """Bytes of pages that a worker holds in memory. Above it, the worker pauses its partitions."""
    page_deadline: float = Field(10.0, gt=0)
    """Seconds of CPU time for a page of `page_bytes` before its child process is killed; a small page gets a
    tenth of it. Also the limit in wall-clock time for any page."""
    page_bytes: Bytes = Field(16 * MIB, ge=1024)
    """Maximum size of a page after decompression."""
    child_memory: Bytes = Field(2048 * MIB, ge=256 * MIB)
    """Address space limit of one fingerprinting process."""
    reject_limit: float = Field(0.9, gt=0, le=1)
    """Maximum share of recent pages, over all partitions of a worker, that may be rejected through a fault of
    their producer (`neardup help reasons`). Above it, the worker pauses and retries by itself. 1 disables the
    limit."""

    claim_root: Path | None = None
    """Directory of the web archives that page messages refer to by `warc_filename`. Paths that lead out of it
    are refused."""
    schema_registry_url: str | None = Field(None, pattern=r"^https?://.+$")
    """Base URL of the schema registry (Confluent's REST API), for messages with a schema id."""
    schema_registry_user: str | None = None
    """User name at the schema registry, for HTTP basic authentication."""
    schema_registry_password: SecretStr | None = None
    """Password at the schema registry; never logged."""

    judge_rows: int = Field(32_768, ge=1, le=65_536)
    """Maximum number of pages judged in one transaction; of pages with very long URLs, 32 MiB."""
    flush_seconds: float = Field(5.0, gt=0)
    """Seconds between flushes of the state to disk. A crash replays at most this much of the journal."""
    tables_memory: Bytes = Field(1024 * MIB, ge=0)
    """RAM for the tables: two generations of the newest anchors, and filters of the older ones in RocksDB,
    which say what is worth reading there: 18 bytes an anchor, or fewer if there is no more. At least 64 MiB
    are left for filters."""
    tables_generation: int = Field(1_000_000, ge=16, le=1 << 25)
    """Number of anchors that are frozen into RocksDB at once, each of which takes 120 bytes of RAM before.
    Fixed when the state directory is created."""
    tables_cache: Bytes = Field(256 * MIB, ge=MIB)
    """RocksDB block cache for everything but the tables, which are cached by the operating system."""

    elect: str = Field(
        "", pattern=rf"^(first|longest|newest|quality|hosts={_HOST}(,{_HOST})*)?$", max_length=4096
    )
    """Which page of each cluster is kept, and told on the topic `NAMESPACE.best`: `first`, `longest`,
    `newest` by `fetched_at`, `quality` for the highest one, or `hosts=a.example,b.example` for a page of the
    first of these hosts that has one. Of equal quality, and of one host, the longest page is kept; other ties
    go to the URL that is in the cluster for the longest time. Each record repeats it, so it has at most 4,096
    characters. By default there is no such topic. `topics create` and the elector need the same value."""
    elect_seconds: Duration = Field(10.0, ge=0)
    """Seconds, or a time with a unit, in which at most one record of a cluster is written to that topic."""
    elector_name: str = Field("", pattern=rf"^({NAME})?$")
    """Name of a further elector, with a policy of its own. Its topic is `NAMESPACE.best-NAME`."""

    ops_host: str = Field("127.0.0.1", min_length=1)
    """Address on which a role serves `/metrics`, `/livez` and `/readyz`; loopback by default."""
    ops_port: int = Field(0, ge=-1, le=65_535)
    """Port for `/metrics`, `/livez` and `/readyz`; 0 picks a free port and logs it, -1 disables the server.

    `neardup run` gives this port to the judge and the following ports to the workers.
    """

    dashboard_host: str = Field("127.0.0.1", min_length=1)
    """Address on which the dashboard listens. Any other than loopback requires `dashboard_token` or
    `dashboard_user_header`."""
    dashboard_port: int = Field(8787, ge=0, le=65_535)
    """Port of the dashboard; 0 picks a free port."""
    dashboard_name: str = Field("", pattern=rf"^({NAME})?$")
    """Name of a further dashboard, which counts in a directory and a consumer group of its own."""
    dashboard_token: SecretStr | None = None
    """Access token of the dashboard, at least 16 characters; never logged. It has no flag."""
    dashboard_user_header: str | None = Field(None, pattern=r"^[A-Za-z0-9-]+$")
    """Header in which an authenticating reverse proxy passes the user name, e.g. `X-Forwarded-User`."""
    dashboard_trusted_proxies: str = ""
    """Addresses and networks of the proxies whose headers are trusted, e.g. `10.0.0.7,192.168.8.0/24`."""
    dashboard_open: bool = False
    """Let pages be looked up without authentication, where the dashboard has none. Whoever can look up pages
    often can craft copies that the judge does not find."""
    dashboard_lookups: int = Field(60, ge=1)
    """Pages that each client of the dashboard may look up in an hour."""
    dashboard_metrics_open: bool = False
    """Serve the dashboard's `/metrics` without authentication."""
    dashboard_roles: str = Field("", pattern=r"^([a-z]+=https?://[^,\s]+(,[a-z]+=https?://[^,\s]+)*)?$")
    """Roles whose health the dashboard shows, as `judge=http://host:port,worker=...`; `neardup run` sets
    it."""

    session_seconds: float = Field(10.0, ge=1)
    """Session time-out of consumer groups: a member that is silent for longer is considered dead."""
    shutdown_seconds: float = Field(10.0, gt=0)
    """Seconds that a role may take to finish its batch on shutdown or rebalance."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """Log format; `auto` is `json` for roles whose stderr is not a terminal, else `text`."""

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
                "dashboard_user_header requires dashboard_trusted_proxies, because anybody can send a header"
            )
        return self

    @model_validator(mode="after")
    def _addresses_hold_no_secrets(self) -> Self:
        """Refuse credentials in addresses, which are logged and shown in process lists."""
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
            raise ValueError("verdict_format avro requires schema_registry_url")
        return self

    @model_validator(mode="after")
    def _security_is_whole(self) -> Self:
        """Refuse incomplete security settings, naming the one that is missing or has no effect."""
        tls, sasl = "SSL" in self.security_protocol, self.security_protocol.startswith("SASL")
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password"):
            if getattr(self, name) and not tls:
                raise ValueError(f"{name} has no effect with security_protocol {self.security_protocol}")
        if (self.ssl_keyfile or self.ssl_password) and not self.ssl_certfile:
            raise ValueError("ssl_keyfile and ssl_password require ssl_certfile")
        if not sasl:
            for name in ("sasl_username", "sasl_password", "sasl_token_file", "sasl_token_command"):
                if getattr(self, name):
                    raise ValueError(f"{name} has no effect with security_protocol {self.security_protocol}")
        elif self.sasl_mechanism == OAUTHBEARER:
            if bool(self.sasl_token_file) == bool(self.sasl_token_command):
                raise ValueError(
                    "sasl_mechanism OAUTHBEARER requires either sasl_token_file or sasl_token_command"
                )
        elif not (self.sasl_username and self.sasl_password):
            raise ValueError(f"sasl_mechanism {self.sasl_mechanism} requires sasl_username and sasl_password")
        return self

    @property
    def routes(self) -> list[str]:
        """The verdicts in `verdict_routes`, without repetitions."""
        return list(dict.fromkeys(filter(None, self.verdict_routes.split(","))))

    def environment(self) -> dict[str, str]:
        """Return variables that make another process load the same settings. They include the secrets."""
        variables = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                shown = value.get_secret_value() if isinstance(value, SecretStr) else value
                variables[PREFIX + name.upper()] = str(shown)
        return variables

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: flags, environment, then the TOML file named by NEARDUP_CONFIG."""
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
    """Load the settings from flags (None means not given), environment and file. Raises SettingsError."""
    path = os.environ.get(CONFIG)
    if path is not None and not Path(path).is_file():
        raise SettingsError(f"{CONFIG}: no file {path}")
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        wrong = [(".".join(map(str, each["loc"])), _explain(each)) for each in error.errors()]
        messages = (f"{_origin(name, given)}: {message}" if name else message for name, message in wrong)
        raise SettingsError("; ".join(messages)) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{CONFIG}, file {path}: {error}") from None
    except ValueError as error:
        raise SettingsError(f"settings: {error}") from None


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return the `NEARDUP_*` variables that are not settings, each with the most similar valid name or None.

    They are only reported. An unknown variable may be a setting of a later version, or of another program.
    """
    names = [PREFIX + name.upper() for name in Settings.model_fields]
    return {
        name: nearest(name, (*names, CONFIG))
        for name, value in environment.items()
        if name.upper().startswith(PREFIX)
        and name.upper() not in (*names, *OWN_VARIABLES)
        and not name.startswith(_TESTS)
        and not is_service_variable(name, value)
    }


def is_service_variable(name: str, value: str) -> bool:
    """Whether Kubernetes set it for a service named neardup-..., as in NEARDUP_DASHBOARD_PORT=tcp://..."""
    named = name.upper()
    return bool(_SERVICE.fullmatch(named) or (named.endswith("_PORT") and _SERVICE_URL.fullmatch(value)))


def choices(name: str) -> tuple[str, ...]:
    """Return the valid values of an option that has a fixed set of them, else nothing."""
    field = Settings.model_fields[name]
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def _explain(error: Any) -> str:
    """Explain what is wrong with the value of an option, without quoting it: it may be a secret."""
    name = str(error["loc"][-1]) if error["loc"] else ""
    match error["type"]:
        case "extra_forbidden":
            return f"no such option{meant(name, Settings.model_fields)}"
        case "literal_error":
            return f"not one of {', '.join(choices(name))}{meant(str(error['input']), choices(name))}"
        case "string_pattern_mismatch":
            return _PATTERN_MEANINGS[name]
    return str(error["msg"].removeprefix("Value error, "))


def _origin(name: str, flags: Mapping[str, object]) -> str:
    """Return where the user set the option: the flag, the variable or the file."""
    if name in flags:
        return f"--{name.replace('_', '-')}"
    variable = PREFIX + name.upper()
    if variable in map(str.upper, os.environ):
        return variable
    return f"{name} in {os.environ.get(CONFIG, 'the defaults')}"
