"""A memory without one of its corpora."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from phrasemem.held_out import held_out_lines
from phrasemem.pipeline.recombine import Recipe, recombine
from phrasemem.pipeline.remake import (
    Origin,
    OriginError,
    Remade,
    check_output,
    open_origin,
    tokenizer_of,
)
from phrasemem.pipeline.scoring import recorded_scoring


def drop_corpus(
    memory: Path, name: str, out: Path, *, model: str | None = None, replace: bool = False
) -> Remade:
    """Make the memory that is left when a corpus goes.

    Its counts and held-out documents go; phrases that are too rare without it go; the others are
    scored again. Vectors are kept, byte for byte. It equals a fresh build from the corpora that
    stay as far as the memory knows their phrases; what it does not know is counted in the notes.

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
    recipe = Recipe(
        command="drop-corpus",
        settings={"corpus": name},
        origins=[origin],
        corpora=[corpus for corpus in origin.manifest.corpora if corpus.name != name],
        scoring=recorded_scoring(memory),
        model=tokenizer_of(origin.manifest, model),
        fewer=f"dropped, too rare without {name}",
    )
    remade = Remade(0, notes=[f"not carried over: {left}" for left in origin.left_behind])
    if unknown := recipe.unknown:
        remade.notes.append(
            f"inexact: {unknown:,} n-grams had been counted but not chosen, and are not known; "
            "a fresh build may choose some of them, and scores others by them"
        )
    recombine(recipe, _others(origin, name), remade, out)
    return remade


def _others(origin: Origin, name: str) -> Iterator[bytes]:
    for line in held_out_lines(origin.path):
        if json.loads(line)["corpus"] != name:
            yield line
