"""Hugging Face datasets, streamed: ``hf:NAME`` on the hub, or ``hf:FOLDER`` on this machine."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import Document, LeftOut, ReadError
from phrasemem.pipeline.read.records import from_record

SCHEME = "hf:"
# What the readers of datasets raise on a file that is not what its name says, or cut short.
_DAMAGE = (ValueError, EOFError, zlib.error, pa.ArrowException)


def shard_count(corpus: Corpus, source: str) -> int:
    """Return into how many partitions a dataset is cut: its own shards, or the corpus' limit."""
    return int(min(corpus.partitions, _open(corpus, source).num_shards))


def read_hub(source: str, shard: int, shards: int, corpus: Corpus) -> Iterator[Document | LeftOut]:
    """Stream one partition of a dataset."""
    dataset = _open(corpus, source)
    if shards > 1:
        dataset = dataset.shard(num_shards=shards, index=shard)
    ordinal = -1
    try:
        for ordinal, record in enumerate(dataset):
            yield from_record(record, corpus, f"{shard}/{shards}#{ordinal}", f"record {ordinal}")
    except _DAMAGE as error:
        # A network that fails raises OSErrors, and stops the build: it must not look like an end.
        yield LeftOut(
            "dataset-damaged", f"{shard}/{shards}, after record {ordinal}", detail=str(error)
        )


def _open(corpus: Corpus, source: str) -> Any:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise ReadError(
            "hf: sources need the datasets package", hint='pip install "phrasemem[pipeline]"'
        ) from error
    name = source.removeprefix(SCHEME)
    try:
        return datasets.load_dataset(
            name,
            corpus.config,
            split=corpus.split,
            revision=corpus.revision,
            streaming=True,
        )
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ReadError(f"cannot open the dataset {name}: {error}") from error
