"""Scores equal the formulas worked out by hand; the choice keeps its budget and its shares."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from phrasemem.pipeline import choice, score
from phrasemem.pipeline.byte_budget import BYTES_BESIDE_THE_ROW, phrases_within
from phrasemem.pipeline.database import DatabaseError, connect
from phrasemem.pipeline.token_words import word_table

Gram = tuple[int, ...]
N_MAX = 4
# A stop word that opens a word, one that does not, a mark, a number; the rest open words.
TEXTS = [" the", "of", " panda", ",", " 7", " cell", "ular", " a"]
ENTROPIES = ("left_entropy", "right_entropy")


def corpus(seed: int) -> list[list[int]]:
    """Sentences over eight tokens in which some runs repeat."""
    dice = random.Random(seed)
    runs = [[1, 2], [3, 4, 5], [1, 2, 6], [7], [0], [2, 7, 7], [6, 5]]
    return [list(itertools.chain(*dice.choices(runs, k=6))) for _ in range(60)]


def counted(
    sentences: list[list[int]], folder: Path
) -> tuple[dict[Gram, int], Counter[int], dict[Gram, int]]:
    grams: Counter[Gram] = Counter()
    documents: Counter[Gram] = Counter()
    for sentence in sentences:
        own = [
            tuple(sentence[start : start + length])
            for length in range(2, N_MAX + 1)
            for start in range(len(sentence) - length + 1)
        ]
        grams.update(own)
        documents.update(set(own))
    frequent = {gram: times for gram, times in grams.items() if times >= 3}
    unigrams = Counter(itertools.chain(*sentences))
    rows = [
        {
            "n": len(gram),
            **{f"t{i}": gram[i] if i < len(gram) else 0 for i in range(N_MAX)},
            "count": times,
            "documents": documents[gram],
            "count_0": times if number % 3 else 0,
            "count_1": 0 if number % 3 else times,
            "documents_0": documents[gram] if number % 3 else 0,
            "documents_1": 0 if number % 3 else documents[gram],
            **dict(zip(ENTROPIES, entropies_of(gram), strict=True)),
        }
        for number, (gram, times) in enumerate(frequent.items())
    ]
    random.Random(0).shuffle(rows)
    types = {"n": pa.uint8(), **{f"t{i}": pa.uint32() for i in range(N_MAX)}}
    types |= dict.fromkeys(ENTROPIES, pa.float32())
    names = [*types, "count", "documents", "count_0", "count_1", "documents_0", "documents_1"]
    schema = pa.schema([(name, types.get(name, pa.uint32())) for name in names])
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "candidates.parquet")
    table = {"token": pa.array(unigrams.keys(), pa.uint32()), "count": list(unigrams.values())}
    pq.write_table(pa.table(table), folder / "unigrams.parquet")
    return frequent, unigrams, documents


def entropies_of(gram: Gram) -> tuple[float, float]:
    """Any numbers that a float32 holds exactly; the score takes the smaller."""
    return sum(gram) / 8, gram[0] / 4


def wording_by_hand(gram: Gram) -> dict[str, int]:
    texts = [TEXTS[token] for token in gram]
    opens = [text[0] in " ," for text in texts]
    stops = [text.strip() in ("the", "of", "a") for text in texts]
    whole = [*opens[1:], True]
    return {
        "edge_stops": (stops[0] and opens[1]) + (stops[-1] and opens[-1]),
        "inner_stop": any(
            stops[place] and opens[place] and whole[place] for place in range(1, len(gram) - 1)
        ),
        "has_mark": "," in texts,
        "has_digit": " 7" in texts,
        "one_word": not any(opens[1:]),
    }


def xlogx(value: float) -> float:
    return value * math.log(value) if value > 0 else 0.0


def by_hand(
    gram: Gram,
    grams: dict[Gram, int],
    unigrams: Counter[int],
    documents: dict[Gram, int],
    formula: str,
) -> dict[str, float]:
    total = sum(unigrams.values())
    times = grams[gram]
    lift = math.log(times / total) - sum(math.log(unigrams[t] / total) for t in gram)
    npmi = lift / (-(len(gram) - 1) * math.log(times / total))
    known = {**grams, **{(token,): number for token, number in unigrams.items()}}
    ratios = []
    for cut in range(1, len(gram)):
        a, b = known.get(gram[:cut], 0), known.get(gram[cut:], 0)
        assert a >= times <= b
        cells = (times, a - times, b - times, total - a - b + times)
        margins = (a, b, total - a, total - b)
        ratio = 2 * (sum(map(xlogx, cells)) - sum(map(xlogx, margins)) + xlogx(total))
        ratios.append(ratio if times * total > a * b else 0.0)
    holders = [
        number
        for other, number in grams.items()
        for start in range(len(other) - len(gram) + 1)
        if len(other) > len(gram) and other[start : start + len(gram)] == gram
    ]
    held = sum(holders) / len(holders) if holders else 0.0
    cvalue = math.log2(len(gram)) * (times - held)
    spread = math.log(1 + documents[gram]) / math.log(1 + times)
    free = 1 + min(entropies_of(gram))
    worded = math.prod(
        score.FACTORS[name] ** number for name, number in wording_by_hand(gram).items()
    )
    final = {
        "keyphrase": max(npmi, 0) ** 1.5 * math.log2(1 + times) * spread * free * worded,
        "collocation": max(npmi, 0) * math.log2(1 + max(cvalue, 0)) * spread,
    }[formula]
    return {"npmi": npmi, "llr": min(ratios), "cvalue": cvalue, "score": final}


def scored(
    folder: Path, threads: int = 1, texts: list[str] = TEXTS, formula: str = "keyphrase"
) -> Any:
    words = word_table(texts, "english")
    with connect(folder / "db", "200MB", threads) as database:
        unigrams = pq.read_table(folder / "unigrams.parquet")
        tokens = score.load(database, [str(folder / "candidates.parquet")], unigrams, words, N_MAX)
        score.measure(database, tokens, N_MAX, formula)
        return database.sql(
            "SELECT n, t0, t1, t2, t3, npmi, llr, cvalue, score, is_function "
            "FROM scored JOIN grams USING (id, n) ORDER BY id"
        ).fetchall()


@pytest.mark.parametrize(
    ("seed", "formula"), [(0, "keyphrase"), (1, "keyphrase"), (2, "collocation")]
)
def test_measures_equal_the_formulas(tmp_path: Path, seed: int, formula: str) -> None:
    grams, unigrams, documents = counted(corpus(seed), tmp_path)
    rows = scored(tmp_path, formula=formula)
    assert len(rows) == len(grams) > 30
    keys = [tuple(row[1 : 1 + row[0]]) for row in rows]
    assert keys == sorted(grams, key=lambda gram: (len(gram), gram))
    for key, row in zip(keys, rows, strict=True):
        expected = by_hand(key, grams, unigrams, documents, formula)
        found = dict(zip(("npmi", "llr", "cvalue", "score"), row[5:9], strict=True))
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_threads_change_nothing(tmp_path: Path) -> None:
    counted(corpus(0), tmp_path)
    assert scored(tmp_path, threads=1) == scored(tmp_path, threads=2)


def test_a_phrase_without_known_parts_is_measured_against_its_tokens(tmp_path: Path) -> None:
    row = {"n": 3, "t0": 1, "t1": 2, "t2": 3, "t3": 0}
    row |= {"count": 5, "documents": 5, "count_0": 5, "count_1": 0}
    types = {"n": pa.uint8(), **{f"t{i}": pa.uint32() for i in range(N_MAX)}}
    table = pa.Table.from_pylist([row])
    schema = pa.schema([(name, types.get(name, pa.uint32())) for name in row])
    pq.write_table(table.cast(schema), tmp_path / "candidates.parquet")
    unigrams = {"token": pa.array([1, 2, 3], pa.uint32()), "count": [10, 10, 80]}
    pq.write_table(pa.table(unigrams), tmp_path / "unigrams.parquet")
    [found] = scored(tmp_path)
    lift = math.log(0.05) - 2 * math.log(0.1) - math.log(0.8)
    assert found[6] == pytest.approx(2 * 5 * lift)


def test_runs_of_function_words_are_marked(tmp_path: Path) -> None:
    counted(corpus(0), tmp_path)
    texts = [" the" if token in (1, 2) else f" panda{token}" for token in range(8)]
    rows = scored(tmp_path, texts=texts)
    marked = {tuple(row[1 : 1 + row[0]]) for row in rows if row[9]}
    assert marked
    assert all(set(gram) <= {1, 2} for gram in marked)


def test_words_are_known_from_tokens() -> None:
    texts = [
        " the",
        "The",
        " panda",
        " ,",
        ".",
        "",
        " und",
        " system",
        "3",
        "ing",
        "-",
        "\N{REPLACEMENT CHARACTER}",
    ]
    table = word_table(texts, "english")

    def true(name: str) -> set[str]:
        return {text for text, flag in zip(texts, table[name].to_pylist(), strict=True) if flag}

    assert true("is_stop") == {" the", "The"}
    marks = {" ,", ".", "", "-", "\N{REPLACEMENT CHARACTER}"}
    assert true("is_function") == {" the", "The"} | marks
    assert true("is_mark") == {" ,", "."}
    assert true("has_digit") == {"3"}
    assert true("opens") == {" the", " panda", " ,", ".", "", " und", " system"}
    without = word_table(texts, None)["is_function"].to_pylist()
    assert {text for text, flag in zip(texts, without, strict=True) if flag} == marks


def judged(folder: Path, query: str, texts: list[str] = TEXTS, **rules: Any) -> Any:
    """Score and judge, and choose where ``shares`` and ``most`` are given; run a query."""
    shares, most = rules.pop("shares", [0.5, 0.5]), rules.pop("most", 10_000)
    rules = {"allow_function_runs": False, "nested_share": None, **rules}
    with connect(folder / "db", "200MB") as database:
        unigrams = pq.read_table(folder / "unigrams.parquet")
        tokens = score.load(
            database,
            [str(folder / "candidates.parquet")],
            unigrams,
            word_table(texts, "english"),
            N_MAX,
        )
        score.measure(database, tokens, N_MAX)
        choice.judge(database, [800, 200], N_MAX, **rules)
        choice.choose(database, shares, most)
        return database.sql(query).fetchall()


def chosen(folder: Path, shares: list[float], most: int) -> list[tuple[int, int]]:
    query = "SELECT home, id FROM chosen JOIN scored USING (id) ORDER BY score DESC, id"
    found: list[tuple[int, int]] = judged(folder, query, shares=shares, most=most)
    return found


def test_the_budget_is_shared_and_the_rest_goes_to_the_best(tmp_path: Path) -> None:
    counted(corpus(0), tmp_path)
    everything = chosen(tmp_path, [0.5, 0.5], 10_000)
    sizes = Counter(home for home, _ in everything)
    assert sizes[0] > 0, sizes
    assert sizes[1] > 3, sizes
    some = chosen(tmp_path, [0.0, 1.0], 3)
    assert [home for home, _ in some] == [1] * 3
    best_of_1 = [id for home, id in everything if home == 1][:3]
    assert [id for _, id in some] == best_of_1
    assert [id for _, id in chosen(tmp_path, [0.0, 0.0], 10)] == [id for _, id in everything[:10]]


def test_runs_of_function_words_are_in_only_if_asked(tmp_path: Path) -> None:
    counted(corpus(0), tmp_path)
    texts = [" the" if token in (1, 2) else f" panda{token}" for token in range(8)]
    query = "SELECT t0, t1, reason FROM judged JOIN grams USING (id) WHERE n = 2"
    reasons = {row[:2]: row[2] for row in judged(tmp_path, query, texts)}
    assert reasons[1, 2] == choice.FUNCTION_WORDS
    assert choice.FUNCTION_WORDS not in {v for k, v in reasons.items() if set(k) - {1, 2}}
    allowed = {row[:2]: row[2] for row in judged(tmp_path, query, texts, allow_function_runs=True)}
    assert allowed[1, 2] is None


def test_a_phrase_inside_one_longer_one_is_nested(tmp_path: Path) -> None:
    grams, _, _ = counted(corpus(0), tmp_path)
    plain = [f" panda{'abcdefgh'[token]}" for token in range(8)]
    query = (
        "SELECT g.n, g.t0, g.t1, g.t2, g.t3, j.score, h.n, h.t0, h.t1, h.t2, h.t3, i.score, "
        "j.reason FROM judged j JOIN grams g USING (id) LEFT JOIN grams h ON h.id = j.holder"
        " LEFT JOIN judged i ON i.id = j.holder"
    )
    rows = judged(tmp_path, query, plain, nested_share=0.6)
    nested = [row for row in rows if row[-1] == choice.NESTED]
    assert nested
    for row in nested:
        part, whole = tuple(row[1 : 1 + row[0]]), tuple(row[7 : 7 + row[6]])
        places = range(len(whole) - len(part) + 1)
        assert any(whole[place : place + len(part)] == part for place in places)
        assert grams[whole] >= 0.6 * grams[part]
        assert row[11] >= row[5]
    assert all(row[-1] != choice.NESTED for row in judged(tmp_path, query, plain))


def test_shares_default_to_tokens() -> None:
    assert choice.phrase_shares([300, 100], [None, None]) == [0.75, 0.25]
    assert choice.phrase_shares([300, 100, 100], [0.5, None, None]) == [0.5, 0.25, 0.25]
    assert choice.phrase_shares([1, 1], [0.25, 0.75]) == [0.25, 0.75]


def test_a_share_of_a_kind_is_split_among_its_corpora() -> None:
    kinds = ["web", "web", "web", "science", "encyclopedia"]
    tokens = [100, 300, 5, 100, 300]
    given = [None, None, 0.1, None, None]
    shares = choice.phrase_shares(tokens, given, kinds, {"web": 0.5})
    assert shares == pytest.approx([0.1, 0.3, 0.1, 0.125, 0.375])
    assert choice.phrase_shares(tokens, given, kinds, {"web": 1.0})[3:] == [0.0, 0.0]


def test_a_budget_of_bytes_holds_rows_and_what_is_beside_them() -> None:
    # 384 float16 numbers, 28 bytes of tokens, n and scale make 832 of a multiple of 64.
    assert phrases_within(1_000_000, 6, 384) == 1_000_000 // (832 + BYTES_BESIDE_THE_ROW)
    assert phrases_within(1, 6, 384) == 1


def test_a_failing_query_is_one_clear_error(tmp_path: Path) -> None:
    with (
        pytest.raises(DatabaseError, match="the database stopped"),
        connect(tmp_path / "db", "200MB") as database,
    ):
        database.execute("SELECT * FROM read_parquet('nowhere.parquet')")
    assert not (tmp_path / "db").exists()
