"""An opened memory with its host-memory tier, for any number of models and threads."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.manifest import Manifest
from phrasemem.memfmt.payload import VectorReader
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.remote_cache import is_url, open_memory_path
from phrasemem.runtime.tiers import HostTier, TierStats

DEFAULT_DRAM_BYTES = 256 << 20


class PhraseMemory:
    """A memory that models read. A context manager; use :meth:`open`.

    Parameters
    ----------
    reader : MemoryReader
    payload : VectorReader
        The vector column that is injected.
    tier : HostTier

    Notes
    -----
    Several models and threads may share one.
    """

    def __init__(self, reader: MemoryReader, payload: VectorReader, tier: HostTier) -> None:
        self.reader = reader
        self.payload = payload
        self.tier = tier

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        dram_bytes: int = DEFAULT_DRAM_BYTES,
        payload: str = "semantic",
        check: Literal["lengths", "full"] = "lengths",
    ) -> PhraseMemory:
        """Open a memory.

        Parameters
        ----------
        path : path-like or str
            A folder, or the URL of a registry, ``URL[@VERSION]``: fetched into the cache folder
            unless it is there.
        dram_bytes : int
            What cached rows may take in RAM, bookkeeping included; 0 reads each row each time.
        payload : str
            Name of the vector column.
        check : {"lengths", "full"}
            ``full`` compares every byte with its checksum first.

        Raises
        ------
        FormatError
            If the memory is damaged or lacks the payload.
        PhraseMemError
            If it cannot be fetched, or the payload is no vector column.
        """
        if dram_bytes < 0:
            raise PhraseMemError("wrong dram_bytes", expected="0 or more", found=dram_bytes)
        folder = open_memory_path(path) if isinstance(path, str) and is_url(path) else path
        reader = MemoryReader.open(folder, check=check)
        try:
            column = reader.payload(payload)
            if not isinstance(column, VectorReader):
                raise PhraseMemError(
                    "this payload holds successors, and only vectors can be injected",
                    expected="a dense payload",
                    found=f"{payload!r}, which is {column.info.kind}",
                    where=path,
                )
        except PhraseMemError:
            reader.close()
            raise
        return cls(reader, column, HostTier(column, dram_bytes, len(reader)))

    @property
    def path(self) -> Path:
        """Folder of the memory."""
        return self.reader.path

    @property
    def manifest(self) -> Manifest:
        """What the memory says of itself."""
        return self.reader.manifest

    def prewarm(self, rows: NDArray[np.int64]) -> int:
        """Load rows into RAM, the most wanted first; return how many fit the budget."""
        return self.tier.prewarm(rows)

    def tier_stats(self) -> TierStats:
        """Return the counters of the host-memory tier."""
        return self.tier.stats()

    def close(self) -> None:
        """Let go of the files."""
        self.reader.close()

    def __len__(self) -> int:
        return len(self.reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
