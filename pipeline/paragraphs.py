"""Foreign paragraphs in documents that are in the wanted language as a whole."""

from __future__ import annotations

from phrasemem.pipeline.language import is_language


def without_foreign(text: str, language: str, margin: int, shortest: int) -> tuple[str, int]:
    """Drop the paragraphs in another language, and say how many.

    A paragraph is a line; one shorter than ``shortest`` characters stays, since its language is
    a guess. A text of one line is judged as a whole, elsewhere.
    """
    if "\n" not in text or len(text) < 2 * shortest:
        return text, 0
    lines = text.split("\n")
    kept = [line for line in lines if len(line) < shortest or is_language(line, language, margin)]
    return "\n".join(kept), len(lines) - len(kept)
