"""The licences that come with an image, and whether each may."""

from __future__ import annotations

import tomllib
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, Final

from license_expression import ExpressionError, get_spdx_licensing
from packaging.utils import canonicalize_name

from deploy.supply_chain import SupplyChainError

_LISTS: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("licences.toml").read_text("utf-8"))
_SPDX: Final = get_spdx_licensing()


def licence_of(installed: Distribution) -> str:
    """What a package may be used under, as an SPDX expression: declared, or decided in licences.toml.

    Raises SupplyChainError where it declares none and none was decided.
    """
    declared: str | None = installed.metadata.get("License-Expression") or installed.metadata.get("License")
    licence = _LISTS["decided"].get(canonicalize_name(installed.name)) or declared
    try:
        if licence and not _unknown(licence):
            return str(licence)
    except ExpressionError:
        pass
    raise SupplyChainError(
        f"{installed.name} {installed.version} names no licence of SPDX's list,"
        f" but {(licence or 'none')[:40]!r}: read its own; say under `decided` in licences.toml what it is"
    )


def is_allowed(licence: str) -> bool:
    """Whether an image may hold what is under a licence, which is an SPDX expression."""
    parsed = _SPDX.parse(licence)
    symbols = _SPDX.license_symbols(parsed, decompose=False)
    allowed = {symbol: _SPDX.TRUE for symbol in symbols if str(symbol) in _LISTS["allowed"]}
    return bool(parsed.subs(allowed).simplify() == _SPDX.TRUE)


def _unknown(licence: str) -> list[str]:
    keys = _SPDX.unknown_license_keys(_SPDX.parse(licence))
    return [key for key in keys if not key.startswith("LicenseRef-")]
