"""Token runs as keys see them: with folded ids, where the configuration wants such keys."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from phrasemem import backbone
from phrasemem.folding import engram_key_map
from phrasemem.memfmt.key_map import KeyMap

if TYPE_CHECKING:
    # It imports what a build that has nothing to do goes without.
    from phrasemem.pipeline.tokens import TokenRun


@lru_cache(maxsize=1)
def key_map_of(model: str) -> KeyMap:
    """Return the key map of a model's tokenizer; made once a process."""
    return engram_key_map(backbone.load_tokenizer(model))


def folded_run(run: TokenRun, folding_model: str | None) -> TokenRun:
    """Fold the tokens of a run and leave its boundaries; None leaves all as it is."""
    if folding_model is None:
        return run
    return run._replace(tokens=key_map_of(folding_model).fold(run.tokens))
