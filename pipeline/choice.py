"""Which of the scored candidates make the catalogue: rules, nested phrases, budgets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from phrasemem.pipeline.score import nestings

# chi-squared with one degree of freedom at p = 0.001
LLR_FLOOR = 10.83

FUNCTION_WORDS = "function words only"
WEAK = "weak association"
NO_SCORE = "score of zero"
NESTED = "nested"
OVER_BUDGET = "over budget"
CHOSEN = "chosen"


def judge(
    database: duckdb.DuckDBPyConnection,
    corpus_tokens: Sequence[int],
    n_max: int,
    *,
    allow_function_runs: bool,
    nested_share: float | None,
) -> None:
    """Make the table ``judged``: id, score, home, place, reason, holder.

    A phrase belongs to the corpus in which it is relatively most frequent, its home. ``reason``
    is the first rule that it breaks, or null; ``place`` counts those that break none at their
    home, best first, from 1. ``holder`` is the longer candidate that it is nested in.

    Parameters
    ----------
    nested_share : float or None
        A phrase is nested if a longer one that breaks no other rule has at least this share of
        its count and no lower score. None: nothing is.
    """
    rates = ", ".join(
        f"count_{corpus} / {max(1, total)}.0::DOUBLE" for corpus, total in enumerate(corpus_tokens)
    )
    functions = "" if allow_function_runs else f"WHEN is_function THEN '{FUNCTION_WORDS}'"
    database.execute(
        f"""
        CREATE TABLE ruled AS
        SELECT id, n, score, count, list_position([{rates}], list_max([{rates}])) - 1 AS home,
          CASE {functions} WHEN llr < {LLR_FLOOR} THEN '{WEAK}'
               WHEN score <= 0 THEN '{NO_SCORE}' END AS reason
        FROM scored JOIN grams USING (id, n, count, documents)
        """
    )
    database.execute(f"CREATE TABLE holders AS {_holders_query(n_max, nested_share)}")
    database.execute(
        f"""
        CREATE TABLE judged AS
        WITH every AS (
          SELECT id, score, home, holder,
            coalesce(reason, CASE WHEN holder IS NOT NULL THEN '{NESTED}' END) AS reason
          FROM ruled LEFT JOIN holders USING (id)
        )
        SELECT *, CASE WHEN reason IS NULL THEN row_number() OVER (
          PARTITION BY reason IS NULL, home ORDER BY score DESC, id) END AS place
        FROM every
        """
    )


def _holders_query(n_max: int, nested_share: float | None) -> str:
    nothing = "SELECT 0::BIGINT AS id, 0::BIGINT AS holder WHERE false"
    if nested_share is None or n_max < 3:
        return nothing
    pairs = " UNION ALL ".join(nestings(n_max))
    return f"""
        SELECT p.id, arg_max(g.id, g.count::HUGEINT * 4294967296 - g.id) AS holder
        FROM ({pairs}) pair JOIN ruled p ON p.id = pair.id JOIN ruled g ON g.id = pair.holder
        WHERE p.reason IS NULL AND g.reason IS NULL AND g.score >= p.score
          AND g.count >= {nested_share!r}::DOUBLE * p.count
        GROUP BY p.id
    """


def choose(database: duckdb.DuckDBPyConnection, shares: Sequence[float], max_phrases: int) -> None:
    """Make the table ``chosen`` (id, home): the best phrases within the budget.

    Each corpus first gets the best of its own up to its share; what is left goes to the best of
    all.
    """
    quotas = ", ".join(str(quota) for quota in quotas_of(shares, max_phrases))
    database.execute(
        f"""
        CREATE TABLE chosen AS
        SELECT id, home FROM judged WHERE reason IS NULL
        ORDER BY place <= list_extract([{quotas}]::BIGINT[], home + 1) DESC, score DESC, id
        LIMIT {max_phrases}
        """
    )


def quotas_of(shares: Sequence[float], max_phrases: int) -> list[int]:
    """Return how many phrases of each corpus are served first."""
    return [int(share * max_phrases) for share in shares]


def phrase_shares(
    corpus_tokens: Sequence[int],
    given: Sequence[float | None],
    kinds: Sequence[str] = (),
    kind_shares: Mapping[Any, float] | None = None,
) -> list[float]:
    """Return a share of the phrases for each corpus.

    The share of a kind is split among its corpora: what is given to some of them by name comes
    off, the others get the rest in proportion to their tokens. So is shared what no kind and no
    corpus was given, among the corpora of other kinds. The shares sum to 1 unless a kind has no
    corpus that could take its rest.
    """
    wanted = kind_shares or {}
    pools: defaultdict[str | None, list[int]] = defaultdict(list)
    for place in range(len(given)):
        kind = kinds[place] if kinds else None
        pools[kind if kind in wanted else None].append(place)
    rest = 1.0 - sum(wanted[kind] for kind in pools if kind is not None)
    shares = [share or 0.0 for share in given]
    for pool, places in pools.items():
        left = (rest if pool is None else wanted[pool]) - sum(given[p] or 0.0 for p in places)
        free = [place for place in places if given[place] is None]
        tokens = sum(corpus_tokens[place] for place in free)
        for place in free:
            shares[place] = max(0.0, left) * corpus_tokens[place] / max(1, tokens)
    return shares
