"""manifest.json: canonical JSON, checked to the last bit."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from phrasemem.memfmt.canonical import canonical, checksum_of, sealed, unique_names
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.keys import N_MAX_LIMIT, bucket_bits_for
from phrasemem.memfmt.layout import BODY_OFFSET, Layout, PayloadSpec, RowLayout
from phrasemem.memfmt.names import required_files, rows_name

MANIFEST_NAME = "manifest.json"
ADAPTERS_NAME = "adapters"
MAGIC = "phrasemem.memfmt"
FORMAT_VERSION = "1.0"
_MAJOR = "1"
READER_FEATURES: frozenset[str] = frozenset()
"""Features that this build can read."""
BLOCK_BYTES = 1 << 20
MAX_ENTRIES = (1 << 32) - 1
MAX_MANIFEST_BYTES = 1 << 28

_Count = Annotated[int, Field(ge=0, le=1 << 62)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TokenizerInfo(_Strict):
    """The tokenizer whose ids the keys are; `name` is the reference to load it by."""

    fingerprint: str
    name: str
    vocab_size: Annotated[int, Field(ge=1, le=1 << 24)]


class EncoderInfo(_Strict):
    """The encoder that made the semantic vectors."""

    id: str
    revision: str
    dim: Annotated[int, Field(ge=1, le=1 << 16)]


class CorpusInfo(_Strict):
    """A corpus that phrases were counted in; its place in the list is that of its count."""

    name: str
    kind: str
    licence: str
    source: str
    documents: _Count
    tokens: _Count


class PayloadInfo(_Strict):
    """One vector column over all rows."""

    name: _Name
    kind: Literal["dense"]
    dim: Annotated[int, Field(ge=1, le=1 << 16)]
    dtype: Literal["float16", "int8"]
    stride: Annotated[int, Field(ge=64, le=1 << 20)]
    source: str


class ShardInfo(_Strict):
    """The rows ``first_row .. first_row + entries - 1``."""

    first_row: Annotated[int, Field(ge=0, le=MAX_ENTRIES)]
    entries: Annotated[int, Field(ge=0, le=MAX_ENTRIES)]


class FileInfo(_Strict):
    """Length and checksums of a file: sha256 of all, and xxh3-64 of each block, in hex."""

    bytes: _Count
    sha256: _Sha256
    blocks: Annotated[str, Field(pattern=r"^([0-9a-f]{16})*$")]


class Manifest(_Strict):
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
    block_bytes: Annotated[int, Field(ge=4096, le=1 << 30)]
    files: dict[str, FileInfo]

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
        return RowLayout(self.n_max, payload.dim, payload.dtype)

    def layout(self, dictionary: bytes) -> Layout:
        """Return what decides the bytes of the shards."""
        return Layout(
            n_max=self.n_max,
            vocab_size=self.tokenizer.vocab_size,
            hash_seed=self.hash_seed,
            shard_bits=self.shard_bits,
            entries=self.entries,
            payloads=tuple(PayloadSpec(p.name, p.dim, p.dtype, p.source) for p in self.payloads),
            corpora=tuple(corpus.name for corpus in self.corpora),
            dictionary=dictionary,
        )

    def _required_files(self) -> list[str]:
        return required_files(len(self.shards), [payload.name for payload in self.payloads])

    @model_validator(mode="after")
    def _consistent(self) -> Self:
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
        for name, file in self.files.items():
            if len(file.blocks) != 16 * -(-file.bytes // self.block_bytes):
                raise ValueError(f"{name}: {file.bytes} bytes, but {len(file.blocks) // 16} blocks")
        if missing := sorted(set(self._required_files()) - set(self.files)):
            raise ValueError(f"files without checksums: {missing}")
        for payload in self.payloads:
            if payload.stride != self.row_layout(payload).stride:
                raise ValueError(f"payload {payload.name}: stride {payload.stride}")
            for number, shard in enumerate(self.shards):
                name = rows_name(number, payload.name)
                if self.files[name].bytes < BODY_OFFSET + shard.entries * payload.stride:
                    raise ValueError(f"{name} is too short for {shard.entries} rows")


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
    value = _load_json(data, where)
    _check_version(value, where)
    checksum = value.pop("checksum", None)
    found = hashlib.sha256(_canonical_or_empty(value)).hexdigest()
    if checksum != found or canonical({**value, "checksum": checksum}) != data:
        raise FormatError(
            Reason.MANIFEST_CHECKSUM,
            "the manifest was altered",
            expected=checksum,
            found=found,
            where=where,
            hint=f"fetch {MANIFEST_NAME} again",
        )
    _check_paths(value.get("files"), where)
    try:
        return Manifest.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "manifest"
        raise FormatError(
            Reason.MANIFEST_SCHEMA, f"{field}: {first['msg']}", where=where
        ) from error


def _canonical_or_empty(value: dict[str, Any]) -> bytes:
    try:
        return canonical(value)
    except UnicodeEncodeError:
        # JSON can spell half a surrogate pair, which no canonical manifest holds.
        return b""


def _load_json(data: bytes, where: object) -> dict[str, Any]:
    try:
        value = json.loads(data.decode(), object_pairs_hook=unique_names)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            Reason.MANIFEST_SYNTAX,
            f"the manifest is not valid JSON: {error}",
            where=where,
            hint=f"fetch {MANIFEST_NAME} again",
        ) from error
    if not isinstance(value, dict) or value.get("magic") != MAGIC:
        raise FormatError(Reason.NOT_A_MEMORY, "not a phrase memory", where=where)
    return value


def _check_version(value: dict[str, Any], where: object) -> None:
    found = value.get("format_version")
    if not isinstance(found, str) or found.split(".")[0] != _MAJOR:
        raise FormatError(
            Reason.UNKNOWN_MAJOR,
            "this memory has another format",
            expected=FORMAT_VERSION,
            found=found,
            where=where,
            hint="upgrade phrasemem",
        )
    features = value.get("reader_features")
    unknown = (
        sorted(set(map(str, features)) - READER_FEATURES) if isinstance(features, list) else []
    )
    if unknown:
        raise FormatError(
            Reason.UNKNOWN_FEATURE,
            f"this memory needs features that are unknown here: {unknown}",
            where=where,
            hint="upgrade phrasemem",
        )


def _check_paths(files: Any, where: object) -> None:
    for name in files if isinstance(files, dict) else ():
        path = PurePosixPath(name)
        parts = name.split("/")
        plain = name.isprintable() and "\\" not in name and ":" not in name
        reserved = parts[0] in (MANIFEST_NAME, ADAPTERS_NAME)
        if path.is_absolute() or {"", ".", ".."} & set(parts) or not plain or reserved:
            raise FormatError(
                Reason.UNSAFE_PATH, f"the manifest names a file it must not: {name!r}", where=where
            )
