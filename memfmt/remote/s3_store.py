"""A registry on S3: uploads in parts, with little of them in RAM."""

from __future__ import annotations

from pathlib import Path

from phrasemem.memfmt.remote.store import Store

_PART_BYTES = 16 << 20
_PARTS_AT_ONCE = 2
_MOST_PARTS = 10_000


class S3Store(Store):
    """A prefix of a bucket. RAM while writing: some 32 MiB a file that travels."""

    def put_file(self, name: str, source: Path) -> None:
        """Write a file from one on this machine."""
        fewest = -(-source.stat().st_size // _MOST_PARTS)
        self.filesystem.put_file(
            str(source),
            self.path(name),
            chunksize=max(_PART_BYTES, fewest),
            max_concurrency=_PARTS_AT_ONCE,
        )
