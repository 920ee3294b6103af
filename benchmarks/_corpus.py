"""Real text for the benchmarks of the pipeline: PubMed abstracts of the profile ``demo``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._harness import OUT
from phrasemem import artifacts
from phrasemem.pipeline.clean import clean_part
from phrasemem.pipeline.config import BuildConfig, Corpus, load_config
from phrasemem.pipeline.documents import read_part
from phrasemem.pipeline.repeats import least_documents, lines_part, repeated_part
from phrasemem.pipeline.tokens import tokenize_part

FOLDER = OUT / "corpus"
"""Where the token ids that several benchmarks use are kept."""


def config() -> BuildConfig:
    """Return the profile ``demo``."""
    return load_config(Path("corpora.yaml"), "demo")


def corpus() -> Corpus:
    """Return the corpus of PubMed abstracts."""
    return next(corpus for corpus in config().corpora if corpus.name == "pubmed")


def read(folder: Path, number: int, chunk_chars: int) -> list[str]:
    """Read one file of the corpus; returns the names of its chunks."""
    folder.mkdir(parents=True, exist_ok=True)
    source = corpus()
    report = read_part(
        folder, f"read-{number}", corpus=source.model_dump(), name=f"{number}",
        location=str(artifacts.fetch(source.sources[number])), shard=0, shards=1,
        pieces_of_corpus=len(source.sources), chunk_chars=chunk_chars,
    )  # fmt: skip
    return list(report["chunks"])


def read_lines(folder: Path, name: str) -> None:
    """Read a chunk again from JSON lines that hold the same documents."""
    settings = corpus().model_copy(update={"format": "jsonl", "title_field": "title"})
    read_part(
        folder, f"lines-{name}", corpus=settings.model_dump(), name=name,
        location=str(folder / f"{name}.jsonl"), shard=0, shards=1, pieces_of_corpus=1,
        chunk_chars=1 << 40,
    )  # fmt: skip


def write_lines(folder: Path, name: str) -> None:
    """Write a chunk as JSON lines."""
    with (folder / f"{name}.jsonl").open("w") as file:
        for document in pq.read_table(folder / f"{name}.parquet").to_pylist():
            file.write(json.dumps(document) + "\n")


def clean(folder: Path, name: str) -> str:
    """Clean a chunk with all that is on by default; returns the file.

    What repeats is counted in this chunk alone.
    """
    cleaning, source = config().cleaning, str(folder / f"{name}.parquet")
    repeats = cleaning.boilerplate
    repeated = None
    if repeats is not None:
        found = lines_part(
            folder, f"repeats-{name}", source=source, share=1.0,
            span_words=repeats.span_words, sentence_words=repeats.sentence_words,
        )  # fmt: skip
        least = least_documents(found["documents"], repeats.min_documents, repeats.min_share)
        repeated_part(
            folder, f"repeated-{name}", sources=[str(folder / f"repeats-{name}.parquet")],
            least=least, memory_limit="1GB",
        )  # fmt: skip
        repeated = str(folder / f"repeated-{name}.parquet")
    clean_part(
        folder, f"clean-{name}", source=source, cleaning=cleaning.model_dump(),
        repairs=corpus().repairs, language=corpus().language, kind=corpus().kind,
        repeated=repeated, evaluation=None,
    )  # fmt: skip
    return str(folder / f"clean-{name}.parquet")


def decisions(folder: Path, source: str) -> str:
    """Keep all documents of a chunk; returns the file that says so."""
    size = pq.read_metadata(source).num_rows
    table = pa.table({"chunk": [0] * size, "row": range(size), "decision": [0] * size})
    pq.write_table(table, folder / "decisions.parquet")
    return str(folder / "decisions.parquet")


def tokenize(folder: Path, source: str, kept: str) -> str:
    """Tokenize a cleaned chunk; returns the file."""
    key = f"tokens-{Path(source).stem}"
    tokenize_part(
        folder, key, source=source, decisions=kept, chunk=0, corpus="pubmed", kind="science",
        model=config().model,
    )  # fmt: skip
    return str(folder / f"{key}.arrow")


def token_files(files: int, chunk_chars: int) -> list[str]:
    """Return chunks of token ids; made once, and kept for the next run."""
    marker = FOLDER / f"tokens-{files}-{chunk_chars}.txt"
    if not marker.exists():
        found = []
        for number in range(files):
            for name in read(FOLDER, number, chunk_chars):
                source = clean(FOLDER, name)
                found.append(tokenize(FOLDER, source, decisions(FOLDER, source)))
        marker.write_text("\n".join(found))
    return marker.read_text().split()


def documents(tokens: np.ndarray, ends: np.ndarray) -> list[list[int]]:
    """Return the token ids of each document."""
    return [part.tolist() for part in np.split(tokens, ends[:-1])]
