"""LMDB files from a stranger: what LMDB would follow out of its file is refused before."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.lmdb_pages import check_pages

PAGE = 4096
PAIRS = [(number.to_bytes(4, "big"), b"x" * 24) for number in range(3000)]
LONG = [(b"long", b"y" * 9000)]


def write(path: Path, pairs: list[tuple[bytes, bytes]]) -> bytearray:
    with (
        lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 24) as environment,
        environment.begin(write=True) as transaction,
    ):
        for key, value in pairs:
            transaction.put(key, value)
    return bytearray(path.read_bytes())


def pages(data: bytes, kind: int) -> list[int]:
    """Pages of a kind, the second word of their header: 1 branch, 2 leaf, 4 run, 8 meta."""
    found = range(0, len(data), PAGE)
    return [page // PAGE for page in found if data[page + 10] == kind and data[page + 11] == 0]


@pytest.mark.parametrize("pairs", [[], PAIRS[:1], PAIRS, PAIRS + LONG])
def test_what_lmdb_writes_is_sound(tmp_path, pairs):
    write(tmp_path / "keys.mdb", pairs)
    check_pages(tmp_path / "keys.mdb")


def newest_meta(data: bytes) -> int:
    return max((0, PAGE), key=lambda meta: struct.unpack_from("<Q", data, meta + 144)[0])


def root_outside(data: bytearray) -> None:
    struct.pack_into("<Q", data, newest_meta(data) + 128, 1 << 40)


def last_page_outside(data: bytearray) -> None:
    struct.pack_into("<Q", data, newest_meta(data) + 136, len(data) // PAGE)


def doubled_keys(data: bytearray) -> None:
    struct.pack_into("<H", data, newest_meta(data) + 92, 4)


def child_outside(data: bytearray) -> None:
    _set_child(data, len(data) // PAGE)


def child_above(data: bytearray) -> None:
    _set_child(data, pages(data, 1)[0])


def child_twice(data: bytearray) -> None:
    begin = pages(data, 1)[0] * PAGE
    second = begin + struct.unpack_from("<H", data, begin + 18)[0]
    _set_child(data, struct.unpack_from("<H", data, second)[0])


def _set_child(data: bytearray, page: int) -> None:
    begin = pages(data, 1)[0] * PAGE
    node = begin + struct.unpack_from("<H", data, begin + 16)[0]
    struct.pack_into("<HHH", data, node, page & 0xFFFF, page >> 16, 0)


def single_child(data: bytearray) -> None:
    struct.pack_into("<H", data, pages(data, 1)[0] * PAGE + 12, 18)


def no_key(data: bytearray) -> None:
    struct.pack_into("<H", data, pages(data, 2)[0] * PAGE + 12, 16)


def key_beyond_its_page(data: bytearray) -> None:
    struct.pack_into("<H", data, pages(data, 2)[0] * PAGE + 16, PAGE - 4)


def long_key(data: bytearray) -> None:
    struct.pack_into("<H", data, _first_node(data) + 6, 65535)


def long_value(data: bytearray) -> None:
    struct.pack_into("<H", data, _first_node(data) + 2, 255)


def value_of_another_kind(data: bytearray) -> None:
    struct.pack_into("<H", data, _first_node(data) + 4, 4)


def _first_node(data: bytearray) -> int:
    begin = pages(data, 2)[0] * PAGE
    return begin + struct.unpack_from("<H", data, begin + 16)[0]


def leaf_among_branches(data: bytearray) -> None:
    data[pages(data, 2)[0] * PAGE + 10] = 1


def short_run(data: bytearray) -> None:
    struct.pack_into("<I", data, pages(data, 4)[0] * PAGE + 12, 1)


def long_run(data: bytearray) -> None:
    struct.pack_into("<I", data, pages(data, 4)[0] * PAGE + 12, 1 << 20)


@pytest.mark.parametrize(
    "change",
    [
        root_outside,
        last_page_outside,
        doubled_keys,
        child_outside,
        child_above,
        child_twice,
        single_child,
        no_key,
        key_beyond_its_page,
        long_key,
        long_value,
        value_of_another_kind,
        leaf_among_branches,
        short_run,
        long_run,
    ],
)
def test_what_lmdb_would_follow_is_refused(tmp_path, change):
    path = tmp_path / "keys.mdb"
    data = write(path, PAIRS + LONG)
    change(data)
    path.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        check_pages(path)
    assert caught.value.reason is Reason.KEYS_DAMAGED
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 200, b"\0" * 16384])
def test_what_is_no_lmdb_file_is_refused(tmp_path, data):
    (tmp_path / "keys.mdb").write_bytes(data)
    with pytest.raises(FormatError):
        check_pages(tmp_path / "keys.mdb")


_WALK = """
import random, sys
from pathlib import Path
import lmdb
from phrasemem.memfmt.errors import FormatError
from phrasemem.memfmt.keystore import KeyStore
from phrasemem.memfmt.lmdb_pages import check_pages

path, sound = Path(sys.argv[1]), Path(sys.argv[1]).read_bytes()
dice = random.Random(4)
# Much of the file is empty.
places = [place for place, byte in enumerate(sound) if byte or place % 4096 < 64]
walked = refused = 0
for number in range(1500):
    data = bytearray(sound)
    for _ in range(dice.choice([1, 1, 3, 10])):
        place = dice.choice(places)
        data[place] = dice.choice([data[place] ^ 1 << dice.randrange(8), 0, 255, 127])
    path.write_bytes(data)
    try:
        check_pages(path)
        store = KeyStore([path], [0], ["news", "wiki"], b"")
        try:
            list(store.items(0))
        finally:
            store.close()
        walked += 1
    except FormatError:
        refused += 1
print(walked, refused)
"""


def test_a_file_that_passes_never_kills_who_walks_through_it(memory_path, tmp_path):
    shutil.copyfile(memory_path / "shard-00001" / "keys.mdb", tmp_path / "keys.mdb")
    run = subprocess.run(
        [sys.executable, "-c", _WALK, str(tmp_path / "keys.mdb")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    walked, refused = map(int, run.stdout.split())
    assert walked > 100
    assert refused > 100
