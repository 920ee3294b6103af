"""Publishes a memory: blobs first, then its card, then the version, then the aliases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from phrasemem.memfmt.adapters import FileEntry, entry_of
from phrasemem.memfmt.additions import addition_files
from phrasemem.memfmt.manifest import MANIFEST_NAME
from phrasemem.memfmt.remote.card import card
from phrasemem.memfmt.remote.errors import RegistryError, TransferError
from phrasemem.memfmt.remote.licences import check_licences
from phrasemem.memfmt.remote.lookup import read_version, resolve
from phrasemem.memfmt.remote.opening import open_store
from phrasemem.memfmt.remote.parallel import DEFAULT_WORKERS
from phrasemem.memfmt.remote.reference import LATEST, checked_name
from phrasemem.memfmt.remote.retry import Patience
from phrasemem.memfmt.remote.store import Store
from phrasemem.memfmt.remote.upload import send_blobs, write
from phrasemem.memfmt.remote.version import (
    Alias,
    Version,
    alias_name,
    card_name,
    serialise,
    version_name,
)
from phrasemem.memfmt.verify import Report, verify

CARD_NAME = "README.md"
_NUMBERED = re.compile(r"v([1-9][0-9]{0,8})\.json")


@dataclass(frozen=True)
class Pushed:
    """What a push did.

    Parameters
    ----------
    version : Version
    sent, kept : int
        Blobs that travelled, and that were there already.
    sent_bytes : int
    already : bool
        The registry held this very content as a version already; only aliases were moved.
    """

    version: Version
    sent: int
    kept: int
    sent_bytes: int
    already: bool


def push(
    source: str | Path,
    registry: str,
    *,
    version: str | None = None,
    aliases: Sequence[str] = (LATEST,),
    accept_licence: bool = False,
    check_blobs: bool = False,
    workers: int = DEFAULT_WORKERS,
    patience: Patience | None = None,
) -> Pushed:
    """Publish a memory, with all that was added to it.

    Blobs that the registry holds do not travel. The version is written last, so that a push that
    was cut is never seen; the same push again goes on where it stopped.

    Parameters
    ----------
    source : path-like
    registry : str
        URL or folder.
    version : str, optional
        Name of the version; the next free of v1, v2, ... if not given, or the last of them where
        that holds the same content.
    aliases : sequence of str
        Names that are moved to the version.
    accept_licence : bool
        Publish although the licence of a corpus is unknown or does not allow it.
    check_blobs : bool
        Read the blobs that are there already, and replace those that were altered.
    workers : int
        Blobs that travel at the same time.
    patience : Patience, optional

    Raises
    ------
    FormatError
        If the memory is damaged.
    LicenceError
        If a corpus may not be passed on.
    RegistryError
        If the version is taken by other content, or a name is taken.
    TransferError
        If the registry cannot be written.
    """
    folder, patience = Path(source), Patience.afresh(patience)
    for name in (*aliases, *([version] if version else ())):
        checked_name(name)
    if version in aliases:
        raise RegistryError("a name cannot be version and alias at once", found=version)
    report = verify(folder)
    manifest = report.manifest
    if not accept_licence:
        check_licences(folder, manifest)
    files = contents(folder, report)
    with open_store(registry) as store:
        if store.read_only:
            raise RegistryError("this registry can only be read", where=registry)
        with store.writing():
            chosen, already = _choose(store, version, files, patience)
            _refuse_taken_names(store, chosen.version, aliases, patience)
            sent = (
                [0, 0]
                if already and not check_blobs
                else send_blobs(store, folder, files, check_blobs, workers, patience)
            )
            text = card(folder, report, chosen).encode()
            if not already:
                chosen = _publish(store, chosen, text, version is None, patience)
            _move_aliases(store, chosen.version, aliases, text, patience)
    unique = len({entry.sha256 for entry in files.values()})
    return Pushed(chosen, sent[0], unique - sent[0], sent[1], already)


def contents(folder: Path, report: Report) -> dict[str, FileEntry]:
    """List the files of a memory that was verified, additions included, by path."""
    files = addition_files(folder, report.added)
    files[MANIFEST_NAME] = entry_of(folder / MANIFEST_NAME)
    for name, info in report.manifest.files.items():
        files[name] = FileEntry(bytes=info.bytes, sha256=info.sha256)
    return dict(sorted(files.items()))


def _choose(
    store: Store, name: str | None, files: dict[str, FileEntry], patience: Patience
) -> tuple[Version, bool]:
    """Return the version to write, and whether the registry holds it already."""
    number = 0
    if name is None:
        number = _last_number(store, patience)
        name = f"v{max(1, number)}"
    wanted = Version(version=name, manifest=files[MANIFEST_NAME].sha256, files=files)
    there = read_version(store, name, patience)
    if there is None:
        return wanted, False
    if there.same_content(wanted):
        return there, True
    if not number:
        raise RegistryError(
            "this version holds other content, and versions never change",
            where=store.where(version_name(name)),
            hint="choose another --version",
        )
    return wanted.model_copy(update={"version": f"v{number + 1}"}), False


def _last_number(store: Store, patience: Patience) -> int:
    names = patience.call(store.where("versions"), lambda: store.names("versions"))
    numbers = [int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name))]
    return max(numbers, default=0)


def _refuse_taken_names(
    store: Store, version: str, aliases: Sequence[str], patience: Patience
) -> None:
    names = [*((alias, version_name(alias)) for alias in aliases), (version, alias_name(version))]
    for name, path in names:
        where = store.where(path)
        if patience.call(where, partial(store.size, path)) is not None:
            raise RegistryError(f"{name!r} cannot be version and alias at once", where=where)


def _publish(
    store: Store, version: Version, text: bytes, numbered: bool, patience: Patience
) -> Version:
    """Write card and version, under the next number if another push was faster."""
    while True:
        name, data = version_name(version.version), serialise(version)
        where = store.where(name)
        write(patience, where, partial(store.put, card_name(version.version), text))
        try:
            write(patience, where, partial(store.create, name, data))
        except FileExistsError as error:
            there = read_version(store, version.version, patience)
            if there != version and not numbered:
                raise RegistryError(
                    "another push has just taken this version", where=where
                ) from error
            if there != version:
                number = _last_number(store, patience) + 1
                version = version.model_copy(update={"version": f"v{number}"})
                continue
        if resolve(store, version.version, patience) != version:
            raise TransferError("the version did not arrive", where=where)
        return version


def _move_aliases(
    store: Store, version: str, aliases: Sequence[str], text: bytes, patience: Patience
) -> None:
    for name in aliases:
        data = serialise(Alias(alias=name, version=version))
        path = alias_name(name)
        write(patience, store.where(path), partial(store.put, path, data))
    if LATEST in aliases:
        write(patience, store.where(CARD_NAME), partial(store.put, CARD_NAME, text))
