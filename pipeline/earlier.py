"""The memory that an extension starts from: what is known of its corpora, and how exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, NonNegativeInt, ValidationError

from phrasemem.held_out import HELD_OUT_FILE, held_out_documents
from phrasemem.memfmt.keys import SHORTEST_PHRASE
from phrasemem.memfmt.manifest import Manifest
from phrasemem.pipeline.count_store import CountStore, open_store, store_path
from phrasemem.pipeline.existing import BUILD_FILE, recorded_build
from phrasemem.pipeline.report import CorpusReport
from phrasemem.pipeline.scoring import Scoring, ScoringError, recorded_scoring
from phrasemem.pipeline.stage import Report, appears

if TYPE_CHECKING:
    from phrasemem.pipeline.engine import Engine
    from phrasemem.pipeline.plan import Plan


class _Extended(BaseModel):
    uncounted: NonNegativeInt = 0
    shorter_kept: NonNegativeInt = 0


class _Recorded(BaseModel):
    """What of ``build.json`` an extension needs, besides how phrases were chosen."""

    corpora: list[CorpusReport]
    phrases: NonNegativeInt
    extended: _Extended | None = None


@dataclass(frozen=True)
class Earlier:
    """A memory that corpora are added to.

    Attributes
    ----------
    memory : Path
    manifest : Manifest
    scoring : Scoring
    reports : list of CorpusReport
        Of its corpora.
    shares : list of float or None
        Phrase shares of its corpora from now on.
    store : CountStore or None
        Without it, what was rarer than the catalogue's phrases is not known.
    """

    memory: Path
    manifest: Manifest
    scoring: Scoring
    reports: list[CorpusReport]
    shares: list[float | None]
    store: CountStore | None

    @property
    def names(self) -> list[str]:
        """Names of its corpora."""
        return [corpus.name for corpus in self.manifest.corpora]

    @property
    def kinds(self) -> list[str]:
        """Kinds of its corpora."""
        return [corpus.kind for corpus in self.manifest.corpora]

    @property
    def documents(self) -> list[int]:
        """Mined documents of its corpora."""
        return [corpus.documents for corpus in self.manifest.corpora]

    @property
    def held_out(self) -> list[Path]:
        """The file of its held-out documents, if it was not published without."""
        path = self.memory / HELD_OUT_FILE
        return [path] if path.is_file() else []

    @property
    def identity(self) -> str:
        """Changes with anything that an extension could read."""
        return f"{self.manifest.checksum} {self.store.checksum if self.store else 'alone'}"


def open_earlier(memory: Path, shares: dict[str, float | None]) -> Earlier:
    """Read a memory and, if it has one, its count store.

    Parameters
    ----------
    memory : Path
    shares : dict
        Phrase shares that replace the recorded ones.

    Raises
    ------
    FormatError, CatalogueError, ScoringError, CountStoreError
    """
    # Here, so that a build that finds nothing to do does not wait for them.
    from phrasemem.memfmt.reader import MemoryReader
    from phrasemem.pipeline.catalogue_check import check_catalogue

    with MemoryReader.open(memory, check="full") as reader:
        manifest = reader.manifest
        check_catalogue(reader)
    scoring = recorded_scoring(memory)
    merged = scoring.phrase_shares | shares
    return Earlier(
        memory,
        manifest,
        scoring,
        recorded_reports(memory, [corpus.name for corpus in manifest.corpora]),
        [merged.get(corpus.name) for corpus in manifest.corpora],
        open_store(store_path(memory), manifest),
    )


def recorded_reports(memory: Path, names: Sequence[str]) -> list[CorpusReport]:
    """Read what ``build.json`` says of a memory's corpora.

    Raises
    ------
    ScoringError
        If it does not say it of each.
    """
    try:
        found = _Recorded.model_validate(recorded_build(memory) or {}).corpora
    except ValidationError:
        found = []
    if [report.name for report in found] != list(names):
        raise ScoringError(
            "the memory does not say what became of its corpora",
            expected=", ".join(names),
            where=memory / BUILD_FILE,
            hint="build it again",
        )
    return found


def known_documents(plan: Plan, engine: Engine, earlier: Earlier | None) -> str | None:
    """Return the file of the documents that a memory knows already."""
    if earlier is None:
        return None
    if earlier.store is not None:
        return earlier.store.documents
    engine.run_one(
        plan.earlier,
        earlier_part,
        lambda: {
            "memory": str(earlier.memory),
            "corpora": earlier.names,
            "n_max": earlier.manifest.n_max,
        },
    )
    return engine.file(plan.earlier, "documents.parquet")


def extension_record(earlier: Earlier | None, catalogue: str, shorter_kept: int) -> Report | None:
    """Return what ``build.json`` says of an extension: from what, and where it is not exact.

    ``uncounted`` phrases were not in the memory, so that their occurrences in its corpora are
    not known; ``not_kept`` n-grams had passed its limits and were not kept. Both are 0 with a count
    store. ``shorter_kept`` documents are left out though they are longer than one of their title.
    """
    if earlier is None:
        return None
    uncounted = 0
    if earlier.store is None:
        names = ["n", *(f"count_{name}" for name in earlier.names)]
        table = pq.read_table(catalogue, columns=names)
        here = sum(table[name].to_numpy() for name in names[1:])
        uncounted = int(((here == 0) & (table["n"].to_numpy() >= SHORTEST_PHRASE)).sum())
    record = recorded_build(earlier.memory) or {}
    before = record.get("extended") or {}
    return {
        "memory": earlier.manifest.checksum,
        "counts": earlier.store is not None,
        "uncounted": uncounted + before.get("uncounted", 0),
        "not_kept": 0 if earlier.store else earlier.scoring.candidates - record["phrases"],
        "shorter_kept": shorter_kept + before.get("shorter_kept", 0),
    }


def inexactness(extended: Report | None) -> list[str]:
    """Say in words where an extended memory is not what a build of all its corpora would be."""
    if extended is None:
        return []
    notes = []
    if not extended["counts"]:
        notes.append(
            f"{extended['uncounted']:,} phrases were not in the memory: what was rarer in its "
            "corpora is not counted (build with --keep-counts to have it)"
        )
        notes.append(
            f"{extended['not_kept']:,} n-grams that the memory had counted and not kept are "
            "not chosen again, and do not count in the scores of others"
        )
        notes.append("documents that its corpora have too are not dropped as duplicates")
    if extended["shorter_kept"]:
        notes.append(
            f"{extended['shorter_kept']:,} documents are left out although they are longer than "
            "the one of their title that was there first"
        )
    return notes


def earlier_part(folder: Path, key: str, *, memory: str, corpora: list[str], n_max: int) -> Report:
    """Write what a memory knows without a count store.

    ``counts.parquet`` has the counts of its phrases, ``documents.parquet`` its held-out
    documents: they at least are never mined.
    """
    from phrasemem.pipeline.catalogue_counts import catalogue_counts_part

    places = {name: place for place, name in enumerate(corpora)}
    catalogue = str(Path(memory) / "catalogue.parquet")
    report = catalogue_counts_part(
        folder, "counts", catalogue=catalogue, places=places, n_max=n_max
    )
    return {**report, "documents": _write_held_out(folder / "documents.parquet", Path(memory))}


def _write_held_out(target: Path, memory: Path) -> int:
    from phrasemem.pipeline.clean import text_hash
    from phrasemem.pipeline.select import DOCUMENTS_SCHEMA

    rows = {}
    for document in held_out_documents(memory):
        text = document["text"]
        rows[text_hash(text)] = (len(text), document["corpus"])
    distinct = [(bytes.fromhex(text), None, *rows[text]) for text in sorted(rows)]
    columns = list(zip(*distinct, strict=True)) or [()] * len(DOCUMENTS_SCHEMA)
    arrays = [
        pa.array(column, field.type)
        for column, field in zip(columns, DOCUMENTS_SCHEMA, strict=True)
    ]
    with appears(target) as temporary:
        pq.write_table(pa.table(arrays, schema=DOCUMENTS_SCHEMA), temporary)
    return len(distinct)
