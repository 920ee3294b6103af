"""Which corpora of a memory may not be passed on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from phrasemem.memfmt.manifest import Manifest
from phrasemem.memfmt.remote.errors import LicenceError

BUILD_NAME = "build.json"
_UNKNOWN = frozenset({"", "unknown", "none", "unclear"})


def check_licences(folder: Path, manifest: Manifest) -> None:
    """Refuse to pass on a memory of corpora whose licence does not say that one may.

    The manifest holds each corpus' licence; whether it may be passed on stands in the record of
    the build, ``build.json``. A corpus of which that says nothing may not.

    Raises
    ------
    LicenceError
        Naming the corpora.
    """
    if refused := withheld_corpora(folder, manifest):
        raise LicenceError(
            f"licences do not allow to publish: {'; '.join(refused)}",
            hint="give --accept-licence if you have the right to pass them on",
        )


def withheld_corpora(folder: Path, manifest: Manifest) -> list[str]:
    """Return the corpora that may not be passed on, each with the reason in brackets."""
    allowed = redistributable(folder, manifest)
    refused = []
    for corpus in manifest.corpora:
        if corpus.licence.strip().lower() in _UNKNOWN:
            refused.append(f"{corpus.name} (licence unknown)")
        elif not allowed.get(corpus.name, False):
            refused.append(f"{corpus.name} ({corpus.licence}: not marked as redistributable)")
    return refused


def redistributable(folder: Path, manifest: Manifest) -> dict[str, bool]:
    """Return what the record of the build says of each corpus; empty if there is no record."""
    if BUILD_NAME not in manifest.files:
        return {}
    try:
        record: Any = json.loads((folder / BUILD_NAME).read_bytes())
        return {entry["name"]: entry.get("redistributable") is True for entry in record["corpora"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}  # a record that says nothing allows nothing
