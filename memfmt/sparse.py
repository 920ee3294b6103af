"""Rows of a sparse payload: successor tokens, each with an observed and an expected count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.row_layout import RowLayout

MAX_SUCCESSORS = 255
_COUNT_LIMIT = 2.0**64
_SCALE_LIMIT = 2.0**50
_FP16_BITS = 16
_FP16_TOP = 2047 / 2048
"""The largest finite number of half precision is this times ``2 ** _FP16_BITS``."""
_FP16_INFINITY = 0x7C00
_LEAST_LARGEST = 32752
"""A scale above 1 is needed, and so at least one stored value reaches this."""


@dataclass(frozen=True)
class Successors:
    """The tokens that follow some keys, with counts. Arrays of k keys and at most m tokens.

    Parameters
    ----------
    ids : (k, m) uint32
        Strictly rising in each row; what stands beyond `used` is ignored, and read as 0.
    observed : (k, m) float32
        How often the token followed.
    expected : (k, m) float32
        How often the model itself expected it there.
    used : (k,) uint8
        Number of tokens in each row.
    """

    ids: NDArray[np.uint32]
    observed: NDArray[np.floating]
    expected: NDArray[np.floating]
    used: NDArray[np.uint8]

    def __post_init__(self) -> None:
        forms = {self.ids.shape, self.observed.shape, self.expected.shape}
        if len(forms) > 1 or self.ids.ndim != 2 or self.used.shape != self.ids.shape[:1]:
            raise PhraseMemError(
                "successors do not fit each other",
                expected="(k, m) ids, observed, expected and (k,) used",
                found=f"{self.ids.shape}, {self.observed.shape}, {self.expected.shape} "
                f"and {self.used.shape}",
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Keys, and the largest number of successors of one."""
        return self.ids.shape[0], self.ids.shape[1]

    def __len__(self) -> int:
        return len(self.used)

    def take(self, rows: NDArray[np.int64] | slice) -> Successors:
        """Return the successors of some of the keys, in another order."""
        return Successors(self.ids[rows], self.observed[rows], self.expected[rows], self.used[rows])


@dataclass(frozen=True)
class SparseLayout(RowLayout):
    """Up to `dim` successors; its column is :class:`Successors`.

    The second byte of a row is the number used; after the scale stand the ids (u32), the
    observed and the expected counts (f16 each).

    Parameters
    ----------
    n_max, dim : int
    vocab_size : int
        Successors are below it.
    """

    vocab_size: int

    column_type: ClassVar[type] = Successors

    @property
    def _observed_offset(self) -> int:
        return self.values_offset + 4 * self.dim

    @property
    def _expected_offset(self) -> int:
        return self._observed_offset + 2 * self.dim

    @property
    def used_bytes(self) -> int:
        """Bytes of a row up to the end of its expected counts."""
        return self._expected_offset + 2 * self.dim

    def encode(
        self, lengths: NDArray[np.uint8], tokens: NDArray[np.uint32], column: Successors
    ) -> NDArray[np.uint8]:
        """Write rows; see :meth:`RowLayout.encode`. Equal counts give equal bytes.

        Raises
        ------
        PhraseMemError
            If ids do not rise or are outside the vocabulary, or a count is negative, not
            finite, or 2^64 or more.
        """
        inside = self._inside(column.used)
        self._refuse(column, inside)
        # float64 holds counts of both widths exactly, so each is rounded once.
        counts = [
            np.where(inside, part, 0).astype(np.float64)
            for part in (column.observed, column.expected)
        ]
        scales = _scales(np.maximum(*counts).max(axis=1, initial=0))
        raw = self._heads(lengths, tokens, scales)
        raw[:, 1] = column.used
        self._ids(raw)[:] = np.where(inside, column.ids, 0)
        for stored, part in zip(self._counts(raw), counts, strict=True):
            # Adding zero makes the negative zero positive.
            stored[:] = part / scales[:, None] + 0.0
        return raw

    def decode(self, raw: NDArray[np.uint8]) -> Successors:
        """Read the successors of rows: ``(k, stride) uint8 -> Successors``, counts as float32."""
        scales = self._scales(raw)[:, None]
        observed, expected = (part.astype(np.float32) * scales for part in self._counts(raw))
        return Successors(self._ids(raw).astype(np.uint32), observed, expected, raw[:, 1].copy())

    def well_formed(self, raw: NDArray[np.uint8]) -> bool:
        """Whether padding is zero, ids rise below the vocabulary, and counts are counts."""
        used, ids = raw[:, 1], self._ids(raw)
        beyond = ~self._inside(used)
        bits = np.stack([part.view("<u2") for part in self._counts(raw)])
        padded = raw[:, 2 : self.tokens_offset].any() or raw[:, self.used_bytes :].any()
        return (
            not padded
            and bool(np.all(used <= self.dim))
            and not ids[beyond].any()
            and not bits[:, beyond].any()
            # Above lie infinity, what is no number, and all that is negative.
            and bool(np.all(bits < _FP16_INFINITY))
            and self._rising(ids, used)
            and _are_scales(self._scales(raw), np.max(self._counts(raw), axis=(0, 2), initial=0))
        )

    def _refuse(self, column: Successors, inside: NDArray[np.bool_]) -> None:
        if np.any(column.used > self.dim):
            row = int(np.argmax(column.used))
            raise PhraseMemError(
                "too many successors",
                expected=f"<= {self.dim}",
                found=column.used[row],
                where=f"row {row}",
            )
        if not self._rising(column.ids, column.used):
            raise PhraseMemError(
                "successors do not rise, or are outside the vocabulary",
                expected=f"strictly rising, below {self.vocab_size}",
            )
        for part in (column.observed, column.expected):
            # What is no number compares false.
            wrong = inside & ~((part >= 0) & (part < _COUNT_LIMIT))
            if wrong.any():
                row, place = np.argwhere(wrong)[0]
                raise PhraseMemError(
                    "a count of a successor cannot be stored",
                    expected="0 or more, below 2^64",
                    found=part[row, place],
                    where=f"row {row}",
                )

    def _rising(self, ids: NDArray[np.integer], used: NDArray[np.uint8]) -> bool:
        wide, inside = ids.astype(np.int64), self._inside(used)
        rising = (np.diff(wide, axis=1) > 0) | ~inside[:, 1:]
        known = ((wide >= 0) & (wide < self.vocab_size)) | ~inside
        return bool(rising.all() and known.all())

    def _inside(self, used: NDArray[np.uint8]) -> NDArray[np.bool_]:
        return np.arange(self.dim) < used[:, None]

    def _ids(self, raw: NDArray[np.uint8]) -> NDArray[np.uint32]:
        return raw[:, self.values_offset : self._observed_offset].view("<u4")

    def _counts(self, raw: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
        observed = raw[:, self._observed_offset : self._expected_offset].view("<f2")
        return observed, raw[:, self._expected_offset : self.used_bytes].view("<f2")


def _scales(largest: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the least power of two, at least 1, that makes the largest count finite as float16.

    A power of two changes no digit, so whole numbers up to 2048 are exact at scale 1, and all
    others keep 11 binary digits.
    """
    fraction, exponent = np.frexp(largest)
    power = exponent - _FP16_BITS + (fraction > _FP16_TOP)
    return np.ldexp(1.0, np.maximum(power, 0))


def _are_scales(scales: NDArray[np.float32], largest: NDArray[np.float16]) -> bool:
    fraction, _ = np.frexp(scales)
    # 0.5 is the fraction of every power of two.
    powers = (fraction == 0.5) & (scales >= 1) & (scales < _SCALE_LIMIT)
    least = (scales == 1) | (largest >= _LEAST_LARGEST)
    return bool(powers.all() and least.all())
