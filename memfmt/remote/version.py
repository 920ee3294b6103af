"""The two kinds of small files of a registry: versions and aliases, both canonical JSON."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from phrasemem.memfmt.adapters import FileEntry
from phrasemem.memfmt.additions import is_addition
from phrasemem.memfmt.canonical import canonical, checksum_of, sealed, unique_names
from phrasemem.memfmt.manifest import ADAPTERS_NAME, MANIFEST_NAME, PAYLOADS_NAME, Manifest
from phrasemem.memfmt.remote.errors import RegistryError

REGISTRY_VERSION = "1.0"
MAX_VERSION_BYTES = 1 << 26
MAX_ALIAS_BYTES = 1 << 12
_MAX_PATH = 512
_MAX_PART = 255
_DEPTHS = {ADAPTERS_NAME: (3,), PAYLOADS_NAME: (3, 4)}
"""Parts of the paths of additions: folders of plain files, and in payloads of shards too."""

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
_Major1 = Annotated[str, Field(pattern=r"^1\.[0-9]{1,4}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Version(_Strict):
    """What a published version consists of. It never changes.

    Parameters
    ----------
    version : str
    manifest : str
        sha256 of the memory's manifest.json.
    files : dict of str to FileEntry
        Every file of the memory by its path: manifest.json, what that names, and the additions.
        The bytes of a file are the blob of its sha256.
    """

    magic: Literal["phrasemem.version"] = "phrasemem.version"
    format_version: _Major1 = REGISTRY_VERSION
    version: _Name
    manifest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    files: dict[str, FileEntry]

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(entry.bytes for entry in self.files.values())

    @property
    def content(self) -> str:
        """One name for the content: sha256 over the files, whatever the version is called."""
        lines = [f"{name}\0{entry.sha256}\n" for name, entry in sorted(self.files.items())]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def same_content(self, other: Version) -> bool:
        """Tell whether two versions differ in nothing but their names."""
        return self.files == other.files


class Alias(_Strict):
    """A name that may be moved from version to version."""

    magic: Literal["phrasemem.alias"] = "phrasemem.alias"
    format_version: _Major1 = REGISTRY_VERSION
    alias: _Name
    version: _Name


_Small = TypeVar("_Small", Version, Alias)


def blob_name(sha256: str) -> str:
    """Where a registry keeps the bytes with a sha256."""
    return f"blobs/{sha256[:2]}/{sha256}"


def version_name(version: str) -> str:
    """Where a registry keeps a version."""
    return f"versions/{version}.json"


def card_name(version: str) -> str:
    """Where a registry keeps the card of a version."""
    return f"versions/{version}.md"


def alias_name(alias: str) -> str:
    """Where a registry keeps an alias."""
    return f"aliases/{alias}.json"


def serialise(value: Version | Alias) -> bytes:
    """Write a version or alias, with the checksum of all else in it."""
    return sealed(value.model_dump(mode="json"))


def parse_version(data: bytes, where: str, name: str) -> Version:
    """Read the version of a name.

    Raises
    ------
    RegistryError
        If it is altered, of another format, belongs to another name, or names a file that
        would leave the memory.
    """
    version = _parse(data, where, Version)
    if version.version != name:
        raise RegistryError(
            "a version stands under another name", expected=name, found=version.version, where=where
        )
    _check_paths(version, where)
    return version


def parse_alias(data: bytes, where: str, name: str) -> Alias:
    """Read the alias of a name; raises as :func:`parse_version`."""
    alias = _parse(data, where, Alias)
    if alias.alias != name:
        raise RegistryError(
            "an alias stands under another name", expected=name, found=alias.alias, where=where
        )
    return alias


def _parse(data: bytes, where: str, kind: type[_Small]) -> _Small:
    value = _load(data, where)
    found = value.get("format_version")
    if isinstance(found, str) and found.split(".")[0] != "1":
        raise RegistryError(
            "this registry has another format",
            expected=REGISTRY_VERSION,
            found=found,
            where=where,
            hint="upgrade phrasemem",
        )
    checksum = value.pop("checksum", None)
    try:
        parsed = kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "value"
        raise RegistryError(f"{field[:120]}: {first['msg']}", where=where) from error
    if serialise(parsed) != data:
        raise RegistryError(
            "the file was altered", expected=checksum_of(value), found=checksum, where=where
        )
    return parsed


def _load(data: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(data.decode(), object_pairs_hook=unique_names)
        canonical(value)  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise RegistryError(f"not valid JSON: {str(error)[:200]}", where=where) from error
    if not isinstance(value, dict):
        raise RegistryError("not a JSON object", where=where)
    return value


def _check_paths(version: Version, where: str) -> None:
    manifest = version.files.get(MANIFEST_NAME)
    if manifest is None or manifest.sha256 != version.manifest:
        raise RegistryError(f"the version does not list its {MANIFEST_NAME}", where=where)
    parents: set[str] = set()
    for name in version.files:
        if not _is_safe(name):
            raise RegistryError(f"unsafe path {name[:120]!r}", where=where)
        parents.update(map(str, PurePosixPath(name).parents))
    if inside := sorted(parents & set(version.files)):
        raise RegistryError(f"{inside[0]!r} is both a file and a folder", where=where)
    folded = {name.casefold() for name in version.files}
    if len(folded) < len(version.files):
        raise RegistryError("two paths differ only in case", where=where)


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    plain = name.isprintable() and "\\" not in name and ":" not in name
    short = len(name.encode()) <= _MAX_PATH and all(len(p.encode()) <= _MAX_PART for p in parts)
    inside = not {"", ".", ".."} & set(parts)
    return plain and short and inside and (parts[0] not in _DEPTHS or _is_added(parts))


def _is_added(parts: list[str]) -> bool:
    """Whether a path below an additions folder is that of a file of a finished addition."""
    return len(parts) in _DEPTHS[parts[0]] and not parts[1].startswith(".")


def check_against(version: Version, manifest: Manifest, where: str) -> None:
    """Compare the files of a version with the manifest that it brings.

    Raises
    ------
    RegistryError
        Naming the first file that only one of them has, or on which they differ.
    """
    listed = {
        name: FileEntry(bytes=info.bytes, sha256=info.sha256)
        for name, info in manifest.files.items()
    }
    named = {
        name: entry
        for name, entry in version.files.items()
        if name != MANIFEST_NAME and not is_addition(name)
    }
    differing = sorted(
        name for name in listed.keys() | named if listed.get(name) != named.get(name)
    )
    if differing:
        raise RegistryError(
            "version and manifest name different files",
            expected=listed.get(differing[0]),
            found=named.get(differing[0]),
            where=f"{where}, {differing[0]}",
        )
