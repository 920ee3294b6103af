"""rows-<payload>.arrow: one record batch of fixed-size rows whose body begins at byte 4096."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phrasemem.memfmt.arrow_file import read_one_batch
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.layout import BODY_OFFSET, RowLayout

_COLUMN = "row"


def write_rows(path: Path, raw: NDArray[np.uint8]) -> None:
    """Write rows, `(n, stride) uint8`, as an Arrow IPC file with an aligned body."""
    count, stride = raw.shape
    data = pa.py_buffer(np.ascontiguousarray(raw))
    with path.open("wb") as file:
        _write(file, _schema(stride, _padding(stride)), data, count)


def check_rows(path: Path, count: int, layout: RowLayout) -> None:
    """Compare what Arrow says of a file with what the manifest says.

    Raises
    ------
    FormatError
        If it is not one batch of `count` rows of the right stride at the fixed offset.
    """
    with pa.memory_map(str(path)) as source:
        whole = source.read_buffer(source.size())
        batch = read_one_batch(whole, _schema(layout.stride), Reason.ROWS_DAMAGED, path)
        body = batch.column(0).buffers()[1]
        offset = body.address - whole.address if count else BODY_OFFSET
    if (found := (batch.num_rows, offset)) != (count, BODY_OFFSET):
        raise FormatError(
            Reason.ROWS_DAMAGED,
            "rows do not lie as declared",
            expected=(count, BODY_OFFSET),
            found=found,
            where=path,
        )


def _schema(stride: int, padding: int = 0) -> pa.Schema:
    field = pa.field(_COLUMN, pa.binary(stride), nullable=False)
    return pa.schema([field], metadata={"padding": " " * padding})


def _write(sink: object, schema: pa.Schema, data: pa.Buffer, count: int) -> None:
    stride = schema.field(0).type.byte_width
    column = pa.Array.from_buffers(pa.binary(stride), count, [None, data])
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch([column], schema=schema))


def _padding(stride: int) -> int:
    """Bytes of schema metadata that put the body at `BODY_OFFSET`; pyarrow has no option."""
    padding = BODY_OFFSET - _body_offset(stride, 0)
    return padding + BODY_OFFSET - _body_offset(stride, padding)


def _body_offset(stride: int, padding: int) -> int:
    marker = b"\xa7" * stride
    sink = io.BytesIO()
    _write(sink, _schema(stride, padding), pa.py_buffer(marker), 1)
    return sink.getvalue().find(marker)
