"""Names of the files of a memory, relative to its folder."""

from __future__ import annotations

from collections.abc import Sequence

DICTIONARY_NAME = "records.zdict"
FILTER_NAME = "suffixes.arrow"


def shard_name(shard: int) -> str:
    """Folder of a shard."""
    return f"shard-{shard:05d}"


def keys_name(shard: int) -> str:
    """Relative path of a shard's LMDB file."""
    return f"{shard_name(shard)}/keys.mdb"


def index_name(shard: int) -> str:
    """Relative path of a shard's index."""
    return f"{shard_name(shard)}/index.arrow"


def rows_name(shard: int, payload: str) -> str:
    """Relative path of a shard's rows of a payload."""
    return f"{shard_name(shard)}/rows-{payload}.arrow"


def added_rows_name(shard: int) -> str:
    """Path of a shard's rows, relative to the folder of a payload that was added."""
    return f"{shard_name(shard)}/rows.arrow"


def required_files(shards: int, payloads: Sequence[str]) -> list[str]:
    """Relative paths of every file that the shards and the records need."""
    names = [DICTIONARY_NAME]
    for number in range(shards):
        names += [keys_name(number), index_name(number)]
        names += [rows_name(number, payload) for payload in payloads]
    return names
