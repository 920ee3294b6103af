"""Large batches are shared by threads, and give what one thread gives."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from phrasemem.memfmt import match, reader, threads
from phrasemem.memfmt.keys import pack_keys
from phrasemem.memfmt.reader import MemoryReader

N_MAX = 5


@pytest.fixture
def three_cores(monkeypatch):
    """Three threads even here, for batches of a few."""
    monkeypatch.setattr(threads, "_cores", lambda: 3)
    monkeypatch.setattr(reader, "_SHARE", 4)
    monkeypatch.setattr(match, "_SHARE", 4)


def test_pieces_cover_a_range_once_and_are_not_too_small(monkeypatch):
    monkeypatch.setattr(threads, "_cores", lambda: 64)
    for total in (0, 1, 9, 10, 11, 39, 40, 1000):
        cut = threads.pieces(total, 10)
        assert [i for piece in cut for i in range(total)[piece]] == list(range(total))
        assert len(cut) == max(1, min(threads.MOST, total // 10))


def test_what_fails_in_a_thread_fails_for_the_caller():
    def fail():
        raise ValueError(threading.current_thread().name)

    with pytest.raises(ValueError, match="phrasemem"):
        threads.run_all([lambda: None, fail])
    with pytest.raises(ValueError, match="MainThread"):
        threads.run_all([fail, lambda: None])


def asked(many_keys):
    rng = np.random.default_rng(2)
    absent = [tuple(rng.integers(0, 50, rng.integers(0, N_MAX + 1)).tolist()) for _ in range(500)]
    return pack_keys([*many_keys, *absent], N_MAX)


def texts(many_keys):
    stream = [token for key in many_keys for token in key]
    stream += np.random.default_rng(3).integers(-1, 55, 2000).tolist()
    yield np.array([stream]), 0
    yield np.array([stream]), 7
    yield np.array(stream[: len(stream) // 40 * 40]).reshape(40, -1), 0
    yield np.array(stream[: len(stream) // 400 * 400]).reshape(400, -1), N_MAX - 1


def test_lookups_and_matches_are_those_of_one_thread(memory_path, many_keys, three_cores):
    tokens, lengths = asked(many_keys)
    with MemoryReader.open(memory_path) as memory:
        shared = memory.look_up(tokens, lengths)
        alone = np.concatenate(
            [memory.look_up(tokens[i : i + 1], lengths[i : i + 1]) for i in range(len(lengths))]
        )
        assert shared.tolist() == alone.tolist()
        assert (shared >= 0).sum() >= len(many_keys)
        for text, start in texts(many_keys):
            assert text.shape[0] * (text.shape[1] - start) > match.SMALL_BATCH
            for shortest in range(3):
                found = memory.longest_match(text, start, shortest=shortest)
                plain = memory.candidates(text, start, shortest=shortest)
                assert found.rows.tolist() == plain.rows.tolist()
                assert found.lengths.tolist() == plain.lengths.tolist()
                assert (found.rows >= 0).any()


def test_many_threads_may_share_at_once(memory_path, many_keys, three_cores):
    tokens, lengths = asked(many_keys)
    with MemoryReader.open(memory_path) as memory, ThreadPoolExecutor(8) as pool:
        expected = memory.look_up(tokens, lengths).tolist()
        found = list(pool.map(lambda _: memory.look_up(tokens, lengths).tolist(), range(100)))
    assert all(rows == expected for rows in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_process_has_threads_of_its_own(memory_path, many_keys, three_cores):
    tokens, lengths = asked(many_keys)
    with MemoryReader.open(memory_path) as memory:
        expected = memory.look_up(tokens, lengths)
        child = os.fork()
        if child == 0:
            same = False
            # Anything but an exit here would run the tests that follow twice.
            try:
                same = memory.look_up(tokens, lengths).tolist() == expected.tolist()
            finally:
                os._exit(0 if same else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
