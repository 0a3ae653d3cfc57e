"""The version of Apache Kafka that an embedded broker runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stream.brokers import embedded_jars
from stream.errors import BrokerError

MAKEFILE = Path(__file__).parents[2] / "Makefile"
COMPATIBILITY = MAKEFILE.with_name("docs") / "compatibility.md"


def test_the_version_is_that_of_the_pom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(embedded_jars.VARIABLE, raising=False)
    pom = (embedded_jars.deployment() / "pom.xml").read_text()
    assert f"<kafka.version>{embedded_jars.version()}</kafka.version>" in pom


def test_another_version_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(embedded_jars.VARIABLE, "3.7.2")
    assert embedded_jars.version() == "3.7.2"


@pytest.mark.parametrize("version", ["4", "4.1.0-rc1", "../4.1.0", "latest"])
def test_what_is_no_version_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv(embedded_jars.VARIABLE, version)
    with pytest.raises(BrokerError, match="NEARDUP_KAFKA_VERSION"):
        embedded_jars.version()


def test_the_page_names_the_versions_that_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(embedded_jars.VARIABLE, raising=False)
    tried = re.search(r"^KAFKAS := (.*)$", MAKEFILE.read_text("utf-8"), re.MULTILINE)
    assert tried is not None
    assert embedded_jars.version() in tried[1].split()
    assert f"Apache Kafka {', '.join(tried[1].split())}" in COMPATIBILITY.read_text("utf-8")
