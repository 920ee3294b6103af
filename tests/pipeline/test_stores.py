"""With count stores, merging and dropping give what a build of the corpora at once gives."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.verify import verify
from phrasemem.pipeline.catalogue_counts import counts_schema
from phrasemem.pipeline.config import BuildConfig, Mining
from phrasemem.pipeline.count import gram_hashes
from phrasemem.pipeline.count_store import CountStore, CountStoreError, store_path
from phrasemem.pipeline.drop_corpus import drop_corpus
from phrasemem.pipeline.extend import extend
from phrasemem.pipeline.joint_counts import joint_counts
from phrasemem.pipeline.merge import store_part
from phrasemem.pipeline.merge_memories import merge
from phrasemem.pipeline.progress import Reporter
from phrasemem.pipeline.recombine import LOWER_BOUNDS, NEW, REPEATED
from phrasemem.pipeline.run import build
from phrasemem.pipeline.scoring import recorded_scoring

from .conftest import same_files

BUDGET = 150
MINING = {"min_count": 4, "max_phrases": BUDGET, "shortest": 0, "keep_counts": True}


@pytest.fixture(scope="module")
def config_of(world: Any) -> Callable[..., BuildConfig]:
    def make(*names: str, rename: dict[str, str] | None = None) -> BuildConfig:
        chosen = [corpus for corpus in world.config()["corpora"] if corpus["name"] in names]
        renamed = [{**c, "name": (rename or {}).get(c["name"], c["name"])} for c in chosen]
        return BuildConfig.model_validate(world.config(corpora=renamed, mining=MINING))

    return make


@pytest.fixture(scope="module")
def build_of(
    world: Any, config_of: Callable[..., BuildConfig], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    def make(*names: str, rename: dict[str, str] | None = None) -> Path:
        out = tmp_path_factory.mktemp("-".join(names)) / "memory"
        config = config_of(*names, rename=rename)
        build(config, out, base=world.folder, workers=0, reporter=Reporter(io.StringIO()))
        return out

    return make


@pytest.fixture(scope="module")
def three(build_of: Callable[..., Path]) -> Path:
    return build_of("wiki", "papers", "pages")


@pytest.fixture(scope="module")
def two(build_of: Callable[..., Path]) -> Path:
    return build_of("wiki", "papers")


@pytest.fixture(scope="module")
def pages(build_of: Callable[..., Path]) -> Path:
    return build_of("pages")


@pytest.fixture(scope="module")
def merged(two: Path, pages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("merged") / "memory"
    report = merge([two, pages], out, max_phrases=BUDGET)
    assert report.notes == []
    return out


def assert_equal(found: Path, wanted: Path, contents: Callable[[Path], dict[str, bytes]]) -> None:
    """Catalogue, keys, records, held-out documents and counts are the same bytes."""
    verify(found)
    assert same_files(found, wanted) == []
    stores = [contents(store_path(path)) for path in (found, wanted)]
    for store in stores:
        # It names the memory, whose vectors may differ.
        del store["counts.json"]
    assert len(stores[0]) > 4
    assert stores[0] == stores[1]


def semantic(memory: Path, rows: np.ndarray) -> np.ndarray:
    with MemoryReader.open(memory) as reader:
        return reader.payload("semantic").gather(rows)


def assert_vectors(found: Path, wanted: Path, *origins: Path) -> int:
    """Vectors are those of the first origin that has them; return how many are new."""
    with MemoryReader.open(found) as reader:
        rows = np.arange(len(reader))
        lengths, tokens = reader.row_tokens(rows)
    np.testing.assert_allclose(semantic(found, rows), semantic(wanted, rows), atol=2e-2)
    for origin in origins:
        with MemoryReader.open(origin) as reader:
            there = reader.look_up(tokens[rows], lengths[rows])
        held = there >= 0
        np.testing.assert_array_equal(
            semantic(found, rows[held]), semantic(origin, there[held]), strict=True
        )
        rows = rows[~held]
    return len(rows)


def test_merging_equals_a_build_of_all_corpora(
    two: Path, pages: Path, three: Path, merged: Path, contents: Any
) -> None:
    assert_equal(merged, three, contents)
    new = assert_vectors(merged, three, two, pages)
    numbers = json.loads((merged / "build.json").read_text())["made"]["numbers"]
    # Otherwise the test would pass without the stores.
    assert numbers[NEW] == numbers["rows encoded anew"] == new > 0
    assert LOWER_BOUNDS not in numbers
    assert numbers["phrases before"] == 2 * BUDGET
    scoring = [recorded_scoring(path) for path in (merged, three)]
    assert (scoring[0].mining, scoring[0].floor) == (scoring[1].mining, scoring[1].floor)
    assert scoring[0].candidates == scoring[1].candidates


def test_dropping_equals_a_build_of_what_stays(
    two: Path, three: Path, tmp_path: Path, contents: Any
) -> None:
    out = tmp_path / "memory"
    report = drop_corpus(three, "pages", out)
    assert report.notes == []
    assert_equal(out, two, contents)
    assert assert_vectors(out, two, three) == report.numbers[NEW] > 0
    assert recorded_scoring(out).mining == recorded_scoring(two).mining


def test_a_corpus_in_the_middle_can_go(
    three: Path, build_of: Callable[..., Path], tmp_path: Path, contents: Any
) -> None:
    drop_corpus(three, "papers", tmp_path / "memory")
    assert_equal(tmp_path / "memory", build_of("wiki", "pages"), contents)


def test_what_was_merged_can_shrink_and_grow(
    world: Any,
    config_of: Callable[..., BuildConfig],
    two: Path,
    pages: Path,
    three: Path,
    merged: Path,
    tmp_path: Path,
    contents: Any,
) -> None:
    drop_corpus(merged, "pages", tmp_path / "two")
    assert_equal(tmp_path / "two", two, contents)
    config = config_of("wiki", "papers", "pages")
    extend(
        tmp_path / "two", config, tmp_path / "three", base=world.folder, workers=0,
        reporter=Reporter(io.StringIO()),
    )  # fmt: skip
    assert_equal(tmp_path / "three", three, contents)
    # The order of the memories is that of the corpora.
    merge([pages, two], tmp_path / "turned", max_phrases=BUDGET)
    tables = [
        pq.read_table(path / "catalogue.parquet").select(["tokens", "count", "documents", "text"])
        for path in (tmp_path / "turned", three)
    ]
    assert tables[0].equals(tables[1])


def test_the_same_inputs_give_the_same_bytes_and_stay_as_they_are(
    two: Path, pages: Path, merged: Path, tmp_path: Path, contents: Any
) -> None:
    before = [contents(path.parent) for path in (two, pages)]
    merge([two, pages], tmp_path / "memory", max_phrases=BUDGET)
    assert contents(tmp_path) == contents(merged.parent)
    assert [contents(path.parent) for path in (two, pages)] == before


def test_documents_that_two_memories_have_are_counted(
    two: Path, build_of: Callable[..., Path], tmp_path: Path
) -> None:
    copy = build_of("wiki", rename={"wiki": "copy"})
    report = merge([two, copy], tmp_path / "memory", max_phrases=BUDGET)
    documents = pq.read_table(store_path(copy) / "documents.parquet")
    assert report.numbers[REPEATED] == len(documents) > 0
    assert "inexact: up to 40 documents whose text or title" in report.notes[0]
    known = pq.read_table(store_path(tmp_path / "memory") / "documents.parquet")
    assert known.equals(pq.read_table(store_path(two) / "documents.parquet"))


def test_documents_that_a_corpus_may_hide_are_counted(
    world: Any, config_of: Callable[..., BuildConfig], tmp_path: Path
) -> None:
    """Of a text that two corpora have, the first has the counts: without it nobody has."""
    config = config_of("wiki", "pages")
    copy = config.corpora[0].model_copy(update={"name": "copy"})
    config = config.model_copy(update={"corpora": [*config.corpora, copy]})
    memory = tmp_path / "memory"
    build(config, memory, base=world.folder, workers=0, reporter=Reporter(io.StringIO()))
    report = drop_corpus(memory, "wiki", tmp_path / "without")
    assert report.notes == [
        "inexact: up to 40 documents of the corpora that stay had been left out as duplicates, "
        "maybe of wiki; a fresh build would mine those"
    ]
    known = pq.read_table(store_path(tmp_path / "without") / "documents.parquet")
    assert set(known["corpus"].to_pylist()) == {"pages"}
    assert drop_corpus(memory, "copy", tmp_path / "first").notes == []


def test_one_store_is_not_enough(two: Path, pages: Path, tmp_path: Path) -> None:
    shutil.copytree(pages, tmp_path / "pages")
    report = merge([two, tmp_path / "pages"], tmp_path / "memory", max_phrases=BUDGET)
    assert report.numbers[LOWER_BOUNDS] > 0
    assert any("lower bounds" in note for note in report.notes)
    assert not store_path(tmp_path / "memory").exists()
    assert not recorded_scoring(tmp_path / "memory").mining.keep_counts


def test_stores_that_cannot_be_used_are_refused(two: Path, pages: Path, tmp_path: Path) -> None:
    memory, out = tmp_path / "two", tmp_path / "out"
    shutil.copytree(two, memory)
    shutil.copytree(store_path(pages), store_path(memory))
    with pytest.raises(CountStoreError, match="belong to another memory"):
        drop_corpus(memory, "papers", out)
    shutil.rmtree(store_path(memory))
    shutil.copytree(store_path(two), store_path(memory))
    bucket = store_path(memory) / "bucket-00002.parquet"
    bucket.write_bytes(bucket.read_bytes()[::-1])
    with pytest.raises(CountStoreError, match="altered"):
        merge([memory, pages], out)
    store_path(out).mkdir()
    (store_path(out) / "notes").write_text("mine")
    with pytest.raises(CountStoreError, match="something else than counts"):
        merge([two, pages], out)
    assert not out.exists()


Key = tuple[int, ...]
KEYS = st.lists(st.integers(0, 2), min_size=2, max_size=3).map(tuple)
COUNTED = st.dictionaries(
    st.tuples(KEYS, st.integers(0, 1)), st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=15
)
CORPORA = [["a", "b"], ["c", "d"]]


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    counts=st.tuples(COUNTED, COUNTED),
    bits=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    kept=st.sets(st.sampled_from("abcd"), min_size=1),
    min_count=st.integers(1, 6),
)
def test_stores_are_summed_whatever_their_buckets(
    tmp_path: Path,
    counts: tuple[dict[tuple[Key, int], tuple[int, int]], ...],
    bits: tuple[int, int],
    kept: set[str],
    min_count: int,
) -> None:
    stores = [
        write_buckets(tmp_path / f"{number}", rows, 1 << bit)
        for number, (rows, bit) in enumerate(zip(counts, bits, strict=True))
    ]
    names = sorted(kept)
    recipe: Any = SimpleNamespace(
        names=names,
        n_max=3,
        origins=[SimpleNamespace(corpora=corpora) for corpora in CORPORA],
        stores=stores,
        folded=False,
        scoring=SimpleNamespace(mining=Mining(min_count=min_count, min_documents=1)),
    )
    found = joint_counts(recipe, tmp_path)
    assert len(found.buckets) == 1 << max(bits)
    single = {
        (key, CORPORA[number][place]): value
        for number, rows in enumerate(counts)
        for (key, place), value in rows.items()
        if CORPORA[number][place] in kept
    }
    stored = [row for path in found.buckets for row in pq.read_table(path).to_pylist()]
    assert {
        (tuple(row[f"t{place}"] for place in range(row["n"])), names[row["corpus"]]): (
            row["count"],
            row["documents"],
        )
        for row in stored
    } == single
    assert len(stored) == len(single)
    sums = Counter[Key]()
    for (key, _), (count, _) in single.items():
        sums[key] += count
    candidates = [row for path in found.candidates for row in pq.read_table(path).to_pylist()]
    assert {tuple(r[f"t{p}"] for p in range(r["n"])): r["count"] for r in candidates} == {
        key: count for key, count in sums.items() if count >= min_count
    }


def write_buckets(
    folder: Path, rows: dict[tuple[Key, int], tuple[int, int]], buckets: int
) -> CountStore:
    folder.mkdir(exist_ok=True)
    lengths = np.array([len(key) for key, _ in rows], np.uint8)
    tokens = np.array([[*key, 0, 0][:3] for key, _ in rows], np.uint32).reshape(-1, 3)
    numbers = np.array([*rows.values()], np.uint32).reshape(-1, 2)
    columns = [
        gram_hashes(lengths, tokens), lengths, *tokens.T,
        np.array([place for _, place in rows], np.uint16), *numbers.T,
    ]  # fmt: skip
    arrays = [pa.array(column) for column in columns]
    pq.write_table(pa.table(arrays, schema=counts_schema(3)), folder / "counts.parquet")
    for bucket in range(buckets):
        store_part(
            folder, f"bucket-{bucket:05d}", sources=[str(folder / "counts.parquet")], earlier=None,
            bucket=bucket, buckets=buckets, n_max=3, memory_limit="200MB",
        )  # fmt: skip
    return CountStore(folder, buckets, "")
