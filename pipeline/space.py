"""The disk below a work folder: room for a stage before it begins, and what may go after it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.config import Cleaning
from phrasemem.pipeline.estimates import bytes_beside
from phrasemem.pipeline.stage import Stage, forget, look, write_json

# Whose files are large and are read by the stages that name them among their inputs, by no others.
RELEASABLE = (
    *("read", "lines", "clean", "tokenize", "hashes", "survivors", "counts"),
    *("candidates", "targets", "neighbours", "entropies"),
)
_SUFFIXES = (".parquet", ".arrow", ".npy")
# Small files of these stages that later ones still read; quarantines and held-out text are JSON.
_KEPT = (".unigrams.parquet",)
# Of large stages they read but what is kept.
_READ_WHAT_IS_KEPT = ("layout", "pack")
_RELEASED = "released.json"


class DiskError(PhraseMemError):
    """A disk without room for what is to come."""


class Space:
    """Watches the disk of a work folder.

    Parameters
    ----------
    work : Path
    stages : sequence of Stage
        In the order in which they run. ``inputs`` of a stage must name every stage of
        ``RELEASABLE`` whose files it reads.
    low_disk : bool
        Remove the files of a stage once no stage that follows reads them. If such a stage must
        run again later, what it reads is made again.
    check : bool
        Ask for room before a stage.
    """

    def __init__(
        self, work: Path, stages: Sequence[Stage], *, low_disk: bool = False, check: bool = True
    ) -> None:
        self._work = work
        self._stages = list(stages)
        self._low_disk = low_disk
        self._check = check

    def missing_again(self) -> list[str]:
        """Return the complete stages whose removed files a stage needs that is not complete."""
        return missing_again(self._work, self._stages)

    def make_again(self) -> list[str]:
        """Make the stages of :meth:`missing_again` run again; return their names."""
        names = self.missing_again()
        for name in names:
            forget(self._work / name)
        return names

    def ask_for_room(self, name: str) -> None:
        """Fail where a stage would most likely fill the disk.

        Raises
        ------
        DiskError
        """
        needed = bytes_beside(name, lambda stage: folder_bytes(self._work / stage))
        if not self._check or needed is None:
            return
        needed -= folder_bytes(self._work / name)
        free = shutil.disk_usage(self._work).free
        if needed > free:
            raise DiskError(
                f"not enough disk space for stage {name}",
                where=self._work,
                expected=f"about {needed / 1e9:.1f} GB",
                found=f"{free / 1e9:.1f} GB",
                hint="make room, or give --low-disk, another --work or --no-disk-check, and run "
                "the same command again: it goes on from here",
            )

    def release_after(self, name: str) -> None:
        """Remove what no stage after this one reads."""
        if not self._low_disk:
            return
        order = [stage.name for stage in self._stages]
        if name not in order:
            return
        for stage in self._stages:
            last = max((order.index(c.name) for c in readers(stage, self._stages)), default=None)
            if stage.name in RELEASABLE and last is not None and last <= order.index(name):
                _release(self._work / stage.name)

    def remove_stages(self) -> None:
        """Remove what all stages wrote."""
        for stage in self._stages:
            folder = self._work / stage.name
            if folder.exists():
                forget(folder)  # first: a half-removed folder must never look complete
                shutil.rmtree(folder)


def stages_that_run(
    stages: Sequence[Stage], cleaning: Cleaning, *, keeps_all: bool, keeps_store: bool
) -> list[Stage]:
    """Leave out the stages that this kind of build does not run: they read nothing."""
    idle = {"survivors", "targets", "neighbours", "entropies"} if keeps_all else set()
    if not keeps_store:
        idle.add("store")
    if cleaning.boilerplate is None:
        idle |= {"lines", "repeated"}
    if not cleaning.decontaminate:
        idle.add("evaluation")
    return [stage for stage in stages if stage.name not in idle]


def readers(stage: Stage, stages: Sequence[Stage]) -> Iterator[Stage]:
    """Yield the stages that read the large files of a stage."""
    for other in stages:
        if stage.name in other.inputs and other.name not in _READ_WHAT_IS_KEPT:
            yield other


def missing_again(work: Path, stages: Sequence[Stage]) -> list[str]:
    """Return the complete stages whose removed files a stage needs that is not complete."""
    must_run: set[str] = set()
    again = []
    for stage in reversed(stages):
        folder = work / stage.name
        if not look(folder, stage)[0]:
            must_run.add(stage.name)
        elif (folder / _RELEASED).exists() and any(
            reader.name in must_run for reader in readers(stage, stages)
        ):
            must_run.add(stage.name)
            again.append(stage.name)
    return again[::-1]


def folder_bytes(folder: Path) -> int:
    """Return the bytes of the files below a folder; 0 if there is none."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # a temporary file that has its name now
    return total


def _release(folder: Path) -> None:
    if not folder.exists():
        return
    if not (folder / _RELEASED).exists():
        write_json(folder / _RELEASED, {})  # first: after a kill, files that lack must be missed
    for path in folder.iterdir():
        if path.suffix in _SUFFIXES and not path.name.endswith(_KEPT):
            path.unlink()
