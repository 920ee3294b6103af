"""What to build: ``corpora.yaml`` as strict models. An unknown key names the nearest known one."""

from __future__ import annotations

import difflib
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from phrasemem.memfmt.errors import PhraseMemError

Kind = Literal["web", "encyclopedia", "science"]
Format = Literal[
    "auto",
    "arc",
    "arrow",
    "arxiv-jsonl",
    "csv-zip",
    "hf-dataset",
    "html",
    "jats-xml",
    "json",
    "jsonl",
    "mediawiki-xml",
    "parquet",
    "pubmed-xml",
    "s2orc-jsonl",
    "text",
    "warc",
]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class ConfigError(PhraseMemError):
    """A configuration that cannot be read or breaks the schema."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Budget(_Strict):
    """How much of a corpus is read, and how many of the phrases are its own.

    ``phrase_share`` of the phrases go first to the best ones at home in this corpus; without it
    the share follows the tokens. What a corpus cannot fill goes to the best of all. The document
    and byte limits are shared evenly over the files of the corpus, so that the same documents
    are read whatever the order in which the files are.
    """

    max_documents: Annotated[int, Field(gt=0)] | None = None
    max_bytes: Annotated[int, Field(gt=0)] | None = None
    phrase_share: Share | None = None


class Corpus(_Strict):
    """One source of text. Field by field: docs/corpora.md."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    kind: Kind
    source: str | list[str]
    sha256: str | list[str] | None = None
    format: Format = "auto"
    text_field: str = "text"
    title_field: str | None = None
    id_field: str | None = None
    licence: Annotated[str, Field(min_length=1)]
    redistributable: bool = False
    language: str | None = "en"
    repairs: list[Literal["lost-quotes"]] = []
    budget: Budget = Budget()
    held_out: Share | None = None
    # Only for ``hf:`` sources.
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    partitions: Annotated[int, Field(gt=0)] = 16

    @property
    def sources(self) -> list[str]:
        """The sources, always as a list."""
        return [self.source] if isinstance(self.source, str) else self.source

    @property
    def checksums(self) -> list[str | None]:
        """One expected SHA-256 a source, or None where none is given."""
        if self.sha256 is None:
            return [None] * len(self.sources)
        return [self.sha256] if isinstance(self.sha256, str) else list(self.sha256)

    @model_validator(mode="after")
    def _one_checksum_a_source(self) -> Corpus:
        if not self.sources:
            raise ValueError("source is empty")
        if len(self.checksums) != len(self.sources):
            raise ValueError(f"{len(self.sources)} sources, but {len(self.checksums)} sha256")
        return self


class Reading(_Strict):
    """How files are read. ``split_bytes`` never changes what the memory holds."""

    # A longer line or record is left out: bounds the memory of a reader.
    max_record_bytes: Annotated[int, Field(ge=1 << 10)] = 1 << 26
    # A larger file is read by several tasks, where its format allows it.
    split_bytes: Annotated[int, Field(gt=0)] = 1 << 26


class Boilerplate(_Strict):
    """What is removed because many documents of a corpus hold it. See docs/cleaning.md."""

    # A line, sentence or span is boilerplate in this many documents, and this share of them.
    min_documents: Annotated[int, Field(ge=2)] = 10
    min_share: Share = 0.001
    # Runs of so many words count wherever they stand; null: only whole lines and sentences do.
    span_words: Annotated[int, Field(ge=7)] | None = 10
    sentence_words: Annotated[int, Field(ge=1)] = 5
    # A document that would lose more of its words than this is a copy, not a template's.
    max_removed: Share = 0.5
    # Documents of a corpus, chosen by content, in which repeats are counted.
    sample: Annotated[int, Field(gt=0)] = 200_000


class NearDuplicates(_Strict):
    """Documents that share most of their words: the longest of each group stays."""

    # Jaccard similarity of the sets of 5-grams of words; null: near duplicates are kept.
    threshold: Annotated[float, Field(ge=0.5, lt=1.0)] | None = 0.8


class Quality(_Strict):
    """Thresholds of the rules for text that looks like no prose; pipeline/quality.py."""

    kinds: list[Kind] = ["web"]
    min_words: Annotated[int, Field(ge=0)] = 50
    max_words: Annotated[int, Field(gt=0)] = 100_000
    min_mean_word: Annotated[float, Field(ge=0)] = 3.0
    max_mean_word: Annotated[float, Field(gt=0)] = 10.0
    min_alphabetic: Share = 0.8
    max_symbols: Annotated[float, Field(ge=0)] = 0.1
    max_braces: Annotated[float, Field(ge=0)] = 0.01
    max_bullets: Share = 0.9
    max_ellipses: Share = 0.3
    max_repeated_lines: Share = 0.3
    max_repeated_grams: Share = 0.15
    min_stop_words: Annotated[int, Field(ge=0)] = 2


class Cleaning(_Strict):
    """Which documents are kept, and what of them. Field by field: docs/cleaning.md."""

    min_chars: Annotated[int, Field(ge=0)] = 100
    # The rank by which another language must beat the wanted one; see clean.LANGUAGE_MARGIN.
    language_margin: Annotated[int, Field(ge=0)] = 60
    # Paragraphs at least so long are judged by themselves, and foreign ones dropped; null: none.
    paragraph_chars: Annotated[int, Field(ge=100)] | None = 300
    boilerplate: Boilerplate | None = Boilerplate()
    near_duplicates: NearDuplicates = NearDuplicates()
    quality: Quality = Quality()
    mask: list[Literal["email", "phone"]] = ["email", "phone"]
    phone_regions: list[Annotated[str, Field(pattern=r"^[A-Z]{2}$")]] = ["US", "GB"]
    # Evaluation files: documents that share an n-gram of ``ngram`` words with one are dropped.
    decontaminate: list[str] = []
    ngram: Annotated[int, Field(ge=5)] = 13


class Mining(_Strict):
    """Which n-grams become phrases."""

    n_max: Annotated[int, Field(ge=2, le=8)] = 6
    min_count: Annotated[int, Field(ge=1)] = 4
    min_documents: Annotated[int, Field(ge=1)] = 2
    max_phrases: Annotated[int, Field(gt=0)] = 300_000
    # 1 adds rows for single tokens, 0 also for the root; ``max_phrases`` does not count them.
    shortest: Literal[0, 1, 2] = 2
    stop_words: Literal["english"] | None = "english"
    # How phrases are ranked and what is left out: docs/mining.md.
    score: Literal["keyphrase", "collocation"] = "keyphrase"
    allow_function_runs: bool = False
    nested_share: Annotated[float, Field(gt=0, le=1)] | None = None
    kind_shares: dict[Kind, Share] = {}
    max_bytes: Annotated[int, Field(gt=0)] | None = None
    # Keep a count store beside the memory, so that corpora can be added exactly.
    keep_counts: bool = False


# All that decides which candidates make the catalogue.
CHOOSING = {
    "allow_function_runs",
    "kind_shares",
    "max_phrases",
    "nested_share",
    "score",
    "shortest",
    "stop_words",
}


class Encoder(_Strict):
    """The external sentence encoder of the ``semantic`` payload."""

    id: str
    # None: 256, and 4096 on CUDA.
    batch_size: Annotated[int, Field(gt=0)] | None = None
    compute: Literal["auto", "bfloat16", "float16", "float32", "int8"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dims: Annotated[int, Field(gt=0)] | None = None
    kind: Literal["auto", "transformer", "static"] = "auto"
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    normalize: bool = True
    phrases_per_part: Annotated[int, Field(gt=0)] = 8192
    prompt: str | None = None
    prompt_name: str | None = None
    tokenizer: str | None = None
    trust_remote_code: Literal[False] = False

    @model_validator(mode="after")
    def _one_prompt(self) -> Encoder:
        if self.prompt is not None and self.prompt_name is not None:
            raise ValueError("give prompt or prompt_name, not both")
        return self


class BuildConfig(_Strict):
    """Everything that a memory depends on."""

    model: str
    encoder: Encoder
    corpora: Annotated[list[Corpus], Field(min_length=1)]
    held_out: Share = 0.02
    # Below 2**64, which is the end of what a hash can be seeded with, by the seeds that are tried.
    seed: Annotated[int, Field(ge=0, le=1 << 63)] = 0
    reading: Reading = Reading()
    cleaning: Cleaning = Cleaning()
    mining: Mining = Mining()
    # engram-1: spellings of a token that differ in case, accents or spaces are one in keys.
    key_normalisation: Literal["exact", "engram-1"] = "exact"
    # The memory has 2**shard_bits shards; by default as many as its entries ask for.
    shard_bits: Annotated[int, Field(ge=0, le=12)] | None = None
    # About this many characters of text make one partition; bounds the memory of a worker.
    partition_chars: Annotated[int, Field(gt=0)] = 4_000_000

    @model_validator(mode="after")
    def _names_differ(self) -> BuildConfig:
        names = [corpus.name for corpus in self.corpora]
        if len(set(names)) != len(names):
            raise ValueError("two corpora have the same name")
        if sum(corpus.budget.phrase_share or 0 for corpus in self.corpora) > 1:
            raise ValueError("the phrase shares sum to more than 1")
        self._check_kind_shares()
        return self

    def _check_kind_shares(self) -> None:
        wanted = self.mining.kind_shares
        named = dict.fromkeys(wanted, 0.0)
        others = 0.0
        for corpus in self.corpora:
            share = corpus.budget.phrase_share or 0.0
            if corpus.kind in named:
                named[corpus.kind] += share
            else:
                others += share
        for kind, share in wanted.items():
            if named[kind] > share:
                raise ValueError(f"the phrase shares of {kind} corpora exceed its kind's share")
        if sum(wanted.values()) + others > 1:
            raise ValueError("the shares of kinds and corpora sum to more than 1")

    @property
    def folding_model(self) -> str | None:
        """The model whose tokenizer's ids are folded in keys, or None where keys are exact."""
        return None if self.key_normalisation == "exact" else self.model

    def held_out_share(self, corpus: Corpus) -> float:
        """Return the share of a corpus' documents that is never mined."""
        return self.held_out if corpus.held_out is None else corpus.held_out


class _File(_Strict):
    default_profile: str
    profiles: Annotated[dict[str, BuildConfig], Field(min_length=1)]


def load_config(
    path: Path, profile: str | None = None, *, model: str | None = None, encoder: str | None = None
) -> BuildConfig:
    """Read one profile of a configuration file.

    Parameters
    ----------
    path : Path
        A YAML file with ``default_profile`` and ``profiles``.
    profile : str, optional
        Which profile; the file's default if not given.
    model, encoder : str, optional
        References that replace the profile's own.

    Raises
    ------
    ConfigError
        If the file is missing, is no YAML, breaks the schema or lacks the profile.
    """
    data = _parse(path)
    try:
        file = _File.model_validate(data)
    except ValidationError as error:
        raise _explain(error, _File, path) from error
    name = profile or file.default_profile
    if name not in file.profiles:
        raise ConfigError(
            f"no profile {name!r}",
            where=path,
            expected=f"one of {', '.join(file.profiles)}",
            found=name,
        )
    chosen = file.profiles[name]
    chosen = _beside(chosen, path)
    if model is not None:
        chosen = chosen.model_copy(update={"model": model})
    if encoder is not None:
        chosen = chosen.model_copy(
            update={"encoder": chosen.encoder.model_copy(update={"id": encoder})}
        )
    return chosen


def _beside(config: BuildConfig, path: Path) -> BuildConfig:
    """Let the evaluation files start, like sources, from the folder of the configuration."""
    folder = path.absolute().parent
    files = [str(folder / file) for file in config.cleaning.decontaminate]
    cleaning = config.cleaning.model_copy(update={"decontaminate": files})
    return config.model_copy(update={"cleaning": cleaning})


def _parse(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError("no such configuration file", where=path) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"not a YAML file: {error}", where=path) from error
    except RecursionError as error:
        raise ConfigError("the configuration nests too deep", where=path) from error


def _explain(error: ValidationError, model: type[BaseModel], path: Path) -> ConfigError:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the top level"
    where = f"{path} at {place}"
    if first["type"] == "extra_forbidden":
        return _unknown_key(first, model, where)
    if first["type"] == "missing":
        return ConfigError(f"{first['loc'][-1]!r} is missing", where=where)
    message = first["msg"].removeprefix("Value error, ")
    return ConfigError(f"{message[:1].lower()}{message[1:]}", where=where)


def _unknown_key(first: ErrorDetails, model: type[BaseModel], where: str) -> ConfigError:
    key = str(first["loc"][-1])
    known = sorted(_known_keys(model, first["loc"][:-1]))
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
    return ConfigError(f"unknown key {key!r}", where=where, hint=hint)


def _known_keys(model: type[BaseModel], place: tuple[int | str, ...]) -> set[str]:
    current: Any = model
    for part in place:
        if isinstance(current, type) and issubclass(current, BaseModel):
            current = current.model_fields[str(part)].annotation
        else:
            current = typing.get_args(current)[-1]
        current = _model_in(current)
    return set(current.model_fields)


def _model_in(annotation: Any) -> Any:
    """Strip Annotated and Optional, but keep containers for the next step."""
    if typing.get_origin(annotation) is Annotated:
        return _model_in(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return _model_in(next(a for a in typing.get_args(annotation) if a is not type(None)))
    return annotation
