"""The files of a memory on disk: what the manifest names must be there, and no more."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from phrasemem.memfmt.durable import replaced_by
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.manifest import (
    ADAPTERS_NAME,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    Manifest,
    parse_manifest,
)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a memory.

    Raises
    ------
    FormatError
        If there is none, or it is not acceptable.
    """
    path = folder / MANIFEST_NAME
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise FormatError(Reason.MANIFEST_SYNTAX, "the manifest is too long", where=path)
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        aside = replaced_by(folder)
        hint = f"a killed writer left the former memory at {aside}" if aside.is_dir() else None
        raise FormatError(
            Reason.NOT_A_MEMORY,
            f"no memory here: {MANIFEST_NAME} is missing",
            where=folder,
            hint=hint,
        ) from error
    return parse_manifest(data, path)


def check_lengths(folder: Path, manifest: Manifest) -> None:
    """Compare the length of every file with the manifest, before anything is mapped.

    Raises
    ------
    FormatError
        If a file is missing, is not a regular file inside the memory, or has another length.
    """
    root = folder.resolve()
    for name, info in manifest.files.items():
        path = folder / name
        if path.is_symlink() or not path.resolve().is_relative_to(root):
            raise FormatError(Reason.UNSAFE_PATH, "a file lies outside the memory", where=path)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FormatError(
                Reason.FILE_MISSING, "a file is missing", where=path, hint="fetch this file again"
            ) from error
        if not stat.S_ISREG(status.st_mode) or status.st_size != info.bytes:
            raise FormatError(
                Reason.FILE_LENGTH,
                "a file has the wrong length",
                expected=info.bytes,
                found=status.st_size,
                where=path,
                hint="fetch this file again",
            )


def check_nothing_else(folder: Path, manifest: Manifest) -> None:
    """Refuse files that the manifest does not name; adapters have manifests of their own.

    Raises
    ------
    FormatError
        Naming the first such file.
    """
    listed = {MANIFEST_NAME, *manifest.files}
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        if name not in listed and not name.startswith(f"{ADAPTERS_NAME}/"):
            raise FormatError(
                Reason.FILE_UNLISTED,
                "a file is not part of the memory",
                where=path,
                hint="remove it",
            )


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        linked = [name for name in folders if Path(parent, name).is_symlink()]
        for name in sorted([*names, *linked]):
            yield Path(parent, name)
