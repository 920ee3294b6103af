"""What already stands where a memory is to be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from phrasemem import backbone
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.manifest import MANIFEST_NAME, Manifest, parse_manifest
from phrasemem.pipeline.encoder_options import changed_part

BUILD_FILE = "build.json"
_PAYLOAD = "semantic"
_HINT = "build into another --out, or give --replace"


class OutputError(PhraseMemError):
    """An output folder that must not be replaced."""


def recorded_build(out: Path) -> dict[str, Any] | None:
    """Return what a finished memory says about its build, or None if there is none."""
    try:
        record = json.loads((out / BUILD_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return None  # damaged: it will be built again
    return record if isinstance(record, dict) and (out / MANIFEST_NAME).is_file() else None


def refuse_other_folder(out: Path) -> None:
    """Refuse a path that holds something other than a memory, whatever the options."""
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists() and not (out / MANIFEST_NAME).is_file():
        raise OutputError(
            "the output folder holds something else than a memory",
            where=out,
            hint="choose another --out",
        )


def refuse_other_memory(
    out: Path, model: str, encoder: tuple[str, str, str], key_normalisation: str
) -> None:
    """Refuse to replace a memory of another format, encoder, tokenizer or key normalisation.

    Parameters
    ----------
    out : Path
    model : str
        Reference of the model whose tokenizer is used now.
    encoder : (reference, revision, how it is used)
    key_normalisation : str

    Raises
    ------
    OutputError, FormatError
    """
    path = out / MANIFEST_NAME
    if not path.is_file():
        return
    manifest = parse_manifest(path.read_bytes(), path)
    _refuse_other_encoder(manifest, encoder, out)
    if manifest.key_normalisation != key_normalisation:
        raise OutputError(
            "the memory there has keys of another normalisation",
            where=out,
            expected=key_normalisation,
            found=manifest.key_normalisation,
            hint=_HINT,
        )
    found = backbone.tokenizer_fingerprint(backbone.load_tokenizer(model))
    if manifest.tokenizer.fingerprint != found:
        raise OutputError(
            "the memory there belongs to another tokenizer",
            where=out,
            expected=f"{found} ({model})",
            found=f"{manifest.tokenizer.fingerprint} ({manifest.tokenizer.name})",
            hint=_HINT,
        )


def _refuse_other_encoder(manifest: Manifest, encoder: tuple[str, str, str], out: Path) -> None:
    there = manifest.encoder
    if there is None:
        return
    if there.revision != encoder[1]:
        raise OutputError(
            "the memory there was made with another encoder",
            where=out,
            expected=f"{encoder[0]} ({encoder[1]})",
            found=f"{there.id} ({there.revision})",
            hint=_HINT,
        )
    source = next((p.source for p in manifest.payloads if p.name == _PAYLOAD), encoder[2])
    if changed_part(source) != changed_part(encoder[2]):
        raise OutputError(
            "the memory there was made with other settings of the encoder",
            where=out,
            expected=_readable(encoder[2]),
            found=_readable(source),
            hint=_HINT,
        )


def _readable(source: str) -> str:
    return ", ".join(f"{k}={v!r}" for k, v in parse_qsl(changed_part(source), True)) or "none"
