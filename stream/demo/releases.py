"""Which documentation the demonstration crawls: releases that differ little, as packages of their makers."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

BASE_URL: Final = "https://docs.example.org/"


class Release(NamedTuple):
    """One release of a project's HTML documentation."""

    project: str
    version: str
    fetched_at: int
    """Milliseconds since the epoch, fixed: about when it was released."""
    client: Literal["maven", "wheel", "sdist"]
    """What it is packed in, and who fetches it: Maven, or pip."""
    package: str
    """Maven's `group:artifact`, or the name that pip knows."""
    root: str
    """Folder of the documentation inside the package; its own path there is not part of URLs."""

    @property
    def name(self) -> str:
        """File name of the fetched documentation, and its path in URLs."""
        return f"{self.project}-{self.version}"

    def url(self, path: str) -> str:
        """URL of one page."""
        return f"{BASE_URL}{self.project}/{self.version}/{path}"


KAFKA: Final = "org.apache.kafka:kafka-clients"
MAVEN: Final[tuple[Release, ...]] = (
    Release("kafka", "4.0.0", 1_742_256_000_000, "maven", KAFKA, ""),
    Release("kafka", "4.1.0", 1_756_771_200_000, "maven", KAFKA, ""),
)
"""1335 pages."""
PIP: Final[tuple[Release, ...]] = (
    Release("pygame", "2.6.1", 1_727_568_000_000, "wheel", "pygame", "pygame/docs/generated/"),
    Release("pygame-ce", "2.5.3", 1_739_059_200_000, "wheel", "pygame-ce", "pygame/docs/generated/"),
    Release("sqlalchemy", "2.0.36", 1_728_950_400_000, "sdist", "sqlalchemy", "sqlalchemy-2.0.36/doc/"),
    Release("sqlalchemy", "2.0.40", 1_743_033_600_000, "sdist", "sqlalchemy", "sqlalchemy-2.0.40/doc/"),
)
"""About 600 pages, for machines without Maven."""
