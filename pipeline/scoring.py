"""What a memory says about how its phrases were chosen: ``scoring`` in ``build.json``.

Together with the counts in ``catalogue.parquet`` and ``unigrams.parquet`` it is all that a new
choice needs, so that a memory can grow and shrink without the text it was built from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, NonNegativeInt, PositiveInt, ValidationError

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.config import BuildConfig, Mining
from phrasemem.pipeline.existing import BUILD_FILE, recorded_build


class ScoringError(PhraseMemError):
    """A memory that does not say how its phrases were chosen."""


@dataclass(frozen=True)
class Scoring:
    """How the phrases of a memory were chosen.

    Attributes
    ----------
    mining : Mining
    phrase_shares : dict
        Of each corpus; None where the share follows the tokens.
    candidates : int
        N-grams that passed ``min_count`` and ``min_documents``; the catalogue has fewer.
    floor : (count, documents)
        What was rarer than this over all corpora was not counted: where it is above 1, a corpus
        that is added may bring phrases whose earlier occurrences are not known.
    """

    mining: Mining
    phrase_shares: dict[str, float | None]
    candidates: int
    floor: tuple[int, int]

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "mining": self.mining.model_dump(),
            "phrase_shares": dict(self.phrase_shares),
            "candidates": self.candidates,
            "floor": {"count": self.floor[0], "documents": self.floor[1]},
        }


class _Floor(BaseModel):
    count: PositiveInt
    documents: PositiveInt


class _Recorded(BaseModel):
    mining: Mining
    phrase_shares: dict[str, Annotated[float, Field(ge=0, le=1)] | None]
    candidates: NonNegativeInt
    floor: _Floor


def scoring_of(
    config: BuildConfig, candidates: int, earlier: Mapping[str, float | None]
) -> Scoring:
    """Return what a build's memory says; ``earlier`` has the shares of corpora before it."""
    mining = config.mining
    shares = {corpus.name: corpus.budget.phrase_share for corpus in config.corpora}
    shares = {**earlier, **shares}
    return Scoring(mining, shares, candidates, (mining.min_count, mining.min_documents))


def recorded_scoring(memory: Path) -> Scoring:
    """Read what a memory says.

    Raises
    ------
    ScoringError
        If it says nothing, as memories of other makers do.
    """
    record = recorded_build(memory) or {}
    try:
        found = _Recorded.model_validate(_with_formula(record["scoring"]))
    except (KeyError, TypeError, ValidationError) as error:
        raise ScoringError(
            "the memory does not say how its phrases were chosen",
            where=memory / BUILD_FILE,
            hint="build it again",
        ) from error
    floor = (found.floor.count, found.floor.documents)
    return Scoring(found.mining, found.phrase_shares, found.candidates, floor)


def _with_formula(scoring: dict[str, Any]) -> dict[str, Any]:
    """Name the formula of memories that were made when there was one."""
    return {**scoring, "mining": {"score": "collocation", **scoring["mining"]}}
