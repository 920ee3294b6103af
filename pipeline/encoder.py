"""Loads an encoder as :class:`EncoderOptions` says, once a process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from phrasemem import artifacts
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.encoder_options import EncoderOptions

_WEIGHTS = "embedding.weight"


class EncoderError(PhraseMemError):
    """An encoder that cannot be loaded, or not be used as the configuration says."""


@dataclass(frozen=True)
class Encoder:
    """A loaded encoder.

    Parameters
    ----------
    model : SentenceTransformer
    prompt : str or None
        Put before each text.
    options : EncoderOptions
    """

    model: Any
    prompt: str | None
    options: EncoderOptions


@lru_cache(maxsize=2)
def load_encoder(options: EncoderOptions) -> Encoder:
    """Load an encoder; the process has one thread for it from then on, since workers are many.

    Raises
    ------
    EncoderError
        If it cannot be loaded, is of another kind, has no such prompt or too few dimensions, or
        the device is not there.
    """
    import torch

    torch.set_num_threads(1)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise EncoderError(
            "torch finds no CUDA device in this worker",
            expected="encoder.device: cuda",
            found=f"torch {torch.__version__}",
            hint="set encoder.device: cpu, or install a torch built for CUDA on every worker",
        )
    model = _model(options)
    _check_kind(model, options)
    _check_dims(model, options)
    _limit_tokens(model, options)
    if options.compute == "int8":
        model = _in_int8(model, options)
    if is_static(model):
        model = model.float()
    return Encoder(model.eval(), _prompt(model, options), options)


def _model(options: EncoderOptions) -> Any:
    source = str(_local(options.id))
    try:
        if Path(source).is_file():
            return _from_weights(Path(source), options)
        return _sentence_transformer(source, options)
    except (OSError, ValueError, KeyError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise EncoderError(f"cannot load the encoder {options.id}: {first}") from error


def _local(reference: str) -> str | Path:
    return artifacts.fetch(reference) if artifacts.is_reference(reference) else reference


def _sentence_transformer(source: str, options: EncoderOptions) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    folder = Path(source)
    if options.kind == "static" and folder.is_dir() and not (folder / "modules.json").exists():
        # model2vec's own layout: no list of modules, the weights and a tokenizer.
        return SentenceTransformer(modules=[StaticEmbedding.load(source)], device=options.device)
    kind = "float32" if options.compute == "int8" else options.compute
    return SentenceTransformer(
        source,
        device=options.device,
        trust_remote_code=False,
        local_files_only=folder.is_dir(),
        model_kwargs={"dtype": getattr(torch, kind)},
    )


def _from_weights(path: Path, options: EncoderOptions) -> Any:
    """Make a static encoder of one safetensors file and a ``tokenizer.json``, as WordLlama has."""
    from safetensors import safe_open
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    if options.tokenizer is None:
        raise EncoderError(
            "a static encoder that is one file needs a tokenizer",
            where=options.id,
            hint="set encoder.tokenizer to its tokenizer.json",
        )
    with safe_open(path, framework="pt") as file:
        if _WEIGHTS not in (names := list(file.keys())):
            raise EncoderError(
                "not the weights of a static encoder",
                where=options.id,
                expected=_WEIGHTS,
                found=", ".join(names[:5]),
            )
        weights = file.get_tensor(_WEIGHTS).float()
    tokenizer = Tokenizer.from_file(str(_local(options.tokenizer)))
    if (size := tokenizer.get_vocab_size()) > len(weights):
        raise EncoderError(
            "the tokenizer has ids for which the encoder has no row",
            where=options.tokenizer,
            expected=len(weights),
            found=size,
        )
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, weights)], device=options.device)


def is_static(model: Any) -> bool:
    """Tell whether vectors are means of one fixed vector a token."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    return isinstance(model[0], StaticEmbedding)


def _check_kind(model: Any, options: EncoderOptions) -> None:
    found = "static" if is_static(model) else "transformer"
    if options.kind not in ("auto", found):
        raise EncoderError(
            "the encoder is of another kind",
            where=options.id,
            expected=options.kind,
            found=found,
            hint=f"set encoder.kind: {found}, or auto",
        )
    if found == "static" and options.compute == "int8":
        raise EncoderError("a static encoder has nothing to compute in int8", where=options.id)


def _check_dims(model: Any, options: EncoderOptions) -> None:
    there = model.get_embedding_dimension()
    if options.dims is not None and there is not None and options.dims > there:
        raise EncoderError(
            "the encoder has fewer dimensions",
            where=options.id,
            expected=f"at most {there}",
            found=f"encoder.dims: {options.dims}",
        )


def _limit_tokens(model: Any, options: EncoderOptions) -> None:
    if options.max_tokens is None:
        return
    if is_static(model):
        model[0].tokenizer.enable_truncation(options.max_tokens)
        return
    if model.max_seq_length is not None and options.max_tokens > model.max_seq_length:
        raise EncoderError(
            "the encoder takes fewer tokens",
            where=options.id,
            expected=f"at most {model.max_seq_length}",
            found=f"encoder.max_tokens: {options.max_tokens}",
        )
    model.max_seq_length = options.max_tokens


def _prompt(model: Any, options: EncoderOptions) -> str | None:
    """Return the prompt as ``SentenceTransformer.encode`` chooses it."""
    if options.prompt is not None:
        return options.prompt
    name = options.prompt_name or model.default_prompt_name
    if name is None:
        return None
    if name not in model.prompts:
        raise EncoderError(
            f"the encoder has no prompt {name!r}",
            where=options.id,
            expected=f"one of {', '.join(model.prompts) or 'none'}",
            found=name,
        )
    return str(model.prompts[name])


def _in_int8(model: Any, options: EncoderOptions) -> Any:
    """Quantise the linear layers: weights a channel, activations a batch."""
    import torch

    try:
        from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic
    except ImportError as error:  # announced to leave torch
        raise EncoderError("this torch cannot compute in int8", found=torch.__version__) from error
    if options.device != "cpu":
        raise EncoderError("int8 is for the CPU", hint="set encoder.compute: float16 on CUDA")
    return quantize_dynamic(model, {torch.nn.Linear: per_channel_dynamic_qconfig})


def reference_of(encoder: Encoder) -> Encoder:
    """Load the float32 form of an encoder, to measure another against."""
    return load_encoder(replace(encoder.options, compute="float32"))
