"""Writes that survive a crash: fsync what was written, then rename it into place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from phrasemem.memfmt.errors import PhraseMemError


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write a file and flush it to the device."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """Flush a file or a folder to the device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Flush every file below a folder, then every folder, the innermost first."""
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync_path(Path(parent, name))
        sync_path(Path(parent))


def staging_for(final: Path) -> Path:
    """Return the temporary folder beside `final`; always the same, so that leftovers are found."""
    return final.with_name(f".{final.name}.writing")


def replaced_by(final: Path) -> Path:
    """Where a folder stands while another takes its place."""
    return final.with_name(f".{final.name}.replaced")


def fresh_staging(final: Path) -> Path:
    """Make an empty temporary folder beside `final`, removing what a killed writer left.

    Raises
    ------
    PhraseMemError
        If `final` cannot become a folder: a file stands there, or it is the root.
    """
    if not final.name or (final.exists() and not final.is_dir()):
        raise PhraseMemError("a memory is a folder, and this cannot become one", where=final)
    staging = staging_for(final)
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    return staging


def remove_unlisted(staging: Path, listed: set[str]) -> None:
    """Remove the files that are not named, by paths relative to the folder, and empty folders.

    So what a killed writer left is never published.
    """
    for path in sorted(staging.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.relative_to(staging).as_posix() not in listed:
            path.unlink()


def move_into_place(staging: Path, final: Path) -> None:
    """Rename a flushed folder to its final name.

    A folder that stands there is first renamed aside and removed afterwards. A crash between
    the two renames leaves nothing under the final name and both folders beside it.
    """
    aside = replaced_by(final)
    if final.exists():
        shutil.rmtree(aside, ignore_errors=True)
        final.rename(aside)
    staging.rename(final)
    sync_path(final.parent)
    shutil.rmtree(aside, ignore_errors=True)
