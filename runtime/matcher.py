"""From tokens to the rows of the phrases that end at them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.keys import SHORTEST_PHRASE
from phrasemem.memfmt.match import agrees
from phrasemem.memfmt.payload import VectorReader
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.runtime.history import Tokens
from phrasemem.runtime.tiers import HostTier


@dataclass
class Candidates:
    """What the index in RAM says of one forward pass, before any row was read.

    Parameters
    ----------
    tokens : (B, H + T) int64
        As much history as a phrase can reach into, then the new tokens.
    start : int
        H.
    rows : (B, T) int64
        -1 where no phrase ends.
    lengths : (B, T) uint8
    """

    tokens: Tokens
    start: int
    rows: NDArray[np.int64]
    lengths: NDArray[np.uint8]


@dataclass(frozen=True)
class Hits:
    """Positions where a phrase ends, proved by the tokens in its row.

    Parameters
    ----------
    places : (h,) int64
        Which of the positions asked for.
    lengths : (h,) uint8
    vectors : (u, dim) float32
        One for each distinct row.
    which : (h,) int64
        The vector of each hit.
    """

    places: NDArray[np.int64]
    lengths: NDArray[np.uint8]
    vectors: NDArray[np.float32]
    which: NDArray[np.int64]


class Matcher:
    """Finds longest matches of phrases, that is of two tokens or more, and fetches their rows.

    Parameters
    ----------
    reader : MemoryReader
    payload : VectorReader
    tier : HostTier
        Over the same payload.
    shuffle_seed : int, optional
        The control: every phrase gets the vector of another, by a seeded permutation of all
        rows (8 bytes a row in RAM). Matching is untouched.

    Notes
    -----
    Thread-safe.
    """

    def __init__(
        self,
        reader: MemoryReader,
        payload: VectorReader,
        tier: HostTier,
        shuffle_seed: int | None = None,
    ) -> None:
        self._reader = reader
        self._payload = payload
        self._tier = tier
        self._other: NDArray[np.int64] | None = None
        if shuffle_seed is not None:
            self._other = np.random.default_rng(shuffle_seed).permutation(len(reader))

    def candidates(self, before: Tokens | None, new: Tokens) -> Candidates:
        """Look tokens up in RAM.

        Parameters
        ----------
        before : (B, L) int64 or None
            History; only its last ``n_max - 1`` tokens matter.
        new : (B, T) int64
        """
        reach = self._reader.n_max - 1
        start = 0 if before is None else min(reach, before.shape[1])
        tokens = new
        if before is not None and start:
            tokens = np.concatenate([before[:, -start:], new], axis=1)
        match = self._reader.candidates(tokens, start, shortest=SHORTEST_PHRASE)
        return Candidates(tokens, start, match.rows, match.lengths)

    def fetch(self, found: Candidates, positions: NDArray[np.int64]) -> Hits:
        """Prove the candidates at some positions and return their vectors.

        Parameters
        ----------
        found : Candidates
            Corrected in place where a row disproves it.
        positions : (k,) int64
            Indices into the flattened (B, T).
        """
        while True:
            rows = found.rows.reshape(-1)[positions]
            places = np.flatnonzero(rows >= 0)
            if not len(places):
                return self._no_hits()
            distinct, which = np.unique(rows[places], return_inverse=True)
            raw = self._tier.get(distinct)
            wrong = ~self._proved(found, positions[places], raw[which])
            if not wrong.any():
                break
            self._ask_again(found, positions[places[wrong]])
        if self._other is not None:
            raw = self._tier.get(self._other[distinct])
        lengths = found.lengths.reshape(-1)[positions[places]]
        return Hits(places, lengths, self._payload.decode(raw), which)

    def _no_hits(self) -> Hits:
        none = np.zeros(0, dtype=np.int64)
        vectors = np.zeros((0, self._payload.dim), dtype=np.float32)
        return Hits(none, none.astype(np.uint8), vectors, none)

    def _proved(
        self, found: Candidates, positions: NDArray[np.int64], raw: NDArray[np.uint8]
    ) -> NDArray[np.bool_]:
        width = self._reader.n_max
        batch, column = np.divmod(positions, found.rows.shape[1])
        columns = column[:, None] + found.start + np.arange(1 - width, 1)
        windows = found.tokens[batch[:, None], np.maximum(columns, 0)]
        ends = np.full(len(positions), width - 1)
        lengths = found.lengths.reshape(-1)[positions]
        return agrees(raw, self._payload.layout, windows, ends, lengths)

    def _ask_again(self, found: Candidates, wrong: NDArray[np.int64]) -> None:
        longest = np.full(found.rows.shape, 255, dtype=np.uint8)
        longest.reshape(-1)[wrong] = found.lengths.reshape(-1)[wrong] - 1
        match = self._reader.candidates(
            found.tokens, found.start, shortest=SHORTEST_PHRASE, longest=longest
        )
        found.rows.reshape(-1)[wrong] = match.rows.reshape(-1)[wrong]
        found.lengths.reshape(-1)[wrong] = match.lengths.reshape(-1)[wrong]
