"""LMDB environments: one a file and process, shared by all readers, opened again after a fork.

LMDB must not be opened twice in one process, and py-lmdb refuses it; a child must not go on
with the environment of its parent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason

_Identity = tuple[int, int]

_lock = threading.Lock()
_open: dict[_Identity, Environment] = {}


class Environment:
    """One LMDB file, opened when it is first read. Threads may share it."""

    def __init__(self, path: Path, identity: _Identity) -> None:
        self.identity = identity
        self.users = 0
        self._path = path
        self._lmdb: lmdb.Environment | None = None

    @contextmanager
    def cursor(self) -> Iterator[lmdb.Cursor]:
        """Read in a transaction of its own; bytes that come out are copies."""
        with _lock:
            if self._lmdb is None:
                self._lmdb = self._opened()
            environment = self._lmdb
        with environment.begin() as transaction, transaction.cursor() as cursor:
            yield cursor

    def close(self) -> None:
        """Unmap the file; the next read maps it again."""
        if self._lmdb is not None:
            self._lmdb.close()
            self._lmdb = None

    def _opened(self) -> lmdb.Environment:
        if not self._path.exists() or _identity(self._path) != self.identity:
            raise PhraseMemError(
                "the memory was replaced since it was opened",
                where=self._path,
                hint="open it again",
            )
        return _open_lmdb(self._path)


def acquire(path: Path) -> Environment:
    """Share the environment of a file; give it back with :func:`release`."""
    # By identity and not by path: another memory may have taken the name in between.
    identity = _identity(path)
    with _lock:
        environment = _open.setdefault(identity, Environment(path, identity))
        environment.users += 1
        return environment


def release(environment: Environment) -> None:
    """Close the environment of a file when its last user is gone."""
    with _lock:
        environment.users -= 1
        if not environment.users:
            environment.close()
            del _open[environment.identity]


def _identity(path: Path) -> _Identity:
    status = path.stat()
    return status.st_dev, status.st_ino


def _open_lmdb(path: Path) -> lmdb.Environment:
    try:
        return lmdb.open(
            str(path),
            subdir=False,
            readonly=True,
            lock=False,
            readahead=False,
            map_size=path.stat().st_size,
            max_readers=1,
        )
    except lmdb.Error as error:
        raise FormatError(
            Reason.KEYS_DAMAGED,
            f"LMDB cannot open the keys: {error}",
            where=path,
            hint="fetch this file again",
        ) from error


def _after_fork() -> None:
    """Forget, in a child, what its parent had open."""
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = threading.Lock()
    for environment in _open.values():
        environment.close()


os.register_at_fork(after_in_child=_after_fork)
