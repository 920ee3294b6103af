"""What differs between two memories: one walk over the keys of both, in key order."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.manifest import PayloadInfo
from phrasemem.memfmt.names import FILTER_NAME, required_files
from phrasemem.memfmt.payload import PayloadReader
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record

_BLOCK_ROWS = 1 << 14
# How a memory was made, and what only makes a search faster, is not what it holds.
_NOT_CONTENT = frozenset({"build.json", FILTER_NAME})

Key = tuple[int, ...]


@dataclass(frozen=True)
class Phrase:
    """A phrase that differs; ``a`` and ``b`` are its records, None where it is not."""

    tokens: Key
    a: Record | None
    b: Record | None

    @property
    def records(self) -> list[Record]:
        """Its records, that of ``a`` first."""
        return [record for record in (self.a, self.b) if record is not None]

    @property
    def score(self) -> float:
        """The higher of its scores."""
        return max(record.score for record in self.records)


@dataclass
class Phrases:
    """How the keys of two memories compare: numbers, and the best of each kind by score.

    ``counts``, ``scores`` and ``texts`` are numbers of common phrases in which these differ;
    document counts are counts.
    """

    common: int = 0
    only_a: int = 0
    only_b: int = 0
    counts: int = 0
    scores: int = 0
    texts: int = 0
    best_only_a: list[Phrase] = field(default_factory=list)
    best_only_b: list[Phrase] = field(default_factory=list)
    best_changed: list[Phrase] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether both hold the same phrases with the same records."""
        return not (self.only_a or self.only_b or self.counts or self.scores or self.texts)


@dataclass
class Difference:
    """What differs between memories ``a`` and ``b``.

    Attributes
    ----------
    settings : dict of str to (a, b)
        Of tokenizer, encoder, n_max and key normalisation, those that differ.
    payloads, corpora : dict of str to (a, b)
        Those whose descriptions differ, by name; None where a memory lacks it.
    files : dict of str to str
        Other files: ``only in a``, ``only in b`` or ``different``.
    phrases : Phrases or None
        None where the keys are of different tokenizers or rules, and so not comparable.
    vectors : dict of str to int
        For each payload that both have in the same form, how many common keys have other
        vectors.
    """

    settings: dict[str, tuple[Any, Any]]
    payloads: dict[str, tuple[Any, Any]]
    corpora: dict[str, tuple[Any, Any]]
    files: dict[str, str]
    phrases: Phrases | None
    vectors: dict[str, int]

    @property
    def equal(self) -> bool:
        """Whether the memories hold the same."""
        parts = (self.settings, self.payloads, self.corpora, self.files)
        same_phrases = self.phrases is not None and self.phrases.equal
        return not any(parts) and same_phrases and not any(self.vectors.values())

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"equal": self.equal, **asdict(self)}


def compare(a: str | Path, b: str | Path, *, limit: int = 10) -> Difference:
    """Compare two memories.

    Parameters
    ----------
    a, b : path-like
        Every block is compared with its checksum.
    limit : int
        How many phrases of each kind are named, the best by score.

    Returns
    -------
    Difference
        Shards, hash seed, adapters and ``build.json`` are left out: they are no part of what
        is looked up.

    Raises
    ------
    FormatError
        If one is no memory, or damaged.

    Notes
    -----
    RAM: both indexes, and a block of rows. The keys are read once, in order.
    """
    # LMDB, which is walked through, may crash on altered bytes.
    with MemoryReader.open(a, check="full") as first, MemoryReader.open(b, check="full") as second:
        settings = _settings(first, second)
        difference = Difference(
            settings=settings,
            payloads=_described(_payload_infos(first), _payload_infos(second)),
            corpora=_described(first.manifest.corpora, second.manifest.corpora),
            files=_files(first, second),
            phrases=None,
            vectors={},
        )
        if "tokenizer" not in settings and "key_normalisation" not in settings:
            difference.phrases = Phrases()
            vectors = _Vectors(first, second)
            _walk(first, second, difference.phrases, vectors, limit)
            difference.vectors = vectors.finish()
        return difference


def _settings(first: MemoryReader, second: MemoryReader) -> dict[str, tuple[Any, Any]]:
    def values(reader: MemoryReader) -> dict[str, Any]:
        manifest = reader.manifest
        return {
            "tokenizer": manifest.tokenizer.fingerprint,
            "encoder": manifest.encoder and manifest.encoder.model_dump(),
            "n_max": manifest.n_max,
            "key_normalisation": manifest.key_normalisation,
        }

    return _different(values(first), values(second))


def _payload_infos(reader: MemoryReader) -> list[PayloadInfo]:
    return [reader.payload(name).info for name in reader.payload_names]


def _different(a: dict[str, Any], b: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = sorted(a.keys() | b.keys())
    return {name: (a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}


def _described(first: Any, second: Any) -> dict[str, tuple[Any, Any]]:
    """Compare lists of described things by name; their order says nothing."""

    def by_name(things: Any) -> dict[str, Any]:
        # The stride follows from n_max and dim.
        return {thing.name: thing.model_dump(exclude={"name", "stride"}) for thing in things}

    return _different(by_name(first), by_name(second))


def _files(first: MemoryReader, second: MemoryReader) -> dict[str, str]:
    a, b = (_extra_files(reader) for reader in (first, second))
    kinds = {(True, False): "only in a", (False, True): "only in b", (True, True): "different"}
    return {name: kinds[name in a, name in b] for name in _different(a, b)}


def _extra_files(reader: MemoryReader) -> dict[str, str]:
    manifest = reader.manifest
    payloads = [payload.name for payload in manifest.payloads]
    known = {*required_files(len(manifest.shards), payloads), *_NOT_CONTENT}
    return {name: info.sha256 for name, info in manifest.files.items() if name not in known}


def _walk(
    first: MemoryReader, second: MemoryReader, phrases: Phrases, vectors: _Vectors, limit: int
) -> None:
    """Join the keys of both, which come in the same order."""
    only_a, only_b, changed = _Best(limit), _Best(limit), _Best(limit)
    for key, found in _joined(first, second):
        if 1 not in found:
            phrases.only_a += 1
            only_a.add(Phrase(key, found[0][1], None))
        elif 0 not in found:
            phrases.only_b += 1
            only_b.add(Phrase(key, None, found[1][1]))
        else:
            (row_a, a), (row_b, b) = found[0], found[1]
            if _count(phrases, a, b):
                changed.add(Phrase(key, a, b))
            vectors.add(row_a, row_b)
    phrases.best_only_a = only_a.sorted()
    phrases.best_only_b = only_b.sorted()
    phrases.best_changed = changed.sorted()


def _joined(
    first: MemoryReader, second: MemoryReader
) -> Iterator[tuple[Key, dict[int, tuple[int, Record]]]]:
    """Yield each key with row and record by side, 0 and 1; one side may lack it."""
    # No side holds a key twice, so rows and records are never compared.
    merged = heapq.merge(_sided(first, 0), _sided(second, 1))
    for key, items in itertools.groupby(merged, key=itemgetter(0)):
        yield key, {side: (row, record) for _, side, row, record in items}


def _sided(reader: MemoryReader, side: int) -> Iterator[tuple[Key, int, int, Record]]:
    for key, row, record in reader.prefix(()):
        yield key, side, row, record


def _count(phrases: Phrases, a: Record, b: Record) -> bool:
    """Count a phrase that both hold; return whether anything about it differs."""
    counts = (a.counts, a.documents) != (b.counts, b.documents)
    scores, texts = a.score != b.score, a.text != b.text
    phrases.common += 1
    phrases.counts += counts
    phrases.scores += scores
    phrases.texts += texts
    return counts or scores or texts


class _Best:
    """The phrases of the highest scores among many that come one by one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._phrases: list[Phrase] = []

    def add(self, phrase: Phrase) -> None:
        self._phrases.append(phrase)
        if len(self._phrases) > 2 * self._limit + 1000:
            self._phrases = self.sorted()

    def sorted(self) -> list[Phrase]:
        ordered = sorted(self._phrases, key=lambda phrase: (-phrase.score, phrase.tokens))
        return ordered[: self._limit]


class _Vectors:
    """Compares the vectors of common keys, a block of rows at a time."""

    def __init__(self, first: MemoryReader, second: MemoryReader) -> None:
        self._pairs: list[tuple[int, int]] = []
        self._payloads = dict(_comparable(first, second))
        self._different = dict.fromkeys(self._payloads, 0)

    def add(self, row_a: int, row_b: int) -> None:
        self._pairs.append((row_a, row_b))
        if len(self._pairs) == _BLOCK_ROWS:
            self._compare()

    def finish(self) -> dict[str, int]:
        self._compare()
        return self._different

    def _compare(self) -> None:
        rows = np.array(self._pairs, np.int64).reshape(-1, 2)
        self._pairs = []
        for name, payloads in self._payloads.items():
            a, b = (
                _values(payload, np.ascontiguousarray(rows[:, side]))
                for side, payload in enumerate(payloads)
            )
            # Where n_max differs so does the stride; what is beyond the shorter row is padding.
            width = min(a.shape[1], b.shape[1])
            self._different[name] += int((a[:, :width] != b[:, :width]).any(axis=1).sum())


def _comparable(
    first: MemoryReader, second: MemoryReader
) -> Iterator[tuple[str, tuple[PayloadReader, PayloadReader]]]:
    forms = [
        {info.name: (info.kind, info.dim, info.dtype) for info in _payload_infos(reader)}
        for reader in (first, second)
    ]
    for name in sorted(forms[0].keys() & forms[1].keys()):
        if forms[0][name] == forms[1][name]:
            yield name, (first.payload(name), second.payload(name))


def _values(payload: PayloadReader, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return all of rows but their keys, as bytes."""
    raw, layout = payload.gather_raw(rows), payload.layout
    return np.concatenate([raw[:, 1 : layout.tokens_offset], raw[:, layout.scale_offset :]], axis=1)
