"""Drops files from the page cache, and checks that they are gone."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)


def drop(paths: Iterable[Path]) -> None:
    """Drop files from the page cache of this machine; no process may have their pages mapped.

    Raises
    ------
    RuntimeError
        If more than one page in a thousand stayed.
    """
    paths = list(paths)
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    for path in paths:
        if (share := resident(path)) > 0.001:
            raise RuntimeError(f"{share:.1%} of {path} stayed in the page cache")


def resident(path: Path) -> float:
    """Share of a file's pages that are in the page cache, by ``mincore``."""
    with path.open("rb") as file:
        whole = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    view = np.frombuffer(whole, dtype=np.uint8)
    pages = np.zeros(-(-len(view) // mmap.PAGESIZE), dtype=np.uint8)
    if _libc.mincore(
        ctypes.c_void_p(view.ctypes.data),
        ctypes.c_size_t(len(view)),
        ctypes.c_void_p(pages.ctypes.data),
    ):
        raise OSError(ctypes.get_errno(), "mincore failed", str(path))
    return float((pages & 1).mean())
