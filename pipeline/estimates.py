"""What a stage costs, from builds that were measured: for ``--plan`` and the check of the disk.

The figures are rough: other text, tokenizers, settings and processors differ, and they are
extrapolated. They are of the profiles ``tiny`` (0.46M tokens) and ``demo`` (13.6M), in seconds of
processor, on 2 cores that other programs used too (load 8), which makes them high rather than low.
To measure them again::

    python -m benchmarks._stages

which builds both without workers and prints the tables below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

PROVENANCE = (
    "estimates from builds of 0.5 and 14 million tokens on 2 cores of a busy machine, English "
    "text, the default model and encoder; time is of its cores; no GPU was measured"
)


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


COEFFICIENTS: Mapping[str, Coefficient] = {
    "read": Coefficient("text", 4.07e-07, 0.42, 266_321_920, 232_554_496),
    "clean": Coefficient("text", 3.86e-07, 0.46, 310_587_392, 262_021_120),
    "select": Coefficient("text", 1.17e-08, 0.00187, 377_864_192, 305_942_528, alone=True),
    "tokenize": Coefficient("text", 8.75e-07, 1.09, 647_217_152, 592_461_824),
    "hashes": Coefficient("tokens", 3.39e-07, 15.6, 726_134_784, 601_485_312),
    "unigrams": Coefficient("tokens", 5.63e-09, 0.0272, 629_846_016, 616_239_104, alone=True),
    "survivors": Coefficient("tokens", 3.96e-07, 0.354, 686_985_216, 600_207_360),
    "counts": Coefficient("tokens", 1.24e-06, 4.94, 690_810_880, 591_441_920),
    "candidates": Coefficient("candidates", 5.12e-06, 11.2, 652_062_720, 572_551_168),
    "score": Coefficient("candidates", 1.19e-05, 21.1, 855_019_520, 678_121_472, alone=True),
    # These three of `tiny` alone; vectors of 384 dimensions.
    "embed": Coefficient("phrases", 2.11e-03, 768, 957_267_968, 957_267_968),
    "layout": Coefficient("phrases", 1.69e-05, 11.2, 955_330_560, 955_330_560, alone=True),
    "pack": Coefficient("phrases", 1.26e-05, 978, 961_728_512, 961_728_512),
}
# Of 32,768 phrases of `demo` on that busy machine; `embed.encode` tells what a quiet one did.
PHRASES_PER_CORE_SECOND = 474.0
CHARS_PER_TOKEN = 4.70
BYTES_A_DOCUMENT = 1359.0
# candidates = _CANDIDATES * tokens ** _CANDIDATES_GROWTH, at a min_count of 4 in 2 documents
_CANDIDATES, _CANDIDATES_GROWTH = 0.00757, 1.105

# Sizes of `demo`. How the memory of a stage of one part grows far beyond them was not measured.
_MEASURED = {"text": 64.2e6, "tokens": 13.6e6, "candidates": 0.58e6, "phrases": 0.3e6}
_FAR = 10
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
        None
        if found.alone and size > _FAR * _MEASURED[found.grows_with]
        else _memory(found, partition_chars),
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
