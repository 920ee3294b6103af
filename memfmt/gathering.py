"""Compiled loops over rows: copy them, read their vectors, and note which were asked for."""

# mypy: disable-error-code="no-untyped-def,no-any-return,call-arg,unreachable,var-annotated"
from __future__ import annotations

import numpy as np

from phrasemem.memfmt.intrinsics import (
    copy_bytes,
    kernel,
    load_constant,
    load_f16,
    load_f32,
    load_i8,
    prefetch,
)
from phrasemem.memfmt.probe import STRIDE, row_address

INLINED = {"intrinsics.py": "5f7fec08", "probe.py": "9305565a"}
"""What the compiled code holds besides this file: names, and how their SHA-256 begins. A test
holds them. numba compiles a file anew when it changes itself, but not what it imports."""

_AHEAD = 8
"""Rows whose first lines are asked for before their turn; the processor foresees the rest."""
_LINE = 64


@kernel
def _prefetch_row(table, rows, i):
    if i < len(rows):
        address = row_address(table, rows[i])
        for byte in range(0, min(load_constant(table, STRIDE), 4 * _LINE), _LINE):
            prefetch(address, byte)


@kernel
def gather_rows(table, rows, out):
    """Copy whole rows.

    Parameters
    ----------
    table : int
        Address of the table.
    rows : (k,) int64
        Each within the memory.
    out : (k, stride) uint8
        Written.
    """
    stride, target = load_constant(table, STRIDE), np.int64(out.ctypes.data)
    for i in range(len(rows)):
        _prefetch_row(table, rows, i + _AHEAD)
        copy_bytes(target + i * stride, row_address(table, rows[i]), stride)


@kernel
def gather_float16(table, rows, offset, out):
    """Read vectors of half precision.

    Parameters
    ----------
    table : int
        Address of the table.
    rows : (k,) int64
        Each within the memory.
    offset : int
        Of the vector in a row.
    out : (k, dim) float32
        Written.
    """
    for i in range(len(rows)):
        _prefetch_row(table, rows, i + _AHEAD)
        _float16(row_address(table, rows[i]) + offset, out[i])


@kernel
def gather_int8(table, rows, scale_offset, out):
    """Read vectors of whole numbers that stand behind their scale.

    Parameters as for :func:`gather_float16`.
    """
    for i in range(len(rows)):
        _prefetch_row(table, rows, i + _AHEAD)
        _int8(row_address(table, rows[i]) + scale_offset, out[i])


@kernel
def decode_float16(raw, offset, out):
    """Read vectors of raw rows: ``(k, stride) uint8``, with any distance between rows."""
    for i in range(raw.shape[0]):
        _float16(np.int64(raw.ctypes.data) + i * raw.strides[0] + offset, out[i])


@kernel
def decode_int8(raw, scale_offset, out):
    """Read vectors of raw rows; parameters as for :func:`decode_float16`."""
    for i in range(raw.shape[0]):
        _int8(np.int64(raw.ctypes.data) + i * raw.strides[0] + scale_offset, out[i])


@kernel
def _float16(address, vector):
    for j in range(len(vector)):
        vector[j] = load_f16(address, j)


@kernel
def _int8(address, vector):
    scale = load_f32(address, 0)
    for j in range(len(vector)):
        vector[j] = np.float32(load_i8(address + 4, j)) * scale


@kernel
def not_announced(announced, rows, out):
    """Pick the rows whose bit is not set yet, and set it.

    Parameters
    ----------
    announced : (n,) uint8
        One bit a row.
    rows : (k,) int64
    out : (k,) int64
        Written.

    Returns
    -------
    int
        How many of `out` were written.
    """
    count = 0
    for i in range(len(rows)):
        row = rows[i]
        bit = np.uint8(1 << (row & 7))
        if row >= 0 and not announced[row >> 3] & bit:
            announced[row >> 3] |= bit
            out[count] = row
            count += 1
    return count
