"""Dealing a catalogue out to shards, against one sort of the whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.keys import tokens_hash
from phrasemem.memfmt.seed import choose_seed
from phrasemem.pipeline import layout, pack
from phrasemem.pipeline.catalogue_table import catalogue_schema, key_matrix, read_rows

N_MAX = 3
CORPORA = ["a"]
# Found by search: with seed 0 these agree in all the bits that the index of a tiny memory knows.
COLLIDING = [[179, 529], [285, 560]]


def write_catalogue(path, keys):
    texts = [" ".join(map(str, key)) for key in keys]
    count = len(keys)
    columns = {
        "row": np.arange(count, dtype=np.uint32),
        "text": texts,
        "tokens": keys,
        "n": [len(key) for key in keys],
        "count": range(count),
        "documents": range(count),
        "count_a": range(count),
        "documents_a": range(count),
        **{name: np.linspace(0, 1, count) for name in ("npmi", "llr", "cvalue", "score")},
    }
    schema = catalogue_schema(CORPORA)
    for field in schema:
        if field.name not in columns:
            columns[field.name] = [None] * count
    table = pa.table({name: columns[name] for name in schema.names}, schema=schema)
    pq.write_table(table, path, row_group_size=7)
    return table


def random_keys(count, seed=0):
    dice = np.random.default_rng(seed)
    keys = {tuple(dice.integers(0, 50, dice.integers(1, N_MAX + 1)).tolist()) for _ in range(count)}
    return [list(key) for key in sorted(keys)]


def deal(folder, catalogue, shard_bits):
    folder.mkdir()
    report = layout.layout_part(
        folder,
        "all",
        catalogue=str(catalogue),
        corpora=CORPORA,
        n_max=N_MAX,
        seed=0,
        shard_bits=shard_bits,
    )
    shards = [folder / layout.shard_file(n) for n in range(1 << report["shard_bits"])]
    return report, shards


@pytest.mark.parametrize("shard_bits", [0, 1, 5, None])
def test_all_shards_together_are_one_sort_of_the_whole(tmp_path, monkeypatch, shard_bits):
    monkeypatch.setattr(layout, "_BATCH_ROWS", 11)
    monkeypatch.setattr(layout, "_OPEN_FILES", 3)
    monkeypatch.setattr(layout, "_DICTIONARY_SAMPLES", 90)
    monkeypatch.setattr(layout, "ENTRIES_A_SHARD", 50)
    monkeypatch.setattr(pack, "_ROWS_A_GROUP", 32)
    whole = write_catalogue(tmp_path / "c.parquet", random_keys(300))
    report, shards = deal(tmp_path / "dealt", tmp_path / "c.parquet", shard_bits)
    lengths, tokens = key_matrix(whole, N_MAX)
    assert report["hash_seed"] == choose_seed(lengths, tokens)
    assert report["entries"] == len(whole)
    assert report["shard_bits"] == (3 if shard_bits is None else shard_bits)
    order = np.argsort(tokens_hash(tokens, lengths, report["hash_seed"]))
    dealt = pa.concat_tables([layout.read_shard(path) for path in shards])
    assert dealt["row"].to_pylist() == order.tolist()

    pack.write_catalogue(tmp_path / "sorted.parquet", shards, CORPORA)
    found = pq.ParquetFile(tmp_path / "sorted.parquet")
    assert found.metadata.row_group(0).num_rows == 32
    renumbered = whole.take(pa.array(order)).set_column(
        0, "row", pa.array(np.arange(len(whole), dtype=np.uint32))
    )
    assert found.read().equals(renumbered)
    step = len(whole) // 90
    sample = layout._sample(shards, len(whole), CORPORA)
    assert [record.text for record in sample] == renumbered["text"].to_pylist()[::step]


def test_the_seed_moves_on_when_keys_of_one_shard_cannot_be_told_apart(tmp_path):
    write_catalogue(tmp_path / "c.parquet", COLLIDING)
    report, _ = deal(tmp_path / "dealt", tmp_path / "c.parquet", 1)
    assert report["hash_seed"] == 1


@given(st.data())
def test_rows_of_a_catalogue_are_read_from_the_groups_that_hold_them(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "groups.parquet"
    if not path.exists():
        write_catalogue(path, random_keys(60))
    whole = pq.read_table(path)
    start = data.draw(st.integers(0, len(whole) - 1))
    stop = data.draw(st.integers(start + 1, len(whole)))
    assert read_rows(path, start, stop, ["text"]).equals(whole.select(["text"])[start:stop])


def test_a_key_that_stands_there_twice_is_named(tmp_path):
    write_catalogue(tmp_path / "c.parquet", [[1, 2], [3], [1, 2]])
    with pytest.raises(PhraseMemError, match=r"stands there twice: found \[1, 2\]"):
        deal(tmp_path / "dealt", tmp_path / "c.parquet", 1)


@pytest.mark.parametrize(
    ("entries", "bits"), [(0, 0), (1, 0), (262144, 0), (262145, 1), (10**8, 9)]
)
def test_shards_are_as_few_as_keep_each_small(entries, bits):
    assert layout.bits_for(entries) == bits
