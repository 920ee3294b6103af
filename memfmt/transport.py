"""Copies a memory: verified before, verified after, and only then under its final name."""

from __future__ import annotations

import shutil
from pathlib import Path

from phrasemem.memfmt import durable
from phrasemem.memfmt.additions import addition_files
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.manifest import MANIFEST_NAME
from phrasemem.memfmt.verify import Report, verify


def copy_memory(source: str | Path, destination: str | Path, *, replace: bool = False) -> Report:
    """Copy a memory, with all that was added to it, to another folder.

    Parameters
    ----------
    source : path-like
    destination : path-like
        The folder that the copy becomes.
    replace : bool
        Whether a folder that stands there is replaced.

    Returns
    -------
    Report
        Of the copy.

    Raises
    ------
    FormatError
        If the source is damaged, or the copy came out different.
    AdapterFilesError
        If an adapter is damaged.
    PhraseMemError
        If something stands at `destination` and `replace` is false.
    """
    origin, final = Path(source), Path(destination).resolve()
    if final.exists() and not replace:
        raise PhraseMemError("something stands there already", where=final, hint="use --replace")
    if final == origin.resolve():
        raise PhraseMemError("source and destination are the same", where=final)
    if final.is_relative_to(origin.resolve()):
        raise PhraseMemError("the destination is inside the memory", where=final)
    report = verify(origin)
    additions = addition_files(origin, report.added)
    staging = durable.fresh_staging(final)
    try:
        _copy_files(origin, staging, [*report.manifest.files, *additions, MANIFEST_NAME])
        durable.sync_tree(staging)
        copied = verify(staging)
        addition_files(staging, copied.added)
        durable.move_into_place(staging, final)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return copied


def _copy_files(origin: Path, staging: Path, names: list[str]) -> None:
    for name in names:
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin / name, staging / name)
