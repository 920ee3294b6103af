"""Files in buckets: every row comes back from its own bucket, and from no other."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem.pipeline.buckets import (
    bucket_limits,
    bucket_reader,
    bucket_that_holds,
    read_all,
    write_bucketed,
)
from phrasemem.pipeline.merge import candidates_part

BUCKETS = 4
SCHEMA = pa.schema([("hash", pa.uint64()), ("count", pa.uint32())])


def write(path: Path, hashes: list[int]) -> int:
    def bucket(number: int) -> pa.Table:
        first, last = bucket_limits(number, BUCKETS)
        kept = [value for value in hashes if first <= value <= last]
        return pa.table({"hash": kept, "count": [1] * len(kept)}, schema=SCHEMA)

    return write_bucketed(path, SCHEMA, map(bucket, range(BUCKETS)))


def test_buckets_cover_all_hashes_once() -> None:
    for buckets in (1, 4, 64):
        limits = [bucket_limits(bucket, buckets) for bucket in range(buckets)]
        assert limits[0][0] == 0
        assert limits[-1][1] == 2**64 - 1
        assert all(left[1] + 1 == right[0] for left, right in itertools.pairwise(limits))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**62 - 1, 2**62, 2**64 - 1])),
        min_size=1,
        max_size=3,
    )
)
def test_a_bucket_has_its_rows_of_all_files(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("buckets")
    paths = [str(folder / f"{number}.arrow") for number in range(len(parts))]
    for path, hashes in zip(paths, parts, strict=True):
        assert write(Path(path), hashes) == len(hashes)
        assert sorted(read_all(path)["hash"].to_pylist()) == sorted(hashes)
    everything = sorted(itertools.chain(*parts))
    for bucket in range(BUCKETS):
        first, last = bucket_limits(bucket, BUCKETS)
        expected = [value for value in everything if first <= value <= last]
        table = bucket_reader(paths, bucket).read_all()
        assert sorted(table["hash"].to_pylist()) == expected
        for key in (first, last):
            around = bucket_that_holds(paths, key).read_all()
            assert around.equals(table)


def test_files_in_buckets_are_not_read_whole(tmp_path: Path) -> None:
    write(tmp_path / "c.arrow", [1])
    with pytest.raises(ValueError, match="a bucket at a time"):
        candidates_part(
            tmp_path, "k", sources=[str(tmp_path / "c.arrow")], bucket=None, buckets=1, corpora=1,
            n_max=2, min_count=1, min_documents=1, memory_limit="100MB",
        )  # fmt: skip
