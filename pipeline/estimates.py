"""stub to be replaced"""

from __future__ import annotations

from collections.abc import Callable


def bytes_beside(name: str, size_of: Callable[[str], int]) -> int | None:
    return None
