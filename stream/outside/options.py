"""Where things outside of messages are."""

from __future__ import annotations

import msgspec


class OutsideOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of these names; None where there is no such place."""

    claim_root: str | None = None
    schema_registry_url: str | None = None
    schema_registry_user: str | None = None
    schema_registry_password: str | None = None
