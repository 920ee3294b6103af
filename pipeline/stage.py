"""Stages: completion markers with fingerprints, and files that appear whole or not at all.

A stage is a folder of the work folder. ``begun.json`` says which fingerprint its parts belong
to, ``KEY.done.json`` that part KEY is complete, ``stage.json`` that the stage is. A build that
was killed goes on with the parts that are missing; a changed setting or input empties the folder.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from phrasemem.memfmt import durable
from phrasemem.memfmt.errors import PhraseMemError

TEMPORARY = ".tmp-"
_BEGUN = "begun.json"
_MARKER = "stage.json"
_DONE = ".done.json"

Report = dict[str, Any]
# Identity of a ``begun.json``: time of its writing in ns, and bytes.
Stamp = tuple[int, int]

# The stage whose part this process writes: its folder, and the stamp when the part was given out.
_WRITING: ContextVar[tuple[Path, Stamp] | None] = ContextVar("writing", default=None)


class StaleError(PhraseMemError):
    """A part of a build that is over; its folder belongs to another one now."""


def canonical(value: Any) -> str:
    """Return the one JSON text of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint_of(value: Any) -> str:
    """Return 32 hex digits (XXH3-128) of the canonical JSON of a value."""
    return xxhash.xxh3_128_hexdigest(canonical(value).encode())


@dataclass(frozen=True)
class Stage:
    """What a stage's outputs depend on.

    Attributes
    ----------
    name : str
        Also the name of its folder.
    version : int
        Raised when the code changes what is written.
    settings : mapping
        The part of the configuration that it reads; plain JSON data.
    inputs : mapping
        Fingerprints of the stages and files that it reads, by name.
    """

    name: str
    version: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Changes if and only if the outputs may."""
        return fingerprint_of(self.description)

    @property
    def description(self) -> dict[str, Any]:
        """All that the fingerprint covers."""
        return {
            "name": self.name,
            "version": self.version,
            "settings": dict(self.settings),
            "inputs": dict(self.inputs),
        }


@dataclass(frozen=True)
class Prepared:
    """State of a stage's folder when a build comes to it.

    ``report`` is set if the stage is complete; ``note`` says in words what was found.
    """

    report: Report | None
    note: str


def prepare(folder: Path, stage: Stage) -> Prepared:
    """Make the folder of a stage ready: keep what belongs to its fingerprint, remove the rest."""
    begun = _read_json(folder / _BEGUN)
    if begun is not None and fingerprint_of(begun) == stage.fingerprint:
        marker = _read_json(folder / _MARKER)
        if marker is not None:
            return Prepared(marker["report"], "unchanged, skipped")
        for leftover in folder.glob(f"{TEMPORARY}*"):
            _remove(leftover)
        done = sum(1 for _ in folder.glob(f"*{_DONE}"))
        return Prepared(None, f"resumed, {done} parts were done" if done else "")
    note = f"runs again: {_changes(begun, stage.description)}" if begun is not None else ""
    if folder.exists():
        # The marker goes first: a half-removed folder must never look complete.
        forget(folder)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write_json(folder / _BEGUN, stage.description)
    return Prepared(None, note)


def look(folder: Path, stage: Stage) -> tuple[bool, str]:
    """Tell whether a stage is complete, and in words what a build would do; changes nothing."""
    begun = _read_json(folder / _BEGUN)
    if begun is None:
        return False, "new"
    if fingerprint_of(begun) != stage.fingerprint:
        return False, f"runs again: {_changes(begun, stage.description)}"
    if (folder / _MARKER).exists():
        return True, "done"
    done = sum(1 for _ in folder.glob(f"*{_DONE}"))
    return False, f"goes on, {done} parts are done" if done else "new"


def complete_report(folder: Path, stage: Stage) -> Report | None:
    """Return the reports of a complete stage by part, or None."""
    marker = _read_json(folder / _MARKER) if look(folder, stage)[0] else None
    return None if marker is None else dict(sorted(marker["report"]["parts"].items()))


def forget(folder: Path) -> None:
    """Make a stage run again."""
    (folder / _MARKER).unlink(missing_ok=True)
    (folder / _BEGUN).unlink(missing_ok=True)


def finish(folder: Path, report: Report) -> None:
    """Mark a stage complete; what workers left that died meanwhile is removed."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        _remove(leftover)
    write_json(folder / _MARKER, {"report": report})


def stamp_of(folder: Path) -> Stamp:
    """Return what changes when a stage is begun anew."""
    found = (folder / _BEGUN).stat()
    return found.st_mtime_ns, found.st_size


def run_part(
    function: Callable[..., Report],
    folder: Path,
    key: str,
    arguments: Mapping[str, Any],
    stamp: Stamp | None = None,
) -> Report:
    """Run one part and mark it done; runs in a worker.

    ``function(folder, key, **arguments)`` writes its files with :func:`appears` and returns a
    report of plain JSON data. A worker can outlive the build that gave it the part. So with
    ``stamp`` nothing is written once the stage was begun anew, perhaps with other settings.

    Raises
    ------
    StaleError
    """
    before = _WRITING.set(None if stamp is None else (folder, stamp))
    try:
        _refuse_stale(folder)
        report = function(folder, key, **arguments)
        write_json(folder / f"{key}{_DONE}", report)
    finally:
        _WRITING.reset(before)
    return report


def _refuse_stale(folder: Path) -> None:
    writing = _WRITING.get()
    if writing is None or writing[0] != folder:
        return
    try:
        same = stamp_of(folder) == writing[1]
    except FileNotFoundError:
        same = False
    if not same:
        raise StaleError("the build that asked for this part is over", where=folder)


def part_report(folder: Path, key: str) -> Report | None:
    """Return the report of a part that is done, or None."""
    return _read_json(folder / f"{key}{_DONE}")


def temporary_name(name: str) -> str:
    """Return a name that no other process uses, on any machine that shares the folder.

    A worker that was given up may still be writing the part that another now writes.
    """
    return f"{TEMPORARY}{os.getpid()}-{os.urandom(4).hex()}-{name}"


@contextmanager
def appears(final: Path) -> Iterator[Path]:
    """Yield a temporary path; on success the file is fsynced and renamed to ``final``.

    After an error nothing is left behind; after a kill only a ``.tmp-`` file, which the next
    run removes.
    """
    temporary = final.with_name(temporary_name(final.name))
    try:
        yield temporary
        durable.sync_path(temporary)
        _refuse_stale(final.parent)
        temporary.replace(final)
        durable.sync_path(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write canonical JSON that appears whole or not at all."""
    with appears(path) as temporary:
        temporary.write_text(canonical(value) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return value


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _changes(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Say what differs between two descriptions, settings first."""
    if old["version"] != new["version"]:
        return f"version {old['version']} -> {new['version']}"
    differences = list(_differences(old["settings"], new["settings"], ""))
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        return "; ".join(differences[:3]) + more
    keys = sorted(set(old["inputs"]) | set(new["inputs"]))
    moved = [key for key in keys if old["inputs"].get(key) != new["inputs"].get(key)]
    return f"{', '.join(moved)} changed"


def _differences(old: Any, new: Any, place: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(set(old) | set(new)):
            yield from _differences(old.get(key), new.get(key), f"{place}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from _differences(left, right, f"{place}[{index}]")
    elif old != new:
        yield f"{place} {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = canonical(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
