"""Generates the reference of settings and a sample configuration file from `stream/settings.py`:

python -m docs.site.settings_page > docs/reference/settings.md
python -m docs.site.settings_page sample > docs/reference/neardup.toml
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from stream.settings import MIB, Settings

GROUPS: Final = {
    "bootstrap_servers": "Brokers and their security",
    "namespace": "Topics and state",
    "worker_processes": "Workers",
    "claim_root": "What messages refer to",
    "judge_rows": "Judge",
    "elect": "Elector",
    "ops_host": "Metrics and health",
    "dashboard_host": "Dashboard",
    "session_seconds": "All roles",
}
"""Headings, by the first option below each."""
_INTRODUCTION: Final = """\
# Settings

A setting comes from a flag, an environment variable, a TOML file or a default, in this order. For example,
`page_bytes` is the flag `--page-bytes` of commands that have it, the variable `NEARDUP_PAGE_BYTES`, and
`page_bytes` in the file that `NEARDUP_CONFIG` names. [`neardup.toml`](neardup.toml) is a sample of that file.

Sizes are in bytes or have a unit (`128MiB`); times are in seconds. Secrets have no flags, because flags show
in the list of processes. An invalid value is an error that names the flag, variable or file, and what may be
written. A variable `NEARDUP_*` that is no setting is ignored, with a warning that names the nearest one that
is.

Options that affect verdicts are not settings. `neardup topics create` fixes them for a namespace:
[how to tune thresholds](../how-to/tune-thresholds.md). This page is generated from `stream/settings.py`."""
_ABOVE_THE_SAMPLE: Final = """\
# Sample configuration of neardup. NEARDUP_CONFIG=neardup.toml names it; remove the # before what you set.
# Generated from stream/settings.py; docs/reference/settings.md is the same as a table."""
_RULE: Final = re.compile(r" \(rule\s\d+\)")
_BARE: Final = re.compile(r"true|false|-?[0-9]+(\.[0-9]+)?")
"""Values that TOML writes without quotes."""
_WIDTH: Final = 100


def page() -> Iterator[str]:
    """Lines of `docs/reference/settings.md`."""
    yield _INTRODUCTION
    for name, field in Settings.model_fields.items():
        if name in GROUPS:
            yield f"\n## {GROUPS[name]}\n\n| option | default | meaning |\n|---|---|---|"
        default = _default(field)
        shown = f"`{default}`" if default else "one for each core" if name == "worker_processes" else ""
        yield f"| `{name}` | {shown} | {_meaning(field).replace('|', chr(92) + '|')} |"


def sample() -> Iterator[str]:
    """Lines of `docs/reference/neardup.toml`: every option commented out, with its default or an example."""
    yield _ABOVE_THE_SAMPLE
    for name, field in Settings.model_fields.items():
        if name in GROUPS:
            yield f"\n# ---- {GROUPS[name]}"
        yield ""
        yield from textwrap.wrap(_meaning(field), _WIDTH, initial_indent="# ", subsequent_indent="# ")
        yield f"#{name} = {_toml(_default(field) or EXAMPLES[name])}"


EXAMPLES: Final = {
    "ssl_cafile": "/etc/kafka/authority.pem",
    "ssl_certfile": "/etc/kafka/client.pem",
    "ssl_keyfile": "/etc/kafka/client.key",
    "ssl_password": "...",
    "sasl_username": "neardup-worker",
    "sasl_password": "...",
    "sasl_token_file": "/run/secrets/token",
    "sasl_token_command": "print-token --audience kafka",
    "verdict_routes": "duplicate,rejected",
    "worker_processes": "4",
    "claim_root": "/srv/crawls",
    "elect": "longest",
    "elector_name": "newest",
    "checkpoints": "s3://bucket/neardup",
    "schema_registry_url": "https://registry.example:8081",
    "schema_registry_user": "neardup",
    "schema_registry_password": "...",
    "dashboard_name": "b",
    "dashboard_token": "a secret of 16 characters or more",
    "dashboard_user_header": "X-Forwarded-User",
    "dashboard_trusted_proxies": "10.0.0.7,192.168.8.0/24",
    "dashboard_roles": "judge=http://127.0.0.1:9500,worker=http://127.0.0.1:9501",
}
"""Values for options without a default."""


def _meaning(field: Any) -> str:
    return " ".join(_RULE.sub("", field.description or "").split())


def _default(field: Any) -> str:
    """Return the default as a user would write it, or "" if there is none."""
    value = field.default
    if field.default_factory or value in (None, ""):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    whole = isinstance(value, int) and value >= MIB and value % MIB == 0
    return f"{value // MIB}MiB" if whole else str(value)


def _toml(value: str) -> str:
    return value if _BARE.fullmatch(value) else f'"{value}"'


if __name__ == "__main__":
    sys.stdout.write("\n".join(sample() if sys.argv[1:] == ["sample"] else page()) + "\n")
