"""The plan of a build: every stage's fingerprint, known before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unicodedata import unidata_version

from phrasemem import artifacts
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline import near_duplicates
from phrasemem.pipeline.config import CHOOSING, BuildConfig
from phrasemem.pipeline.earlier import Earlier
from phrasemem.pipeline.encoder_options import EncoderOptions, resolve_compute, resolve_device
from phrasemem.pipeline.evaluation import evaluation_files
from phrasemem.pipeline.sources import Piece
from phrasemem.pipeline.stage import Stage

_TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
_FOLDER_FILES = ("config.json", "modules.json", "tokenizer.json", "tokenizer_config.json")
# Phrases in a batch: what a core's cache holds, and what keeps a card busy.
BATCH_SIZES = {"cpu": 256, "cuda": 4096}
_LOOKS_LIKE_A_PATH = ("/", "./", "../", "~")
_READ_FIELDS = {
    "format", "text_field", "title_field", "id_field", "config", "split", "revision", "partitions"
}  # fmt: skip

# Settings by which the input is cut into tasks.
_CUTTING = {"partition_chars", "split_bytes"}


class PlanError(PhraseMemError):
    """A model or encoder that is not where the configuration says."""


@dataclass(frozen=True)
class Plan:
    """The stages in order; ``pack`` depends on all others."""

    earlier: Stage
    read: Stage
    lines: Stage
    repeated: Stage
    evaluation: Stage
    clean: Stage
    select: Stage
    tokenize: Stage
    hashes: Stage
    unigrams: Stage
    survivors: Stage
    counts: Stage
    store: Stage
    candidates: Stage
    targets: Stage
    neighbours: Stage
    entropies: Stage
    score: Stage
    embed: Stage
    layout: Stage
    pack: Stage

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the memory as a whole.

        How the input was cut into tasks is left out: what stands in the work folder depends on
        it, the memory does not.
        """
        whole: dict[str, str] = {}
        for stage in self.stages():
            known = {name: whole.get(found, found) for name, found in stage.inputs.items()}
            settings = {k: v for k, v in stage.settings.items() if k not in _CUTTING}
            content = Stage(stage.name, stage.version, settings, known)
            whole[stage.fingerprint] = content.fingerprint
        return whole[self.pack.fingerprint]

    def stages(self) -> list[Stage]:
        """All stages in order."""
        return [getattr(self, field.name) for field in fields(self)]


def make_plan(config: BuildConfig, pieces: Sequence[Piece], earlier: Earlier | None = None) -> Plan:
    """Work out what every stage depends on. Imports neither torch nor dask.

    Stages from ``select`` on depend on the memory that is extended, if one is.
    """
    corpora = config.corpora
    mining = config.mining
    names = [corpus.name for corpus in corpora]
    kinds = [corpus.kind for corpus in corpora]
    model = {"model": tokenizer_identity(config.model)}

    read = Stage(
        "read", 2,
        {
            "corpora": [_reading(config, index) for index in range(len(corpora))],
            "partition_chars": config.partition_chars,
            "split_bytes": config.reading.split_bytes,
            "max_record_bytes": config.reading.max_record_bytes,
            "libraries": _versions(
                "FastWARC", "lxml", "mwparserfromhell", "mwxml", "Resiliparse", "warcio"
            ),
        },
        {f"{corpora[piece.corpus].name}/{piece.name}": piece.identity for piece in pieces},
    )  # fmt: skip
    lines, repeated, evaluation, clean = _cleaning_stages(config, read)
    held_out = [config.held_out_share(corpus) for corpus in corpora]
    start = {} if earlier is None else {"earlier": earlier.identity}
    everything = {"all": True} if mining.keep_counts or earlier is not None else {}
    if everything and config.folding_model is not None:
        # A folded n-gram's text is that of where it first occurred, which no store keeps.
        raise PlanError(
            "counts of folded keys cannot be kept or extended",
            where="key_normalisation",
            expected="exact",
            found=config.key_normalisation,
        )
    known = Stage("earlier", 2, {"n_max": mining.n_max}, start)
    listed: dict[str, Any] = {"names": names, **everything} if everything else {}
    near = {} if config.cleaning.near_duplicates.threshold is None else _versions("scipy")
    listed["near_duplicates"] = config.cleaning.near_duplicates.threshold
    select = Stage(
        "select", 3,
        {"held_out": held_out, "kinds": kinds, **listed, "libraries": near},
        _inputs(clean) | start,
    )  # fmt: skip
    tokenize = Stage(
        "tokenize", 1,
        {
            "names": names,
            "kinds": kinds,
            **model,
            "libraries": _versions("gigatoken", "tokenizers"),
        },
        _inputs(clean, select),
    )  # fmt: skip
    hashes = Stage("hashes", 4, {"n_max": mining.n_max, **_folding(config)}, _inputs(tokenize))
    unigrams = Stage("unigrams", 1, {}, _inputs(hashes))
    survivors = Stage("survivors", 1, {"min_count": mining.min_count}, _inputs(hashes))
    limits = {"min_documents": mining.min_documents}
    if everything:
        counts = Stage("counts", 3, {"n_max": mining.n_max, **everything}, _inputs(tokenize))
        limits["min_count"] = mining.min_count
    else:
        counts = Stage("counts", 3, {}, _inputs(tokenize, survivors))
    store = Stage("store", 1, {}, _inputs(counts))
    candidates = Stage("candidates", 2, limits, _inputs(counts))
    targets = Stage("targets", 1, {}, _inputs(candidates))
    neighbours = Stage("neighbours", 2, {}, _inputs(tokenize, targets))
    entropies = Stage("entropies", 1, {}, _inputs(candidates, neighbours))
    score = Stage(
        "score", 4,
        {
            "names": names,
            **mining.model_dump(include=CHOOSING),
            **_byte_budget(config),
            "kinds": [*(earlier.kinds if earlier is not None else ()), *kinds],
            "phrase_shares": [
                *(earlier.shares if earlier is not None else ()),
                *(corpus.budget.phrase_share for corpus in corpora),
            ],
            "libraries": _versions("duckdb", "scikit-learn"),
        },
        # The text around the phrases of an earlier memory is not at hand.
        _inputs(unigrams, candidates if everything else entropies),
    )  # fmt: skip
    encoder = encoder_options(config)
    embed = Stage(
        "embed", 2,
        {
            "encoder": encoder_identity(encoder.id, encoder.tokenizer),
            "how": encoder.how,
            "device": encoder.device,
            "batch_size": config.encoder.batch_size or BATCH_SIZES[encoder.device],
            "phrases_per_part": config.encoder.phrases_per_part,
            "libraries": _versions("sentence-transformers", "tokenizers", "torch", "transformers"),
        },
        _inputs(score),
    )  # fmt: skip
    layout = Stage(
        "layout", 2, {"seed": config.seed, "shard_bits": config.shard_bits}, _inputs(score)
    )
    pack = Stage(
        "pack", 3,
        {
            "corpora": [_described(config, index) for index in range(len(corpora))],
            "encoder_id": config.encoder.id,
            "model_name": config.model,
        },
        _inputs(layout, embed, tokenize),
    )  # fmt: skip
    return Plan(
        known, read, lines, repeated, evaluation, clean, select, tokenize, hashes, unigrams,
        survivors, counts, store, candidates, targets, neighbours, entropies, score, embed,
        layout, pack,
    )  # fmt: skip


def _cleaning_stages(config: BuildConfig, read: Stage) -> tuple[Stage, Stage, Stage, Stage]:
    """Plan what is counted before cleaning, and cleaning itself."""
    cleaning = config.cleaning
    boilerplate = cleaning.boilerplate.model_dump() if cleaning.boilerplate else None
    unicode = {"unicode": unidata_version}
    lines = Stage("lines", 1, {"boilerplate": boilerplate, **unicode}, _inputs(read))
    repeated = Stage("repeated", 1, {"boilerplate": boilerplate}, _inputs(lines))
    files = evaluation_files(cleaning.decontaminate)
    evaluation = Stage(
        "evaluation", 1,
        {"ngram": cleaning.ngram, **unicode} if files else {},
        {f"file {number}": digest for number, digest in enumerate(sorted(set(files.values())))},
    )  # fmt: skip
    own = cleaning.model_dump(exclude={"decontaminate", "near_duplicates"})
    near = near_duplicates.algorithm() if cleaning.near_duplicates.threshold is not None else {}
    clean = Stage(
        "clean", 2,
        {
            "cleaning": own,
            "corpora": [
                {"language": c.language, "repairs": c.repairs, "kind": c.kind}
                for c in config.corpora
            ],
            "near_duplicates": {"threshold": cleaning.near_duplicates.threshold, **near},
            "libraries": _versions("ftfy", "phonenumbers", "Resiliparse"),
            **unicode,
        },
        _inputs(read, repeated, evaluation),
    )  # fmt: skip
    return lines, repeated, evaluation, clean


def encoder_options(config: BuildConfig) -> EncoderOptions:
    """Return the encoder with its device and number format decided."""
    encoder = config.encoder
    # Adding up a few vectors is not worth the way to a card, nor is it helped by a shorter format.
    static, int8 = encoder.kind == "static", encoder.compute == "int8"
    device = resolve_device(
        "cpu" if encoder.device == "auto" and (static or int8) else encoder.device
    )
    auto = "float32" if static else "auto"
    return EncoderOptions(
        id=encoder.id,
        compute=resolve_compute(auto if encoder.compute == "auto" else encoder.compute, device),
        kind=encoder.kind,
        tokenizer=encoder.tokenizer,
        prompt=encoder.prompt,
        prompt_name=encoder.prompt_name,
        dims=encoder.dims,
        normalize=encoder.normalize,
        max_tokens=encoder.max_tokens,
        device=device,
    )


def _inputs(*stages: Stage) -> dict[str, str]:
    return {stage.name: stage.fingerprint for stage in stages}


def _byte_budget(config: BuildConfig) -> dict[str, Any]:
    """Return what a budget of bytes depends on: how many phrases it holds is the encoder's."""
    if config.mining.max_bytes is None:
        return {}
    encoder = config.encoder
    return {
        "max_bytes": config.mining.max_bytes,
        "encoder": encoder_identity(encoder.id, encoder.tokenizer),
        "dims": encoder.dims,
        "n_max": config.mining.n_max,
    }


def _folding(config: BuildConfig) -> dict[str, Any]:
    """Return what folded keys depend on besides the tokenizer; nothing where keys are exact."""
    if config.folding_model is None:
        return {}
    return {"key_normalisation": config.key_normalisation, "libraries": _versions("tokenizers")}


def _reading(config: BuildConfig, index: int) -> dict[str, Any]:
    corpus = config.corpora[index]
    limits = {"max_documents", "max_bytes"}
    return {
        **corpus.model_dump(include=_READ_FIELDS),
        **corpus.budget.model_dump(include=limits),
    }


def _described(config: BuildConfig, index: int) -> dict[str, Any]:
    shown = {"name", "kind", "licence", "redistributable", "source"}
    return config.corpora[index].model_dump(include=shown)


def _versions(*packages: str) -> dict[str, str]:
    return {package: version(package) for package in packages}


def tokenizer_identity(reference: str) -> str:
    """Name what decides the token ids of a model: checksums where it is local."""
    return _identity(reference, _TOKENIZER_FILES)


def encoder_identity(reference: str, tokenizer: str | None = None) -> str:
    """Name what decides the vectors of an encoder: a checksum where it is local."""
    found = _identity(reference, None)
    return found if tokenizer is None else f"{found},tokenizer:{_identity(tokenizer, None)}"


def _identity(reference: str, names: Sequence[str] | None) -> str:
    if artifacts.is_reference(reference):
        member = artifacts.WheelMember.parse(reference)
        if member.sha256 is not None:
            return f"sha256:{member.sha256}"
    local = artifacts.fetch(reference) if artifacts.is_reference(reference) else Path(reference)
    if local.is_file():
        return f"sha256:{artifacts.sha256_of(local)}"
    if local.is_dir():
        return _folder_identity(local, names)
    if reference.startswith(_LOOKS_LIKE_A_PATH):
        raise PlanError("no such model or encoder", where=reference)
    return f"hub:{reference}"


def _folder_identity(folder: Path, names: Sequence[str] | None) -> str:
    """Name a folder by all of its files, or by those of ``names`` that it has."""
    if not any((folder / name).is_file() for name in _FOLDER_FILES):
        raise PlanError("this folder holds no model or encoder", where=folder)
    if names is None:
        return f"sha256:{artifacts.folder_sha256(folder)}"
    present = [name for name in names if (folder / name).is_file()]
    return ",".join(f"{name}:{artifacts.sha256_of(folder / name)}" for name in present)
