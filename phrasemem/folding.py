"""Which token ids are one where spelling does not count: the key map of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from phrasemem.memfmt.key_map import ENGRAM, KeyMap

_PARTIAL = "\N{REPLACEMENT CHARACTER}"
# Of the private use area: no text holds it, and no normaliser strips it.
_SPACE = "\ue000"


def engram_key_map(tokenizer: Any) -> KeyMap:
    """Fold ids whose texts differ in case, accents, width or outer white space alone.

    The classes are those of ``CompressedTokenizer`` in the demo of Engram (arXiv 2601.07372),
    added tokens aside, which stay alone; memfmt/SPEC.md has the rules.

    Parameters
    ----------
    tokenizer : fast tokenizer

    Returns
    -------
    KeyMap
        For all ids, added ones included.
    """
    backend = tokenizer.backend_tokenizer
    size = backend.get_vocab_size(with_added_tokens=True)
    ids = np.arange(size, dtype=np.uint32)
    first: dict[str, int] = {}
    for token, form in _forms(backend, size):
        ids[token] = first.setdefault(form, token)
    return KeyMap(ENGRAM, ids)


def _forms(backend: Any, size: int) -> Iterator[tuple[int, str]]:
    """Yield what each id that may be one with others is told by, in the order of the ids."""
    normalizer = _normalizer()
    added = backend.get_added_tokens_decoder()
    texts = backend.decode_batch([[token] for token in range(size)], skip_special_tokens=False)
    for token, text in enumerate(texts):
        spelling = backend.id_to_token(token)
        if spelling is None or token in added:
            continue
        if _PARTIAL in text:
            yield token, spelling
        else:
            yield token, normalizer.normalize_str(text) or text


def _normalizer() -> Any:
    from tokenizers import Regex, normalizers

    return normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            normalizers.Replace(Regex(r"^ $"), _SPACE),
            normalizers.Strip(),
            normalizers.Replace(_SPACE, " "),
        ]
    )
