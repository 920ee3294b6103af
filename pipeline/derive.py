"""From chosen phrases with vectors to a memory: where a build ends, and whatever derives one."""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phrasemem.held_out import HELD_OUT_FILE
from phrasemem.memfmt import durable, writer
from phrasemem.memfmt.manifest import Manifest
from phrasemem.pipeline import pack
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.executor import Job
from phrasemem.pipeline.existing import BUILD_FILE
from phrasemem.pipeline.layout import layout_part, shard_file
from phrasemem.pipeline.space import folder_bytes
from phrasemem.pipeline.stage import Stage, write_json
from phrasemem.pipeline.unigrams import UNIGRAMS_FILE

CATALOGUE_FILE = "catalogue.parquet"


@dataclass(frozen=True)
class Ingredients:
    """All that a memory is made of.

    Attributes
    ----------
    header : Header
        Its corpora are those of the catalogue, in order.
    catalogue : str
        What :func:`phrasemem.pipeline.catalogue.score_part` wrote.
    unigrams : str or None
        ``unigrams.parquet`` with the same corpora, where the counts of single tokens are known.
    vectors : sequence of str
        Files of (phrases, dim) float16, in the catalogue's order.
    phrases_per_part : int
        Phrases in each of these files but the last.
    held_out : sequence of Path
        JSON lines, in the order in which they are to stand.
    record : dict
        ``build.json``; its ``fingerprint`` tells whether the memory is what is asked for.
    seed : int
        First seed of the key hash to be tried.
    shard_bits : int or None
        None for as many shards as the entries ask for.
    """

    header: writer.Header
    catalogue: str
    unigrams: str | None
    vectors: Sequence[str]
    phrases_per_part: int
    held_out: Sequence[Path]
    record: dict[str, Any]
    seed: int
    shard_bits: int | None

    @property
    def names(self) -> list[str]:
        """Names of the corpora."""
        return [corpus.name for corpus in self.header.corpora]


def pack_memory(
    ingredients: Ingredients, layout_stage: Stage, pack_stage: Stage, engine: Engine, out: Path
) -> Manifest:
    """Lay out the rows, write the shards, and give the memory its name.

    Parameters
    ----------
    ingredients : Ingredients
    layout_stage, pack_stage : Stage
        Their fingerprints cover all ingredients.
    engine : Engine
    out : Path
        A memory that stands there is replaced.
    """
    plain = engine.run_one(
        layout_stage,
        layout_part,
        lambda: {
            "catalogue": ingredients.catalogue,
            "corpora": ingredients.names,
            "n_max": ingredients.header.n_max,
            "seed": ingredients.seed,
            "shard_bits": ingredients.shard_bits,
        },
    )
    layout = ingredients.header.layout(
        entries=plain["entries"],
        hash_seed=plain["hash_seed"],
        shard_bits=plain["shard_bits"],
        dictionary=base64.b64decode(plain["dictionary"]),
    )
    numbers = range(1 << plain["shard_bits"])
    dealt = [engine.file(layout_stage, shard_file(number)) for number in numbers]
    staging = durable.staging_for(out)
    shards = engine.run(
        pack_stage,
        pack.shard_part,
        lambda: _shard_jobs(ingredients, layout, dealt),
        folder=staging,
    )
    started = time.monotonic()
    extra = _write_extra(ingredients, staging, dealt)
    entries = [shard["entries"] for shard in shards.values()]
    manifest = writer.finish_memory(staging, out, ingredients.header, layout, entries, extra)
    engine.record(pack_stage.name, started, size=folder_bytes(out))
    return manifest


def _shard_jobs(ingredients: Ingredients, layout: writer.Layout, dealt: Sequence[str]) -> list[Job]:
    shared = {
        "vectors": list(ingredients.vectors),
        "phrases_per_part": ingredients.phrases_per_part,
        "corpora": ingredients.names,
        "layout": layout,
    }
    return [
        Job(f"{number:05d}", {**shared, "number": number, "dealt": path})
        for number, path in enumerate(dealt)
    ]


def _write_extra(ingredients: Ingredients, staging: Path, dealt: Sequence[str]) -> dict[str, Path]:
    """Write the files beside the shards; return them by name."""
    shards = [Path(path) for path in dealt]
    pack.write_catalogue(staging / CATALOGUE_FILE, shards, ingredients.names)
    pack.write_held_out(staging / HELD_OUT_FILE, ingredients.held_out)
    write_json(staging / BUILD_FILE, ingredients.record)
    names = [CATALOGUE_FILE, HELD_OUT_FILE, BUILD_FILE]
    if ingredients.unigrams is not None:
        shutil.copyfile(ingredients.unigrams, staging / UNIGRAMS_FILE)
        names.append(UNIGRAMS_FILE)
    return {name: staging / name for name in names}
