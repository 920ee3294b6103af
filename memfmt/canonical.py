"""Canonical JSON with a checksum of its own: one value has one text, so any changed byte shows."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical(value: dict[str, Any]) -> bytes:
    """Serialise JSON in its only accepted form: sorted keys, no spaces, a final newline."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode() + b"\n"


def checksum_of(value: dict[str, Any]) -> str:
    """Return the hex SHA-256 of a value's canonical form."""
    return hashlib.sha256(canonical(value)).hexdigest()


def sealed(value: dict[str, Any]) -> bytes:
    """Serialise a value with its checksum beside what it covers."""
    return canonical(value | {"checksum": checksum_of(value)})


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that names something twice; for ``object_pairs_hook`` of ``json.loads``.

    Raises
    ------
    ValueError
        With the name.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate name {max(names, key=names.count)!r}")
    return value
