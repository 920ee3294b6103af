"""Opens a memory: keys to rows, tokens to longest matches, rows to vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt import kernels, match, suffix_filter, threads
from phrasemem.memfmt.added_payload import AddedPayload, read_added
from phrasemem.memfmt.checksums import check_blocks, check_bytes
from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason
from phrasemem.memfmt.files import check_lengths, read_manifest
from phrasemem.memfmt.index import Index, IndexBuilder, read_index
from phrasemem.memfmt.key_map import KeyMap, read_key_map
from phrasemem.memfmt.keys import pack_keys, shard_of, tokens_hash
from phrasemem.memfmt.keystore import KeyStore
from phrasemem.memfmt.lmdb_pages import check_pages
from phrasemem.memfmt.manifest import Manifest, PayloadInfo
from phrasemem.memfmt.mapped import MappedRows
from phrasemem.memfmt.match import Match
from phrasemem.memfmt.names import (
    DICTIONARY_NAME,
    FILTER_NAME,
    KEY_MAP_NAME,
    index_name,
    keys_name,
    rows_name,
)
from phrasemem.memfmt.payload import PayloadReader, open_payload
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.table import Table

_SHARE = 2048
"""Keys that are worth a thread of their own."""

_empty, _INT64, _look_up = np.empty, np.dtype(np.int64), kernels.look_up


class MemoryReader:
    """A memory, opened for reading.

    A context manager. Threads may share it, processes may open it at once, and it stays valid
    after a fork. Use :meth:`open`.

    Parameters
    ----------
    path : Path
    manifest : Manifest
    index : Index
    dictionary : bytes
    added : sequence of AddedPayload
    key_map : KeyMap, optional
        Of a memory with folded keys: whatever is asked is folded first.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        index: Index,
        dictionary: bytes,
        added: Sequence[AddedPayload] = (),
        key_map: KeyMap | None = None,
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.n_max = manifest.n_max
        first_rows = [shard.first_row for shard in manifest.shards]
        shards = range(len(first_rows))
        self._payloads = {
            info.name: self._open_payload(
                info, [rows_name(shard, info.name) for shard in shards], index
            )
            for info in manifest.payloads
        }
        # The narrowest rows hold the same keys in the fewest pages.
        self._narrowest = min(self._payloads.values(), key=lambda payload: payload.stride)
        self._table: Table | None = self._narrowest.table
        for one in added:
            names = [one.rows(shard) for shard in shards]
            self._payloads[one.name] = self._open_payload(one.payload, names, index)
        self._index = index
        self.key_map = key_map
        self._unfolded: Table | None = self._table if key_map is None else None
        self._keys = KeyStore(
            [path / keys_name(shard) for shard in shards],
            first_rows,
            [corpus.name for corpus in manifest.corpora],
            dictionary,
        )

    @classmethod
    def open(
        cls, path: str | Path, *, check: Literal["lengths", "full"] = "lengths"
    ) -> MemoryReader:
        """Open a memory.

        The manifest, the index and every file's length are always checked, and what is loaded
        into RAM is compared with its checksums.

        Parameters
        ----------
        path : path-like
        check : {"lengths", "full"}
            ``full`` also compares every block of every file with its checksum first, and checks
            the pages of LMDB's files: for memories from elsewhere, since LMDB may crash on
            altered bytes.

        Returns
        -------
        MemoryReader

        Raises
        ------
        FormatError
            If the memory is damaged, or of another format.
        """
        folder = Path(path)
        manifest = read_manifest(folder)
        added = read_added(folder, manifest)
        for listing in (manifest, *added):
            check_lengths(folder, listing.paths)
        if check == "full":
            for listing in (manifest, *added):
                for name, info in listing.paths.items():
                    check_blocks(folder / name, info, listing.block_bytes)
            for shard in range(len(manifest.shards)):
                check_pages(folder / keys_name(shard))
        index = load_index(folder, manifest)
        dictionary = _read_checked(folder, DICTIONARY_NAME, manifest)
        key_map = load_key_map(folder, manifest)
        return cls(folder, manifest, index, dictionary, added, key_map)

    def _open_payload(self, info: PayloadInfo, names: Sequence[str], index: Index) -> PayloadReader:
        paths = [self.path / name for name in names]
        first_rows = [shard.first_row for shard in self.manifest.shards]
        mapped = MappedRows(paths, first_rows, self.manifest.entries, info.stride)
        table = Table(self.manifest, index, mapped)
        return open_payload(info, self.manifest.row_layout(info), mapped, table)

    def __len__(self) -> int:
        return self.manifest.entries

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all files. Calls that run in other threads finish undisturbed."""
        if self._table is not None:
            self._table = self._unfolded = None
            self._keys.close()
            self._payloads = {}
            del self._index, self._narrowest

    @property
    def index_bytes(self) -> int:
        """RAM that the index takes."""
        return self._index.nbytes

    def fold(self, tokens: NDArray[Any]) -> NDArray[Any]:
        """Return the ids that stand for tokens in keys; the same array if keys are exact.

        Everything here folds what it is asked. Only who compares tokens with those in rows must
        fold them first. Negative ids and those beyond the vocabulary stay as they are.

        Parameters
        ----------
        tokens : any shape, of integers
        """
        return tokens if self.key_map is None else self.key_map.fold(tokens)

    def look_up(self, tokens: NDArray[np.uint32], lengths: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Find the rows of keys that stand in a matrix; see :meth:`get_many`.

        Parameters
        ----------
        tokens : (k, n_max) uint32
            C-contiguous; what stands beyond a key's length is ignored.
        lengths : (k,) uint8
            A length above `n_max` is never found.

        Returns
        -------
        (k,) int64
        """
        # Small batches are common, and each name that is looked up costs as much as a key.
        table = self._unfolded
        if table is not None and len(lengths) < _SHARE:
            rows = _empty(len(lengths), _INT64)
            _look_up(table.address, tokens, lengths, rows)
            return rows
        return self._look_up_any(tokens, lengths)

    def _look_up_any(
        self, tokens: NDArray[np.uint32], lengths: NDArray[np.uint8]
    ) -> NDArray[np.int64]:
        """Look up a batch of any size, folded first if need be."""
        table = self._opened()
        rows = np.empty(len(lengths), np.int64)
        _look_up_shared(table.address, self.fold(tokens), lengths, rows)
        return rows

    def get_many(self, keys: Sequence[Sequence[int]]) -> NDArray[np.int64]:
        """Find the rows of keys.

        Parameters
        ----------
        keys : sequence of k sequences of int
            Token ids; the empty key is the root.

        Returns
        -------
        (k,) int64
            -1 where a key is absent. Exact: the tokens in the row were compared.
        """
        return self.look_up(*pack_keys(keys, self.n_max))

    def candidates(
        self,
        tokens: NDArray[np.int64],
        start: int = 0,
        *,
        shortest: int = 1,
        longest: NDArray[np.uint8] | None = None,
    ) -> Match:
        """Find longest matches by RAM alone; see :func:`phrasemem.memfmt.match.find_candidates`.

        For callers that hold the rows: check them with :func:`phrasemem.memfmt.match.agrees`,
        against tokens from :meth:`fold`.
        """
        table = self._opened()
        tokens = self.fold(tokens)
        return match.find_candidates(table, tokens, start, shortest=shortest, longest=longest)

    def longest_match(
        self, tokens: NDArray[np.int64], start: int = 0, *, shortest: int = 1
    ) -> Match:
        """Find the longest key that ends at each position.

        Parameters
        ----------
        tokens : (B, T) int64
            A negative id ends the history before it.
        start : int
            First position to answer; those before it are history.
        shortest : int
            Shorter keys are not considered; 0 admits the root, which ends everywhere.

        Returns
        -------
        Match
            Rows and lengths, both (B, T - start). Exact.
        """
        table = self._opened()
        rows = self._narrowest.mapped
        return match.find_exact(table, rows, self.fold(tokens), start, shortest=shortest)

    def prefix(self, tokens: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int, Record]]:
        """Iterate over the keys that begin with `tokens`: tokens, row and record, in key order."""
        self._opened()
        return self._keys.prefix(self._folded_key(tokens))

    def record(self, tokens: Sequence[int]) -> Record | None:
        """Return the record of a key, or None."""
        self._opened()
        tokens = self._folded_key(tokens)
        matrix, lengths = pack_keys([tokens], self.n_max)
        if lengths[0] > self.n_max:
            return None
        value = tokens_hash(matrix, lengths, self.manifest.hash_seed)
        found = self._keys.record(int(shard_of(value, self.manifest.shard_bits)[0]), tokens)
        return None if found is None else found[1]

    def row_tokens(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
        """Return the keys of rows: ``(k,) uint8`` lengths and ``(k, n_max) uint32`` tokens."""
        self._opened()
        return self._narrowest.layout.keys(self._narrowest.gather_raw(rows))

    @property
    def payload_names(self) -> list[str]:
        """Names of all payloads: first those of the manifest, then those that were added."""
        return list(self._payloads)

    def payload(self, name: str) -> PayloadReader:
        """Return the reader of a payload: a `VectorReader`, or a `SuccessorReader`.

        Raises
        ------
        FormatError
            If the memory has no payload of that name.
        """
        self._opened()
        if name not in self._payloads:
            raise FormatError(
                Reason.PAYLOAD_MISSING,
                "the memory has no such payload",
                expected=sorted(self._payloads),
                found=name,
                where=self.path,
            )
        return self._payloads[name]

    def _folded_key(self, tokens: Sequence[int]) -> Sequence[int]:
        return tokens if self.key_map is None else self.key_map.fold_key(tokens)

    def _opened(self) -> Table:
        if self._table is None:
            raise PhraseMemError("the memory was closed", where=self.path)
        return self._table


def _look_up_shared(
    address: int,
    tokens: NDArray[np.uint32],
    lengths: NDArray[np.uint8],
    rows: NDArray[np.int64],
) -> None:
    threads.run_all(
        [
            partial(kernels.look_up, address, tokens[piece], lengths[piece], rows[piece])
            for piece in threads.pieces(len(rows), _SHARE)
        ]
    )


def load_index(folder: Path, manifest: Manifest) -> Index:
    """Load the index of all shards, compared with its checksums."""
    builder = IndexBuilder(
        manifest.entries, manifest.bucket_bits, manifest.shard_bits, manifest.tokenizer.vocab_size
    )
    for number, shard in enumerate(manifest.shards):
        name = index_name(number)
        data = _read_checked(folder, name, manifest)
        builder.add(read_index(data, folder / name), shard.entries, folder / name)
    if FILTER_NAME not in manifest.files:
        return builder.finish(suffix_filter.no_filter())
    data = _read_checked(folder, FILTER_NAME, manifest)
    return builder.finish(suffix_filter.read_filter(data, manifest.entries, folder / FILTER_NAME))


def load_key_map(folder: Path, manifest: Manifest) -> KeyMap | None:
    """Load what keys are folded by, compared with its checksums; None where they are exact."""
    if not manifest.is_folded:
        return None
    data = _read_checked(folder, KEY_MAP_NAME, manifest)
    vocab_size = manifest.tokenizer.vocab_size
    return read_key_map(data, manifest.key_normalisation, vocab_size, folder / KEY_MAP_NAME)


def _read_checked(folder: Path, name: str, manifest: Manifest) -> bytes:
    path, info = folder / name, manifest.files[name]
    data = path.read_bytes()
    if len(data) != info.bytes:
        raise FormatError(
            Reason.FILE_LENGTH,
            "a file has the wrong length",
            expected=info.bytes,
            found=len(data),
            where=path,
        )
    check_bytes(data, path, info, manifest.block_bytes)
    return data
