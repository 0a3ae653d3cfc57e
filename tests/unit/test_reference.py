"""The reference pages that are kept in the repository are those that the code prints."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from docs.site import settings_page, topics_page
from stream.settings import Settings, load

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def kept(name: str) -> list[str]:
    return (REFERENCE / name).read_text("utf-8").splitlines()


def test_the_page_of_settings_is_printed_from_the_settings() -> None:
    printed = "\n".join(settings_page.page()).splitlines()
    assert kept("settings.md") == printed, "python -m docs.site.settings_page > docs/reference/settings.md"


def test_the_sample_file_is_printed_from_the_settings() -> None:
    printed = "\n".join(settings_page.sample()).splitlines()
    command = "python -m docs.site.settings_page sample > docs/reference/neardup.toml"
    assert kept("neardup.toml") == printed, command


def test_the_page_of_topics_is_printed_from_their_plan() -> None:
    printed = "\n".join(topics_page.page()).splitlines()
    command = "python -m docs.site.topics_page > docs/reference/topics.md"
    assert kept("topics.md") == printed, command


def test_every_line_of_the_sample_is_a_setting_with_a_valid_value() -> None:
    """Options that contradict each other, such as those of TLS and of plain text, are tried alone."""
    lines = [line[1:] for line in kept("neardup.toml") if re.match(r"#\w", line)]
    values = tomllib.loads("\n".join(lines))
    assert list(values) == list(Settings.model_fields)
    together = {
        "ssl": {"security_protocol": "SSL", "ssl_certfile": "client.pem"},
        "sasl": {"security_protocol": "SASL_SSL", "sasl_username": "neardup", "sasl_password": "secret"},
        "sasl_token": {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
        "dashboard_user_header": {"dashboard_trusted_proxies": "10.0.0.7"},
    }
    for name, value in values.items():
        needed = next((together[start] for start in reversed(together) if name.startswith(start)), {})
        load(**(needed | {name: value}))
