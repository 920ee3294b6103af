"""What a finished memory alone tells of a phrase: that it is in, or what may have kept it out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from phrasemem.memfmt.key_map import EXACT
from phrasemem.memfmt.manifest import Manifest
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.pipeline.catalogue_counts import CatalogueError
from phrasemem.pipeline.choice import CHOSEN
from phrasemem.pipeline.database import rows_of
from phrasemem.pipeline.derive import CATALOGUE_FILE
from phrasemem.pipeline.explain_phrase import Explained, broken_form, figures, spellings
from phrasemem.pipeline.folding import key_map_of
from phrasemem.pipeline.remake import tokenizer_of
from phrasemem.pipeline.scoring import ScoringError, recorded_scoring
from phrasemem.pipeline.tokens import corpus_tokenizer

NOT_IN_THE_MEMORY = "not in the memory"


def explain_in_memory(phrase: str, memory: Path, model: str | None = None) -> list[Explained]:
    """Look a phrase up in ``catalogue.parquet``, in the spellings of :func:`spellings`.

    Counts and scores of what was not chosen are only in the work folder of the build, so that
    the rule which dropped a phrase is named only where its tokens alone break it.

    Parameters
    ----------
    phrase : str
    memory : Path
    model : str, optional
        Where the tokenizer is, if not where the memory says.

    Raises
    ------
    CatalogueError
        If the memory has no catalogue.
    OriginError
        If the tokenizer is another one.
    """
    with MemoryReader.open(memory) as reader:
        manifest = reader.manifest
    if CATALOGUE_FILE not in manifest.files:
        raise CatalogueError(f"the memory has no {CATALOGUE_FILE}", where=memory)
    reference = tokenizer_of(manifest, model)
    return [
        _explained(spelling, ids, memory, manifest, reference)
        for ids, spelling in spellings(phrase.strip(), corpus_tokenizer(reference)).items()
    ]


def _explained(
    spelling: str, ids: Sequence[int], memory: Path, manifest: Manifest, reference: str
) -> Explained:
    tokenizer = corpus_tokenizer(reference)
    backend = tokenizer.backend_tokenizer
    pieces = backend.decode_batch([[token] for token in ids], skip_special_tokens=False)
    tokens = list(ids)
    if manifest.key_normalisation != EXACT:
        tokens = key_map_of(reference).fold(np.array(ids, np.uint32)).tolist()
    known = (
        _row(tokens, memory, manifest)
        or broken_form(ids, tokenizer, manifest.n_max)
        or {"verdict": NOT_IN_THE_MEMORY, "detail": _limits(memory)}
    )
    return Explained(spelling, tokens, pieces, **known)


def _row(tokens: list[int], memory: Path, manifest: Manifest) -> dict[str, Any] | None:
    wanted = f"SELECT * FROM read_parquet(?) WHERE tokens = {tokens}::UINTEGER[]"
    rows = rows_of(duckdb.execute(wanted, [str(memory / CATALOGUE_FILE)]))
    if not rows:
        return None
    names = [corpus.name for corpus in manifest.corpora]
    return {"verdict": CHOSEN, "detail": f"row {rows[0]['row']:,}", **figures(rows[0], names)}


def _limits(memory: Path) -> str:
    """Say what a phrase had to reach, as far as ``build.json`` tells."""
    elsewhere = "which rule dropped it is in the work folder of the build alone (--work)"
    try:
        scoring = recorded_scoring(memory)
    except ScoringError:
        return elsewhere
    mining = scoring.mining
    return (
        f"chosen were at most {mining.max_phrases:,} of {scoring.candidates:,} candidates, which "
        f"occur {mining.min_count:,} times in {mining.min_documents:,} documents or more; "
        f"{elsewhere}"
    )
