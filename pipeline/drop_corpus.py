"""A memory without one of its corpora."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from phrasemem.held_out import held_out_lines
from phrasemem.pipeline.recipe import Recipe, how_counted, stores_of
from phrasemem.pipeline.recombine import recombine
from phrasemem.pipeline.remake import (
    Origin,
    OriginError,
    Remade,
    check_output,
    open_origin,
    recorded_corpora,
    tokenizer_of,
)
from phrasemem.pipeline.scoring import recorded_scoring


def drop_corpus(
    memory: Path, name: str, out: Path, *, model: str | None = None, replace: bool = False
) -> Remade:
    """Make the memory that is left when a corpus goes.

    Its counts and held-out documents go; phrases that are too rare without it go; the others are
    scored again. Vectors are kept, byte for byte. With the count store beside the memory the
    result equals a fresh build from the corpora that stay, and has a store too; without, as far
    as the memory knows their phrases. What is not known is counted in the notes.

    Parameters
    ----------
    memory : Path
        Not changed.
    name : str
        The corpus.
    out : Path
        Appears complete or not at all.
    model : str, optional
        Where the tokenizer is, if not where the memory says.
    replace : bool
        Replace a memory that stands at ``out``.

    Raises
    ------
    PhraseMemError
        With one clear line, for whatever the user can mend.
    """
    check_output(out, [memory], replace=replace)
    origin = open_origin(memory)
    if name not in origin.corpora or len(origin.corpora) == 1:
        raise OriginError(
            f"{name} is the only corpus" if name in origin.corpora else "no such corpus",
            expected=f"one of {', '.join(origin.corpora)}",
            found=name,
            where=memory,
        )
    stores = stores_of([origin])
    rarer = "too rare or of too low a score" if stores else "too rare"
    recipe = Recipe(
        command="drop-corpus",
        settings={"corpus": name} | how_counted(stores),
        origins=[origin],
        stores=stores,
        corpora=[corpus for corpus in origin.manifest.corpora if corpus.name != name],
        scoring=recorded_scoring(memory),
        model=tokenizer_of(origin.manifest, model),
        fewer=f"dropped, {rarer} without {name}",
    )
    remade = Remade(0, notes=[f"not carried over: {left}" for left in origin.left_behind])
    if unknown := recipe.unknown:
        remade.notes.append(
            f"inexact: {unknown:,} n-grams had been counted but not chosen, and are not known; "
            "a fresh build may choose some of them, and scores others by them"
        )
    if hidden := _hidden_documents(origin, name):
        remade.notes.append(
            f"inexact: up to {hidden:,} documents of the corpora that stay had been left out as "
            f"duplicates, maybe of {name}; a fresh build would mine those"
        )
    if recipe.folded:
        remade.notes.append(f"the spelling of a phrase may still be the one in {name}")
    recombine(recipe, _others(origin, name), remade, out)
    return remade


def _hidden_documents(origin: Origin, name: str) -> int:
    """Count documents of other corpora that may have been left out as duplicates of this one.

    A text is a duplicate of one of the same or an earlier corpus, a title of one of its kind.
    """
    [kind] = [corpus.kind for corpus in origin.manifest.corpora if corpus.name == name]
    decisions = {e.get("name"): e.get("decisions", {}) for e in recorded_corpora(origin)}
    place = origin.corpora.index(name)
    texts = sum(
        decisions.get(other, {}).get("duplicate-text", 0) for other in origin.corpora[place + 1 :]
    )
    titles = sum(
        decisions.get(corpus.name, {}).get("duplicate-title", 0)
        for corpus in origin.manifest.corpora
        if corpus.kind == kind and corpus.name != name
    )
    return texts + titles


def _others(origin: Origin, name: str) -> Iterator[bytes]:
    for line in held_out_lines(origin.path):
        if json.loads(line)["corpus"] != name:
            yield line
