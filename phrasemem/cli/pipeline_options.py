"""What the commands share that need the pipeline: options of corpora and of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from phrasemem.memfmt.errors import MissingExtraError

_Command = TypeVar("_Command", bound=Callable[..., Any])


def corpora_options(command: _Command) -> _Command:
    """Add ``--config`` and ``--profile``."""
    config = click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        default=Path("corpora.yaml"),
        show_default=True,
        help="Corpora and settings; relative paths in it start from its folder.",
    )
    profile = click.option(
        "--profile", help="Profile of the configuration; its default if not given."
    )
    return config(profile(command))


def cluster_options(command: _Command) -> _Command:
    """Add ``--workers`` and ``--scheduler``."""
    workers = click.option(
        "--workers",
        type=click.IntRange(min=0),
        help="Local worker processes; one a core if not given, 0 for none.",
    )
    scheduler = click.option(
        "--scheduler", metavar="ADDRESS", help="A running Dask scheduler, tcp://HOST:PORT."
    )
    return workers(scheduler(command))


def disk_options(command: _Command) -> _Command:
    """Add ``--low-disk``, ``--disk-check`` and ``--keep-work``."""
    low = click.option(
        "--low-disk", is_flag=True, help="Remove what a stage wrote once no later stage reads it."
    )
    check = click.option(
        "--disk-check/--no-disk-check",
        default=True,
        show_default=True,
        help="Stop before a stage that would most likely fill the disk.",
    )
    keep = click.option(
        "--keep-work/--no-keep-work",
        default=True,
        show_default=True,
        help="Keep what the stages wrote when the memory is whole.",
    )
    return low(check(keep(command)))


def plan_options(command: _Command) -> _Command:
    """Add ``--plan``, ``--json`` and ``--plan-gpu-phrases-per-second``."""
    plan = click.option(
        "--plan",
        is_flag=True,
        help="Show stages, sizes, time, memory and disk instead of building; rough estimates.",
    )
    as_json = click.option(
        "--json", "as_json", is_flag=True, help="With --plan: print one JSON object."
    )
    gpu = click.option(
        "--plan-gpu-phrases-per-second",
        type=click.FloatRange(min=0, min_open=True),
        metavar="NUMBER",
        help="With --plan: what your GPU embeds; no figure of one is known here.",
    )
    return plan(as_json(gpu(command)))


@contextmanager
def pipeline_needed(what: str = "this command") -> Iterator[None]:
    """Turn an import that fails into one clear line."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{what} needs {error.name}", hint='pip install "phrasemem[pipeline]"'
        ) from error
