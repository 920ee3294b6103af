"""GGUF files, converted once to a folder that transformers loads in a second."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from phrasemem.artifacts import cache_dir, sha256_of

# Part of the folder's name: raise it when the conversion changes what it writes.
_CONVERSION = 1


def tokenizer_folder(gguf: Path) -> Path:
    """Return a folder with the tokenizer of a GGUF file; it is made on the first call."""
    return _once(gguf, "tokenizer", _save_tokenizer)


def model_folder(gguf: Path) -> Path:
    """Return a folder with the weights (safetensors, float32), config and tokenizer.

    Notes
    -----
    Safe between processes (a lock file) and against a kill (renamed into place last).
    """
    return _once(gguf, "model", _save_model)


def _once(gguf: Path, what: str, save: Callable[[Path, Path], None]) -> Path:
    root = cache_dir() / "models"
    root.mkdir(parents=True, exist_ok=True)
    name = f"{gguf.stem}-{sha256_of(gguf)[:16]}-{what}-{_CONVERSION}"
    target = root / name
    with FileLock(root / f".{name}.lock"):
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=root) as scratch:
                staged = Path(scratch) / "staged"
                staged.mkdir()
                save(gguf, staged)
                _sync(staged)
                staged.replace(target)
    return target


def _save_tokenizer(gguf: Path, folder: Path) -> None:
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


def _save_model(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    # transformers refuses to save a model whose config says that it came from GGUF,
    # so its weights move to a plain twin.
    if hasattr(loaded.config, "quantization_config"):
        del loaded.config.quantization_config
    plain = AutoModelForCausalLM.from_config(loaded.config, dtype=torch.float32)
    plain.load_state_dict(loaded.state_dict())
    plain.generation_config = loaded.generation_config
    plain.save_pretrained(folder)
    for file in tokenizer_folder(gguf).iterdir():
        shutil.copyfile(file, folder / file.name)


def _sync(folder: Path) -> None:
    for path in [*folder.iterdir(), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
