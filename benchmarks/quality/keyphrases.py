"""Human keyphrases among the best phrases of a collection, beside gensim and plain frequency.

    python -m benchmarks.quality.keyphrases [--data FOLDER] [--collection NAME]

Each collection of SemEval-2017 and 500N-KPCrowd is mined as a corpus. Its gold keyphrases of two
words or more that stand in their document, lower-cased, are looked for among the best N phrases
of each system: all get the same text, as it is and lower-cased, and count what occurs twice or
more. gensim's Phrases run with both scorers, one to three passes, with and without connector
words, over sentences and over runs between marks; of these, and of the frequency lists with and
without stop words at the edges, the best at each N is the rival. Gold keys of every second
document were for development, those of the others are the test; ``collocation`` is the project's
other formula. Beside each pair stands a 95% interval of the difference, over documents.

Candidates here have up to eight tokens, since rivals see six words; what breaks a rule comes last.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from benchmarks._harness import OUT, Result, machine, report
from benchmarks.quality._bootstrap import difference_interval
from phrasemem.pipeline.token_words import STOP_WORDS

COLLECTIONS = ("SemEval2017", "500N-KPCrowd-v1.1")
BUDGETS = (1000, 2000, 5000, 10_000)
MIN_COUNT = 2
LONGEST = 6
TOKENS = 8
EDGES = {
    "stop words kept": frozenset[str](),
    "stop words not at edges": ENGLISH_STOP_WORDS,
    "our stop words not at edges": STOP_WORDS,
}

# Rivals get all of the text, so that no document and no line may be cleaned away here.
_UNTOUCHED = {
    "min_chars": 0,
    "paragraph_chars": None,
    "boilerplate": None,
    "near_duplicates": {"threshold": None},
    "quality": {"kinds": []},
    "mask": [],
}

_ROOT = Path(__file__).resolve().parents[2]
_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|\n+")
_MARK = re.compile(r"[^\w\s'\u2019-]+|\n+|\s-+\s")


@dataclass(frozen=True)
class Collection:
    """Texts of documents, and the gold keyphrases of each document of either half."""

    name: str
    texts: list[str]
    gold: dict[str, list[set[str]]]

    def lower(self) -> Collection:
        """Return the same with lower-cased texts."""
        return replace(self, texts=[text.lower() for text in self.texts])


def read_collection(path: Path) -> Collection:
    """Read a zip file of ``docsutf8`` and ``keys``."""
    gold: dict[str, list[set[str]]] = {"dev": [], "test": []}
    texts = []
    with zipfile.ZipFile(path) as archive:
        names = sorted(n for n in archive.namelist() if "/docsutf8/" in n and n.endswith(".txt"))
        for number, name in enumerate(names):
            texts.append(archive.read(name).decode(errors="replace"))
            keys = archive.read(name.replace("docsutf8", "keys")[:-3] + "key")
            half = gold["test" if number % 2 else "dev"]
            half.append(set(_present(keys.decode(errors="replace").splitlines(), texts[-1])))
    # A text that stands there twice is mined once; rivals would count it twice.
    return Collection(path.stem, list(dict.fromkeys(texts)), gold)


def _present(keys: list[str], text: str) -> Iterator[str]:
    document = normal(text)
    for key in map(normal, keys):
        pattern = rf"(?<!\w){re.escape(key)}(?!\w)"
        if len(key.split()) > 1 and re.search(pattern, document):
            yield key


def normal(text: str) -> str:
    """Lower-case, one space between words."""
    return " ".join(text.lower().split())


def found(ranked: list[str], gold: set[str], budget: int) -> set[str]:
    """Return the gold phrases among the first of a list."""
    return gold.intersection(map(normal, ranked[:budget]))


def mined(collection: Collection, folder: Path) -> tuple[list[str], list[str]]:
    """Rank all candidates by ``keyphrase`` and by ``collocation``; what breaks a rule is last."""
    import duckdb

    from phrasemem.pipeline.config import BuildConfig, load_config
    from phrasemem.pipeline.mine import mine, quiet

    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"text": text}) for text in collection.texts]
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n")
    demo = load_config(_ROOT / "corpora.yaml", "demo")
    config = BuildConfig.model_validate(
        {
            "model": demo.model,
            "encoder": {"id": demo.encoder.id},
            "held_out": 0.0,
            "cleaning": _UNTOUCHED,
            "mining": {"min_count": MIN_COUNT, "min_documents": 1, "n_max": TOKENS},
            "corpora": [
                {
                    "name": "texts",
                    "kind": "web",
                    "source": "texts.jsonl",
                    "language": None,
                    "licence": "unknown",
                }
            ],
        }
    )
    scored = mine(config, quiet(folder / "work", 0), folder).scored
    spread = "ln(1 + documents) / ln(1 + count)"
    other = f"greatest(npmi, 0) * log2(1 + greatest(cvalue, 0)) * {spread}"
    first, second = (
        duckdb.sql(
            f"SELECT text FROM read_parquet('{scored}') "
            f"ORDER BY (place IS NOT NULL) DESC, {formula} DESC, row LIMIT {max(BUDGETS)}"
        ).fetchall()
        for formula in ("score", other)
    )
    return [row[0] for row in first], [row[0] for row in second]


def word_runs(collection: Collection, between: re.Pattern[str]) -> list[list[str]]:
    """Return the words of each run between matches."""
    runs = (_WORD.findall(run) for text in collection.texts for run in between.split(text))
    return [run for run in runs if run]


def frequent(runs: list[list[str]], not_at_edges: frozenset[str]) -> list[str]:
    """Return the n-grams of 2..6 words, most frequent first."""
    counts = Counter(
        tuple(run[start : start + length])
        for run in runs
        for length in range(2, LONGEST + 1)
        for start in range(len(run) - length + 1)
    )
    kept = [
        (-count, words)
        for words, count in counts.items()
        if count >= MIN_COUNT and not {words[0].lower(), words[-1].lower()} & not_at_edges
    ]
    return [" ".join(words) for _, words in sorted(kept)]


def gensim_phrases(runs: list[list[str]], scoring: str, *, connectors: bool) -> Iterator[list[str]]:
    """Yield what one, two and three passes of gensim's Phrases find, by their scores.

    Every pair is listed; a pass hands on those above gensim's default threshold (10; 0.5 for
    ``npmi``) as one word.
    """
    from gensim.models.phrases import ENGLISH_CONNECTOR_WORDS, Phrases

    best: dict[str, float] = {}
    for _ in range(3):
        model = Phrases(
            runs,
            min_count=MIN_COUNT,
            threshold=-1 if scoring == "npmi" else 1e-9,
            scoring=scoring,
            delimiter=" ",
            connector_words=ENGLISH_CONNECTOR_WORDS if connectors else frozenset(),
        )
        for phrase, score in model.find_phrases(runs).items():
            best[phrase] = max(score, best.get(phrase, score))
        yield sorted(best, key=lambda phrase: (-best[phrase], phrase))
        model.threshold = 0.5 if scoring == "npmi" else 10.0
        runs = [model[run] for run in runs]


def rivals(collection: Collection) -> dict[str, dict[str, list[str]]]:
    """Return the ranked list of every variant of each rival; gensim has none if not installed."""
    both = {
        "sentences": word_runs(collection, _SENTENCE_END),
        "between marks": word_runs(collection, _MARK),
    }
    lists = {
        f"{name}, {edges}": frequent(runs, words)
        for name, runs in both.items()
        for edges, words in EDGES.items()
    }
    grown = {}
    if importlib.util.find_spec("gensim"):
        for name, scoring, connectors in itertools.product(
            both, ("default", "npmi"), (False, True)
        ):
            label = f"{name}, {scoring}{', connectors' if connectors else ''}"
            passes = gensim_phrases(both[name], scoring, connectors=connectors)
            grown |= {f"{label}, passes {k}": ranked for k, ranked in enumerate(passes, 1)}
    return {"gensim Phrases": grown, "frequency": lists}


def judged(collection: Collection, text: str, folder: Path) -> list[Result]:
    """Compare at every budget; ``text`` says how the texts were treated."""
    ours, other = mined(collection, folder)
    systems = {**rivals(collection), "collocation": {"score": other}}
    return [
        compared(f"{collection.name}/{half}", gold, budget, ours, (rival, variants), text)
        for (half, gold), (rival, variants), budget in itertools.product(
            collection.gold.items(), systems.items(), BUDGETS
        )
    ]


def compared(
    name: str,
    gold: list[set[str]],
    budget: int,
    ours: list[str],
    rival: tuple[str, dict[str, list[str]]],
    text: str,
) -> Result:
    """Compare with the variant of a rival that finds most within the budget."""
    phrases = set[str]().union(*gold)
    mine = found(ours, phrases, budget)
    theirs = {label: found(ranked, phrases, budget) for label, ranked in rival[1].items()}
    best = max(theirs, key=lambda label: len(theirs[label]), default="not installed")
    note = ""
    if best in theirs:
        low, high = difference_interval(gold, mine, theirs[best])
        note = f"{low:+.2f} to {high:+.2f}"
    return Result(
        name=f"{name}/{budget}",
        value=100 * len(mine) / len(phrases),
        unit="% of gold",
        rival=f"{rival[0]}: {best}",
        rival_value=100 * len(theirs[best]) / len(phrases) if best in theirs else None,
        state=text,
        higher_is_better=True,
        target=None if rival[0] == "collocation" else 1.0,
        note=note,
    )


def markdown(results: list[Result]) -> str:
    """Return the table as Markdown."""
    lines = [
        f"{machine()}.",
        "",
        "| collection, half, budget | text | found | rival | its best variant | it found "
        "| difference, 95% | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        rival, _, variant = result.rival.partition(": ")
        value, other = (
            "-" if share is None else f"{share:.2f}%"
            for share in (result.value, result.rival_value)
        )
        lines.append(
            f"| {result.name} | {result.state} | {value} | {rival} | {variant} | {other} "
            f"| {result.note} | {result.verdict} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=_ROOT.parent / "shared/eval/keyphrases")
    parser.add_argument("--collection", choices=COLLECTIONS, help="only this one")
    parser.add_argument("--full", action="store_true", help="the same: there is one size")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        print(f"SKIPPED: no collections in {arguments.data}")
        return
    results = []
    for name in [arguments.collection] if arguments.collection else COLLECTIONS:
        collection = read_collection(arguments.data / f"{name}.zip")
        for text, one in (("as is", collection), ("lower", collection.lower())):
            work = OUT / "keyphrases" / name / text.replace(" ", "-")
            results += judged(one, text, work)
            shutil.rmtree(work)
    name = f"keyphrases-{arguments.collection}" if arguments.collection else "keyphrases"
    report(results, name)
    (OUT / f"{name}.md").write_text(markdown(results))


if __name__ == "__main__":
    main()
