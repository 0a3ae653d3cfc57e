"""The documentation that the demo crawls: releases that differ little, from their official packages."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

BASE_URL: Final = "https://docs.example.org/"


class Release(NamedTuple):
    """One release of a project's HTML documentation."""

    project: str
    version: str
    fetched_at: int
    """Fetch time for its pages, in milliseconds since the epoch: the approximate release date."""
    client: Literal["maven", "wheel", "sdist"]
    """Kind of package; `maven` is downloaded by Maven, the others by pip."""
    package: str
    """`group:artifact` for Maven, or the package name for pip."""
    root: str
    """Folder of the documentation inside the package, which is not part of URLs."""

    @property
    def name(self) -> str:
        """Name of the cached archive, without suffix."""
        return f"{self.project}-{self.version}"

    def url(self, path: str) -> str:
        """Return the URL of a page."""
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
