"""Add corpora to a memory without the text that it was built from."""

from __future__ import annotations

from pathlib import Path

from phrasemem import backbone
from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline import existing
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.earlier import Earlier, open_earlier
from phrasemem.pipeline.embed import PAYLOAD
from phrasemem.pipeline.plan import Plan, make_plan
from phrasemem.pipeline.progress import Reporter
from phrasemem.pipeline.report import BuildReport
from phrasemem.pipeline.run import Workplace, finished, run_stages
from phrasemem.pipeline.sources import find_pieces


class ExtendError(PhraseMemError):
    """Corpora that cannot be added to a memory."""


def extend(
    memory: Path,
    config: BuildConfig,
    out: Path,
    *,
    work: Path | None = None,
    base: Path | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    reporter: Reporter | None = None,
) -> BuildReport:
    """Build a memory of another memory's corpora and of those that the configuration adds.

    Only the text of what is added is read, and only phrases that are new are embedded. With a
    count store beside the memory the result is what a build of all corpora would be, vectors
    aside that differ in the last bits, and the store is extended too; ``notes`` of the report
    say where it is not.

    Parameters
    ----------
    memory : Path
        Is not changed.
    config : BuildConfig
        Corpora of the memory's names are not read again; of the others, at least one, all are.
        Tokenizer, encoder and ``n_max`` must be the memory's; other settings may differ.
    out : Path
        Another folder; a memory that stands there is replaced.
    work, base, scheduler, workers, reporter
        As for :func:`phrasemem.pipeline.run.build`.

    Raises
    ------
    PhraseMemError
        With one clear line, for whatever the user can mend.
    """
    memory, out = memory.absolute(), out.absolute()
    if memory == out:
        raise ExtendError("a memory is never changed", where=out, hint="give another --out")
    reporter = reporter or Reporter()
    shares = {corpus.name: corpus.budget.phrase_share for corpus in config.corpora}
    earlier = open_earlier(memory, shares)
    added = _added(config, earlier)
    pieces = find_pieces(added.corpora, (base or Path()).absolute())
    plan = make_plan(added, pieces, earlier)
    if (done := finished(out, plan, earlier.store is not None, reporter)) is not None:
        return done
    existing.refuse_other_folder(out)
    _refuse_another_kind(added, plan, earlier)
    work = (work or out.with_name(f".{out.name}.work")).absolute()
    return run_stages(
        added, plan, pieces, out, Workplace(work, scheduler, workers, reporter), earlier
    )


def _added(config: BuildConfig, earlier: Earlier) -> BuildConfig:
    """Return the configuration with the new corpora alone."""
    new = [corpus for corpus in config.corpora if corpus.name not in earlier.names]
    if not new:
        raise ExtendError(
            "the configuration adds no corpus",
            where=earlier.memory,
            expected="a name besides " + ", ".join(earlier.names),
            found=", ".join(corpus.name for corpus in config.corpora),
        )
    shares = [*earlier.shares, *(corpus.budget.phrase_share for corpus in new)]
    if sum(share or 0 for share in shares) > 1:
        raise ExtendError("the phrase shares sum to more than 1", where=earlier.memory)
    return config.model_copy(update={"corpora": new})


def _refuse_another_kind(config: BuildConfig, plan: Plan, earlier: Earlier) -> None:
    """Refuse settings under which keys or vectors would not fit together."""
    manifest = earlier.manifest
    settings = plan.embed.settings
    encoder = " ".join((config.encoder.id, settings["encoder"], settings["how"]))
    sources = {payload.name: payload.source for payload in manifest.payloads}
    tokenizer = backbone.tokenizer_fingerprint(backbone.load_tokenizer(config.model))
    for what, expected, found in (
        ("tokenizer", manifest.tokenizer.fingerprint, tokenizer),
        ("n_max", manifest.n_max, config.mining.n_max),
        ("key_normalisation", manifest.key_normalisation, config.key_normalisation),
        ("encoder", sources.get(PAYLOAD), encoder),
    ):
        if expected != found:
            raise ExtendError(
                f"the configuration has another {what} than the memory",
                where=earlier.memory,
                expected=expected,
                found=found,
                hint="use the memory's, or build again",
            )
