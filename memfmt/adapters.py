"""The sub-manifests of adapters: ``adapters/FINGERPRINT/adapter.json`` names its files."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from phrasemem.memfmt.canonical import canonical
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.files import finished_folders
from phrasemem.memfmt.manifest import ADAPTERS_NAME

DESCRIPTION_NAME = "adapter.json"
_MAX_DESCRIPTION_BYTES = 1 << 24


class AdapterError(PhraseMemError):
    """An adapter that is missing, damaged, or made for something else."""


class AdapterFilesError(AdapterError):
    """An adapter whose files are not those that its description names."""


class FileEntry(BaseModel):
    """Length and sha256 of a file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    bytes: Annotated[int, Field(ge=0, le=1 << 62)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


_FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
_FILES = TypeAdapter(dict[_FileName, FileEntry])


def entry_of(path: Path) -> FileEntry:
    """Read a file once and return its length and sha256."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileEntry(bytes=os.fstat(file.fileno()).st_size, sha256=digest)


def adapter_folders(memory: Path) -> list[Path]:
    """Return the folders of the finished adapters."""
    return finished_folders(memory, ADAPTERS_NAME)


def read_description(folder: Path) -> dict[str, Any]:
    """Read ``adapter.json`` and compare it with its own checksum.

    Raises
    ------
    AdapterFilesError
        If it is missing, is no JSON object, or was altered.
    """
    path = folder / DESCRIPTION_NAME
    if folder.is_symlink():
        raise AdapterFilesError("an adapter is a link to elsewhere", where=folder)
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _MAX_DESCRIPTION_BYTES:
        raise AdapterFilesError(f"{DESCRIPTION_NAME} is missing or is no such file", where=folder)
    data = path.read_bytes()
    try:
        value = json.loads(data)
        checksum = value.pop("checksum", None)
        plain = canonical(value)
    except (ValueError, AttributeError, RecursionError) as error:
        raise AdapterFilesError(f"not a JSON object: {error}", where=path) from error
    found = hashlib.sha256(plain).hexdigest()
    if found != checksum or canonical({**value, "checksum": checksum}) != data:
        raise AdapterFilesError(
            "the adapter's description was altered", expected=checksum, found=found, where=path
        )
    described: dict[str, Any] = value
    return described


def adapter_files(memory: Path) -> dict[str, FileEntry]:
    """Check the adapters of a memory against their descriptions, and list their files.

    Returns
    -------
    dict of str to FileEntry
        By path relative to the memory, sorted; empty where there is no adapter.

    Raises
    ------
    AdapterFilesError
        If a description is wrong, or a file is missing, altered, a link, or has a name with
        which it could leave its folder.
    """
    found: dict[str, FileEntry] = {}
    for folder in adapter_folders(memory):
        prefix = f"{ADAPTERS_NAME}/{folder.name}"
        described = _described_files(folder)
        found[f"{prefix}/{DESCRIPTION_NAME}"] = entry_of(folder / DESCRIPTION_NAME)
        for name, expected in described.items():
            read_checked(folder / name, expected)
            found[f"{prefix}/{name}"] = expected
    return dict(sorted(found.items()))


def _described_files(folder: Path) -> dict[str, FileEntry]:
    try:
        files = _FILES.validate_python(read_description(folder).get("files"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "files"
        raise AdapterFilesError(f"{where}: {first['msg']}", where=folder) from error
    if DESCRIPTION_NAME in files:
        raise AdapterFilesError(f"{DESCRIPTION_NAME} names itself", where=folder)
    return files


def read_checked(path: Path, expected: FileEntry) -> bytes:
    """Read a file of an adapter.

    Raises
    ------
    AdapterFilesError
        If it is missing, a link, or not what its description says.
    """
    if path.is_symlink() or not path.is_file():
        raise AdapterFilesError("a file of the adapter is missing", where=path)
    data = path.read_bytes()
    found = FileEntry(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    if found != expected:
        raise AdapterFilesError(
            "a file of the adapter was altered",
            expected=f"{expected.bytes} bytes, {expected.sha256}",
            found=f"{found.bytes} bytes, {found.sha256}",
            where=path,
            hint="calibrate again, or fetch the memory again",
        )
    return data
