"""A registry in a folder of this machine: files are flushed, then renamed or linked into place."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from phrasemem.memfmt import durable
from phrasemem.memfmt.remote.store import Store

_INCOMING = ".incoming"


class FolderStore(Store):
    """A local folder. Writes survive a crash, and none is seen before it is complete."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other writers out, and remove what killed ones have left."""
        incoming = Path(self.root) / _INCOMING
        incoming.mkdir(parents=True, exist_ok=True)
        with FileLock(incoming / "lock"):
            for path in incoming.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
            yield

    def put_file(self, name: str, source: Path) -> None:
        """Write a file from one on this machine."""
        with self._incoming(name) as temporary:
            shutil.copyfile(source, temporary)
            durable.sync_path(temporary)
            temporary.replace(self.path(name))

    def put(self, name: str, data: bytes) -> None:
        """Write a small file, in place of one that stands there."""
        with self._incoming(name) as temporary:
            durable.write_file(temporary, data)
            temporary.replace(self.path(name))

    def create(self, name: str, data: bytes) -> None:
        """Write a small file that must not be there yet; raises FileExistsError."""
        with self._incoming(name) as temporary:
            durable.write_file(temporary, data)
            # A link, unlike a rename, never replaces what stands there.
            os.link(temporary, self.path(name))

    @contextmanager
    def _incoming(self, name: str) -> Iterator[Path]:
        final = Path(self.path(name))
        incoming = Path(self.root) / _INCOMING
        for folder in (final.parent, incoming):
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=incoming) as scratch:
            yield Path(scratch) / "file"
            durable.sync_path(final.parent)
