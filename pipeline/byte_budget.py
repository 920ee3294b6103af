"""How many phrases fit into a memory of so many bytes: an estimate, before anything is packed."""

from __future__ import annotations

from phrasemem.memfmt.dense import DenseLayout

# Keys and records in LMDB, index, suffix filter and catalogue: 96.1 bytes a phrase were measured
# on the demo memory of 299,948 phrases, four corpora, 17 letters a text (benchmarks.pack).
BYTES_BESIDE_THE_ROW = 100


def phrases_within(max_bytes: int, n_max: int, dim: int) -> int:
    """Return how many phrases a memory of ``max_bytes`` can hold, about; at least 1.

    A row's bytes are exact; what is beside it depends on how long texts are and how well they
    compress. Held-out documents, counts of single tokens, rows of single tokens, and payloads
    and adapters that are added later are not counted.

    Parameters
    ----------
    max_bytes : int
    n_max : int
        Longest key.
    dim : int
        Of the encoder's vectors, which are kept as float16.
    """
    row = DenseLayout(n_max, dim, "float16").stride
    return max(1, max_bytes // (row + BYTES_BESIDE_THE_ROW))
