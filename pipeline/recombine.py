"""Phrases chosen again from the counts that memories keep: for corpora that come or go."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from phrasemem.memfmt.key_map import KeyMap
from phrasemem.memfmt.keys import SHORTEST_PHRASE
from phrasemem.memfmt.manifest import EncoderInfo
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.writer import Header
from phrasemem.pipeline.byte_budget import phrases_within
from phrasemem.pipeline.catalogue import score_part
from phrasemem.pipeline.catalogue_table import key_matrix
from phrasemem.pipeline.config import CHOOSING
from phrasemem.pipeline.count_store import (
    DOCUMENTS_FILE,
    refuse_other_folder,
    store_path,
    write_store,
)
from phrasemem.pipeline.derive import CATALOGUE_FILE, Ingredients
from phrasemem.pipeline.embed import embed_part
from phrasemem.pipeline.encoder_options import EncoderOptions, options_from
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.joint_counts import MEMORY_LIMIT, joint_counts
from phrasemem.pipeline.joint_documents import join_documents
from phrasemem.pipeline.phrase_stages import NoPhrasesError
from phrasemem.pipeline.plan import encoder_identity
from phrasemem.pipeline.recipe import Recipe, phrases_of
from phrasemem.pipeline.remake import (
    Origin,
    OriginError,
    Remade,
    build_record,
    payload_of,
    recorded_corpora,
    workshop,
    write_out,
)
from phrasemem.pipeline.stage import Report
from phrasemem.pipeline.unigrams import UNIGRAMS_FILE, joined, read_unigrams

LOWER_BOUNDS = "phrases that not every memory holds"
NEW = "phrases that no memory held"
REPEATED = "documents that more than one memory counts, at most"

_ROWS_A_PART = 1 << 15
_BATCH_SIZE = 256


@dataclass(frozen=True)
class Chosen:
    """What was chosen: the catalogue and ``unigrams.parquet``, and the report of the choice.

    ``buckets`` are the files of the new count store, if there is one.
    """

    catalogue: Path
    unigrams: Path
    report: Report
    buckets: list[str]


def recombine(recipe: Recipe, held_out: Iterable[bytes], remade: Remade, out: Path) -> None:
    """Choose phrases by the counts of the corpora that stay, and write their memory.

    Vectors are those of the first origin that has the key, byte for byte. Only what none of them
    has a row for is encoded: single tokens and, with count stores, phrases.

    With count stores one is written for the result too, after it: a run that is killed between
    leaves a whole memory without a store.

    Parameters
    ----------
    recipe : Recipe
    held_out : iterable of bytes
        Lines of the held-out documents.
    remade : Remade
        Gets the numbers.
    out : Path

    Raises
    ------
    NoPhrasesError
        If nothing is left.
    """
    final = out.absolute()
    if recipe.stores:
        refuse_other_folder(store_path(final))
    with workshop(final) as engine:
        chosen = choose_again(recipe, engine.work)
        _take_down(recipe, chosen, remade)
        rows = chosen.report["phrases"] + chosen.report["single"]
        vectors, encoded = _vectors(recipe, chosen.catalogue, rows, engine)
        if encoded:
            remade.numbers["rows encoded anew"] = encoded
        known = engine.work / DOCUMENTS_FILE
        if recipe.stores:
            _join_documents(recipe, known, remade)
        documents = engine.work / "heldout.jsonl"
        with documents.open("wb") as file:
            file.writelines(held_out)
        first = recipe.origins[0].manifest
        ingredients = Ingredients(
            header=Header(
                tokenizer=first.tokenizer,
                n_max=recipe.n_max,
                payloads=[payload_of(recipe.origins[0])],
                corpora=recipe.corpora,
                encoder=first.encoder,
                key_map=_key_map(recipe.origins[0]),
            ),
            catalogue=str(chosen.catalogue),
            unigrams=str(chosen.unigrams),
            vectors=vectors,
            phrases_per_part=_ROWS_A_PART,
            held_out=[documents],
            record=_record(recipe, chosen.report, remade),
            seed=0,
            shard_bits=max(origin.manifest.shard_bits for origin in recipe.origins),
        )
        manifest = write_out(ingredients, engine, final)
        if recipe.stores:
            write_store(store_path(final), manifest, chosen.buckets, str(known))


def _join_documents(recipe: Recipe, target: Path, remade: Remade) -> None:
    """Write what the stores know of documents; more than one may have counted the same."""
    known = [store.documents for store in recipe.stores]
    if repeated := join_documents(target, known, recipe.names, MEMORY_LIMIT):
        remade.numbers[REPEATED] = repeated
        remade.notes.append(
            f"inexact: up to {repeated:,} documents whose text or title another memory has too "
            "are counted in both; a build of all corpora would leave them out"
        )


def choose_again(recipe: Recipe, folder: Path) -> Chosen:
    """Join the counts of the corpora that stay, score, and choose; writes into ``folder``."""
    counted = joint_counts(recipe, folder)
    names = recipe.names
    unigrams = folder / UNIGRAMS_FILE
    joined(
        [
            read_unigrams(origin.path / UNIGRAMS_FILE, [n for n in origin.corpora if n in names])
            for origin in recipe.origins
        ]
    ).write(unigrams)
    mining = recipe.scoring.mining
    report = score_part(
        folder,
        "score",
        candidates=counted.candidates,
        unigrams=str(unigrams),
        corpora=names,
        phrase_shares=[recipe.scoring.phrase_shares.get(name) for name in names],
        model=recipe.model,
        corpus_documents=[corpus.documents for corpus in recipe.corpora],
        n_max=recipe.n_max,
        min_count=mining.min_count,
        min_documents=mining.min_documents,
        kinds=[corpus.kind for corpus in recipe.corpora],
        **{**mining.model_dump(include=CHOOSING), "max_phrases": _most_phrases(recipe)},
        memory_limit=MEMORY_LIMIT,
        threads=os.cpu_count() or 1,
        carried=("text",) if recipe.folded else (),
    )
    if not report["phrases"]:
        raise NoPhrasesError("no phrase is left of these corpora", found=", ".join(names))
    return Chosen(folder / CATALOGUE_FILE, unigrams, report, counted.buckets)


def _most_phrases(recipe: Recipe) -> int:
    """Return the budget of phrases, of which that of bytes may leave less."""
    mining, encoder = recipe.scoring.mining, recipe.origins[0].manifest.encoder
    if mining.max_bytes is None or encoder is None:
        return mining.max_phrases
    return min(mining.max_phrases, phrases_within(mining.max_bytes, recipe.n_max, encoder.dim))


def _take_down(recipe: Recipe, chosen: Chosen, remade: Remade) -> None:
    """Put into the report what became of the phrases that were there."""
    report = chosen.report
    before = sum(phrases_of(origin) for origin in recipe.origins)
    held_by_any, held_by_all = _held(recipe, chosen.catalogue)
    remade.phrases = report["phrases"]
    remade.numbers["phrases before"] = before
    if recipe.stores:
        remade.numbers |= {
            recipe.fewer: before - held_by_any,
            NEW: report["phrases"] - held_by_any,
        }
    else:
        remade.numbers |= {
            recipe.fewer: before - report["candidates"],
            "dropped, by score or budget": report["candidates"] - report["phrases"],
        }
    if report["single"]:
        remade.numbers["rows of single tokens"] = report["single"]
    if len(recipe.origins) > 1 and not recipe.stores:
        remade.numbers[LOWER_BOUNDS] = report["phrases"] - held_by_all


def _held(recipe: Recipe, catalogue: Path) -> tuple[int, int]:
    """Return how many phrases of a catalogue any of the origins has, and how many all of them."""
    table = pq.read_table(catalogue, columns=["n", "tokens"])
    lengths, tokens = key_matrix(table, recipe.n_max)
    phrases: NDArray[np.bool_] = lengths >= SHORTEST_PHRASE
    by_any, by_all = np.zeros_like(phrases), phrases.copy()
    for origin in recipe.origins:
        with MemoryReader.open(origin.path) as reader:
            here = phrases & (reader.look_up(tokens, lengths) >= 0)
        by_any |= here
        by_all &= here
    return int(by_any.sum()), int(by_all.sum())


def _key_map(origin: Origin) -> KeyMap | None:
    with MemoryReader.open(origin.path) as reader:
        return reader.key_map


def _vectors(recipe: Recipe, catalogue: Path, rows: int, engine: Engine) -> tuple[list[str], int]:
    """Collect the vectors, a file of each part; and how many had to be made."""
    encoder = recipe.origins[0].manifest.encoder
    # How the encoder was used ends what a payload says of its source.
    how = recipe.origins[0].semantic.source.rpartition(" ")[2]
    options = options_from(encoder.id if encoder else "", how)
    paths, encoded = [], 0
    for start in range(0, rows, _ROWS_A_PART):
        key = f"vectors-{start:010d}"
        report = embed_part(
            engine.work,
            key,
            catalogue=str(catalogue),
            start=start,
            stop=min(start + _ROWS_A_PART, rows),
            encoder=options,
            batch_size=_BATCH_SIZE,
            kept=[str(origin.path) for origin in recipe.origins],
        )
        paths.append(str(engine.work / f"{key}.npy"))
        encoded += report["encoded"]
    if encoded and encoder is not None:
        _check_encoder(encoder, options)
    return paths, encoded


def _check_encoder(encoder: EncoderInfo, options: EncoderOptions) -> None:
    found = encoder_identity(encoder.id, options.tokenizer)
    if found != encoder.revision:
        raise OriginError(
            "the encoder has changed since the memories were made",
            expected=encoder.revision,
            found=found,
            where=encoder.id,
        )


def _record(recipe: Recipe, report: Report, remade: Remade) -> dict[str, Any]:
    """Return ``build.json``, from which phrases can be chosen again."""
    homes = report["phrases_of"]
    entries = {e.get("name"): e for o in recipe.origins for e in recorded_corpora(o)}
    corpora = [
        {**entries[name], "phrases": homes.get(name, 0)} for name in recipe.names if name in entries
    ]
    shares = {name: recipe.scoring.phrase_shares.get(name) for name in recipe.names}
    candidates = report["candidates"] + recipe.unknown
    mining = recipe.scoring.mining.model_copy(update={"keep_counts": bool(recipe.stores)})
    scoring = replace(recipe.scoring, mining=mining, phrase_shares=shares, candidates=candidates)
    record = build_record(recipe.command, recipe.origins, recipe.settings, remade, corpora)
    return {**record, "scoring": scoring.as_json(), "single": report["single"]}
