"""Arrow files from a stranger: refused with a reason, whatever they say, and cheaply."""

from __future__ import annotations

import io
import random
import resource
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from phrasemem.memfmt import index, key_map, suffix_filter
from phrasemem.memfmt.arrow_file import read_one_batch
from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason
from phrasemem.memfmt.index import read_index
from phrasemem.memfmt.key_map import read_key_map
from phrasemem.memfmt.suffix_filter import read_filter

VOCAB_SIZE = 40
ENTRIES = 20 * (VOCAB_SIZE - 1)


def ids(count: int, kind: pa.DataType) -> pa.Array:
    zeros = np.zeros(count, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(zeros)])


def of_key_map(count: int = VOCAB_SIZE) -> pa.RecordBatch:
    return pa.record_batch([ids(count, pa.uint32())], schema=key_map._SCHEMA)


def of_filter(count: int = VOCAB_SIZE) -> pa.RecordBatch:
    return pa.record_batch([ids(count, pa.uint64())], schema=suffix_filter._SCHEMA)


def of_index(count: int = VOCAB_SIZE) -> pa.RecordBatch:
    kinds = [field.type.value_type for field in index._SCHEMA]
    lists = [index._one_list(np.zeros(count, kind.to_pandas_dtype()), kind) for kind in kinds]
    return pa.record_batch(lists, schema=index._SCHEMA)


FILES: dict[str, tuple[Callable[..., pa.RecordBatch], Callable[[bytes], object]]] = {
    "key map": (of_key_map, lambda data: read_key_map(data, "engram-1", VOCAB_SIZE, "here")),
    "filter": (of_filter, lambda data: read_filter(data, ENTRIES, "here")),
    "index": (of_index, lambda data: read_index(data, "here")),
}
every_file = pytest.mark.parametrize(("batch_of", "read"), FILES.values(), ids=FILES)


def written(*batches: pa.RecordBatch, **options: object) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_file(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def refusal(read: Callable[[bytes], object], data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        read(data)
    assert caught.value.reason in (Reason.KEY_MAP_DAMAGED, Reason.INDEX_DAMAGED)
    return caught.value


@every_file
def test_what_writers_write_is_read(batch_of, read):
    read(written(batch_of()))


@every_file
@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_values_are_refused_before_they_take_ram(batch_of, read, codec):
    data = written(batch_of(1 << 25), compression=codec)
    assert len(data) < 1 << 21
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "compressed" in str(refusal(read, data))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 1 << 14


@every_file
def test_metadata_that_could_hide_compression_is_refused(batch_of, read):
    old = written(batch_of(), metadata_version=pa.ipc.MetadataVersion.V4)
    assert "early Arrow version" in str(refusal(read, old))


@every_file
@pytest.mark.parametrize("count", [0, 2, 1000])
def test_another_number_of_batches_is_refused(batch_of, read, count):
    data = written(*[batch_of()] * count) if count else written_empty(batch_of().schema)
    assert f"found {count}" in str(refusal(read, data))


def written_empty(schema: pa.Schema) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema):
        pass
    return sink.getvalue()


@every_file
def test_a_footer_that_promises_more_batches_than_there_are_is_refused(batch_of, read):
    data = bytearray(written(batch_of()))
    footer = len(data) - 10 - int.from_bytes(data[-10:-6], "little")
    place = data.rindex((1).to_bytes(4, "little"), footer, len(data) - 10)
    for number in (0, 2, 1 << 31):
        data[place : place + 4] = number.to_bytes(4, "little")
        refusal(read, bytes(data))


@every_file
def test_names_that_are_not_text_are_refused(batch_of, read):
    name = batch_of().schema.names[0].encode()
    refusal(read, written(batch_of()).replace(name, b"\xff" * len(name)))


def test_missing_values_are_refused():
    for kind, schema in ((pa.uint32(), key_map._SCHEMA), (pa.uint64(), suffix_filter._SCHEMA)):
        batch = pa.RecordBatch.from_arrays([pa.array([None, 0], kind)], schema=schema)
        with pytest.raises(FormatError, match="values are missing"):
            read_one_batch(pa.py_buffer(written(batch)), schema, Reason.INDEX_DAMAGED, where="here")
    for lists in ([None], [[None, 1]]):
        columns = [pa.array(lists, field.type) for field in index._SCHEMA]
        data = written(pa.record_batch(columns, schema=index._SCHEMA))
        assert "missing" in str(refusal(lambda data: read_index(data, "here"), data))


@every_file
def test_altered_bytes_give_a_reason_and_nothing_else(batch_of, read):
    dice, sound = random.Random(17), written(batch_of())
    refused = 0
    for _ in range(2000):
        data = bytearray(sound)
        for _ in range(dice.choice([1, 1, 2, 8])):
            place = dice.randrange(len(data))
            data[place] = dice.choice([data[place] ^ 1 << dice.randrange(8), 255, 127, 0])
        if dice.random() < 0.2:
            del data[dice.randrange(len(data)) :]
        try:
            read(bytes(data))
        except PhraseMemError:
            refused += 1
    assert refused > 200
