"""``compare`` finds what a plain comparison of two dictionaries finds."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phrasemem.cli import main
from phrasemem.memfmt.compare import compare
from phrasemem.memfmt.manifest import TokenizerInfo
from phrasemem.memfmt.payloads import add_payload
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.sparse import Successors
from phrasemem.memfmt.writer import Entries, Header, PayloadSpec, write_memory

Key = tuple[int, ...]
# For each key: text, score, counts of "news" and "wiki", documents, first value of its vector.
Values = tuple[str, float, int, int, int, float]

KEYS = st.lists(st.integers(0, 5), max_size=3).map(tuple)
VALUES = st.tuples(
    st.sampled_from(["x", "y"]),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(1, 2),
    st.sampled_from([0.0, 1.0]),
)


def write(path: Path, table: dict[Key, Values], header: Header, shard_bits: int = 0) -> Path:
    keys = list(table)
    tokens = np.zeros((len(keys), header.n_max), np.uint32)
    for place, key in enumerate(keys):
        tokens[place, : len(key)] = key
    vectors = np.zeros((len(keys), 12), np.float32)
    vectors[:, 3] = [values[5] for values in table.values()]
    records = [
        Record(text, score, {"news": news, "wiki": wiki}, documents)
        for text, score, news, wiki, documents, _ in table.values()
    ]
    entries = Entries(
        np.array([len(key) for key in keys], np.uint8),
        tokens,
        records,
        {"semantic": vectors, "small": vectors},
    )
    write_memory(path, entries, header, shard_bits=shard_bits)
    return path


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    left=st.dictionaries(KEYS, VALUES, max_size=20),
    right=st.dictionaries(KEYS, VALUES, max_size=20),
    share=st.booleans(),
    limit=st.integers(0, 3),
)
def test_it_finds_what_a_plain_comparison_finds(
    tmp_path: Path,
    header: Header,
    left: dict[Key, Values],
    right: dict[Key, Values],
    share: bool,
    limit: int,
) -> None:
    if share:
        right = {**right, **left}
    a, b = write(tmp_path / "a", left, header), write(tmp_path / "b", right, header, shard_bits=1)
    found = compare(a, b, limit=limit)
    common = left.keys() & right.keys()
    pairs = [(left[key], right[key]) for key in common]
    phrases = found.phrases
    assert phrases is not None
    assert phrases.common == len(common)
    assert phrases.only_a == len(left.keys() - right.keys())
    assert phrases.only_b == len(right.keys() - left.keys())
    assert phrases.texts == sum(x[0] != y[0] for x, y in pairs)
    assert phrases.scores == sum(x[1] != y[1] for x, y in pairs)
    assert phrases.counts == sum(x[2:5] != y[2:5] for x, y in pairs)
    other_vectors = sum(x[5] != y[5] for x, y in pairs)
    assert found.vectors == {"semantic": other_vectors, "small": other_vectors}
    assert found.equal == (left == right)
    best = sorted(left.keys() - right.keys(), key=lambda key: (-left[key][1], key))[:limit]
    assert [phrase.tokens for phrase in phrases.best_only_a] == best


def test_only_the_best_are_kept_on_the_way(tmp_path: Path, header: Header) -> None:
    table = {
        (first, second): ("x", float(first * 50 + second), 1, 0, 1, 0.0)
        for first in range(50)
        for second in range(50)
    }
    a, b = write(tmp_path / "a", table, header), write(tmp_path / "b", {}, header)
    found = compare(a, b, limit=3)
    assert found.phrases is not None
    assert [phrase.score for phrase in found.phrases.best_only_a] == [2499.0, 2498.0, 2497.0]


def test_blocks_of_rows_add_up(
    tmp_path: Path, header: Header, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phrasemem.memfmt.compare._BLOCK_ROWS", 7)
    left = {(token, token): ("x", 1.0, 1, 0, 1, float(token)) for token in range(40)}
    right = {key: (*values[:5], values[5] % 3) for key, values in left.items()}
    a, b = write(tmp_path / "a", left, header), write(tmp_path / "b", right, header)
    assert compare(a, b).vectors == {"semantic": 37, "small": 37}


@pytest.fixture
def same_keys(
    tmp_path: Path, entries_of: Callable[[Iterable[Key]], Entries]
) -> Callable[[str, Header], Path]:
    def build(name: str, header: Header) -> Path:
        entries = entries_of([(1, 2), (3, 4, 5)])
        names = [payload.name for payload in header.payloads]
        vectors = dict.fromkeys(names, entries.payloads["semantic"])
        write_memory(tmp_path / name, dataclasses.replace(entries, payloads=vectors), header)
        return tmp_path / name

    return build


def test_settings_payloads_and_corpora_are_compared(
    same_keys: Callable[[str, Header], Path], header: Header
) -> None:
    semantic, small = header.payloads
    wiki = header.corpora[1].model_copy(update={"licence": "CC-BY-4.0"})
    other = dataclasses.replace(
        header,
        payloads=[semantic, PayloadSpec("small", 12, "float16")],
        corpora=[header.corpora[0], wiki],
    )
    found = compare(same_keys("a", header), same_keys("b", other))
    assert found.settings == {}
    assert list(found.payloads) == ["small"]
    assert [side["dtype"] for side in found.payloads["small"]] == [small.dtype, "float16"]
    assert list(found.corpora) == ["wiki"]
    assert [side["licence"] for side in found.corpora["wiki"]] == ["CC0", "CC-BY-4.0"]
    assert found.vectors == {"semantic": 0}
    assert not found.equal


def test_successors_and_added_payloads_are_compared(
    same_keys: Callable[[str, Header], Path], header: Header
) -> None:
    paths = [same_keys(name, header) for name in ("a", "b")]
    for path, used in zip(paths, (1, 0), strict=True):

        def make(_: int, lengths: np.ndarray, __: np.ndarray, used: int = used) -> Successors:
            zeros = np.zeros((len(lengths), 2), np.float32)
            numbers = np.full(len(lengths), used, np.uint8)
            # Rows differ in nothing but how many successors there are: token 0, never seen.
            return Successors(zeros.astype(np.uint32), zeros, zeros, numbers)

        add_payload(path, PayloadSpec("next", 2, "float16", kind="sparse"), make)
    found = compare(*paths)
    assert not found.payloads
    assert found.vectors == {"next": 2, "semantic": 0, "small": 0}
    add_payload(paths[0], PayloadSpec("more", 1), lambda _, n, __: np.zeros((len(n), 1)))
    (alone,) = compare(*paths).payloads.items()
    assert (alone[0], alone[1][1]) == ("more", None)


def test_keys_of_other_tokenizers_are_not_compared(
    same_keys: Callable[[str, Header], Path], header: Header
) -> None:
    tokenizer = TokenizerInfo(fingerprint="0" * 64, name="another", vocab_size=50)
    other = dataclasses.replace(header, tokenizer=tokenizer)
    found = compare(same_keys("a", header), same_keys("b", other))
    assert list(found.settings) == ["tokenizer"]
    assert found.phrases is None
    assert not found.equal


def test_other_files_are_compared_but_not_how_a_memory_was_made(
    tmp_path: Path, header: Header, entries_of: Callable[[Iterable[Key]], Entries]
) -> None:
    for name, extra in {"a": {"x": b"1", "y": b"1"}, "b": {"y": b"2", "z": b"2"}}.items():
        files = {}
        for file, data in {**extra, "build.json": name.encode()}.items():
            files[file] = tmp_path / f"{name}-{file}"
            files[file].write_bytes(data)
        write_memory(tmp_path / name, entries_of([(1, 2)]), header, extra_files=files)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.files == {"x": "only in a", "y": "different", "z": "only in b"}
    assert found.phrases is not None
    assert found.phrases.equal


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[object, str, str]]:
    """Exit status, output and errors of ``phrasemem diff``."""

    def call(*arguments: object) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(["diff", *map(str, arguments)])
        return stopped.value.code, *capsys.readouterr()

    return call


def test_the_command_tells_by_its_exit_status(
    tmp_path: Path, memory_path: Path, header: Header, run: Callable[..., tuple[object, str, str]]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(memory_path, copy)
    assert run(memory_path, copy) == (0, "the memories hold the same\n", "")
    other = write(tmp_path / "other", {(1, 2): ("one two", 1.0, 3, 1, 2, 0.0)}, header)
    status, output, _ = run(memory_path, other, "--limit", 1)
    assert status == 1
    assert "phrases only in a: 700" in output
    assert "file catalogue.parquet: only in a" in output
    assert "one two (score 1.00, 4 in 2 documents)" in output
    assert run(memory_path, other, "--quiet") == (1, "", "")
    found = json.loads(run(memory_path, other, "--json")[1])
    assert found["equal"] is False
    assert found["phrases"]["only_a"] == 700
    status, _, errors = run(memory_path, tmp_path / "nothing")
    assert status == 1
    assert errors.startswith("phrasemem: no memory here")
