"""How far a build is: from what it writes down, its lock, and its folder."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import filelock

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.ledger import LOCK_FILE, read_status
from phrasemem.pipeline.space import folder_bytes


class StatusError(PhraseMemError):
    """A folder in which no build has run."""


def status_of(work: Path) -> dict[str, Any]:
    """Return what is known of the last build in a work folder.

    Returns
    -------
    dict
        What the build wrote (``stages``: see :class:`phrasemem.pipeline.ledger.StageRecord`), and
        ``locked`` (a process holds the folder), ``state`` (``running``, ``finished``, ``failed``
        or ``killed``), ``elapsed`` and ``heartbeat_age`` (seconds), ``bytes`` (of the folder),
        ``free`` (bytes of its disk), and of the stage that runs or stopped ``rate`` (parts a
        second in this run) and ``eta`` (seconds until that stage ends), None where unknown.

    Raises
    ------
    StatusError
    """
    found = read_status(work)
    if found is None:
        raise StatusError("no build has run in this folder", where=work, hint="give its --work")
    locked = _is_locked(work)
    now = time.time()
    rate, eta = _speed(found, now if locked else found["heartbeat"])
    return {
        **found,
        "locked": locked,
        "state": "running" if locked else _ended(found["state"]),
        "elapsed": (now if locked else found["heartbeat"]) - found["started"],
        "heartbeat_age": now - found["heartbeat"],
        "bytes": folder_bytes(work),
        "free": shutil.disk_usage(work).free,
        "rate": rate,
        "eta": eta if locked else None,
    }


def status_lines(status: dict[str, Any], work: Path) -> list[str]:
    """Return :func:`status_of` as text, a line an entry."""
    lines = [_headline(status, work), ""]
    lines.append(f"{'stage':<11}  {'state':<8}  {'parts':>15}  {'seconds':>9}")
    for stage in status["stages"]:
        parts = f"{stage['done']:,} of {stage['parts']:,}" if stage["parts"] else ""
        seconds = f"{stage['seconds']:,.1f}" if stage["seconds"] else ""
        state = "stopped" if stage["state"] == "running" and not status["locked"] else ""
        lines.append(
            f"{stage['name']:<11}  {state or stage['state']:<8}  {parts:>15}  {seconds:>9}".rstrip()
        )
    lines += ["", f"{status['bytes'] / 1e9:.2f} GB in the folder, {status['free'] / 1e9:.1f} free"]
    if status["eta"] is not None:
        lines.append(f"{status['rate']:.2f} parts/s, this stage ends in {_span(status['eta'])}")
    return lines


def _headline(status: dict[str, Any], work: Path) -> str:
    who = f"process {status['pid']} on {status['host']}"
    age = _span(status["heartbeat_age"])
    if status["state"] == "running":
        return f"running for {_span(status['elapsed'])}, last heard of {age} ago: {who}"
    if status["state"] == "finished":
        return f"finished {age} ago: {status['out']}"
    reason = status["error"] or "the process is gone"
    at = next((s["name"] for s in status["stages"] if s["state"] == "running"), "the start")
    return (
        f"stopped at {at} {age} ago ({reason}); run the same command again with --work {work} and "
        "it goes on from there"
    )


def _is_locked(work: Path) -> bool:
    lock = work / LOCK_FILE
    if not lock.exists():
        return False
    try:
        with filelock.FileLock(lock, timeout=0):
            return False
    except filelock.Timeout:
        return True


def _ended(state: str) -> str:
    return "killed" if state == "running" else state


def _speed(found: dict[str, Any], until: float) -> tuple[float | None, float | None]:
    stage = next((s for s in found["stages"] if s["state"] == "running"), None)
    if stage is None or stage["done"] <= stage["done_before"]:
        return None, None
    rate = (stage["done"] - stage["done_before"]) / max(1e-3, until - stage["begun"])
    return rate, (stage["parts"] - stage["done"]) / rate


def _span(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
