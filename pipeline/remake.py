"""What all commands share that make a memory from memories: what goes in, and what comes out."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phrasemem import artifacts, backbone
from phrasemem.memfmt import durable
from phrasemem.memfmt.adapters import adapter_folders
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.layout import PayloadSpec
from phrasemem.memfmt.manifest import MANIFEST_NAME, Manifest, PayloadInfo
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.pipeline.catalogue_check import check_catalogue
from phrasemem.pipeline.derive import CATALOGUE_FILE, Ingredients, pack_memory
from phrasemem.pipeline.embed import PAYLOAD
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.executor import Executor
from phrasemem.pipeline.existing import OutputError, recorded_build, refuse_other_folder
from phrasemem.pipeline.progress import PeakMemory, Reporter
from phrasemem.pipeline.stage import Stage, fingerprint_of

# Raised when the code changes what is written.
_VERSION = 1


class OriginError(PhraseMemError):
    """A memory from which no other can be made."""


@dataclass(frozen=True)
class Origin:
    """A memory that another is made from; every block of it was checked.

    Attributes
    ----------
    path : Path
    manifest : Manifest
    record : dict
        Its ``build.json``; empty where there is none.
    checksum : str
        SHA-256 of its manifest.
    payloads : sequence of PayloadInfo
        All that it has, those that were added to it too.
    """

    path: Path
    manifest: Manifest
    record: dict[str, Any]
    checksum: str
    payloads: Sequence[PayloadInfo]

    @property
    def catalogue(self) -> Path:
        """Its phrases as a table."""
        return self.path / CATALOGUE_FILE

    @property
    def corpora(self) -> list[str]:
        """Names of its corpora."""
        return [corpus.name for corpus in self.manifest.corpora]

    @property
    def semantic(self) -> PayloadInfo:
        """The payload that depends on nothing but the text of a phrase."""
        found = {payload.name: payload for payload in self.payloads}.get(PAYLOAD)
        if found is None or (found.kind, found.dtype) != ("dense", "float16"):
            raise OriginError(
                f"the memory has no payload {PAYLOAD} of float16",
                found=", ".join(f"{p.name} ({p.kind}, {p.dtype})" for p in self.payloads),
                where=self.path,
            )
        return found

    @property
    def left_behind(self) -> list[str]:
        """Name what belongs to this very memory or to a backbone, and so is not carried over."""
        payloads = [f"payload {p.name}" for p in self.payloads if p.name != PAYLOAD]
        return payloads + [f"adapter {folder.name}" for folder in adapter_folders(self.path)]


@dataclass
class Remade:
    """What became of the phrases.

    Attributes
    ----------
    phrases : int
        Phrases of the new memory.
    numbers : dict of str to int
        What happened to how many, in words; plain data for ``build.json``.
    notes : list of str
        What was not carried over, and what is inexact.
    """

    phrases: int
    numbers: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the report as text, a line an entry."""
        numbers = [f"{name}: {number:,}" for name, number in self.numbers.items()]
        return [f"{self.phrases:,} phrases", *numbers, *self.notes]


def open_origin(path: Path) -> Origin:
    """Check every block of a memory, and read what it says of itself.

    Raises
    ------
    FormatError
        If it is damaged: what is made from it would look right.
    CatalogueError
        If it has no catalogue, that of another memory, or one of an earlier version that lacks
        documents of corpora.
    """
    with MemoryReader.open(path, check="full") as reader:
        manifest = reader.manifest
        payloads = [reader.payload(name).info for name in reader.payload_names]
        check_catalogue(reader)
    checksum = artifacts.sha256_of(path / MANIFEST_NAME)
    return Origin(path, manifest, recorded_build(path) or {}, checksum, payloads)


def check_output(out: Path, origins: Sequence[Path], *, replace: bool) -> None:
    """Refuse a place where something stands, or that is an origin's own.

    Raises
    ------
    OutputError
    """
    final = out.resolve()
    for origin in (path.resolve() for path in origins):
        if final.is_relative_to(origin) or origin.is_relative_to(final):
            raise OutputError("a memory cannot be made in place", where=out, hint="choose --out")
    refuse_other_folder(out)
    if (out / MANIFEST_NAME).is_file() and not replace:
        raise OutputError("a memory stands there already", where=out, hint="use --replace")


def tokenizer_of(manifest: Manifest, reference: str | None = None) -> str:
    """Return the reference of a memory's tokenizer, which was loaded and compared.

    Parameters
    ----------
    manifest : Manifest
    reference : str, optional
        Where the tokenizer is, if not where the memory says.

    Raises
    ------
    OriginError
        If it is another one.
    """
    wanted = manifest.tokenizer
    found = backbone.tokenizer_fingerprint(backbone.load_tokenizer(reference or wanted.name))
    if found != wanted.fingerprint:
        raise OriginError(
            "this is not the tokenizer of the memory",
            expected=wanted.fingerprint,
            found=found,
            where=reference or wanted.name,
            hint="name it with --model",
        )
    return reference or wanted.name


@contextmanager
def workshop(out: Path) -> Iterator[Engine]:
    """Yield an engine of this process alone, with a work folder beside ``out`` that goes."""
    work = out.with_name(f".{out.name}.making")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        with Executor(0, None, work / ".dask") as executor, PeakMemory() as memory:
            yield Engine(work, executor, Reporter(io.StringIO()), memory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        # Empty or gone, unless the memory was not finished.
        shutil.rmtree(durable.staging_for(out), ignore_errors=True)


def build_record(
    command: str,
    origins: Sequence[Origin],
    settings: Mapping[str, Any],
    remade: Remade,
    corpora: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Return the ``build.json`` of a memory that was made from others.

    Its fingerprint is that of no build, so that a build never takes it for its own.
    """
    made = {
        "command": command,
        "version": _VERSION,
        "from": [{"manifest": o.checksum, "entries": o.manifest.entries} for o in origins],
        "settings": dict(settings),
    }
    return {
        "corpora": list(corpora),
        "fingerprint": fingerprint_of(made),
        "made": {**made, "numbers": remade.numbers},
        "phrases": remade.phrases,
    }


def recorded_corpora(origin: Origin) -> list[dict[str, Any]]:
    """Return what a memory's ``build.json`` says of its corpora, which licences need."""
    found = origin.record.get("corpora")
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def payload_of(origin: Origin) -> PayloadSpec:
    """Return the description of the vectors that are carried over."""
    return origin.semantic.spec


def write_out(ingredients: Ingredients, engine: Engine, out: Path) -> Manifest:
    """Pack a memory; it appears whole or not at all."""
    settings = {"record": ingredients.record}
    layout, pack = Stage("layout", _VERSION, settings), Stage("pack", _VERSION, settings)
    return pack_memory(ingredients, layout, pack, engine, out)
