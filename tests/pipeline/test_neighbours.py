"""Branching entropies equal those worked out by hand, however the text is cut into partitions."""

from __future__ import annotations

import math
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem.pipeline.boundaries import CUT_AFTER, MAY_END, MAY_START
from phrasemem.pipeline.buckets import bucket_limits, read_all
from phrasemem.pipeline.count import counts_part, gram_hashes, windows
from phrasemem.pipeline.merge import candidates_part
from phrasemem.pipeline.neighbours import EDGE, entropies_part, neighbours_part, targets_part
from phrasemem.pipeline.tokens import TokenRun, _write_run

N_MAX = 3
BUCKETS = 2
Gram = tuple[int, ...]
# Tokens from 8 on are marks: no phrase begins or ends there. 9 also ends a sentence.
MARK, STOP = 8, 9

Documents = list[list[int]]
documents = st.lists(
    st.lists(st.integers(0, STOP), min_size=1, max_size=12), min_size=1, max_size=6
)


def run_of(texts: Documents) -> TokenRun:
    tokens = np.array([token for text in texts for token in text], np.uint32)
    flags = np.where(tokens < MARK, MAY_START | MAY_END, 0).astype(np.uint8)
    flags[tokens == STOP] |= CUT_AFTER
    ends = np.cumsum([len(text) for text in texts])
    flags[ends - 1] |= CUT_AFTER
    return TokenRun(tokens, flags, ends.astype(np.int64))


def by_hand(texts: Documents) -> dict[Gram, tuple[float, float]]:
    """Entropies of all n-grams, occurrence by occurrence."""
    beside: dict[Gram, tuple[list[object], list[object]]] = defaultdict(lambda: ([], []))
    for text in texts:
        for length in range(2, N_MAX + 1):
            for start in range(len(text) - length + 1):
                gram = tuple(text[start : start + length])
                if gram[0] >= MARK or gram[-1] >= MARK or STOP in gram:
                    continue
                stop = start + length
                left = text[start - 1] if start and text[start - 1] < MARK else object()
                right = text[stop] if stop < len(text) and text[stop] < MARK else object()
                beside[gram][0].append(left)
                beside[gram][1].append(right)

    def entropy(found: list[object]) -> float:
        shares = [number / len(found) for number in Counter(found).values()]
        return -sum(share * math.log(share) for share in shares)

    return {gram: (entropy(left), entropy(right)) for gram, (left, right) in beside.items()}


def entropies(
    parts: list[Documents], folder: Path, min_count: int = 1, text: list[Documents] | None = None
) -> list[dict[str, Any]]:
    """Run the stages; ``text`` is that beside the candidates, if not all of it."""
    for name in ("counts", "candidates", "targets", "neighbours", "entropies"):
        (folder / name).mkdir()
    for number, part in enumerate(parts):
        _write_run(folder / f"{number}.arrow", run_of(part))
        counts_part(
            folder / "counts",
            str(number),
            source=str(folder / f"{number}.arrow"),
            survivors=None,
            n_max=N_MAX,
            buckets=BUCKETS,
            corpus=0,
        )
    sources = [str(folder / "counts" / f"{number}.arrow") for number in range(len(parts))]
    keys = [f"{bucket:05d}" for bucket in range(BUCKETS)]
    shared = {"n_max": N_MAX, "memory_limit": "200MB"}
    limits = {"buckets": BUCKETS, "corpora": 1, "min_count": min_count, "min_documents": 1}
    for bucket, key in enumerate(keys):
        candidates_part(
            folder / "candidates", key, sources=sources, bucket=bucket, **shared, **limits
        )
        source = str(folder / "candidates" / f"{key}.parquet")
        targets_part(folder / "targets", key, candidates=source, n_max=N_MAX)
    targets = [str(folder / "targets" / f"{key}.npy") for key in keys]
    given_text = parts if text is None else text
    for number, part in enumerate(given_text):
        _write_run(folder / f"beside-{number}.arrow", run_of(part))
        neighbours_part(
            folder / "neighbours",
            str(number),
            source=str(folder / f"beside-{number}.arrow"),
            targets=targets,
            n_max=N_MAX,
        )
    beside = [str(folder / "neighbours" / f"{number}.arrow") for number in range(len(given_text))]
    rows: list[dict[str, Any]] = []
    for bucket, key in enumerate(keys):
        source = str(folder / "candidates" / f"{key}.parquet")
        entropies_part(
            folder / "entropies", key, candidates=source, sources=beside, bucket=bucket, **shared
        )
        found = pq.read_table(folder / "entropies" / f"{key}.parquet")
        before = pq.read_table(source)
        assert found.select(before.column_names).equals(before)
        rows += found.to_pylist()
    return rows


def key_of(row: dict[str, Any]) -> Gram:
    return tuple(row[f"t{place}"] for place in range(row["n"]))


@settings(max_examples=5, deadline=None)
@given(st.lists(documents, min_size=1, max_size=3))
def test_entropies_equal_those_by_hand(parts: list[Documents]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = entropies(parts, Path(folder))
    expected = by_hand([text for part in parts for text in part])
    found = {key_of(row): (row["left_entropy"], row["right_entropy"]) for row in rows}
    assert found.keys() == expected.keys()
    for gram, values in expected.items():
        assert found[gram] == pytest.approx(values, abs=2e-6)


REPEATS: Documents = [[1, 2, 3, 1, 2, 8, 1, 2, 9, 4, 1, 2], [5, 1, 2, 3], [6, 5, 1, 2, 3, 4]]


def test_partitions_change_nothing(tmp_path: Path) -> None:
    results = []
    for number, cut in enumerate(([REPEATS], [REPEATS[:1], REPEATS[1:]], [[t] for t in REPEATS])):
        (tmp_path / str(number)).mkdir()
        results.append(entropies(cut, tmp_path / str(number)))
    assert results[0] == results[1] == results[2]
    assert len(results[0]) > 10


def test_only_candidates_have_neighbours(tmp_path: Path) -> None:
    rows = entropies([REPEATS], tmp_path, min_count=3)
    kept = {key_of(row) for row in rows}
    assert kept == {(1, 2), (1, 2, 3), (2, 3)}
    hashes = {
        int(gram_hashes(np.array([len(k)], np.uint8), np.array([[*k, *[0] * (3 - len(k))]]))[0])
        for k in kept
    }
    table = read_all(str(tmp_path / "neighbours" / "0.arrow"))
    assert set(table["hash"].to_pylist()) == hashes
    assert EDGE in table["token"].to_pylist()


def test_text_that_is_not_at_hand_leaves_entropies_unknown(tmp_path: Path) -> None:
    rows = entropies([REPEATS], tmp_path, text=[REPEATS[:2]])
    known = {key_of(row): row["left_entropy"] is not None for row in rows}
    assert known[4, 1]
    assert not known[1, 2]
    assert not known[6, 5]
    assert all((row["left_entropy"] is None) == (row["right_entropy"] is None) for row in rows)


def test_hashes_of_buckets_are_ranges() -> None:
    found = np.concatenate([window.hashes for window in windows(run_of(REPEATS), N_MAX)])
    first = bucket_limits(1, BUCKETS)[0]
    assert (found < np.uint64(first)).any()
    assert (found >= np.uint64(first)).any()
