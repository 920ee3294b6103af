"""Reads Arrow IPC files of one record batch so that a small file never takes much RAM.

Arrow itself would follow whatever a file says: a few compressed kilobytes become gigabytes before
anyone has seen how many rows there are.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from phrasemem.memfmt.errors import FormatError, Reason

_MAGIC = b"ARROW1"
_CONTINUES = 0xFFFFFFFF
_VERSION_5 = 4
# Places of fields in the tables of Arrow's File.fbs and Message.fbs.
_FOOTER_BATCHES = 3
_MESSAGE_VERSION, _MESSAGE_HEADER = 0, 2
_BATCH_COMPRESSION = 3


def read_one_batch(
    data: pa.Buffer, schema: pa.Schema, reason: Reason, where: object
) -> pa.RecordBatch:
    """Read the only record batch of a file; nothing is copied.

    Parameters
    ----------
    data : pa.Buffer
        The whole file.
    schema : pa.Schema
        What it must have; metadata aside.
    reason : Reason
        Of the error.
    where : object
        The file, for messages.

    Returns
    -------
    pa.RecordBatch
        Without nulls; validated.

    Raises
    ------
    FormatError
        If Arrow cannot read the file, or it has another schema, another number of batches, nulls
        or compressed buffers.
    """
    try:
        reader = pa.ipc.open_file(data)
        if (count := reader.num_record_batches) != 1:
            raise FormatError(reason, "not one record batch", expected=1, found=count, where=where)
        if not reader.schema.equals(schema):
            raise FormatError(
                reason,
                "other columns",
                expected=_described(schema),
                found=_described(reader.schema),
                where=where,
            )
        if _may_be_compressed(_batch_message(memoryview(data))):
            raise FormatError(
                reason, "the values are compressed, or of an early Arrow version", where=where
            )
        batch = reader.get_batch(0)
        batch.validate(full=True)
    except FormatError:
        raise
    # Names that are not UTF-8 and batches that are not there are a ValueError.
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise FormatError(reason, f"Arrow cannot read it: {error}", where=where) from error
    if any(column.null_count for column in batch.columns):
        raise FormatError(reason, "values are missing", where=where)
    return batch


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _batch_message(data: memoryview) -> memoryview:
    """Return the head of the first record batch, found as Arrow finds it: by the footer."""
    length = struct.unpack_from("<i", data, len(data) - len(_MAGIC) - 4)[0]
    footer = data[len(data) - len(_MAGIC) - 4 - length :]
    batches = _target(footer, _field(footer, _target(footer, 0), _FOOTER_BATCHES))
    offset = struct.unpack_from("<q", footer, batches + 4)[0]
    continues, length = struct.unpack_from("<II", data, offset)
    return data[offset + 8 : offset + 8 + length] if continues == _CONTINUES else data[:0]


def _may_be_compressed(message: memoryview) -> bool:
    """Look into the head of a record batch, since pyarrow does not tell.

    Before version 5 of the metadata, compression could stand elsewhere.
    """
    if not message:
        return True
    table = _target(message, 0)
    version = _field(message, table, _MESSAGE_VERSION)
    header = _field(message, table, _MESSAGE_HEADER)
    if not version or not header or struct.unpack_from("<h", message, version)[0] != _VERSION_5:
        return True
    return _field(message, _target(message, header), _BATCH_COMPRESSION) != 0


def _target(data: memoryview, place: int) -> int:
    """Follow an offset of a flatbuffer."""
    offset: int = struct.unpack_from("<I", data, place)[0]
    return place + offset


def _field(data: memoryview, table: int, number: int) -> int:
    """Return where a field of a flatbuffer's table stands; 0 if it is left out."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    place = 4 + 2 * number
    if place >= struct.unpack_from("<H", data, vtable)[0]:
        return 0
    offset: int = struct.unpack_from("<H", data, vtable + place)[0]
    return table + offset if offset else 0
