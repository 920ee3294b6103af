"""What a memory is recombined from, and by which rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from phrasemem.memfmt.key_map import EXACT
from phrasemem.memfmt.keys import SHORTEST_PHRASE
from phrasemem.memfmt.manifest import CorpusInfo
from phrasemem.pipeline.count_store import CountStore, open_store, store_path
from phrasemem.pipeline.remake import Origin
from phrasemem.pipeline.scoring import Scoring, recorded_scoring


@dataclass(frozen=True)
class Recipe:
    """What a memory is recombined from.

    Attributes
    ----------
    command : str
    settings : dict
        What was asked for; plain data.
    origins : sequence of Origin
        Of the same tokenizer, encoder, n_max and folding of keys.
    stores : sequence of CountStore
        Of the origins, in their order; empty where one of them has none.
    corpora : sequence of CorpusInfo
        Those that stay, in their order, each in one origin.
    scoring : Scoring
        How phrases are chosen.
    model : str
        Reference of the tokenizer.
    fewer : str
        What it means where the origins together have more phrases than there are candidates or,
        with count stores, than those of theirs that are chosen.
    """

    command: str
    settings: dict[str, Any]
    origins: Sequence[Origin]
    stores: Sequence[CountStore]
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
    def folded(self) -> bool:
        """Whether keys are folded, so that their ids do not tell the text."""
        return self.origins[0].manifest.key_normalisation != EXACT

    @property
    def unknown(self) -> int:
        """N-grams that the origins had counted but not chosen, so that no counts are known."""
        if self.stores:
            return 0
        return sum(
            max(0, recorded_scoring(origin.path).candidates - phrases_of(origin))
            for origin in self.origins
        )


def stores_of(origins: Sequence[Origin]) -> list[CountStore]:
    """Open and check the count stores of memories; none where one of them has none.

    Raises
    ------
    CountStoreError, FormatError
        If one is damaged or belongs to another memory.
    """
    found = [open_store(store_path(origin.path), origin.manifest) for origin in origins]
    stores = [store for store in found if store is not None]
    return stores if len(stores) == len(found) else []


def how_counted(stores: Sequence[CountStore]) -> dict[str, Any]:
    """Return what belongs to the settings of a memory that is made with count stores."""
    return {"counts": True} if stores else {}


def phrases_of(origin: Origin) -> int:
    """Return how many phrases a memory has; single tokens and the root are none."""
    lengths = pq.read_table(origin.catalogue, columns=["n"])["n"].to_numpy()
    return int((lengths >= SHORTEST_PHRASE).sum())
