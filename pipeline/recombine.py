"""Phrases chosen again from the counts that memories keep: for corpora that come or go."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from phrasemem.memfmt.keys import SHORTEST_PHRASE
from phrasemem.memfmt.manifest import CorpusInfo, EncoderInfo
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.writer import Header
from phrasemem.pipeline.catalogue import score_part
from phrasemem.pipeline.catalogue_counts import catalogue_counts_part
from phrasemem.pipeline.catalogue_table import key_matrix
from phrasemem.pipeline.derive import CATALOGUE_FILE, Ingredients
from phrasemem.pipeline.embed import embed_part
from phrasemem.pipeline.engine import Engine
from phrasemem.pipeline.merge import candidates_part
from phrasemem.pipeline.phrase_stages import NoPhrasesError
from phrasemem.pipeline.plan import encoder_identity
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
from phrasemem.pipeline.scoring import Scoring, recorded_scoring
from phrasemem.pipeline.stage import Report
from phrasemem.pipeline.unigrams import UNIGRAMS_FILE, joined, read_unigrams

LOWER_BOUNDS = "phrases that not every memory holds"

_MEMORY = "2GB"
_ROWS_A_PART = 1 << 15
_BATCH_SIZE = 256


@dataclass(frozen=True)
class Recipe:
    """What a memory is recombined from.

    Attributes
    ----------
    command : str
    settings : dict
        What was asked for; plain data.
    origins : sequence of Origin
        Of the same tokenizer, encoder and n_max.
    corpora : sequence of CorpusInfo
        Those that stay, in their order, each in one origin.
    scoring : Scoring
        How phrases are chosen.
    model : str
        Reference of the tokenizer.
    fewer : str
        What it means where the origins together have more phrases than there are candidates.
    """

    command: str
    settings: dict[str, Any]
    origins: Sequence[Origin]
    corpora: Sequence[CorpusInfo]
    scoring: Scoring
    model: str
    fewer: str

    @property
    def names(self) -> list[str]:
        """Names of the corpora that stay."""
        return [corpus.name for corpus in self.corpora]

    @property
    def n_max(self) -> int:
        """Longest key."""
        return self.origins[0].manifest.n_max

    @property
    def unknown(self) -> int:
        """N-grams that the origins had counted but not chosen, so that no counts are known."""
        return sum(
            max(0, recorded_scoring(origin.path).candidates - phrases_of(origin))
            for origin in self.origins
        )


@dataclass(frozen=True)
class Chosen:
    """What was chosen: the catalogue and ``unigrams.parquet``, and the report of the choice."""

    catalogue: Path
    unigrams: Path
    report: Report


def recombine(recipe: Recipe, held_out: Iterable[bytes], remade: Remade, out: Path) -> None:
    """Choose phrases by the counts of the corpora that stay, and write their memory.

    Vectors are those of the first origin that has the key, byte for byte. Only a single token
    that none of them has a row for is encoded.

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
    _refuse_other_keys(recipe.origins)
    final = out.absolute()
    with workshop(final) as engine:
        chosen = choose_again(recipe, engine.work)
        _take_down(recipe, chosen, remade)
        rows = chosen.report["phrases"] + chosen.report["single"]
        vectors, encoded = _vectors(recipe, chosen.catalogue, rows, engine)
        if encoded:
            remade.numbers["single tokens encoded anew"] = encoded
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
        write_out(ingredients, engine, final)


def _refuse_other_keys(origins: Sequence[Origin]) -> None:
    for origin in origins:
        if origin.manifest.key_normalisation != "exact":
            raise OriginError(
                "keys that are not exact cannot be chosen again",
                found=origin.manifest.key_normalisation,
                where=origin.path,
            )


def choose_again(recipe: Recipe, folder: Path) -> Chosen:
    """Join the counts of the corpora that stay, score, and choose; writes into ``folder``."""
    candidates = joined_counts(recipe, folder)
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
        candidates=[str(candidates)],
        unigrams=str(unigrams),
        corpora=names,
        phrase_shares=[recipe.scoring.phrase_shares.get(name) for name in names],
        model=recipe.model,
        corpus_documents=[corpus.documents for corpus in recipe.corpora],
        n_max=recipe.n_max,
        min_count=mining.min_count,
        min_documents=mining.min_documents,
        max_phrases=mining.max_phrases,
        shortest=mining.shortest,
        stop_words=mining.stop_words,
        memory_limit=_MEMORY,
        threads=os.cpu_count() or 1,
    )
    if not report["phrases"]:
        raise NoPhrasesError("no phrase is left of these corpora", found=", ".join(names))
    return Chosen(folder / CATALOGUE_FILE, unigrams, report)


def joined_counts(recipe: Recipe, folder: Path) -> Path:
    """Sum the counts of the corpora that stay, key by key; what is too rare is out."""
    places = {name: place for place, name in enumerate(recipe.names)}
    sources = []
    for number, origin in enumerate(recipe.origins):
        here = {name: places[name] for name in origin.corpora if name in places}
        catalogue_counts_part(
            folder,
            f"counts-{number}",
            catalogue=str(origin.catalogue),
            places=here,
            n_max=recipe.n_max,
        )
        sources.append(str(folder / f"counts-{number}.parquet"))
    candidates_part(
        folder,
        "candidates",
        sources=sources,
        bucket=None,
        buckets=1,
        corpora=len(places),
        n_max=recipe.n_max,
        min_count=recipe.scoring.mining.min_count,
        min_documents=recipe.scoring.mining.min_documents,
        memory_limit=_MEMORY,
    )
    return folder / "candidates.parquet"


def _take_down(recipe: Recipe, chosen: Chosen, remade: Remade) -> None:
    """Put into the report what became of the phrases that were there."""
    report = chosen.report
    before = sum(phrases_of(origin) for origin in recipe.origins)
    remade.phrases = report["phrases"]
    remade.numbers |= {
        "phrases before": before,
        recipe.fewer: before - report["candidates"],
        "dropped, by score or budget": report["candidates"] - report["phrases"],
    }
    if report["single"]:
        remade.numbers["rows of single tokens"] = report["single"]
    if len(recipe.origins) > 1:
        remade.numbers[LOWER_BOUNDS] = report["phrases"] - _held_by_all(recipe, chosen.catalogue)


def phrases_of(origin: Origin) -> int:
    """Return how many phrases a memory has; single tokens and the root are none."""
    lengths = pq.read_table(origin.catalogue, columns=["n"])["n"].to_numpy()
    return int((lengths >= SHORTEST_PHRASE).sum())


def _held_by_all(recipe: Recipe, catalogue: Path) -> int:
    """Return how many phrases of a catalogue every origin has."""
    table = pq.read_table(catalogue, columns=["n", "tokens"])
    lengths, tokens = key_matrix(table, recipe.n_max)
    phrases: NDArray[np.bool_] = lengths >= SHORTEST_PHRASE
    for origin in recipe.origins:
        with MemoryReader.open(origin.path) as reader:
            phrases &= reader.look_up(tokens, lengths) >= 0
    return int(phrases.sum())


def _vectors(recipe: Recipe, catalogue: Path, rows: int, engine: Engine) -> tuple[list[str], int]:
    """Collect the vectors, a file of each part; and how many had to be made."""
    encoder = recipe.origins[0].manifest.encoder
    # The number format of the encoder ends what a payload says of its source.
    compute = recipe.origins[0].semantic.source.rpartition(" ")[2]
    paths, encoded = [], 0
    for start in range(0, rows, _ROWS_A_PART):
        key = f"vectors-{start:010d}"
        report = embed_part(
            engine.work,
            key,
            catalogue=str(catalogue),
            start=start,
            stop=min(start + _ROWS_A_PART, rows),
            encoder=encoder.id if encoder else "",
            compute=compute,
            batch_size=_BATCH_SIZE,
            kept=[str(origin.path) for origin in recipe.origins],
        )
        paths.append(str(engine.work / f"{key}.npy"))
        encoded += report["encoded"]
    if encoded and encoder is not None:
        _check_encoder(encoder)
    return paths, encoded


def _check_encoder(encoder: EncoderInfo) -> None:
    found = encoder_identity(encoder.id)
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
    # No count store stands beside it.
    mining = recipe.scoring.mining.model_copy(update={"keep_counts": False})
    scoring = replace(recipe.scoring, mining=mining, phrase_shares=shares, candidates=candidates)
    record = build_record(recipe.command, recipe.origins, recipe.settings, remade, corpora)
    return {**record, "scoring": scoring.as_json(), "single": report["single"]}
