"""Payloads that were added to a finished memory: ``payloads/NAME/payload.json`` and rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from phrasemem.memfmt.canonical import sealed
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.files import finished_folders, read_regular
from phrasemem.memfmt.layout import BODY_OFFSET
from phrasemem.memfmt.manifest import (
    FORMAT_VERSION,
    PAYLOADS_NAME,
    READER_FEATURES,
    FileInfo,
    Listing,
    Manifest,
    PayloadInfo,
    Sha256,
    used_features,
)
from phrasemem.memfmt.names import added_rows_name
from phrasemem.memfmt.sealed import Kind, read_sealed, validated

DESCRIPTION_NAME = "payload.json"
MAGIC = "phrasemem.payload"
_KIND = Kind(MAGIC, FORMAT_VERSION, READER_FEATURES, "payload", DESCRIPTION_NAME)


class AddedPayload(Listing):
    """All that describes a payload that was added. Field by field in SPEC.md.

    Parameters
    ----------
    base : str
        Checksum of the manifest of the memory that it belongs to.
    files : dict of str to FileInfo
        By path relative to its folder.
    """

    magic: Literal["phrasemem.payload"] = "phrasemem.payload"
    format_version: Annotated[str, Field(pattern=r"^1\.[0-9]{1,4}$")] = FORMAT_VERSION
    reader_features: list[str]
    base: Sha256
    payload: PayloadInfo

    @property
    def name(self) -> str:
        """Name of the payload, and of its folder."""
        return self.payload.name

    @property
    def paths(self) -> dict[str, FileInfo]:
        """The files but the manifest, by path relative to the memory."""
        return {f"{PAYLOADS_NAME}/{self.name}/{name}": file for name, file in self.files.items()}

    @property
    def description(self) -> str:
        """Path of the manifest, relative to the memory."""
        return f"{PAYLOADS_NAME}/{self.name}/{DESCRIPTION_NAME}"

    def rows(self, shard: int) -> str:
        """Path of a shard's rows, relative to the memory."""
        return f"{PAYLOADS_NAME}/{self.name}/{added_rows_name(shard)}"

    @model_validator(mode="after")
    def _names_its_features(self) -> Self:
        if self.reader_features != (used := used_features([self.payload])):
            raise ValueError(f"reader features {self.reader_features}, but {used} are used")
        return self


def payload_folder(memory: Path, name: str) -> Path:
    """Return where a memory keeps an added payload."""
    return memory / PAYLOADS_NAME / name


def is_description(name: str) -> bool:
    """Whether a path, relative to the memory, is that of the manifest of an added payload."""
    folder, _, file = name.rpartition("/")
    return folder.startswith(f"{PAYLOADS_NAME}/") and file == DESCRIPTION_NAME


def serialise(added: AddedPayload) -> bytes:
    """Write the manifest of a payload, with the checksum of all else in it."""
    return sealed(added.model_dump(mode="json"))


def parse_added(data: bytes, where: object) -> AddedPayload:
    """Read the manifest of a payload; raises as :func:`phrasemem.memfmt.manifest.parse_manifest`.

    Whether it belongs to a memory is not known from this alone: see :func:`check_belongs`.
    """
    return validated(AddedPayload, read_sealed(data, where, _KIND), where, _KIND)


def read_added(memory: Path, manifest: Manifest) -> list[AddedPayload]:
    """Read the manifests of all payloads that were added to a memory, by name.

    Raises
    ------
    FormatError
        If one is damaged, belongs to another memory, or has a name that is taken.
    """
    folders = finished_folders(memory, PAYLOADS_NAME)
    base = manifest.checksum if folders else ""
    found = []
    for folder in folders:
        path = folder / DESCRIPTION_NAME
        if folder.is_symlink() or folder.parent.is_symlink():
            raise FormatError(Reason.UNSAFE_PATH, "a file lies outside the memory", where=folder)
        added = parse_added(read_regular(path), path)
        check_belongs(added, folder.name, manifest, base, path)
        found.append(added)
    return found


def check_belongs(
    added: AddedPayload, name: str, manifest: Manifest, base: str, where: object
) -> None:
    """Compare the manifest of a payload with the memory and the folder that it stands in.

    Raises
    ------
    FormatError
    """
    if added.base != base:
        raise FormatError(
            Reason.PAYLOAD_BASE,
            "this payload was added to another memory",
            expected=base,
            found=added.base,
            where=where,
            hint="remove its folder",
        )
    if added.name != name or name in {payload.name for payload in manifest.payloads}:
        raise FormatError(
            Reason.PAYLOAD_NAME,
            "the payload has the name of another, or its folder has",
            expected=name,
            found=added.name,
            where=where,
        )
    _check_rows(added, manifest, where)


def _check_rows(added: AddedPayload, manifest: Manifest, where: object) -> None:
    stride = manifest.row_layout(added.payload).stride
    rows = {added_rows_name(n): shard.entries for n, shard in enumerate(manifest.shards)}
    wrong = None
    if added.payload.stride != stride:
        wrong = f"stride {added.payload.stride}, not {stride}"
    elif differing := sorted(set(rows) ^ set(added.files)):
        wrong = f"{differing[0]} is missing, or too much"
    elif short := [n for n in rows if added.files[n].bytes < BODY_OFFSET + rows[n] * stride]:
        wrong = f"{short[0]} is too short for {rows[short[0]]} rows"
    if wrong:
        raise FormatError(Reason.MANIFEST_SCHEMA, f"payload: {wrong}", where=where)
