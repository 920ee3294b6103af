"""Why a phrase is in the catalogue or not: what each of its spellings met on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from phrasemem.pipeline.boundaries import (
    CUT_AFTER,
    MAY_END,
    MAY_START,
    flags_of,
    token_texts,
    vocabulary_of,
)
from phrasemem.pipeline.buckets import BUCKETED, bucket_that_holds
from phrasemem.pipeline.choice import CHOSEN, NESTED, OVER_BUDGET, phrase_shares, quotas_of
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.count import gram_hashes
from phrasemem.pipeline.database import PARQUET, rows_of
from phrasemem.pipeline.folding import key_map_of
from phrasemem.pipeline.mine import Mined
from phrasemem.pipeline.phrase_stages import keeps_all
from phrasemem.pipeline.rekey import running_keys
from phrasemem.pipeline.tokens import corpus_tokenizer, token_ids
from phrasemem.pipeline.unigrams import UNIGRAMS_FILE, read_unigrams

SINGLE = "a single token"
TOO_LONG = "longer than n_max"
INSIDE_A_WORD = "does not begin and end at word boundaries"
ACROSS = "runs across the end of a sentence or line"
ABSENT = "does not occur"
TOO_RARE = "below min_count"
TOO_FEW_DOCUMENTS = "below min_documents"

_MEASURES = ("npmi", "llr", "cvalue", "left_entropy", "right_entropy", "score")


@dataclass(frozen=True)
class Explained:
    """One tokenization of a phrase, and what became of it.

    Attributes
    ----------
    spelling : str
        The text that has these tokens, with the space before it, if one is meant.
    tokens : list of int
    pieces : list of str
        Texts of the tokens.
    verdict : str
        ``chosen``, or the first rule that dropped it.
    detail : str
        The figures behind the verdict, in words.
    count, documents : int or None
        None where they are not known.
    corpora : dict
        Of each corpus: count and documents.
    scores : dict
        Its measures, if it is a candidate; None where one is not known.
    """

    spelling: str
    tokens: list[int]
    pieces: list[str]
    verdict: str
    detail: str = ""
    count: int | None = None
    documents: int | None = None
    corpora: dict[str, dict[str, int]] = field(default_factory=dict)
    scores: dict[str, float | None] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def explain(phrase: str, config: BuildConfig, mined: Mined) -> list[Explained]:
    """Follow a phrase through what mining left in the work folder.

    Spellings are the phrase as given, in lower case, with a capital and in title case, each
    after a space and at the start of a text; those of the same tokens are one.

    Parameters
    ----------
    phrase : str
    config : BuildConfig
        What was mined.
    mined : Mined
    """
    tokenizer = corpus_tokenizer(config.model)
    return [
        _explained(spelling, tokens, config, mined)
        for tokens, spelling in spellings(phrase.strip(), tokenizer).items()
    ]


def spellings(phrase: str, tokenizer: Any) -> dict[tuple[int, ...], str]:
    """Return the ways in which a text may hold a phrase, by their tokens."""
    cases = [phrase, phrase.lower(), phrase[:1].upper() + phrase[1:], phrase.title()]
    found: dict[tuple[int, ...], str] = {}
    running = running_keys(cases, tokenizer)
    starting = [ids.tolist() for ids in token_ids(cases, tokenizer.backend_tokenizer)]
    for case, after_a_space, at_the_start in zip(cases, running, starting, strict=True):
        found.setdefault(tuple(after_a_space), f" {case}")
        found.setdefault(tuple(at_the_start), case)
    found.pop((), None)
    return found


def _explained(spelling: str, ids: tuple[int, ...], config: BuildConfig, mined: Mined) -> Explained:
    tokenizer = corpus_tokenizer(config.model)
    backend = tokenizer.backend_tokenizer
    pieces = backend.decode_batch([[token] for token in ids], skip_special_tokens=False)
    tokens = list(ids)
    if config.folding_model is not None:
        tokens = key_map_of(config.folding_model).fold(np.array(ids, np.uint32)).tolist()
    known: dict[str, Any] = (
        broken_form(ids, tokenizer, config.mining.n_max)
        or _candidate(tokens, config, mined)
        or _rare(tokens, config, mined)
    )
    return Explained(spelling, tokens, pieces, **known)


def broken_form(ids: Sequence[int], tokenizer: Any, n_max: int) -> dict[str, Any] | None:
    """Return the rule that the tokens themselves break, whatever the corpora."""
    if len(ids) < 2:
        return {"verdict": SINGLE, "detail": "rows of single tokens: mining.shortest"}
    if len(ids) > n_max:
        return {"verdict": TOO_LONG, "detail": f"{len(ids)} tokens, n_max {n_max}"}
    vocabulary = vocabulary_of(token_texts(tokenizer))
    flags = flags_of(np.array(ids, np.uint32), np.array([len(ids)]), vocabulary)
    if not (flags[0] & MAY_START and flags[-1] & MAY_END):
        return {"verdict": INSIDE_A_WORD}
    if (flags[:-1] & CUT_AFTER).any():
        return {"verdict": ACROSS}
    return None


def _candidate(tokens: list[int], config: BuildConfig, mined: Mined) -> dict[str, Any] | None:
    """Return what ``scored.parquet`` says of a candidate."""
    wanted = f"SELECT * FROM {PARQUET} WHERE tokens = ?::UINTEGER[]"
    rows = rows_of(duckdb.execute(wanted, [[str(mined.scored)], tokens]))
    if not rows:
        return None
    row = rows[0]
    return {
        "verdict": row["verdict"],
        "detail": _detail(row, config, mined),
        **figures(row, [corpus.name for corpus in config.corpora]),
    }


def figures(row: Mapping[str, Any], corpora: Sequence[str]) -> dict[str, Any]:
    """Return counts and scores of a row; older catalogues lack entropies."""
    return {
        "count": row["count"],
        "documents": row["documents"],
        "corpora": {
            name: {"count": row[f"count_{name}"], "documents": row[f"documents_{name}"]}
            for name in corpora
        },
        "scores": {name: row.get(name) for name in _MEASURES},
    }


def _detail(row: dict[str, Any], config: BuildConfig, mined: Mined) -> str:
    if row["verdict"] == NESTED:
        query = f"SELECT text, count FROM {PARQUET} WHERE row = ?"
        text, count = duckdb.execute(query, [[str(mined.scored)], row["holder"]]).fetchall()[0]
        return f"{count:,} of {row['count']:,} inside {text!r}"
    if row["verdict"] not in (CHOSEN, OVER_BUDGET):
        return ""
    quota = _quotas(config, mined)[row["home"]]
    cut = duckdb.execute(
        f"SELECT min(score) FROM {PARQUET} WHERE verdict = ? AND home = ?",
        [[str(mined.scored)], CHOSEN, row["home"]],
    ).fetchall()[0][0]
    least = "" if cut is None else f"; the least score chosen there is {cut:.3f}"
    return f"place {row['place']:,} in {row['home']}, of {quota:,} served first{least}"


def _quotas(config: BuildConfig, mined: Mined) -> dict[str, int]:
    """Return how many phrases each corpus is served first."""
    names = [corpus.name for corpus in config.corpora]
    unigrams = read_unigrams(mined.work / mined.plan.unigrams.name / UNIGRAMS_FILE, names)
    shares = phrase_shares(
        unigrams.corpus_tokens(),
        [corpus.budget.phrase_share for corpus in config.corpora],
        [corpus.kind for corpus in config.corpora],
        config.mining.kind_shares,
    )
    budget = mined.max_phrases
    return dict(zip(names, quotas_of(shares, budget), strict=True))


def _rare(tokens: list[int], config: BuildConfig, mined: Mined) -> dict[str, Any]:
    """Return how often an n-gram occurs that is no candidate, from the counts by partition."""
    n_max = config.mining.n_max
    padded = np.zeros((1, n_max), np.uint32)
    padded[0, : len(tokens)] = tokens
    key = int(gram_hashes(np.array([len(tokens)], np.uint8), padded)[0])
    columns = " AND ".join(f"t{place} = {token}" for place, token in enumerate(padded[0]))
    with duckdb.connect() as database:
        database.register("counted", _around(key, mined.work / mined.plan.counts.name))
        exact = database.execute(
            "SELECT sum(count)::BIGINT, sum(documents)::BIGINT FROM counted "
            f"WHERE hash = {key}::UBIGINT AND n = {len(tokens)} AND {columns}"
        ).fetchall()[0]
    if exact[0] is None and not keeps_all(mined.plan):
        exact = (_hashed(key, mined), None)
    count, documents = exact
    figures = {"count": count or 0, "documents": documents}
    if not count:
        return {"verdict": ABSENT, "count": 0, "documents": 0}
    if count < config.mining.min_count:
        detail = f"occurs {count:,} times, min_count is {config.mining.min_count}"
        return {"verdict": TOO_RARE, "detail": detail, **figures}
    detail = f"in {documents:,} documents, min_documents is {config.mining.min_documents}"
    return {"verdict": TOO_FEW_DOCUMENTS, "detail": detail, **figures}


def _hashed(key: int, mined: Mined) -> int:
    """Return the count of a hash in pass A, which may be that of another n-gram too."""
    query = "SELECT coalesce(sum(count), 0)::BIGINT FROM hashed WHERE hash = ?::UBIGINT"
    with duckdb.connect() as database:
        database.register("hashed", _around(key, mined.work / mined.plan.hashes.name))
        return int(database.execute(query, [key]).fetchall()[0][0])


def _around(key: int, folder: Path) -> pa.RecordBatchReader:
    paths = sorted(str(path) for path in folder.glob(f"*{BUCKETED}"))
    return bucket_that_holds(paths, key)
