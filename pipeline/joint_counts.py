"""Candidates from the counts of memories: their count stores, or what their catalogues have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.pipeline.catalogue_counts import catalogue_counts_part, counts_schema
from phrasemem.pipeline.count import gram_hashes
from phrasemem.pipeline.database import BATCH_ROWS
from phrasemem.pipeline.merge import candidates_part, store_part
from phrasemem.pipeline.recipe import Recipe
from phrasemem.pipeline.stage import appears

MEMORY_LIMIT = "2GB"

# Instead of the number of a corpus that does not stay.
_GONE = (1 << 16) - 1


@dataclass(frozen=True)
class Counted:
    """Files of the candidates and, where there are count stores, of the buckets of their sum."""

    candidates: list[str]
    buckets: list[str]


def joint_counts(recipe: Recipe, folder: Path) -> Counted:
    """Sum the counts of the corpora that stay, key by key; of the candidates, too rare is out."""
    return _from_stores(recipe, folder) if recipe.stores else _from_catalogues(recipe, folder)


def _from_catalogues(recipe: Recipe, folder: Path) -> Counted:
    # The text of a folded key is that of the first memory that has it, as its vector is.
    carried = ("text",) if recipe.folded else ()
    sources = []
    for number, origin in enumerate(recipe.origins):
        catalogue_counts_part(
            folder,
            f"counts-{number}",
            catalogue=str(origin.catalogue),
            places=_places(recipe, origin.corpora),
            n_max=recipe.n_max,
            chunk=number if recipe.folded else None,
        )
        sources.append(str(folder / f"counts-{number}.parquet"))
    return Counted([_candidates(recipe, folder, "candidates", sources, carried)], [])


def _from_stores(recipe: Recipe, folder: Path) -> Counted:
    """Sum a bucket at a time; there are as many as in the store that has most."""
    buckets = max(store.buckets for store in recipe.stores)
    counted = [_shifted_buckets(recipe, number, folder) for number in range(len(recipe.stores))]
    summed, candidates = [], []
    for bucket in range(buckets):
        # Buckets are ranges of the hash: one of a smaller store holds several of a larger one.
        store_part(
            folder,
            f"store-{bucket:05d}",
            sources=[parts[bucket * len(parts) // buckets] for parts in counted],
            earlier=None,
            bucket=bucket,
            buckets=buckets,
            n_max=recipe.n_max,
            memory_limit=MEMORY_LIMIT,
        )
        summed.append(str(folder / f"store-{bucket:05d}.parquet"))
        candidates.append(_candidates(recipe, folder, f"candidates-{bucket:05d}", summed[-1:], ()))
    return Counted(candidates, summed)


def _places(recipe: Recipe, corpora: Sequence[str]) -> dict[str, int]:
    """Return the numbers that the corpora of a memory get, of those that stay."""
    names = recipe.names
    return {name: names.index(name) for name in corpora if name in names}


def _candidates(
    recipe: Recipe, folder: Path, key: str, sources: Sequence[str], carried: Sequence[str]
) -> str:
    candidates_part(
        folder,
        key,
        sources=sources,
        bucket=None,
        buckets=1,
        corpora=len(recipe.names),
        n_max=recipe.n_max,
        min_count=recipe.scoring.mining.min_count,
        min_documents=recipe.scoring.mining.min_documents,
        memory_limit=MEMORY_LIMIT,
        carried=carried,
    )
    return str(folder / f"{key}.parquet")


def _shifted_buckets(recipe: Recipe, number: int, folder: Path) -> list[str]:
    """Write the buckets of a memory's store with hashes and the numbers of the corpora here."""
    store, corpora = recipe.stores[number], recipe.origins[number].corpora
    places = _places(recipe, corpora)
    paths = []
    for bucket in range(store.buckets):
        paths.append(str(folder / f"counts-{number}-{bucket:05d}.parquet"))
        _write_shifted(Path(paths[-1]), store.bucket(bucket), corpora, places, recipe.n_max)
    return paths


def _write_shifted(
    target: Path, source: str, names: Sequence[str], places: Mapping[str, int], n_max: int
) -> None:
    schema = counts_schema(n_max)
    numbers = np.array([places.get(name, _GONE) for name in names], np.uint16)
    with appears(target) as temporary, pq.ParquetWriter(temporary, schema, compression="lz4") as to:
        for batch in pq.ParquetFile(source).iter_batches(BATCH_ROWS):
            table = pa.Table.from_batches([batch])
            corpus = numbers[table["corpus"].to_numpy()]
            kept = table.filter(pa.array(corpus != _GONE))
            tokens = np.stack([kept[f"t{place}"].to_numpy() for place in range(n_max)], axis=1)
            hashes = gram_hashes(kept["n"].to_numpy(), tokens)
            columns = {name: kept[name] for name in kept.column_names}
            columns |= {"hash": hashes, "corpus": corpus[corpus != _GONE]}
            to.write_table(pa.table({name: columns[name] for name in schema.names}, schema=schema))
