"""manifest.json: canonical JSON, checked to the last bit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from phrasemem.memfmt.canonical import checksum_of, sealed
from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason
from phrasemem.memfmt.keys import N_MAX_LIMIT, bucket_bits_for
from phrasemem.memfmt.layout import (
    BODY_OFFSET,
    SPARSE,
    Layout,
    PayloadSpec,
    RowLayout,
    row_layout,
)
from phrasemem.memfmt.names import required_files, rows_name
from phrasemem.memfmt.sealed import Kind, read_sealed, validated
from phrasemem.memfmt.sparse import MAX_SUCCESSORS

MANIFEST_NAME = "manifest.json"
ADAPTERS_NAME = "adapters"
PAYLOADS_NAME = "payloads"
ADDITIONS = (ADAPTERS_NAME, PAYLOADS_NAME)
"""Folders of what is added to a finished memory; each addition has a manifest of its own."""
MAGIC = "phrasemem.memfmt"
FORMAT_VERSION = "1.0"
SPARSE_PAYLOADS = "sparse-payloads"
READER_FEATURES = frozenset({SPARSE_PAYLOADS})
"""Features that this build can read."""
_KIND = Kind(MAGIC, FORMAT_VERSION, READER_FEATURES, "memory", MANIFEST_NAME)
BLOCK_BYTES = 1 << 20
MAX_ENTRIES = (1 << 32) - 1
MAX_MANIFEST_BYTES = 1 << 28

_Count = Annotated[int, Field(ge=0, le=1 << 62)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Strict(BaseModel):
    """A part of a manifest: no other fields, no conversions, no changes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TokenizerInfo(Strict):
    """The tokenizer whose ids the keys are; `name` is the reference to load it by."""

    fingerprint: str
    name: str
    vocab_size: Annotated[int, Field(ge=1, le=1 << 24)]


class EncoderInfo(Strict):
    """The encoder that made the semantic vectors."""

    id: str
    revision: str
    dim: Annotated[int, Field(ge=1, le=1 << 16)]


class CorpusInfo(Strict):
    """A corpus that phrases were counted in; its place in the list is that of its count."""

    name: str
    kind: str
    licence: str
    source: str
    documents: _Count
    tokens: _Count


class PayloadInfo(Strict):
    """One column over all rows."""

    name: _Name
    kind: Literal["dense", "sparse"]
    dim: Annotated[int, Field(ge=1, le=1 << 16)]
    dtype: Literal["float16", "int8"]
    stride: Annotated[int, Field(ge=64, le=1 << 20)]
    source: str

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if self.kind == SPARSE and (self.dim > MAX_SUCCESSORS or self.dtype != "float16"):
            raise ValueError(
                f"a sparse payload is of at most {MAX_SUCCESSORS} x float16, "
                f"not {self.dim} x {self.dtype}"
            )
        return self

    @property
    def reader_features(self) -> list[str]:
        """What a reader must know to read the rows."""
        return [SPARSE_PAYLOADS] if self.kind == SPARSE else []

    @property
    def spec(self) -> PayloadSpec:
        """What the payload was asked to be."""
        return PayloadSpec(self.name, self.dim, self.dtype, self.source, self.kind)


class ShardInfo(Strict):
    """The rows ``first_row .. first_row + entries - 1``."""

    first_row: Annotated[int, Field(ge=0, le=MAX_ENTRIES)]
    entries: Annotated[int, Field(ge=0, le=MAX_ENTRIES)]


class FileInfo(Strict):
    """Length and checksums of a file: sha256 of all, and xxh3-64 of each block, in hex."""

    bytes: _Count
    sha256: Sha256
    blocks: Annotated[str, Field(pattern=r"^([0-9a-f]{16})*$")]


class Listing(Strict):
    """A manifest of files with their checksums: that of a memory, or of what was added to it."""

    block_bytes: Annotated[int, Field(ge=4096, le=1 << 30)]
    files: dict[str, FileInfo]

    @property
    def paths(self) -> dict[str, FileInfo]:
        """The files but the manifest, by path relative to the memory."""
        return self.files

    @model_validator(mode="after")
    def _every_block_has_a_checksum(self) -> Self:
        for name, file in self.files.items():
            if len(file.blocks) != 16 * -(-file.bytes // self.block_bytes):
                raise ValueError(f"{name}: {file.bytes} bytes, but {len(file.blocks) // 16} blocks")
        return self


class Manifest(Listing):
    """All that describes a memory. Field by field in SPEC.md."""

    magic: Literal["phrasemem.memfmt"]
    format_version: Annotated[str, Field(pattern=r"^1\.[0-9]{1,4}$")]
    reader_features: list[str]
    writer_features: list[str]
    created_by: str
    tokenizer: TokenizerInfo
    encoder: EncoderInfo | None
    n_max: Annotated[int, Field(ge=1, le=N_MAX_LIMIT)]
    hash_seed: Annotated[int, Field(ge=0, le=(1 << 64) - 1)]
    key_normalisation: Literal["exact"]
    entries: Annotated[int, Field(ge=0, le=MAX_ENTRIES)]
    shard_bits: Annotated[int, Field(ge=0, le=16)]
    shards: list[ShardInfo]
    payloads: Annotated[list[PayloadInfo], Field(min_length=1)]
    corpora: list[CorpusInfo]

    @property
    def checksum(self) -> str:
        """The checksum that stands in the file; what was added to the memory names it."""
        return checksum_of(self.model_dump(mode="json"))

    @property
    def bucket_bits(self) -> int:
        """Bits of the hash that choose a bucket."""
        return bucket_bits_for(self.entries, self.shard_bits)

    def row_layout(self, payload: PayloadInfo) -> RowLayout:
        """Byte offsets inside the rows of a payload."""
        return row_layout(
            self.n_max, self.tokenizer.vocab_size, payload.kind, payload.dim, payload.dtype
        )

    def layout(self, dictionary: bytes) -> Layout:
        """Return what decides the bytes of the shards."""
        return Layout(
            n_max=self.n_max,
            vocab_size=self.tokenizer.vocab_size,
            hash_seed=self.hash_seed,
            shard_bits=self.shard_bits,
            entries=self.entries,
            payloads=tuple(payload.spec for payload in self.payloads),
            corpora=tuple(corpus.name for corpus in self.corpora),
            dictionary=dictionary,
        )

    def _required_files(self) -> list[str]:
        return required_files(len(self.shards), [payload.name for payload in self.payloads])

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.reader_features != (used := used_features(self.payloads)):
            raise ValueError(f"reader features {self.reader_features}, but {used} are used")
        self._check_shards()
        self._check_files()
        for what, names in (
            ("payload", [payload.name for payload in self.payloads]),
            ("corpus", [corpus.name for corpus in self.corpora]),
        ):
            if len(set(names)) < len(names):
                raise ValueError(f"two {what} entries have one name: {names}")
        return self

    def _check_shards(self) -> None:
        if len(self.shards) != 1 << self.shard_bits:
            raise ValueError(f"{len(self.shards)} shards, but {self.shard_bits} shard bits")
        row = 0
        for number, shard in enumerate(self.shards):
            if shard.first_row != row:
                raise ValueError(f"shard {number} begins at row {shard.first_row}, not {row}")
            row += shard.entries
        if row != self.entries:
            raise ValueError(f"{self.entries} entries, but the shards hold {row}")

    def _check_files(self) -> None:
        if missing := sorted(set(self._required_files()) - set(self.files)):
            raise ValueError(f"files without checksums: {missing}")
        for payload in self.payloads:
            if payload.stride != self.row_layout(payload).stride:
                raise ValueError(f"payload {payload.name}: stride {payload.stride}")
            for number, shard in enumerate(self.shards):
                name = rows_name(number, payload.name)
                if self.files[name].bytes < BODY_OFFSET + shard.entries * payload.stride:
                    raise ValueError(f"{name} is too short for {shard.entries} rows")


def used_features(payloads: Iterable[PayloadInfo]) -> list[str]:
    """Return the reader features that a memory of these payloads must name, sorted."""
    return sorted({feature for payload in payloads for feature in payload.reader_features})


def payload_info(spec: PayloadSpec, layout: RowLayout) -> PayloadInfo:
    """Describe a payload that is written.

    Raises
    ------
    PhraseMemError
        If the format has no such payload.
    """
    try:
        return PayloadInfo(**vars(spec), stride=layout.stride)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "payload"
        raise PhraseMemError(f"{field}: {first['msg']}", where=repr(spec.name)) from error


def serialise(manifest: Manifest) -> bytes:
    """Write a manifest, with the checksum of all else in it."""
    return sealed(manifest.model_dump(mode="json"))


def parse_manifest(data: bytes, where: object) -> Manifest:
    """Read a manifest.

    Raises
    ------
    FormatError
        With a reason for each of: not JSON, another format, a newer one, an unknown feature, a
        changed byte, a wrong field, a path that leaves the memory.
    """
    value = read_sealed(data, where, _KIND)
    _check_paths(value.get("files"), where)
    return validated(Manifest, value, where, _KIND)


def _check_paths(files: Any, where: object) -> None:
    for name in files if isinstance(files, dict) else ():
        path = PurePosixPath(name)
        parts = name.split("/")
        plain = name.isprintable() and "\\" not in name and ":" not in name
        reserved = parts[0] in (MANIFEST_NAME, *ADDITIONS)
        if path.is_absolute() or {"", ".", ".."} & set(parts) or not plain or reserved:
            raise FormatError(
                Reason.UNSAFE_PATH, f"the manifest names a file it must not: {name!r}", where=where
            )
