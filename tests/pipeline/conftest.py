"""A tiny world: generated corpora, a tokenizer trained on them, a random encoder. No downloads."""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

SUBJECTS = (
    "the New York mayor",
    "a red panda",
    "the steam engine",
    "natural selection",
    "our team",
)
VERBS = ("has changed", "was described by", "depends on", "is known for", "may explain")
OBJECTS = (
    "the United States government",
    "a large number of people",
    "high blood pressure",
    "the speed of light",
    "public health care",
    "machine learning methods",
)
ENDS = ("in recent years", "at the same time", "for the first time", "in the north of England")


def sentence(dice: random.Random) -> str:
    words = [dice.choice(part) for part in (SUBJECTS, VERBS, OBJECTS, ENDS)]
    words.insert(dice.randrange(4), f"item {dice.randrange(1000)}")
    text = " ".join(words)
    return text[0].upper() + text[1:] + "."


def documents(seed: int, count: int) -> list[dict[str, str]]:
    dice = random.Random(seed)
    return [
        {
            "id": f"{seed}-{number}",
            "title": f"Title {seed} {number}",
            "text": " ".join(sentence(dice) for _ in range(dice.randrange(3, 8))),
        }
        for number in range(count)
    ]


@dataclass(frozen=True)
class World:
    """Where the corpora, the tokenizer and the encoder are."""

    folder: Path
    model: Path
    encoder: Path

    def config(self, **changes: Any) -> dict[str, Any]:
        """Return a profile as plain data; keyword arguments replace its keys."""
        base: dict[str, Any] = {
            "model": str(self.model),
            "encoder": {"id": str(self.encoder), "batch_size": 8, "phrases_per_part": 128},
            "held_out": 0.1,
            "shard_bits": 2,
            "partition_chars": 8000,
            # The pages are shorter than web pages may be.
            "cleaning": {"quality": {"kinds": []}},
            "mining": {"min_count": 4, "max_phrases": 400},
            "corpora": [
                {
                    "name": "wiki",
                    "kind": "encyclopedia",
                    "source": "wiki.jsonl",
                    "title_field": "title",
                    "id_field": "id",
                    "licence": "CC0-1.0",
                    "redistributable": True,
                },
                {
                    "name": "papers",
                    "kind": "science",
                    "source": "papers-*.json",
                    "title_field": "title",
                    "licence": "unknown",
                },
                {
                    "name": "pages",
                    "kind": "web",
                    "source": "pages.zip",
                    "text_field": "body",
                    "licence": "unknown",
                },
            ],
        }
        return {**base, **changes}

    def write(self, name: str, **changes: Any) -> Path:
        """Write a configuration file beside the corpora."""
        path = self.folder / f"{name}.yaml"
        profile = self.config(**changes)
        path.write_text(yaml.safe_dump({"default_profile": "tiny", "profiles": {"tiny": profile}}))
        return path


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    texts = write_corpora(folder)
    save_tokenizer(folder / "model", texts)
    save_encoder(folder / "encoder")
    return World(folder, folder / "model", folder / "encoder")


def write_corpora(folder: Path) -> list[str]:
    wiki, papers, more, pages = (documents(seed, 40) for seed in range(4))
    (folder / "wiki.jsonl").write_text("".join(json.dumps(d) + "\n" for d in wiki))
    (folder / "papers-1.json").write_text(json.dumps(papers))
    (folder / "papers-2.json").write_text(json.dumps({d["id"]: d for d in more}))
    table = io.StringIO()
    rows = csv.writer(table)
    rows.writerow(["number", "body"])
    rows.writerows([number, page["text"]] for number, page in enumerate(pages))
    with zipfile.ZipFile(folder / "pages.zip", "w") as archive:
        archive.writestr("pages.csv", table.getvalue())
    return [document["text"] for part in (wiki, papers, more, pages) for document in part]


def save_tokenizer(folder: Path, texts: list[str], vocab_size: int = 420) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)


def save_encoder(folder: Path, seed: int = 0) -> None:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel, BertTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz0123456789'-."
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{x}" for x in letters)]
    words = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    words.normalizer = normalizers.BertNormalizer()
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    plain = folder.with_name(f"{folder.name}-plain")
    BertTokenizerFast(tokenizer_object=words).save_pretrained(plain)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
    )
    BertModel(config).save_pretrained(plain)
    transformer = Transformer(str(plain), max_seq_length=64)
    SentenceTransformer(modules=[transformer, Pooling(16)]).save(str(folder))


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., None]:
    return save_tokenizer


@pytest.fixture(scope="session")
def other_encoder(world: World) -> Path:
    folder = world.folder / "other-encoder"
    save_encoder(folder, seed=1)
    return folder


Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from phrasemem.cli import main; main()", *map(str, arguments)]


@pytest.fixture(scope="session")
def cli() -> Cli:
    """Run ``phrasemem`` as a user does."""

    def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments), capture_output=True, text=True, check=False, **options
        )

    return run


@pytest.fixture(scope="session")
def started() -> Callable[..., subprocess.Popen[bytes]]:
    """Start ``phrasemem`` in a process group of its own, so that all of it can be killed."""

    def start(*arguments: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command(*arguments),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    return start


@pytest.fixture(scope="session")
def contents() -> Callable[[Path], dict[str, bytes]]:
    return files_of


def files_of(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def same_files(left: Path, right: Path) -> list[str]:
    """Names of the files that differ; vectors and the records of the build aside."""
    aside = {"build.json", "manifest.json"}
    names = [
        {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()} - aside
        for root in (left, right)
    ]
    assert names[0] == names[1]
    kept = sorted(name for name in names[0] if "rows-" not in name)
    assert len(kept) > 8
    return [name for name in kept if (left / name).read_bytes() != (right / name).read_bytes()]


# Many small parts, so that every stage writes for a while.
SMALL_PARTS = {"partition_chars": 3000, "held_out": 0.1, "shard_bits": 4}


def small_parts(world: Any) -> dict[str, Any]:
    encoder = {**world.config()["encoder"], "batch_size": 2, "phrases_per_part": 8}
    return {**SMALL_PARTS, "encoder": encoder}


class Whole(NamedTuple):
    """A build that nobody stopped: its folder, and the bytes of its memory."""

    folder: Path
    files: dict[str, bytes]


@pytest.fixture(scope="session")
def whole(world: Any, tmp_path_factory: pytest.TempPathFactory, cli: Any, contents: Any) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    config = world.write("kill", **small_parts(world))
    done = cli(
        *("build", "--config", config, "--out", folder / "memory", "--work", folder / "work"),
        *("--workers", 0, "--no-calibrate"),
    )
    assert done.returncode == 0, done.stderr
    return Whole(folder, contents(folder / "memory"))
