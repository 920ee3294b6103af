"""Text out of a memory, as it may stand on a terminal."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Put text on one line, with control characters shown and not sent.

    A memory from elsewhere could otherwise move the cursor, or make a terminal do worse.
    """
    plain = " ".join(text.split())
    return plain if plain.isprintable() else "".join(map(_shown, plain))


def _shown(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]
