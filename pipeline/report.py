"""What a build did: documents in and out by reason, tokens, phrases, bytes, seconds, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from phrasemem.pipeline.progress import StageTiming


@dataclass
class CorpusReport:
    """What became of one corpus.

    ``read`` documents came out of the readers. ``left_out`` (records that are no documents),
    ``dropped`` (documents, while cleaning) and ``decisions`` (kept, duplicates, held out) are
    counts by reason, and so is what was ``removed`` from within documents that stayed;
    ``documents`` and ``tokens`` were mined; ``phrases`` are most at home here.
    """

    name: str
    kind: str
    licence: str
    redistributable: bool
    source: str
    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    documents: int = 0
    tokens: int = 0
    phrases: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return plain data in a fixed order."""
        return {
            name: dict(sorted(value.items())) if isinstance(value, Counter) else value
            for name, value in vars(self).items()
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CorpusReport:
        """Read :meth:`as_json` back."""
        counters = ("left_out", "dropped", "decisions", "removed")
        values: dict[str, Any] = {k: Counter(v) if k in counters else v for k, v in data.items()}
        return cls(**values)


@dataclass
class BuildReport:
    """What a build did.

    Attributes
    ----------
    corpora : list of CorpusReport
    phrases : int
    bytes : int
        Size of the memory.
    stages : list of StageTiming
        Of this run; empty if there was nothing to do.
    did_nothing : bool
        The memory was already what the configuration asks for.
    single : int
        Rows besides the phrases: single tokens and the root.
    notes : list of str
        Where an extended memory is not what a build of all its corpora would be.
    """

    corpora: list[CorpusReport]
    phrases: int
    bytes: int
    stages: list[StageTiming]
    did_nothing: bool
    single: int = 0
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the report as text, a line an entry."""
        notes = [f"not exact: {note}" for note in self.notes]
        return [*_corpora(self.corpora), "", *_totals(self), *notes, *_stages(self.stages)]


def _corpora(corpora: Sequence[CorpusReport]) -> list[str]:
    width = max(len("corpus"), *(len(corpus.name) for corpus in corpora))
    lines = [
        f"{'corpus':<{width}}  {'kind':<12}  {'read':>9}  {'mined':>9}  {'tokens':>12}  phrases"
    ]
    for corpus in corpora:
        lines.append(
            f"{corpus.name:<{width}}  {corpus.kind:<12}  {corpus.read:>9,}  "
            f"{corpus.documents:>9,}  {corpus.tokens:>12,}  {corpus.phrases:>7,}"
        )
        out = corpus.left_out + corpus.dropped + corpus.decisions
        reasons = [f"{name} {number:,}" for name, number in sorted(out.items()) if name != "kept"]
        if reasons:
            lines.append(f"{'':<{width}}  not mined: {', '.join(reasons)}")
        if corpus.removed.total():
            parts = [f"{name} {number:,}" for name, number in sorted(corpus.removed.items())]
            lines.append(f"{'':<{width}}  removed from texts: {', '.join(parts)}")
    return lines


def _totals(report: BuildReport) -> list[str]:
    tokens = sum(corpus.tokens for corpus in report.corpora)
    documents = sum(corpus.documents for corpus in report.corpora)
    each = report.bytes / max(1, report.phrases)
    single = f" and {report.single:,} rows of single tokens" if report.single else ""
    return [
        f"{documents:,} documents, {tokens:,} tokens -> {report.phrases:,} phrases{single}, "
        f"{report.bytes / 1e6:,.1f} MB ({each:,.0f} bytes a phrase)"
    ]


def _stages(stages: Sequence[StageTiming]) -> list[str]:
    if not stages:
        return []
    lines = ["", f"{'stage':<11}  {'seconds':>8}  {'peak memory':>11}"]
    for stage in stages:
        if stage.skipped:
            lines.append(f"{stage.name:<11}  {'skipped':>8}")
        else:
            peak = f"{stage.peak_bytes / 1e9:.2f} GB"
            lines.append(f"{stage.name:<11}  {stage.seconds:>8.1f}  {peak:>11}")
    total = sum(stage.seconds for stage in stages)
    peak = f"{max(stage.peak_bytes for stage in stages) / 1e9:.2f} GB"
    return [*lines, f"{'all':<11}  {total:>8.1f}  {peak:>11}"]
