"""Stage ``score``: how phrase-like every candidate is, and which make the catalogue.

Measures, with f the count of a phrase of n tokens, N the tokens of all corpora, u_i the counts
of its tokens:

- NPMI (Bouma 2009), over n tokens: ``(ln f/N - sum ln u_i/N) / (-(n - 1) ln f/N)``.
- Log-likelihood ratio (Dunning 1993) of the weakest split into two known parts; a phrase that
  has none (one long word) gets ``2 f (ln f/N - sum ln u_i/N)``. Zero if the parts repel.
- C-value (Frantzi et al. 2000): ``log2(n) (f - mean count of the longer candidates around it)``.
- Spread: ``ln(1 + documents) / ln(1 + f)``, in 0..1.

``score = max(NPMI, 0) * log2(1 + max(C-value, 0)) * spread``: it wants words that belong
together, often, on their own, and in many documents. The log-likelihood ratio filters:
candidates below ``LLR_FLOOR`` are out. Branching entropies are left out: they need the counts of
n-grams that end inside words or below ``min_count``, which pass B does not keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

# chi-squared with one degree of freedom at p = 0.001
LLR_FLOOR = 10.83


def load(
    database: duckdb.DuckDBPyConnection,
    candidates: Sequence[str],
    unigrams: pa.Table,
    function_words: Sequence[bool],
    n_max: int,
) -> int:
    """Make the tables ``grams``, ``unigrams`` and ``parts_1..``; return the number of tokens.

    Parameters
    ----------
    candidates : sequence of str
        Parquet files of the stage ``candidates``.
    unigrams : table
        token and count of all tokens that occur, rising.
    function_words : sequence of bool
        For each token id, whether a phrase of such tokens alone is none.
    """
    tokens = _columns(n_max)
    vocabulary = pa.table(
        {
            "token": pa.array(range(len(function_words)), pa.uint32()),
            "is_function": pa.array(function_words, pa.bool_()),
        }
    )
    database.register("vocabulary", vocabulary)
    database.register("token_counts", unigrams)
    database.execute(
        "CREATE TABLE unigrams AS SELECT token, count::BIGINT AS count, is_function "
        "FROM token_counts JOIN vocabulary USING (token)"
    )
    database.execute(
        f"CREATE TABLE grams AS SELECT row_number() OVER (ORDER BY n, {tokens}) - 1 AS id, * "
        "FROM read_parquet(?)",
        [list(candidates)],
    )
    database.execute("CREATE TABLE parts_1 AS SELECT token AS t0, count FROM unigrams")
    for length in range(2, n_max):
        columns = _columns(length)
        database.execute(
            f"CREATE TABLE parts_{length} AS SELECT {columns}, count::BIGINT AS count, id "
            f"FROM grams WHERE n = {length}"
        )
    rows = database.execute("SELECT coalesce(sum(count), 0)::BIGINT FROM unigrams").fetchall()
    return int(rows[0][0])


def measure(database: duckdb.DuckDBPyConnection, tokens: int, n_max: int) -> None:
    """Make the table ``scored``: id, npmi, llr, cvalue, score, is_function."""
    database.execute(f"CREATE TABLE joint AS {_joint_query(tokens, n_max)}")
    database.execute(f"CREATE TABLE splits AS {_splits_query(tokens, n_max)}")
    database.execute(f"CREATE TABLE nested AS {_nested_query(n_max)}")
    database.execute(f"CREATE TABLE scored AS {_scored_query(tokens)}")


def choose(
    database: duckdb.DuckDBPyConnection,
    corpus_tokens: Sequence[int],
    shares: Sequence[float],
    max_phrases: int,
) -> None:
    """Make the table ``chosen`` (id, home): the best phrases within the budget.

    A phrase belongs to the corpus in which it is relatively most frequent. Each corpus first
    gets the best of its own up to its share; what is left goes to the best of all.
    """
    rates = ", ".join(
        f"count_{corpus} / {max(1, total)}.0::DOUBLE" for corpus, total in enumerate(corpus_tokens)
    )
    quotas = ", ".join(str(int(share * max_phrases)) for share in shares)
    database.execute(
        f"""
        CREATE TABLE chosen AS
        WITH wanted AS (
          SELECT id, score, list_position([{rates}], list_max([{rates}])) AS home
          FROM scored JOIN grams USING (id)
          WHERE NOT is_function AND score > 0 AND llr >= {LLR_FLOOR}
        ), placed AS (
          SELECT *, row_number() OVER (PARTITION BY home ORDER BY score DESC, id) AS place
          FROM wanted
        )
        SELECT id, home - 1 AS home FROM placed
        ORDER BY place <= list_extract([{quotas}]::BIGINT[], home) DESC, score DESC, id
        LIMIT {max_phrases}
        """
    )


def phrase_shares(corpus_tokens: Sequence[int], given: Sequence[float | None]) -> list[float]:
    """Return a share of the phrases for each corpus; they sum to 1.

    Where none is given the rest is shared in proportion to the tokens.
    """
    rest = 1.0 - sum(share for share in given if share is not None)
    open_tokens = sum(
        tokens for tokens, share in zip(corpus_tokens, given, strict=True) if share is None
    )
    return [
        share if share is not None else rest * tokens / max(1, open_tokens)
        for tokens, share in zip(corpus_tokens, given, strict=True)
    ]


def function_words(texts: Sequence[str], stop_words: str | None) -> list[bool]:
    """Tell for each token text whether it is a function word or holds no letter or digit.

    Only English has a list (scikit-learn's); for other languages only marks count.
    """
    words = ENGLISH_STOP_WORDS if stop_words == "english" else frozenset[str]()
    return [
        text.strip().lower() in words or not any(mark.isalnum() for mark in text) for text in texts
    ]


def _columns(length: int, table: str = "") -> str:
    prefix = f"{table}." if table else ""
    return ", ".join(f"{prefix}t{place}" for place in range(length))


def _joint_query(tokens: int, n_max: int) -> str:
    """Return SQL for ``lift = ln f/N - sum ln u_i/N`` and whether all tokens are function words."""
    joins = " ".join(
        f"LEFT JOIN unigrams u{place} ON u{place}.token = g.t{place}" for place in range(n_max)
    )
    logs = " + ".join(
        f"CASE WHEN n > {place} THEN ln(u{place}.count / {tokens}.0::DOUBLE) ELSE 0 END"
        for place in range(n_max)
    )
    functions = " AND ".join(f"(n <= {place} OR u{place}.is_function)" for place in range(n_max))
    return (
        f"SELECT g.id, ln(g.count / {tokens}.0::DOUBLE) - ({logs}) AS lift, "
        f"{functions} AS is_function FROM grams g {joins}"
    )


def _splits_query(tokens: int, n_max: int) -> str:
    """Return SQL for the least log-likelihood ratio over the splits into two known parts."""
    queries = []
    for length in range(2, n_max + 1):
        for cut in range(1, length):
            left = " AND ".join(f"l.t{place} = g.t{place}" for place in range(cut))
            right = " AND ".join(f"r.t{place} = g.t{place + cut}" for place in range(length - cut))
            queries.append(
                "SELECT g.id, g.count::DOUBLE AS f, l.count::DOUBLE AS a, r.count::DOUBLE AS b "
                f"FROM grams g JOIN parts_{cut} l ON {left} "
                f"JOIN parts_{length - cut} r ON {right} "
                f"WHERE g.n = {length} AND l.count >= g.count AND r.count >= g.count"
            )
    total = f"{tokens}.0::DOUBLE"
    ratio = (
        f"2 * ({_xlogx('f')} + {_xlogx('a - f')} + {_xlogx('b - f')} "
        f"+ {_xlogx(f'{total} - a - b + f')} - {_xlogx('a')} - {_xlogx('b')} "
        f"- {_xlogx(f'{total} - a')} - {_xlogx(f'{total} - b')} + {_xlogx(total)})"
    )
    return (
        f"SELECT id, min(CASE WHEN f * {total} > a * b THEN {ratio} ELSE 0 END) AS llr "
        f"FROM ({' UNION ALL '.join(queries)}) GROUP BY id"
    )


def _xlogx(term: str) -> str:
    return f"(CASE WHEN {term} > 0 THEN ({term}) * ln({term}) ELSE 0 END)"


def _nested_query(n_max: int) -> str:
    """Return SQL for how many longer candidates hold each one, and the sum of their counts."""
    queries = list(_nestings(n_max)) or ["SELECT 0::BIGINT AS id, 0::BIGINT AS f WHERE false"]
    return (
        "SELECT id, count(*) AS holders, sum(f)::BIGINT AS held "
        f"FROM ({' UNION ALL '.join(queries)}) GROUP BY id"
    )


def _nestings(n_max: int) -> Iterator[str]:
    for length in range(3, n_max + 1):
        for part in range(2, length):
            for start in range(length - part + 1):
                same = " AND ".join(f"p.t{place} = g.t{start + place}" for place in range(part))
                yield (
                    "SELECT p.id, g.count::BIGINT AS f "
                    f"FROM grams g JOIN parts_{part} p ON {same} WHERE g.n = {length}"
                )


def _scored_query(tokens: int) -> str:
    return f"""
        WITH measured AS (
          SELECT id, n, count, documents, is_function,
            coalesce(lift / nullif((n - 1) * -ln(count / {tokens}.0::DOUBLE), 0), 1.0) AS npmi,
            coalesce(llr, greatest(0, 2 * count * lift)) AS llr,
            log2(n) * (count - coalesce(held / holders, 0)) AS cvalue
          FROM grams JOIN joint USING (id) LEFT JOIN splits USING (id) LEFT JOIN nested USING (id)
        )
        SELECT *, greatest(npmi, 0) * log2(1 + greatest(cvalue, 0))
          * ln(1 + documents) / ln(1 + count) AS score
        FROM measured
    """
