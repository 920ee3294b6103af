"""One memory of several, which have different corpora."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from phrasemem.held_out import held_out_lines
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.names import KEY_MAP_NAME
from phrasemem.pipeline.recipe import Recipe, how_counted, stores_of
from phrasemem.pipeline.recombine import LOWER_BOUNDS, recombine
from phrasemem.pipeline.remake import (
    Origin,
    Remade,
    check_output,
    open_origin,
    payload_of,
    tokenizer_of,
)
from phrasemem.pipeline.scoring import Scoring, recorded_scoring

_DUPLICATES = "held-out documents that another memory holds too"


class MergeError(PhraseMemError):
    """Memories that do not go together."""


def merge(
    memories: Sequence[Path],
    out: Path,
    *,
    max_phrases: int | None = None,
    model: str | None = None,
    replace: bool = False,
) -> Remade:
    """Make one memory of the corpora of several.

    Counts are joined key by key, and all phrases are scored again by them. Where each memory has
    its count store beside it, the result is that of a build of all corpora, and has a store too;
    documents that more than one of them counts are in the notes. Without, a phrase that one
    memory lacks was too rare there, or cut: its count there is taken for 0, so what is written
    is a lower bound; how many phrases that concerns is in the notes. Vectors are those of the
    first memory that has the phrase, byte for byte.

    Parameters
    ----------
    memories : sequence of Path
        Two or more, with the same tokenizer, encoder and n_max; not changed.
    out : Path
        Appears complete or not at all.
    max_phrases : int, optional
        The best phrases are kept; as many as the memories have together if not given.
    model : str, optional
        Where the tokenizer is, if not where the first memory says.
    replace : bool
        Replace a memory that stands at ``out``.

    Raises
    ------
    MergeError
        If the memories do not go together.
    PhraseMemError
        With one clear line, for whatever else the user can mend.
    """
    if len(memories) < 2:
        raise MergeError("there is nothing to merge", expected="two memories", found=len(memories))
    check_output(out, memories, replace=replace)
    origins = [open_origin(path) for path in memories]
    for other in origins[1:]:
        _refuse_difference(origins[0], other)
    _refuse_same_names(origins)
    stores = stores_of(origins)
    recipe = Recipe(
        command="merge",
        settings={"max_phrases": max_phrases} | how_counted(stores),
        origins=origins,
        stores=stores,
        corpora=[corpus for origin in origins for corpus in origin.manifest.corpora],
        scoring=_joint_scoring(origins, max_phrases, exact=bool(stores)),
        model=tokenizer_of(origins[0].manifest, model),
        fewer="joined with those of another memory" + (", or dropped" if stores else ""),
    )
    remade = Remade(0, {_DUPLICATES: 0})
    remade.notes += [
        f"not carried over: {left} of {origin.path}"
        for origin in origins
        for left in origin.left_behind
    ]
    recombine(recipe, _held_out(origins, remade), remade, out)
    if lower := remade.numbers.get(LOWER_BOUNDS):
        remade.notes.append(
            f"inexact: counts of {lower:,} phrases are lower bounds, since what a memory does not "
            "hold is taken for 0 there"
        )
    return remade


def _refuse_difference(first: Origin, other: Origin) -> None:
    def properties(origin: Origin) -> dict[str, Any]:
        manifest = origin.manifest
        return {
            "tokenizer": manifest.tokenizer.fingerprint,
            "n_max": manifest.n_max,
            "key normalisation": manifest.key_normalisation,
            "folded ids": manifest.files.get(KEY_MAP_NAME),
            "encoder": manifest.encoder,
            "semantic vectors": payload_of(origin),
            "stop words": recorded_scoring(origin.path).mining.stop_words,
        }

    expected, found = properties(first), properties(other)
    for name, value in expected.items():
        if found[name] != value:
            raise MergeError(
                f"the memories differ in {name}",
                expected=f"{value} ({first.path})",
                found=f"{found[name]} ({other.path})",
                hint="phrasemem retokenize changes the tokenizer" if name == "tokenizer" else None,
            )


def _refuse_same_names(origins: Sequence[Origin]) -> None:
    names = [name for origin in origins for name in origin.corpora]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise MergeError(
            f"more than one memory counts the corpus {', '.join(twice)}",
            hint="its documents would count twice: leave it in one, with phrasemem drop-corpus",
        )


def _joint_scoring(origins: Sequence[Origin], max_phrases: int | None, *, exact: bool) -> Scoring:
    """Return settings under which no phrase is lost but to the budget."""
    found = [recorded_scoring(origin.path) for origin in origins]
    minings = [scoring.mining for scoring in found]
    mining = minings[0].model_copy(
        update={
            "min_count": min(mining.min_count for mining in minings),
            "min_documents": min(mining.min_documents for mining in minings),
            "max_phrases": max_phrases or sum(origin.manifest.entries for origin in origins),
            "max_bytes": None,
            "shortest": max(mining.shortest for mining in minings),
        }
    )
    lowest = mining.min_count, mining.min_documents
    floors = (max(floor) for floor in zip(*(scoring.floor for scoring in found), strict=True))
    floor = lowest if exact else (next(floors), next(floors))
    return changed(found[0], mining=mining, phrase_shares={}, floor=floor)


def _held_out(origins: Sequence[Origin], remade: Remade) -> Iterator[bytes]:
    """Yield the documents of all, a text once."""
    seen: set[bytes] = set()
    for origin in origins:
        for line in held_out_lines(origin.path):
            digest = hashlib.sha256(json.loads(line)["text"].encode()).digest()
            if digest in seen:
                remade.numbers[_DUPLICATES] += 1
            else:
                seen.add(digest)
                yield line
