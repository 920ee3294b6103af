"""Reads manifests: canonical JSON of a known format and version, whose checksum is right."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from phrasemem.memfmt.canonical import canonical, unique_names
from phrasemem.memfmt.errors import FormatError, Reason

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True)
class Kind:
    """A kind of manifest.

    Parameters
    ----------
    magic : str
    version : str
        The newest ``MAJOR.MINOR`` that is known.
    features : frozenset of str
        The reader features that are known.
    what : str
        What it describes, for messages.
    file : str
        Its name.
    """

    magic: str
    version: str
    features: frozenset[str]
    what: str
    file: str


def read_sealed(data: bytes, where: object, kind: Kind) -> dict[str, Any]:
    """Read a manifest without its checksum, whose fields are still to be checked.

    Raises
    ------
    FormatError
        With a reason for each of: not JSON, another format, a newer one, an unknown feature, a
        changed byte.
    """
    value = _load_json(data, where, kind)
    _check_version(value, where, kind)
    checksum = value.pop("checksum", None)
    found = hashlib.sha256(_canonical_or_empty(value)).hexdigest()
    if checksum != found or canonical({**value, "checksum": checksum}) != data:
        raise FormatError(
            Reason.MANIFEST_CHECKSUM,
            "the manifest was altered",
            expected=checksum,
            found=found,
            where=where,
            hint=f"fetch {kind.file} again",
        )
    return value


def validated(model: type[_Model], value: dict[str, Any], where: object, kind: Kind) -> _Model:
    """Check the fields of a manifest.

    Raises
    ------
    FormatError
        Naming the first that is wrong.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or kind.file.removesuffix(".json")
        raise FormatError(
            Reason.MANIFEST_SCHEMA, f"{field}: {first['msg']}", where=where
        ) from error


def _canonical_or_empty(value: dict[str, Any]) -> bytes:
    try:
        return canonical(value)
    except UnicodeEncodeError:
        # JSON can spell half a surrogate pair, which no canonical manifest holds.
        return b""


def _load_json(data: bytes, where: object, kind: Kind) -> dict[str, Any]:
    try:
        value = json.loads(data.decode(), object_pairs_hook=unique_names)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            Reason.MANIFEST_SYNTAX,
            f"the manifest is not valid JSON: {error}",
            where=where,
            hint=f"fetch {kind.file} again",
        ) from error
    if not isinstance(value, dict) or value.get("magic") != kind.magic:
        raise FormatError(Reason.NOT_A_MEMORY, f"not a phrase {kind.what}", where=where)
    return value


def _check_version(value: dict[str, Any], where: object, kind: Kind) -> None:
    found = value.get("format_version")
    if not isinstance(found, str) or found.split(".")[0] != kind.version.split(".")[0]:
        raise FormatError(
            Reason.UNKNOWN_MAJOR,
            f"this {kind.what} has another format",
            expected=kind.version,
            found=found,
            where=where,
            hint="upgrade phrasemem",
        )
    features = value.get("reader_features")
    unknown = sorted(set(map(str, features)) - kind.features) if isinstance(features, list) else []
    if unknown:
        raise FormatError(
            Reason.UNKNOWN_FEATURE,
            f"this {kind.what} needs features that are unknown here: {unknown}",
            where=where,
            hint="upgrade phrasemem",
        )
