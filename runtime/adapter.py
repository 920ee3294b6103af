"""What one backbone needs to read one memory: projection, injection point, scale.

An adapter is a folder ``adapters/<backbone fingerprint>/`` of a memory: ``adapter.json``, a
sub-manifest with the checksums of its files, and ``adapter.safetensors``.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from phrasemem.memfmt import durable
from phrasemem.memfmt.adapters import (
    DESCRIPTION_NAME,
    AdapterError,
    FileEntry,
    adapter_folders,
    read_checked,
    read_description,
)
from phrasemem.memfmt.canonical import sealed
from phrasemem.memfmt.manifest import ADAPTERS_NAME

TENSORS = "adapter.safetensors"
POINT = re.compile(r"head|layer:[0-9]{1,4}")
Gate = Literal["none", "relu-cos"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Description(_Strict):
    magic: Literal["phrasemem.adapter"] = "phrasemem.adapter"
    format_version: Annotated[str, Field(pattern=r"^1\.[0-9]{1,4}$")] = "1.0"
    backbone: str
    payload: str
    source: str
    point: Annotated[str, Field(pattern=POINT.pattern)]
    gate: Gate
    scale: float
    files: dict[str, FileEntry]
    report: dict[str, Any]


@dataclass(frozen=True)
class Adapter:
    """The injection ``scale * gate(h, v) * v`` with ``v = e W + b`` for a phrase's vector e.

    Parameters
    ----------
    projection : (dim_in, dim_out) float32
        W, from encoder space to the space of the injection point.
    bias : (dim_out,) float32
        b: what all phrases share.
    scale : float
        0 where calibration found that nothing helps.
    point : str
        ``head``, the input of the output head, or ``layer:K``, the input of decoder block K.
    gate : str
        ``none``, or ``relu-cos``: max(0, cos(h, v)), after NGM (arXiv 2605.16893).
    payload, source : str
        The vector column that it reads, and what made that column.
    report : dict
        How it was calibrated.
    """

    projection: NDArray[np.float32]
    bias: NDArray[np.float32]
    scale: float
    point: str = "head"
    gate: Gate = "none"
    payload: str = "semantic"
    source: str = ""
    report: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if POINT.fullmatch(self.point) is None:
            raise AdapterError("unknown point", expected="head or layer:K", found=self.point)
        if self.gate not in get_args(Gate):
            raise AdapterError("unknown gate", expected=get_args(Gate), found=self.gate)
        if self.projection.ndim != 2 or self.bias.shape != self.projection.shape[1:]:
            raise AdapterError(
                "projection and bias do not fit",
                expected="(dim_in, dim_out) and (dim_out,)",
                found=f"{self.projection.shape} and {self.bias.shape}",
            )

    @property
    def layer(self) -> int | None:
        """The decoder block whose input is changed; None at the head."""
        return None if self.point == "head" else int(self.point.partition(":")[2])


def adapter_folder(memory: Path, backbone: str) -> Path:
    """Return where a memory keeps the adapter of a backbone fingerprint."""
    return memory / ADAPTERS_NAME / backbone


def save_adapter(adapter: Adapter, memory: Path, backbone: str) -> Path:
    """Write an adapter into a memory, in place of an older one, and return its folder.

    Equal adapters give equal bytes. A kill leaves the old adapter, or none, never half of one.
    """
    tensors = {
        "bias": np.ascontiguousarray(adapter.bias, dtype=np.float32),
        "projection": np.ascontiguousarray(adapter.projection, dtype=np.float32),
    }
    data = save_tensors(tensors)
    description = _Description(
        backbone=backbone,
        payload=adapter.payload,
        source=adapter.source,
        point=adapter.point,
        gate=adapter.gate,
        scale=float(adapter.scale),
        files={TENSORS: FileEntry(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())},
        report=adapter.report,
    )
    folder = adapter_folder(memory, backbone)
    folder.parent.mkdir(exist_ok=True)
    with FileLock(folder.parent / f".{backbone}.lock"):
        staging = durable.fresh_staging(folder)
        durable.write_file(staging / TENSORS, data)
        described = sealed(description.model_dump(mode="json"))
        durable.write_file(staging / DESCRIPTION_NAME, described)
        durable.sync_tree(staging)
        durable.move_into_place(staging, folder)
    return folder


def load_adapter(memory: Path, backbone: str) -> Adapter:
    """Read the adapter of a backbone from a memory.

    Raises
    ------
    AdapterError
        If there is none, or its files are not those that were written.
    """
    folder = adapter_folder(memory, backbone)
    if not (folder / DESCRIPTION_NAME).is_file():
        raise AdapterError(
            "this memory has no adapter for this backbone",
            expected=backbone,
            found=", ".join(path.name for path in adapter_folders(memory)) or "no adapter",
            where=memory,
            hint="make one with: phrasemem calibrate --memory MEMORY --model MODEL",
        )
    description = _describe(folder)
    if description.backbone != backbone or set(description.files) != {TENSORS}:
        raise AdapterError("the adapter is in the wrong folder or incomplete", where=folder)
    tensors = load_tensors(read_checked(folder / TENSORS, description.files[TENSORS]))
    if set(tensors) != {"bias", "projection"}:
        raise AdapterError(
            "wrong tensors", expected="bias, projection", found=sorted(tensors), where=folder
        )
    return Adapter(
        projection=tensors["projection"],
        bias=tensors["bias"],
        scale=description.scale,
        point=description.point,
        gate=description.gate,
        payload=description.payload,
        source=description.source,
        report=description.report,
    )


def _describe(folder: Path) -> _Description:
    try:
        return _Description.model_validate(read_description(folder))
    except ValidationError as error:
        first = error.errors()[0]
        raise AdapterError(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}", where=folder / DESCRIPTION_NAME
        ) from error
