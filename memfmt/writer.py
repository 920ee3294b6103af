"""Writes a memory: shards from plain data in any process, then the manifest, then the name."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from phrasemem._version import __version__
from phrasemem.memfmt import durable
from phrasemem.memfmt.checksums import file_info
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.key_map import EXACT, KeyMap, write_key_map
from phrasemem.memfmt.keys import check_keys, shard_of, tokens_hash
from phrasemem.memfmt.layout import Layout, PayloadSpec
from phrasemem.memfmt.manifest import (
    BLOCK_BYTES,
    FORMAT_VERSION,
    MAGIC,
    MANIFEST_NAME,
    MAX_ENTRIES,
    CorpusInfo,
    EncoderInfo,
    Manifest,
    ShardInfo,
    TokenizerInfo,
    parse_manifest,
    payload_info,
    serialise,
    used_features,
)
from phrasemem.memfmt.names import (
    DICTIONARY_NAME,
    FILTER_NAME,
    KEY_MAP_NAME,
    required_files,
    rows_name,
)
from phrasemem.memfmt.records import train_dictionary
from phrasemem.memfmt.seed import choose_seed, row_ids
from phrasemem.memfmt.shard import Entries, write_shard
from phrasemem.memfmt.sparse import Successors

__all__ = [
    "CorpusInfo",
    "EncoderInfo",
    "Entries",
    "Header",
    "Layout",
    "PayloadSpec",
    "ShardInfo",
    "Successors",
    "TokenizerInfo",
    "choose_seed",
    "finish_memory",
    "row_ids",
    "shard_of",
    "train_dictionary",
    "write_memory",
    "write_shard",
]

_CHUNK = 1 << 18


@dataclass(frozen=True)
class Header:
    """What a manifest says besides files, shards and seed.

    Parameters
    ----------
    tokenizer : TokenizerInfo
    n_max : int
    payloads : sequence of PayloadSpec
    corpora : sequence of CorpusInfo
        Their order is that of the counts in a record.
    encoder : EncoderInfo, optional
    key_map : KeyMap, optional
        What all keys are folded by.

    Raises
    ------
    PhraseMemError
        If the key map is not that of the tokenizer, by its length.
    """

    tokenizer: TokenizerInfo
    n_max: int
    payloads: Sequence[PayloadSpec]
    corpora: Sequence[CorpusInfo] = ()
    encoder: EncoderInfo | None = None
    created_by: str = field(default=f"phrasemem {__version__}")
    key_map: KeyMap | None = None

    def __post_init__(self) -> None:
        if self.key_map is not None and len(self.key_map.ids) != self.tokenizer.vocab_size:
            raise PhraseMemError(
                "the key map belongs to another vocabulary",
                expected=self.tokenizer.vocab_size,
                found=len(self.key_map.ids),
            )

    def layout(
        self, *, entries: int, hash_seed: int, shard_bits: int = 0, dictionary: bytes = b""
    ) -> Layout:
        """Return what all shards of the memory must agree on."""
        return Layout(
            n_max=self.n_max,
            vocab_size=self.tokenizer.vocab_size,
            hash_seed=hash_seed,
            shard_bits=shard_bits,
            entries=entries,
            payloads=tuple(self.payloads),
            corpora=tuple(corpus.name for corpus in self.corpora),
            dictionary=dictionary,
            key_map=self.key_map,
        )


def finish_memory(
    staging: Path,
    final: Path,
    header: Header,
    layout: Layout,
    shards: Sequence[int],
    extra_files: Mapping[str, Path] | None = None,
) -> Manifest:
    """Complete a memory whose shards stand under `staging`, and give it its final name.

    Hashes every file, writes the manifest last, flushes everything and renames. A memory that
    stands at `final` is replaced, with all that was added to it: adapters and payloads belong to
    one base.

    Parameters
    ----------
    staging : Path
        On the file system of `final`. Files there that no shard and no `extra_files` name are
        removed, so that leftovers of a killed run are never published.
    final : Path
    header : Header
    layout : Layout
        The one that the shards were written with.
    shards : sequence of int
        Entries of each shard, in order: what `write_shard` returned.
    extra_files : mapping of str to Path, optional
        Relative name in the memory -> file to copy there, such as `catalogue.parquet`.

    Returns
    -------
    Manifest

    Raises
    ------
    PhraseMemError
        If the shards do not add up to `layout.entries`.
    """
    if sum(shards) != layout.entries:
        raise PhraseMemError(
            "the shards do not add up", expected=layout.entries, found=sum(shards), where=staging
        )
    durable.write_file(staging / DICTIONARY_NAME, layout.dictionary)
    _write_suffix_filter(staging, layout, shards)
    if layout.key_map is not None:
        write_key_map(staging / KEY_MAP_NAME, layout.key_map)
    extra = dict(extra_files or {})
    _copy_extra(staging, extra)
    manifest = _manifest(staging, header, layout, shards, extra)
    durable.remove_unlisted(staging, set(manifest.files))
    data = serialise(manifest)
    parse_manifest(data, staging / MANIFEST_NAME)
    durable.sync_tree(staging)
    durable.write_file(staging / MANIFEST_NAME, data)
    durable.sync_path(staging)
    durable.move_into_place(staging, final)
    return manifest


def _write_suffix_filter(staging: Path, layout: Layout, shards: Sequence[int]) -> None:
    """Filter over the keys of all shards, out of the rows, so that nothing has to be kept."""
    # Here, so that what only names a memory does not wait for the compiler of kernels.
    from phrasemem.memfmt.mapped import MappedRows
    from phrasemem.memfmt.suffix_filter import add_keys, empty_filter, write_filter

    words = empty_filter(layout.entries)
    narrowest = min(layout.payloads, key=lambda payload: layout.rows(payload).stride)
    rows = layout.rows(narrowest)
    for shard, count in enumerate(shards):
        mapped = MappedRows([staging / rows_name(shard, narrowest.name)], [0], count, rows.stride)
        raw = mapped.shard_rows(0, count)
        for begin in range(0, count, _CHUNK):
            lengths, tokens = rows.keys(raw[begin : begin + _CHUNK])
            add_keys(words, tokens, lengths, layout.hash_seed)
    write_filter(staging / FILTER_NAME, words)


def _copy_extra(staging: Path, extra: Mapping[str, Path]) -> None:
    for name, source in extra.items():
        target = staging / name
        if target.absolute() != source.absolute():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _manifest(
    staging: Path, header: Header, layout: Layout, shards: Sequence[int], extra: Iterable[str]
) -> Manifest:
    first_rows = np.concatenate([[0], np.cumsum(shards)]).tolist()
    payloads = [payload_info(spec, layout.rows(spec)) for spec in layout.payloads]
    fields = {
        "magic": MAGIC,
        "format_version": FORMAT_VERSION,
        "reader_features": used_features(payloads, folded=layout.key_map is not None),
        "writer_features": [],
        "created_by": header.created_by,
        "tokenizer": header.tokenizer,
        "encoder": header.encoder,
        "n_max": layout.n_max,
        "hash_seed": layout.hash_seed,
        "key_normalisation": EXACT if layout.key_map is None else layout.key_map.normalisation,
        "entries": layout.entries,
        "shard_bits": layout.shard_bits,
        "shards": [
            ShardInfo(first_row=first, entries=count)
            for first, count in zip(first_rows, shards, strict=False)
        ],
        "payloads": payloads,
        "corpora": list(header.corpora),
        "block_bytes": BLOCK_BYTES,
    }
    required = required_files(len(shards), [spec.name for spec in layout.payloads])
    required += [FILTER_NAME] if layout.key_map is None else [FILTER_NAME, KEY_MAP_NAME]
    names = sorted({*required, *extra})
    # Hashing releases the GIL; files are large, so threads are enough.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        infos = pool.map(lambda name: file_info(staging / name, BLOCK_BYTES), names)
        files = dict(zip(names, infos, strict=True))
    return Manifest.model_validate({**fields, "files": files})


def write_memory(
    path: str | Path,
    entries: Entries,
    header: Header,
    *,
    shard_bits: int = 0,
    extra_files: Mapping[str, Path] | None = None,
    first_seed: int = 0,
) -> Manifest:
    """Write a whole memory from arrays in RAM, in this process.

    Parameters
    ----------
    path : path-like
        A memory that stands there is replaced.
    entries : Entries
        In any order.
    header : Header
    shard_bits : int
    extra_files : mapping of str to Path, optional
        Relative name in the memory -> file to copy there.
    first_seed : int

    Returns
    -------
    Manifest
    """
    final = Path(path).absolute()
    if len(entries) > MAX_ENTRIES:
        raise PhraseMemError("too many keys", expected=f"<= {MAX_ENTRIES}", found=len(entries))
    check_keys(entries.tokens, entries.lengths, header.n_max, header.tokenizer.vocab_size)
    seed = choose_seed(entries.lengths, entries.tokens, first_seed)
    order = np.argsort(tokens_hash(entries.tokens, entries.lengths, seed), kind="stable")
    ordered = entries.take(order)
    layout = header.layout(
        entries=len(entries),
        hash_seed=seed,
        shard_bits=shard_bits,
        dictionary=train_dictionary(ordered.records, [corpus.name for corpus in header.corpora]),
    )
    hashes = tokens_hash(ordered.tokens, ordered.lengths, seed)
    bounds = np.searchsorted(shard_of(hashes, shard_bits), np.arange((1 << shard_bits) + 1))
    staging = durable.fresh_staging(final)
    try:
        counts = [
            write_shard(staging, number, ordered.take(np.arange(begin, end)), layout)
            for number, (begin, end) in enumerate(itertools.pairwise(bounds))
        ]
        return finish_memory(staging, final, header, layout, counts, extra_files)
    finally:
        # A full disk must not stay full of what was not finished.
        shutil.rmtree(staging, ignore_errors=True)
