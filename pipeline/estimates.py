"""What a stage costs, from builds that were measured: for ``--plan`` and the check of the disk.

The figures are rough: other text, tokenizers and processors differ, and they are extrapolated. They
are of this project's default corpora (``demo``: 60 MB of English text), model and encoder. To
measure them again, on a machine that does nothing else::

    python -m benchmarks.stages

which builds ``tiny`` and ``demo`` without workers and prints the tables below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

PROVENANCE = ""


@dataclass(frozen=True)
class Coefficient:
    """Cost of a stage in what it grows with.

    Attributes
    ----------
    grows_with : str
        ``text`` (characters), ``tokens``, ``candidates`` or ``phrases``.
    core_seconds : float
        Of processor for each of these.
    bytes : float
        On disk for each of these.
    memory : int
        Peak of the process at 4,000,000 characters a partition, in bytes; ``memory_small`` at
        1,000,000.
    alone : bool
        The stage has one part, which one worker runs.
    """

    grows_with: str
    core_seconds: float
    bytes: float
    memory: int
    memory_small: int
    alone: bool = False


@dataclass(frozen=True)
class Cost:
    """What a stage takes in all; None where it is not known."""

    core_seconds: float | None
    bytes: int | None
    memory: int | None
    alone: bool

    def seconds_with(self, workers: int) -> float | None:
        """Return seconds by the clock if parts never wait for each other."""
        if self.core_seconds is None:
            return None
        return self.core_seconds / (1 if self.alone else max(1, workers))


COEFFICIENTS: Mapping[str, Coefficient] = {}
PHRASES_PER_CORE_SECOND = 0.0
CHARS_PER_TOKEN = 0.0
BYTES_A_DOCUMENT = 0.0
# candidates = _CANDIDATES * tokens ** _CANDIDATES_GROWTH
_CANDIDATES, _CANDIDATES_GROWTH = 0.0, 0.0

_PARTITIONS = (1_000_000, 4_000_000)
_UNKNOWN = Cost(None, None, None, False)

# Bytes of text of data sets without a budget, as their pages on the hub say; not checked here.
DATASET_BYTES: Mapping[tuple[str, str | None], float] = {
    ("wikimedia/wikipedia", "20231101.en"): 20.2e9,
    ("common-pile/arxiv_abstracts", None): 2.4e9,
}
# Bytes of text for each byte of a file, by the end of its name.
_TEXT_SHARES = (
    (r"\.json(l)?$|\.txt$", 0.9),
    (r"\.xml$|\.html?$", 0.4),
    (r"\.xml\.gz$", 1.5),
    (r"\.xml.*\.bz2$|\.bz2$", 2.0),
    (r"\.(gz|zst|lz4|xz|zip)$", 3.0),
    (r"\.parquet$", 2.0),
)
# Which stage's bytes foretell another's on disk.
_FORETOLD_BY = {
    "clean": "read",
    "tokenize": "clean",
    "hashes": "tokenize",
    "counts": "tokenize",
    "survivors": "hashes",
    "candidates": "counts",
}


def text_share(name: str) -> float:
    """Return about how many bytes of text a byte of a file gives, by its name."""
    return next((share for end, share in _TEXT_SHARES if re.search(end, name)), 1.0)


def sizes_of(text: float | None, tokens: float | None = None) -> dict[str, float | None]:
    """Return the sizes that costs grow with, from the characters of text or the tokens."""
    if tokens is None and text is not None:
        tokens = text / CHARS_PER_TOKEN
    candidates = None if tokens is None else _CANDIDATES * tokens**_CANDIDATES_GROWTH
    return {"text": text, "tokens": tokens, "candidates": candidates, "phrases": None}


def cost_of(stage: str, sizes: Mapping[str, float | None], partition_chars: int) -> Cost:
    """Estimate what a stage takes.

    Parameters
    ----------
    stage : str
    sizes : mapping
        See :func:`sizes_of`; with ``phrases``.
    partition_chars : int
        A worker's memory grows with it.
    """
    found = COEFFICIENTS.get(stage)
    size = None if found is None else sizes[found.grows_with]
    if found is None or size is None:
        return _UNKNOWN
    return Cost(
        found.core_seconds * size,
        round(found.bytes * size),
        _memory(found, partition_chars),
        found.alone,
    )


def _memory(found: Coefficient, partition_chars: int) -> int:
    small, large = _PARTITIONS
    slope = 0.0 if found.alone else (found.memory - found.memory_small) / (large - small)
    return round(max(found.memory_small, found.memory_small + slope * (partition_chars - small)))


def bytes_beside(stage: str, size_of: Callable[[str], int]) -> int | None:
    """Estimate the bytes that a stage writes from those of a stage before it.

    Parameters
    ----------
    stage : str
    size_of : callable
        Gives the bytes of the folder of a stage.

    Returns
    -------
    int or None
        None where nothing foretells it.
    """
    before = _FORETOLD_BY.get(stage)
    if before is None or stage not in COEFFICIENTS or before not in COEFFICIENTS:
        return None
    return round(size_of(before) * _bytes_a_token(stage) / _bytes_a_token(before)) or None


def _bytes_a_token(stage: str) -> float:
    found = COEFFICIENTS[stage]
    return found.bytes * (CHARS_PER_TOKEN if found.grows_with == "text" else 1.0)
