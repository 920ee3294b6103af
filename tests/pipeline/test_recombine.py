"""Corpora come and go: counts are those of a fresh build as far as memories know them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phrasemem.cli import main
from phrasemem.memfmt.compare import compare
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.remote.licences import redistributable
from phrasemem.memfmt.verify import verify
from phrasemem.pipeline.catalogue import score_part
from phrasemem.pipeline.catalogue_table import catalogue_schema
from phrasemem.pipeline.config import CHOOSING, BuildConfig, Mining
from phrasemem.pipeline.drop_corpus import drop_corpus
from phrasemem.pipeline.existing import OutputError
from phrasemem.pipeline.joint_counts import joint_counts
from phrasemem.pipeline.merge_memories import MergeError, merge
from phrasemem.pipeline.phrase_stages import NoPhrasesError
from phrasemem.pipeline.recombine import LOWER_BOUNDS
from phrasemem.pipeline.remake import OriginError
from phrasemem.pipeline.retokenize import retokenize
from phrasemem.pipeline.run import build
from phrasemem.pipeline.scoring import ScoringError, recorded_scoring
from phrasemem.pipeline.unigrams import Unigrams, joined

Key = tuple[int, ...]
SCORED_BY = {"n_max", "min_count", "min_documents", *CHOOSING}
MINING = {"min_count": 4, "max_phrases": 5000, "shortest": 0}


@pytest.fixture(scope="module")
def build_of(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Build a memory from some corpora of the world; the keyword ``rename`` gives one a name."""

    def make(*names: str, rename: dict[str, str] | None = None, **mining: Any) -> Path:
        folder = tmp_path_factory.mktemp("-".join(names))
        chosen = [corpus for corpus in world.config()["corpora"] if corpus["name"] in names]
        renamed = [{**c, "name": (rename or {}).get(c["name"], c["name"])} for c in chosen]
        config = world.config(corpora=renamed, mining={**MINING, **mining})
        build(
            BuildConfig.model_validate(config),
            folder / "memory",
            work=folder / "work",
            base=world.folder,
            workers=0,
        )
        return folder / "memory"

    return make


@pytest.fixture(scope="module")
def full(build_of: Callable[..., Path]) -> Path:
    return build_of("wiki", "papers", "pages")


@pytest.fixture(scope="module")
def fresh(build_of: Callable[..., Path]) -> Path:
    """What a build gives without the pages."""
    return build_of("wiki", "papers")


@pytest.fixture(scope="module")
def pages(build_of: Callable[..., Path]) -> Path:
    return build_of("pages")


@pytest.fixture(scope="module")
def dropped(full: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dropped") / "memory"
    drop_corpus(full, "pages", out)
    return out


@pytest.fixture(scope="module")
def merged(fresh: Path, pages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("merged") / "memory"
    merge([fresh, pages], out)
    return out


def table_of(memory: Path) -> dict[Key, dict[str, Any]]:
    rows = pq.read_table(memory / "catalogue.parquet").to_pylist()
    return {tuple(row.pop("tokens")): row for row in rows}


def known(row: dict[str, Any]) -> dict[str, Any]:
    """What a row says of its phrase that depends on no other phrase."""
    return {
        k: v
        for k, v in row.items()
        if k not in {"row", "llr", "cvalue", "left_entropy", "right_entropy", "score"}
    }


def held_out(memory: Path) -> list[dict[str, str]]:
    with (memory / "heldout.jsonl.zst").open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file).read().decode()
    return [json.loads(line) for line in text.splitlines()]


def vectors_of(memory: Path, keys: list[Key]) -> np.ndarray:
    with MemoryReader.open(memory) as reader:
        rows = reader.get_many(keys)
        assert (rows >= 0).all()
        return reader.payload("semantic").gather(rows)


def test_dropping_a_corpus_gives_the_counts_of_a_fresh_build(
    full: Path, fresh: Path, dropped: Path
) -> None:
    verify(dropped)
    before, wanted, found = table_of(full), table_of(fresh), table_of(dropped)
    assert found.keys() <= before.keys()
    both = found.keys() & wanted.keys()
    assert len(both) > 100
    assert {key: known(found[key]) for key in both} == {key: known(wanted[key]) for key in both}
    # Single tokens and the root need no choice, so they are exactly those of a fresh build.
    single = [{key for key in rows if len(key) < 2} for rows in (wanted, found)]
    assert len(single[0]) > 20
    assert single[0] == single[1]
    assert found[()]["count_wiki"] == wanted[()]["count_wiki"] > 0
    names = (dropped / "unigrams.parquet", fresh / "unigrams.parquet")
    assert pq.read_table(names[0]).equals(pq.read_table(names[1]))


def test_scores_are_those_of_a_fresh_build_from_the_same_candidates(
    world: Any, full: Path, fresh: Path, dropped: Path, tmp_path: Path
) -> None:
    parts = sorted((fresh.parent / "work" / "candidates").glob("*.parquet"))
    candidates = pa.concat_tables([pq.read_table(part) for part in parts])
    chosen_before = table_of(full)
    keys = [tuple(row[f"t{place}"] for place in range(row["n"])) for row in candidates.to_pylist()]
    same = candidates.filter(pa.array([key in chosen_before for key in keys]))
    assert len(same) < len(candidates)
    pq.write_table(same, tmp_path / "candidates.parquet")
    manifest, mining = verify(fresh).manifest, recorded_scoring(fresh).mining
    score_part(
        tmp_path,
        "score",
        candidates=[str(tmp_path / "candidates.parquet")],
        unigrams=str(fresh / "unigrams.parquet"),
        corpora=[corpus.name for corpus in manifest.corpora],
        phrase_shares=[None, None],
        model=str(world.model),
        corpus_documents=[corpus.documents for corpus in manifest.corpora],
        kinds=[corpus.kind for corpus in manifest.corpora],
        **mining.model_dump(include=SCORED_BY),
        memory_limit="1GB",
        threads=1,
    )
    wanted, found = table_of(tmp_path), table_of(dropped)
    assert len(wanted) > 100
    for row in (*wanted.values(), *found.values()):
        del row["row"]
    assert found == wanted


def test_a_corpus_goes_with_all_that_is_its_own(full: Path, fresh: Path, dropped: Path) -> None:
    difference = compare(fresh, dropped)
    assert not difference.settings
    assert not difference.payloads
    assert not difference.corpora
    assert held_out(dropped) == held_out(fresh)
    assert {document["corpus"] for document in held_out(full)} > {"wiki", "papers"}
    assert list(redistributable(dropped, verify(dropped).manifest)) == ["wiki", "papers"]
    keys = list(table_of(dropped))
    assert np.array_equal(vectors_of(full, keys), vectors_of(dropped, keys))


def test_what_a_drop_did_is_written_down(full: Path, dropped: Path) -> None:
    record = json.loads((dropped / "build.json").read_text())
    numbers = record["made"]["numbers"]
    phrases = [sum(len(key) > 1 for key in table_of(path)) for path in (full, dropped)]
    assert [numbers["phrases before"], record["phrases"]] == phrases
    gone = numbers["dropped, too rare without pages"] + numbers["dropped, by score or budget"]
    assert phrases[0] - gone == phrases[1]
    assert numbers["dropped, too rare without pages"] > 0
    scoring, before = recorded_scoring(dropped), recorded_scoring(full)
    assert (scoring.mining, scoring.floor) == (before.mining, before.floor)
    assert scoring.candidates - phrases[1] - numbers["dropped, by score or budget"] == (
        before.candidates - phrases[0]
    )


def test_merging_gives_the_counts_of_one_build_where_all_memories_know_them(
    full: Path, fresh: Path, pages: Path, merged: Path
) -> None:
    verify(merged)
    parts, wanted, found = [table_of(fresh), table_of(pages)], table_of(full), table_of(merged)
    phrases = {key for key in found if len(key) > 1}
    held_by_all = phrases & parts[0].keys() & parts[1].keys()
    assert len(held_by_all & wanted.keys()) > 100
    for key in held_by_all & wanted.keys():
        assert known(found[key]) == known(wanted[key])
    for key in phrases & wanted.keys():
        for name in ("count", "documents", "count_wiki", "documents_pages"):
            assert found[key][name] <= wanted[key][name]
    for key, row in found.items():
        if len(key) < 2:
            assert known(row) == known(wanted[key])
    numbers = json.loads((merged / "build.json").read_text())["made"]["numbers"]
    assert numbers[LOWER_BOUNDS] == len(phrases - held_by_all)
    assert not compare(full, merged).corpora


def test_vectors_come_from_the_first_memory_that_has_the_phrase(
    fresh: Path, pages: Path, merged: Path
) -> None:
    first, second = table_of(fresh), table_of(pages)
    here = [key for key in table_of(merged) if key in first]
    there = [key for key in table_of(merged) if key in second and key not in first]
    assert here
    assert there
    assert np.array_equal(vectors_of(merged, here), vectors_of(fresh, here))
    assert np.array_equal(vectors_of(merged, there), vectors_of(pages, there))


def test_dropping_what_was_merged_gives_back_the_counts(
    fresh: Path, merged: Path, tmp_path: Path
) -> None:
    drop_corpus(merged, "pages", tmp_path / "back")
    wanted, found = table_of(fresh), table_of(tmp_path / "back")
    assert found.keys() <= wanted.keys()
    assert len(found) > 0.8 * len(wanted)
    assert all(known(found[key]) == known(wanted[key]) for key in found)
    assert held_out(tmp_path / "back") == held_out(fresh)
    keys = list(found)
    assert np.array_equal(vectors_of(fresh, keys), vectors_of(tmp_path / "back", keys))


def test_the_budget_keeps_the_best(fresh: Path, pages: Path, merged: Path, tmp_path: Path) -> None:
    merge([fresh, pages], tmp_path / "small", max_phrases=50)
    scores = sorted((row["score"] for row in table_of(merged).values()), reverse=True)
    kept = [row["score"] for key, row in table_of(tmp_path / "small").items() if len(key) > 1]
    # Each corpus first gets the best of its own, so they are not simply the first fifty.
    assert len(kept) == 50
    assert max(kept) == scores[0]
    assert recorded_scoring(tmp_path / "small").mining.max_phrases == 50


def test_a_text_that_two_memories_hold_out_is_kept_once(
    fresh: Path, build_of: Callable[..., Path], tmp_path: Path
) -> None:
    copy = build_of("wiki", rename={"wiki": "copy"})
    merge([fresh, copy], tmp_path / "merged")
    assert held_out(copy) != []
    assert held_out(tmp_path / "merged") == held_out(fresh)
    numbers = json.loads((tmp_path / "merged" / "build.json").read_text())["made"]["numbers"]
    assert numbers["held-out documents that another memory holds too"] == len(held_out(copy))


def test_the_same_inputs_give_the_same_bytes_and_stay_as_they_are(
    full: Path,
    fresh: Path,
    pages: Path,
    dropped: Path,
    merged: Path,
    tmp_path: Path,
    contents: Callable[[Path], dict[str, bytes]],
) -> None:
    before = [contents(path) for path in (full, fresh, pages)]
    drop_corpus(full, "pages", tmp_path / "dropped")
    merge([fresh, pages], tmp_path / "merged")
    assert contents(tmp_path / "dropped") == contents(dropped)
    assert contents(tmp_path / "merged") == contents(merged)
    assert [contents(path) for path in (full, fresh, pages)] == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dropped", "merged"]


def test_what_does_not_go_together_is_refused(
    fresh: Path, pages: Path, build_of: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(MergeError, match="two memories"):
        merge([fresh], out)
    with pytest.raises(MergeError, match=r"corpus papers, wiki.*drop-corpus"):
        merge([fresh, fresh], out)
    with pytest.raises(MergeError, match="differ in n_max"):
        merge([fresh, build_of("pages", n_max=4)], out)
    with pytest.raises(MergeError, match="differ in stop words"):
        merge([fresh, build_of("pages", stop_words=None)], out)
    with pytest.raises(OutputError, match="in place"):
        merge([fresh, pages], pages, replace=True)
    assert not out.exists()


def test_a_corpus_that_cannot_go_is_named(full: Path, pages: Path, tmp_path: Path) -> None:
    with pytest.raises(OriginError, match=r"no such corpus.*wiki, papers, pages"):
        drop_corpus(full, "news", tmp_path / "out")
    with pytest.raises(OriginError, match="only corpus"):
        drop_corpus(pages, "pages", tmp_path / "out")


def test_a_retokenized_memory_cannot_be_scored_again(
    full: Path, world: Any, tmp_path: Path
) -> None:
    retokenize(full, str(world.model), tmp_path / "other")
    with pytest.raises(ScoringError):
        drop_corpus(tmp_path / "other", "pages", tmp_path / "out")


def test_another_tokenizer_is_refused(full: Path, world: Any, tmp_path: Path) -> None:
    from .conftest import save_tokenizer

    save_tokenizer(tmp_path / "model", ["another text"])
    with pytest.raises(OriginError, match="not the tokenizer of the memory"):
        drop_corpus(full, "pages", tmp_path / "out", model=str(tmp_path / "model"))


def test_nothing_left_is_an_error(build_of: Callable[..., Path], tmp_path: Path) -> None:
    memory = build_of("wiki", "pages", min_count=60)
    with pytest.raises(NoPhrasesError, match="wiki"):
        drop_corpus(memory, "pages", tmp_path / "out")


def test_the_commands_say_what_they_did(
    full: Path,
    fresh: Path,
    pages: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit) as stopped:
            main(list(map(str, arguments)))
        assert stopped.value.code == 0
        return capsys.readouterr().out

    printed = run("drop-corpus", full, "pages", "--out", tmp_path / "dropped")
    assert "dropped, too rare without pages: " in printed
    assert "n-grams had been counted but not chosen" in printed
    printed = run("merge", fresh, pages, "--out", tmp_path / "merged")
    assert "are lower bounds" in printed
    assert "verified: " in printed


CORPORA = [["a", "b"], ["c"]]
ROWS = st.dictionaries(
    st.lists(st.integers(0, 2), min_size=0, max_size=3).map(tuple),
    st.lists(st.integers(0, 5), min_size=4, max_size=4),
    max_size=12,
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    first=ROWS,
    second=ROWS,
    kept=st.sets(st.sampled_from("abc"), min_size=1),
    min_count=st.integers(1, 6),
    min_documents=st.integers(1, 4),
)
def test_counts_are_those_of_a_plain_sum(
    tmp_path: Path,
    first: dict[Key, list[int]],
    second: dict[Key, list[int]],
    kept: set[str],
    min_count: int,
    min_documents: int,
) -> None:
    tables = [
        write_catalogue(tmp_path / f"{n}", c, t)
        for n, c, t in zip("01", CORPORA, (first, second), strict=True)
    ]
    names = sorted(kept)
    mining = Mining(min_count=min_count, min_documents=min_documents)
    recipe: Any = SimpleNamespace(
        names=names,
        n_max=3,
        origins=tables,
        stores=[],
        folded=False,
        scoring=SimpleNamespace(mining=mining),
    )
    [candidates] = joint_counts(recipe, tmp_path).candidates
    found = pq.read_table(candidates).to_pylist()
    counts, documents = Counter[tuple[Key, str]](), Counter[tuple[Key, str]]()
    for corpora, table in zip(CORPORA, (first, second), strict=True):
        for key, numbers in table.items():
            for place, name in enumerate(corpora):
                if len(key) > 1 and name in kept and numbers[place]:
                    counts[key, name] += numbers[place]
                    documents[key, name] += numbers[place + 2]
    wanted = {}
    for key in {key for key, _ in counts}:
        row = [[values[key, name] for name in names] for values in (counts, documents)]
        if sum(row[0]) >= min_count and sum(row[1]) >= min_documents:
            wanted[key] = row
    assert {
        tuple(row[f"t{place}"] for place in range(row["n"])): [
            [row[f"{measure}_{place}"] for place in range(len(names))]
            for measure in ("count", "documents")
        ]
        for row in found
    } == wanted
    assert all(row["count"] == sum(row[f"count_{p}"] for p in range(len(names))) for row in found)


def write_catalogue(folder: Path, corpora: list[str], table: dict[Key, list[int]]) -> Any:
    """Write a catalogue whose rows have counts ``[:2]`` and documents ``[2:]`` of the corpora."""
    folder.mkdir(exist_ok=True)
    schema = catalogue_schema(corpora)
    rows = []
    for key, numbers in table.items():
        row = dict.fromkeys(schema.names, 0) | {"text": "", "tokens": list(key), "n": len(key)}
        for place, name in enumerate(corpora):
            row |= {f"count_{name}": numbers[place], f"documents_{name}": numbers[place + 2]}
        rows.append(row)
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "catalogue.parquet")
    return SimpleNamespace(corpora=corpora, catalogue=folder / "catalogue.parquet")


def test_unigrams_are_put_side_by_side() -> None:
    def unigrams(names: str, rows: dict[int, list[int]]) -> Unigrams:
        counts = np.array(list(rows.values()), np.uint64)
        return Unigrams(tuple(names), np.array(list(rows), np.uint32), counts, counts.astype("u4"))

    found = joined(
        [unigrams("ab", {1: [1, 0], 4: [2, 3], 5: [0, 0]}), unigrams("c", {2: [7], 4: [1]})]
    )
    assert found.corpora == ("a", "b", "c")
    assert found.tokens.tolist() == [1, 2, 4]
    assert found.counts.tolist() == [[1, 0, 0], [0, 0, 7], [2, 3, 1]]
    assert found.documents.tolist() == found.counts.tolist()
