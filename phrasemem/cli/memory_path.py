"""The parameter type of commands that read a memory: a folder, or the URL of a published one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class MemoryPath(click.ParamType[Path]):
    """A folder as it stands; a URL is fetched into the cache folder first, unless it is there."""

    name = "memory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the memory's folder."""
        from phrasemem.memfmt.remote.reference import is_url

        if isinstance(value, Path) or not is_url(value):
            return Path(value)
        from phrasemem.remote_cache import open_memory_path

        return open_memory_path(value)


MEMORY = MemoryPath()
