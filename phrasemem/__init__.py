"""A training-free phrase memory for frozen Hugging Face causal language models.

>>> from phrasemem import PhraseMemory, attach  # doctest: +SKIP
>>> memory = PhraseMemory.open("build/memory")  # doctest: +SKIP
>>> with attach(model, memory, tokenizer=tokenizer):  # doctest: +SKIP
...     model.generate(**inputs)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phrasemem._version import __version__

if TYPE_CHECKING:
    from phrasemem.runtime.attach import attach
    from phrasemem.runtime.memory import PhraseMemory

__all__ = ["PhraseMemory", "__version__", "attach"]

_LAZY = {"PhraseMemory": "phrasemem.runtime.memory", "attach": "phrasemem.runtime.attach"}


def __getattr__(name: str) -> Any:
    """Import torch and the runtime only when they are asked for."""
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
