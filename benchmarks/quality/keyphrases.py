"""Human keyphrases among the best phrases of a collection, beside gensim and plain frequency.

    python -m benchmarks.quality.keyphrases [--data FOLDER] [--half dev|test]

Each collection of SemEval-2017 and 500N-KPCrowd is mined as a corpus. Its gold keyphrases of two
words or more that stand in their document, lower-cased, are looked for among the best N phrases
of each system: all get the same text, as it is and lower-cased, and count what occurs twice or
more. gensim's Phrases run with both scorers, one to three passes, with and without connector
words, over sentences and over runs between marks; of these, and of the frequency lists with and
without stop words at the edges, the best at each N is the rival. Gold keys of every second
document are for development, those of the others are the test.
"""

from __future__ import annotations

import argparse
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

COLLECTIONS = ("SemEval2017", "500N-KPCrowd-v1.1")
BUDGETS = (1000, 2000, 5000, 10_000)
MIN_COUNT = 2
LONGEST = 6

_ROOT = Path(__file__).resolve().parents[2]
_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|\n+")
_MARK = re.compile(r"[^\w\s'\u2019-]+|\n+|\s-+\s")


@dataclass(frozen=True)
class Collection:
    """Texts of documents and, of those in the half that is judged, their gold keyphrases."""

    name: str
    texts: list[str]
    gold: frozenset[str]

    def lower(self) -> Collection:
        """Return the same with lower-cased texts."""
        return replace(self, texts=[text.lower() for text in self.texts])


def read_collection(path: Path, half: str) -> Collection:
    """Read a zip file of ``docsutf8`` and ``keys``; ``half`` is ``dev`` or ``test``."""
    gold: set[str] = set()
    texts = []
    with zipfile.ZipFile(path) as archive:
        names = sorted(n for n in archive.namelist() if "/docsutf8/" in n and n.endswith(".txt"))
        for number, name in enumerate(names):
            texts.append(archive.read(name).decode(errors="replace"))
            if number % 2 == (half == "test"):
                keys = archive.read(name.replace("docsutf8", "keys")[:-3] + "key")
                gold.update(_present(keys.decode(errors="replace").splitlines(), texts[-1]))
    return Collection(path.stem, texts, frozenset(gold))


def _present(keys: list[str], text: str) -> Iterator[str]:
    document = normal(text)
    for key in map(normal, keys):
        pattern = rf"(?<!\w){re.escape(key)}(?!\w)"
        if len(key.split()) > 1 and re.search(pattern, document):
            yield key


def normal(text: str) -> str:
    """Lower-case, one space between words."""
    return " ".join(text.lower().split())


def found(ranked: list[str], gold: frozenset[str]) -> list[float]:
    """Return the share of gold phrases among the first N, for each budget."""
    phrases = [normal(text) for text in ranked[: max(BUDGETS)]]
    return [len(gold.intersection(phrases[:budget])) / len(gold) for budget in BUDGETS]


def mined(collection: Collection, folder: Path, formula: str) -> list[str]:
    """Rank all candidates as a build does; those that break a rule come last."""
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
            "cleaning": {"min_chars": 0},
            "mining": {"min_count": MIN_COUNT, "min_documents": 1, "score": formula},
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
    query = (
        f"SELECT text FROM read_parquet('{scored}') "
        "ORDER BY (place IS NOT NULL) DESC, score DESC, row"
    )
    return [row[0] for row in duckdb.sql(query).fetchall()]


def word_runs(collection: Collection, between: re.Pattern[str]) -> list[list[str]]:
    """Return the words of each run between matches."""
    runs = (_WORD.findall(run) for text in collection.texts for run in between.split(text))
    return [run for run in runs if run]


def frequent(runs: list[list[str]], *, stop_words_at_edges: bool) -> list[str]:
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
        if count >= MIN_COUNT
        and (stop_words_at_edges or not {words[0].lower(), words[-1].lower()} & ENGLISH_STOP_WORDS)
    ]
    return [" ".join(words) for _, words in sorted(kept)]


def gensim_phrases(
    runs: list[list[str]], scoring: str, passes: int, *, connectors: bool
) -> list[str]:
    """Return what ``passes`` passes of gensim's Phrases find, by their scores.

    Every pair is listed; a pass hands on those above gensim's default threshold (10; 0.5 for
    ``npmi``) as one word.
    """
    from gensim.models.phrases import ENGLISH_CONNECTOR_WORDS, Phrases

    best: dict[str, float] = {}
    for _ in range(passes):
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
        model.threshold = 0.5 if scoring == "npmi" else 10.0
        runs = [model[run] for run in runs]
    return sorted(best, key=lambda phrase: (-best[phrase], phrase))


def rivals(collection: Collection) -> dict[str, dict[str, list[float]]]:
    """Return what every variant of each rival finds; gensim's is empty if it is not there."""
    both = {
        "sentences": word_runs(collection, _SENTENCE_END),
        "between marks": word_runs(collection, _MARK),
    }
    lists = {
        f"{name}, stop words {'kept' if kept else 'not at edges'}": found(
            frequent(runs, stop_words_at_edges=kept), collection.gold
        )
        for name, runs in both.items()
        for kept in (True, False)
    }
    grown = {}
    for name, scoring, passes, connectors in itertools.product(
        both, ("default", "npmi"), (1, 2, 3), (False, True)
    ):
        try:
            ranked = gensim_phrases(both[name], scoring, passes, connectors=connectors)
        except ModuleNotFoundError:
            break
        label = f"{name}, {scoring}, {passes} passes{', connectors' if connectors else ''}"
        grown[label] = found(ranked, collection.gold)
    return {"gensim Phrases": grown, "frequency": lists}


def judged(collection: Collection, text: str, folder: Path) -> list[Result]:
    """Compare at every budget; ``text`` says how the texts were treated."""
    ours = found(mined(collection, folder / "new", "keyphrase"), collection.gold)
    before = found(mined(collection, folder / "new", "collocation"), collection.gold)
    results = []
    for rival, variants in {**rivals(collection), "collocation": {"score": before}}.items():
        for place, budget in enumerate(BUDGETS):
            best = max(variants, key=lambda name: variants[name][place], default="")
            results.append(
                Result(
                    name=f"{collection.name}/{text}/{budget}",
                    value=100 * ours[place],
                    unit="% of gold",
                    rival=f"{rival}: {best}" if best else f"{rival}: not installed",
                    rival_value=100 * variants[best][place] if best else None,
                    state=text,
                    higher_is_better=True,
                    target=None if rival == "collocation" else 1.0,
                )
            )
    return results


def markdown(results: list[Result], half: str, sizes: dict[str, int]) -> str:
    """Return the table as Markdown."""
    head = ", ".join(f"{name}: {size:,} gold keyphrases" for name, size in sizes.items())
    lines = [
        f"Half: {half}. {head}. {machine()}.",
        "",
        "| collection, text, budget | found | rival | rival's best variant | it found | ratio | |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        rival, _, variant = result.rival.partition(": ")
        value, other = (
            f"{v:.2f}%" if v is not None else "-" for v in (result.value, result.rival_value)
        )
        ratio = f"{result.ratio:.2f}" if result.ratio else "-"
        lines.append(
            f"| {result.name} | {value} | {rival} | {variant} | {other} | {ratio} "
            f"| {result.verdict} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=_ROOT.parent / "shared/eval/keyphrases")
    parser.add_argument("--half", choices=("dev", "test"), default="test")
    parser.add_argument("--full", action="store_true", help="the same: there is one size")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        print(f"SKIPPED: no collections in {arguments.data}")
        return
    work = OUT / "keyphrases"
    results, sizes = [], {}
    for name in COLLECTIONS:
        collection = read_collection(arguments.data / f"{name}.zip", arguments.half)
        sizes[name] = len(collection.gold)
        for text, one in (("as is", collection), ("lower", collection.lower())):
            results += judged(one, text, work / name / text.replace(" ", "-"))
    shutil.rmtree(work)
    report(results, f"keyphrases-{arguments.half}")
    table = markdown(results, arguments.half, sizes)
    (OUT / f"keyphrases-{arguments.half}.md").write_text(table)


if __name__ == "__main__":
    main()
