"""keys.mdb: keys in token order with their records; for tools, not for the batch path."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path

import lmdb

from phrasemem.memfmt import environments
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.keys import key_tokens, token_key
from phrasemem.memfmt.records import Record, RecordCodec

_ROW_BYTES = 4


class KeyStore:
    """The LMDB files of all shards. Threads may share it; it stays valid after a fork.

    Parameters
    ----------
    paths : sequence of Path
        One file a shard, whose lengths were checked.
    first_rows : sequence of int
        First row of each shard.
    corpora : sequence of str
    dictionary : bytes
    """

    def __init__(
        self,
        paths: Sequence[Path],
        first_rows: Sequence[int],
        corpora: Sequence[str],
        dictionary: bytes,
    ) -> None:
        self._paths = [path.resolve() for path in paths]
        self._environments = [environments.acquire(path) for path in self._paths]
        self._first_rows = list(first_rows)
        self._codec_arguments = (tuple(corpora), dictionary)

    def record(self, shard: int, tokens: Sequence[int]) -> tuple[int, Record] | None:
        """Row and record of a key of a shard, or None."""
        try:
            with self._environments[shard].cursor() as cursor:
                value = cursor.get(token_key(tokens))
        except lmdb.Error as error:
            raise _damaged(error, self._paths[shard]) from error
        if value is None:
            return None
        row, packed = self._split(shard, bytes(value))
        return row, RecordCodec(*self._codec_arguments).decode(packed)

    def prefix(self, tokens: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int, Record]]:
        """Every key that begins with `tokens`, in key order, over all shards."""
        begin = token_key(tokens) if len(tokens) else b""
        codec = RecordCodec(*self._codec_arguments)
        ranges = [self._range(shard, begin) for shard in range(len(self._paths))]
        for key, row, packed in heapq.merge(*ranges):
            try:
                found = key_tokens(key)
            except ValueError as error:
                raise FormatError(
                    Reason.KEYS_DAMAGED,
                    "a key is no sequence of tokens",
                    found=key.hex(),
                    where=self._paths[0].parent.parent,
                ) from error
            yield found, row, codec.decode(packed)

    def items(self, shard: int) -> Iterator[tuple[bytes, int, bytes]]:
        """Every key of a shard, with its row and packed record, in the order of the file."""
        return self._range(shard, b"")

    def close(self) -> None:
        """Give the files back."""
        for environment in self._environments:
            environments.release(environment)
        self._environments = []

    def _range(self, shard: int, begin: bytes) -> Iterator[tuple[bytes, int, bytes]]:
        try:
            with self._environments[shard].cursor() as cursor:
                found = cursor.set_range(begin) if begin else cursor.first()
                if not found:
                    return
                for key, value in cursor:
                    if not bytes(key).startswith(begin):
                        return
                    yield bytes(key), *self._split(shard, bytes(value))
        except lmdb.Error as error:
            raise _damaged(error, self._paths[shard]) from error

    def _split(self, shard: int, value: bytes) -> tuple[int, bytes]:
        if len(value) <= _ROW_BYTES:
            raise FormatError(
                Reason.KEYS_DAMAGED,
                "a value is too short",
                expected=f"> {_ROW_BYTES} bytes",
                found=len(value),
                where=self._paths[shard],
            )
        row = self._first_rows[shard] + int.from_bytes(value[:_ROW_BYTES], "big")
        return row, value[_ROW_BYTES:]


def _damaged(error: lmdb.Error, path: Path) -> FormatError:
    """Say which file LMDB stumbled over."""
    return FormatError(
        Reason.KEYS_DAMAGED,
        f"LMDB cannot read the keys: {error}",
        where=path,
        hint="fetch this file again",
    )
