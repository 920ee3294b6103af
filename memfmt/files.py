"""The files of a memory on disk: what the manifest names must be there, and no more."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from phrasemem.memfmt.durable import replaced_by
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.manifest import (
    ADAPTERS_NAME,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    PAYLOADS_NAME,
    FileInfo,
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
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            # Of a pipe or a device the end may never come.
            raise FormatError(Reason.NOT_A_MEMORY, "the manifest is no file", where=path)
        if status.st_size > MAX_MANIFEST_BYTES:
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


def read_regular(path: Path) -> bytes:
    """Read the manifest of an addition.

    Raises
    ------
    FormatError
        If it is missing, is not a regular file, or is too long.
    """
    if path.is_symlink():
        raise FormatError(Reason.UNSAFE_PATH, "a file lies outside the memory", where=path)
    if not path.is_file():
        raise FormatError(
            Reason.FILE_MISSING, "a file is missing", where=path, hint="remove its folder"
        )
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise FormatError(Reason.MANIFEST_SYNTAX, "the manifest is too long", where=path)
    return path.read_bytes()


def finished_folders(memory: Path, kind: str) -> list[Path]:
    """Return the folders of finished additions of a kind, one of `ADDITIONS`, by name.

    Names with a leading dot are of what is being written, and of locks.
    """
    folder = memory / kind
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if path.is_dir() and not path.name.startswith("."))


def check_lengths(folder: Path, files: Mapping[str, FileInfo]) -> None:
    """Compare the length of every file with what is listed, before anything is mapped.

    Parameters
    ----------
    folder : Path
        Of the memory.
    files : mapping of str to FileInfo
        By path relative to it.

    Raises
    ------
    FormatError
        If a file is missing, is not a regular file inside the memory, or has another length.
    """
    root = folder.resolve()
    for name, info in files.items():
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


def check_nothing_else(folder: Path, listed: Set[str]) -> None:
    """Refuse files that no manifest names.

    Adapters are passed over, since they are not of this format; so is what is being added.

    Parameters
    ----------
    folder : Path
        Of the memory.
    listed : set of str
        Paths relative to it.

    Raises
    ------
    FormatError
        Naming the first such file.
    """
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        if name not in listed and not name.startswith((f"{ADAPTERS_NAME}/", f"{PAYLOADS_NAME}/.")):
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
