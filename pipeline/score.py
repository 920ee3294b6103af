"""Stage ``score``: how phrase-like every candidate is.

Measures, with f the count of a phrase of n tokens, N the tokens of all corpora, u_i the counts
of its tokens:

- NPMI (Bouma 2009), over n tokens: ``(ln f/N - sum ln u_i/N) / (-(n - 1) ln f/N)``.
- Log-likelihood ratio (Dunning 1993) of the weakest split into two known parts; a phrase that
  has none (one long word) gets ``2 f (ln f/N - sum ln u_i/N)``. Zero if the parts repel.
- C-value (Frantzi et al. 2000): ``log2(n) (f - mean count of the longer candidates around it)``.
- Spread: ``ln(1 + documents) / ln(1 + f)``, in 0..1.
- Branching entropies, left and right, in nats (:mod:`phrasemem.pipeline.neighbours`).

The formulas of ``score``; what they were tuned on, and what else was tried: docs/mining.md.

- ``keyphrase``: ``max(NPMI, 0)^1.5 * log2(1 + f) * spread * (1 + min(left, right entropy))``,
  times the factors of :data:`FACTORS` that hold. Where entropies are not known they are 0.
- ``collocation``: ``max(NPMI, 0) * log2(1 + max(C-value, 0)) * spread``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.pipeline.catalogue_table import ENTROPIES

# What a property of the words of a phrase does to its score.
FACTORS = {
    "edge_stops": 0.14,  # for each end of the phrase that is a stop word
    "inner_stop": 0.2,
    "has_mark": 0.14,
    "has_digit": 0.37,
    "one_word": 0.01,
}


def load(
    database: duckdb.DuckDBPyConnection,
    candidates: Sequence[str],
    unigrams: pa.Table,
    vocabulary: pa.Table,
    n_max: int,
) -> int:
    """Make the tables ``grams``, ``unigrams`` and ``parts_1..``; return the number of tokens.

    Parameters
    ----------
    candidates : sequence of str
        Parquet files of the stage ``candidates``.
    unigrams : table
        token and count of all tokens that occur, rising.
    vocabulary : table
        What :func:`phrasemem.pipeline.token_words.word_table` tells of every token.
    """
    tokens = _columns(n_max)
    database.register("vocabulary", vocabulary)
    database.execute("CREATE TABLE words AS SELECT * FROM vocabulary")
    database.register("token_counts", unigrams)
    database.execute(
        "CREATE TABLE unigrams AS SELECT token, count::BIGINT AS count, is_function "
        "FROM token_counts JOIN words USING (token)"
    )
    database.execute(
        f"CREATE TABLE grams AS SELECT row_number() OVER (ORDER BY n, {tokens}) - 1 AS id, * "
        f"{_unknown_entropies(candidates)} FROM read_parquet(?, hive_partitioning = false)",
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


def measure(
    database: duckdb.DuckDBPyConnection, tokens: int, n_max: int, formula: str = "keyphrase"
) -> None:
    """Make the table ``scored``: id, npmi, llr, cvalue, score, is_function."""
    database.execute(f"CREATE TABLE joint AS {_joint_query(tokens, n_max)}")
    database.execute(f"CREATE TABLE wording AS {_wording_query(database, n_max)}")
    database.execute(f"CREATE TABLE splits AS {_splits_query(tokens, n_max)}")
    database.execute(f"CREATE TABLE nested AS {_nested_query(n_max)}")
    database.execute(f"CREATE TABLE scored AS {_scored_query(tokens, formula)}")


def _unknown_entropies(candidates: Sequence[str]) -> str:
    """Return the columns that candidates lack which come without the text around them."""
    if set(ENTROPIES) <= set(pq.read_schema(candidates[0]).names):
        return ""
    return "".join(f", NULL::FLOAT AS {name}" for name in ENTROPIES)


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


def _wording_query(database: duckdb.DuckDBPyConnection, n_max: int) -> str:
    """Return SQL for the properties of :data:`FACTORS`, each a number, and of stop words.

    Folded ids do not tell how a phrase is written: then the ids that stood there do, if known.
    """
    columns = {row[0] for row in database.execute("DESCRIBE grams").fetchall()}
    prefix = "s" if "s0" in columns else "t"
    joins = " ".join(
        f"JOIN words w{place} ON w{place}.token = g.{prefix}{place}"
        if place < 2
        else f"LEFT JOIN words w{place} ON n > {place} AND w{place}.token = g.{prefix}{place}"
        for place in range(n_max)
    )
    inner = [
        f"(n > {place + 1} AND w{place}.is_stop AND w{place}.opens AND w{place + 1}.opens)"
        for place in range(1, n_max - 1)
    ]
    last = " ".join(
        f"WHEN {place + 1} THEN w{place}.is_stop AND w{place}.opens" for place in range(1, n_max)
    )
    more = [f"(n > {place} AND w{place}.opens)" for place in range(1, n_max)]
    return (
        "SELECT g.id, (w0.is_stop AND w1.opens)::INT + (CASE n "
        f"{last} END)::INT AS edge_stops, ({' OR '.join(inner) or 'false'})::INT AS inner_stop, "
        f"({_any('is_mark', n_max)})::INT AS has_mark, "
        f"({_any('has_digit', n_max)})::INT AS has_digit, "
        f"(NOT ({' OR '.join(more)}))::INT AS one_word FROM grams g {joins}"
    )


def _any(flag: str, n_max: int) -> str:
    return " OR ".join(f"(n > {place} AND w{place}.{flag})" for place in range(n_max))


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
    queries = list(nestings(n_max)) or ["SELECT 0::BIGINT AS id, 0::BIGINT AS f WHERE false"]
    return (
        "SELECT id, count(*) AS holders, sum(f)::BIGINT AS held "
        f"FROM ({' UNION ALL '.join(queries)}) GROUP BY id"
    )


def nestings(n_max: int) -> Iterator[str]:
    """Yield SQL for each place in which one candidate is part of another: id, holder, its count."""
    for length in range(3, n_max + 1):
        for part in range(2, length):
            for start in range(length - part + 1):
                same = " AND ".join(f"p.t{place} = g.t{start + place}" for place in range(part))
                yield (
                    "SELECT p.id, g.id AS holder, g.count::BIGINT AS f "
                    f"FROM grams g JOIN parts_{part} p ON {same} WHERE g.n = {length}"
                )


def _scored_query(tokens: int, formula: str) -> str:
    return f"""
        WITH measured AS (
          SELECT id, n, count, documents, is_function, left_entropy, right_entropy,
            {", ".join(FACTORS)},
            coalesce(lift / nullif((n - 1) * -ln(count / {tokens}.0::DOUBLE), 0), 1.0) AS npmi,
            coalesce(llr, greatest(0, 2 * count * lift)) AS llr,
            log2(n) * (count - coalesce(held / holders, 0)) AS cvalue
          FROM grams JOIN joint USING (id) JOIN wording USING (id)
          LEFT JOIN splits USING (id) LEFT JOIN nested USING (id)
        )
        SELECT id, n, count, documents, is_function, npmi, llr, cvalue,
          {_FORMULAS[formula]} * ln(1 + documents) / ln(1 + count) AS score
        FROM measured
    """


_FACTOR = " * ".join(f"pow({factor}, {name})" for name, factor in FACTORS.items())
_FORMULAS = {
    "keyphrase": (
        "pow(greatest(npmi, 0), 1.5) * log2(1 + count) "
        f"* (1 + coalesce(least(left_entropy, right_entropy), 0)) * {_FACTOR}"
    ),
    "collocation": "greatest(npmi, 0) * log2(1 + greatest(cvalue, 0))",
}
