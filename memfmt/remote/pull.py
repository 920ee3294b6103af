"""Fetches a published memory: into a temporary folder, verified, then renamed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from filelock import FileLock

from phrasemem.memfmt import durable
from phrasemem.memfmt.adapters import FileEntry
from phrasemem.memfmt.added_payload import is_description, parse_added
from phrasemem.memfmt.additions import addition_files, is_addition
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    Manifest,
    parse_manifest,
)
from phrasemem.memfmt.remote.download import Blocks, blocks_of, download
from phrasemem.memfmt.remote.errors import RegistryError, TransferError
from phrasemem.memfmt.remote.lookup import resolve
from phrasemem.memfmt.remote.opening import open_store
from phrasemem.memfmt.remote.parallel import DEFAULT_WORKERS, run_all
from phrasemem.memfmt.remote.reference import Reference
from phrasemem.memfmt.remote.retry import Patience
from phrasemem.memfmt.remote.reuse import copied, known_files
from phrasemem.memfmt.remote.store import Store
from phrasemem.memfmt.remote.version import Version, check_against, version_name
from phrasemem.memfmt.verify import Report, verify


@dataclass(frozen=True)
class Pulled:
    """What a pull did.

    Parameters
    ----------
    version : Version
    report : Report
        Of the memory as it arrived.
    fetched : int
        Bytes that travelled, besides small files.
    reused : int
        Bytes that stood here already.
    """

    version: Version
    report: Report
    fetched: int
    reused: int


def pull(
    source: str,
    destination: str | Path,
    *,
    replace: bool = False,
    workers: int = DEFAULT_WORKERS,
    patience: Patience | None = None,
    reuse: Sequence[Path] = (),
) -> Pulled:
    """Fetch a published memory into a folder.

    The folder appears when everything is there and was verified. A pull that was killed goes on
    where it stopped. Files that are here already, in the memory that is replaced or in those of
    `reuse`, do not travel.

    Parameters
    ----------
    source : str
        ``REGISTRY[@VERSION]``.
    destination : path-like
    replace : bool
        Whether a memory that stands there is replaced.
    workers : int
        Files that are fetched at the same time.
    patience : Patience, optional
    reuse : sequence of Path
        Other memories on this machine.

    Raises
    ------
    RegistryError, TransferError
        If the version is not there, or cannot be brought over whole.
    FormatError
        If what arrived is no right memory.
    """
    reference = Reference.parse(source)
    patience = Patience.afresh(patience)
    final = Path(destination).resolve()
    _refuse_to_replace(final, replace)
    with open_store(reference.registry) as store, _staged(final) as staging:
        _refuse_to_replace(final, replace)  # again, now that no other pull can write there
        version = resolve(store, reference.name, patience)
        _check_space(version, staging)
        known = known_files([final, *reuse])
        manifest = _fetch_manifest(store, version, staging, patience)
        _remove_others(staging, version)
        counts = _fetch_files(store, version, manifest, staging, known, workers, patience)
        report = _verify(staging, version)
        durable.sync_tree(staging)
        durable.move_into_place(staging, final)
    return Pulled(version, report, *counts)


def _refuse_to_replace(final: Path, replace: bool) -> None:
    if not final.name or (final.exists() and not final.is_dir()):
        raise PhraseMemError("a memory is a folder, and this cannot become one", where=final)
    if not final.exists() or not any(final.iterdir()):
        return
    if not replace:
        raise PhraseMemError("something stands there already", where=final, hint="use --replace")
    if not (final / MANIFEST_NAME).is_file():
        raise PhraseMemError("what stands there is no memory", where=final)


@contextmanager
def _staged(final: Path) -> Iterator[Path]:
    """Give the temporary folder, with what an earlier pull has left in it, to one process."""
    final.parent.mkdir(parents=True, exist_ok=True)
    lock = final.with_name(f".{final.name}.lock")
    with FileLock(lock):
        staging = durable.staging_for(final)
        staging.mkdir(exist_ok=True)
        try:
            yield staging
        finally:
            if staging.exists() and not any(staging.iterdir()):
                staging.rmdir()
            # Those who wait for the lock look whether its file is still there.
            lock.unlink(missing_ok=True)


def _check_space(version: Version, staging: Path) -> None:
    there = sum(path.stat().st_size for path in staging.rglob("*") if path.is_file())
    free = shutil.disk_usage(staging).free + there
    if version.bytes > free:
        raise TransferError(
            "not enough space", expected=f"{version.bytes} bytes", found=free, where=staging.parent
        )


def _fetch_manifest(store: Store, version: Version, staging: Path, patience: Patience) -> Manifest:
    entry = version.files[MANIFEST_NAME]
    where = store.where(version_name(version.version))
    _refuse_long(entry, where)
    path = staging / MANIFEST_NAME
    download(store, entry, path, Blocks(), patience)
    manifest = parse_manifest(path.read_bytes(), path)
    check_against(version, manifest, where)
    return manifest


def _refuse_long(entry: FileEntry, where: str) -> None:
    if entry.bytes > MAX_MANIFEST_BYTES:
        raise RegistryError(
            "the manifest is too long",
            expected=f"<= {MAX_MANIFEST_BYTES}",
            found=entry.bytes,
            where=where,
        )


def _remove_others(staging: Path, version: Version) -> None:
    """Remove what an earlier pull, of another version, has left."""
    for path in sorted(staging.rglob("*"), reverse=True):
        name = path.relative_to(staging).as_posix()
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif name not in version.files or path.is_symlink():
            path.unlink()


def _fetch_files(
    store: Store,
    version: Version,
    manifest: Manifest,
    staging: Path,
    known: dict[str, Path],
    workers: int,
    patience: Patience,
) -> tuple[int, int]:
    """Fetch everything but the manifest; return the bytes that travelled and those that did not."""
    fetched: list[int] = []
    blocks = blocks_of(manifest)

    def job(name: str) -> None:
        entry, target = version.files[name], staging / name
        if not copied(entry, target, known):
            checks = blocks.get(name, Blocks())
            fetched.append(download(store, entry, target, checks, patience))

    rest = set(version.files) - {MANIFEST_NAME}
    # Manifests of payloads first: they have the checksums of the blocks of the others.
    described = sorted(filter(is_description, rest))
    for name in described:
        _refuse_long(version.files[name], store.where(version_name(version.version)))
    run_all([partial(job, name) for name in described], workers, patience)
    for name in described:
        blocks |= blocks_of(parse_added((staging / name).read_bytes(), staging / name))
    # The longest first: so that no thread is left alone with one at the end.
    order = sorted(rest.difference(described), key=lambda name: (-version.files[name].bytes, name))
    run_all([partial(job, name) for name in order], workers, patience)
    total = sum(version.files[name].bytes for name in rest)
    return sum(fetched), max(0, total - sum(fetched))


def _verify(staging: Path, version: Version) -> Report:
    report = verify(staging)
    listed = {name: entry for name, entry in version.files.items() if is_addition(name)}
    if (found := addition_files(staging, report.added)) != dict(sorted(listed.items())):
        differing = sorted(n for n in found.keys() | listed if found.get(n) != listed.get(n))
        raise RegistryError("version and addition name different files", where=differing[0])
    return report
