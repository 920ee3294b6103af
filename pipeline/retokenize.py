"""A memory's phrases for another tokenizer, without mining again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from phrasemem import backbone
from phrasemem.held_out import held_out_lines
from phrasemem.memfmt.key_map import EXACT
from phrasemem.memfmt.manifest import TokenizerInfo
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.writer import Header
from phrasemem.pipeline.catalogue_table import with_entropies
from phrasemem.pipeline.derive import CATALOGUE_FILE, Ingredients
from phrasemem.pipeline.embed import PAYLOAD
from phrasemem.pipeline.phrase_stages import NoPhrasesError
from phrasemem.pipeline.rekey import Rekeyed, rekey
from phrasemem.pipeline.remake import (
    Origin,
    Remade,
    build_record,
    check_output,
    open_origin,
    payload_of,
    recorded_corpora,
    workshop,
    write_out,
)
from phrasemem.pipeline.tokens import corpus_tokenizer

_ROWS_A_PART = 1 << 15


def retokenize(
    memory: Path, model: str, out: Path, *, n_max: int | None = None, replace: bool = False
) -> Remade:
    """Make the memory of another tokenizer from the texts of a memory.

    The vectors are those of the same texts, byte for byte. Scores are kept; counts of rows that
    fall together are summed. Not carried over: other payloads, adapters, and counts of single
    tokens, which are another tokenizer's.

    Parameters
    ----------
    memory : Path
        Not changed.
    model : str
        Reference of the model whose tokenizer makes the new keys.
    out : Path
        Appears complete or not at all.
    n_max : int, optional
        Longest key; the memory's if not given.
    replace : bool
        Replace a memory that stands at ``out``.

    Returns
    -------
    Remade

    Raises
    ------
    PhraseMemError
        With one clear line, for whatever the user can mend.
    """
    check_output(out, [memory], replace=replace)
    origin = open_origin(memory)
    longest = n_max or origin.manifest.n_max
    rekeyed = rekey(
        with_entropies(pq.read_table(origin.catalogue)), corpus_tokenizer(model), longest
    )
    if not len(rekeyed.table):
        raise NoPhrasesError("no phrase has a key under this tokenizer", where=model)
    remade = _report(origin, rekeyed)
    tokenizer = _described(model)
    settings = {"tokenizer": tokenizer.fingerprint, "n_max": longest}
    header = Header(
        tokenizer=tokenizer,
        n_max=longest,
        payloads=[payload_of(origin)],
        corpora=origin.manifest.corpora,
        encoder=origin.manifest.encoder,
    )
    final = out.absolute()
    with workshop(final) as engine:
        catalogue = engine.work / CATALOGUE_FILE
        pq.write_table(rekeyed.table, catalogue, compression="zstd")
        held_out = engine.work / "heldout.jsonl"
        with held_out.open("wb") as file:
            file.writelines(held_out_lines(memory))
        ingredients = Ingredients(
            header=header,
            catalogue=str(catalogue),
            unigrams=None,
            vectors=_write_vectors(engine.work, memory, rekeyed.rows),
            phrases_per_part=_ROWS_A_PART,
            held_out=[held_out],
            record=build_record("retokenize", [origin], settings, remade, recorded_corpora(origin)),
            seed=0,
            shard_bits=origin.manifest.shard_bits,
        )
        write_out(ingredients, engine, final)
    return remade


def _report(origin: Origin, rekeyed: Rekeyed) -> Remade:
    numbers = {f"dropped, {reason}": k for reason, k in sorted(rekeyed.dropped.items())}
    remade = Remade(len(rekeyed.table), {"rows joined with others": rekeyed.joined, **numbers})
    if rekeyed.joined:
        remade.notes.append(
            "documents of joined rows are summed, an upper bound: a document may hold both"
        )
    if origin.manifest.key_normalisation != EXACT:
        remade.notes.append("counts of a phrase are those of all spellings that it had in keys")
    remade.notes += [f"not carried over: {name}" for name in origin.left_behind]
    return remade


def _described(model: str) -> TokenizerInfo:
    tokenizer = corpus_tokenizer(model)
    return TokenizerInfo(
        fingerprint=backbone.tokenizer_fingerprint(tokenizer),
        name=model,
        vocab_size=tokenizer.backend_tokenizer.get_vocab_size(with_added_tokens=True),
    )


def _write_vectors(folder: Path, memory: Path, rows: NDArray[np.int64]) -> list[str]:
    """Copy the vectors of rows; the file of a part of them each."""
    paths = []
    with MemoryReader.open(memory) as reader:
        payload = reader.payload(PAYLOAD)
        for start in range(0, len(rows), _ROWS_A_PART):
            vectors = payload.gather(rows[start : start + _ROWS_A_PART])
            paths.append(str(folder / f"vectors-{start:010d}.npy"))
            # They were float16, so nothing is rounded.
            np.save(paths[-1], vectors.astype(np.float16), allow_pickle=False)
    return paths
