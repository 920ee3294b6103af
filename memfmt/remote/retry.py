"""Tries again what may go better the next time, and says what will not."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from phrasemem.memfmt.remote.errors import TransferError

_Result = TypeVar("_Result")

_HOPELESS = frozenset(
    {
        errno.EINVAL,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
    }
)
_HOPELESS_TYPES = (FileNotFoundError, FileExistsError, PermissionError)
_WORTH_WAITING = frozenset({408, 425, 429})
# Errors of clients that are no OSError; asked only of what is loaded, so no extra is needed.
_CLIENT_ERRORS = {
    "aiohttp": ("ClientError",),
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "httpx": ("HTTPError",),
}
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "UnauthorizedSSOTokenError")


class UnfinishedError(OSError):
    """A body that ended early."""


def failure_types() -> tuple[type[Exception], ...]:
    """Return the exceptions with which a file system reports that it could not do something."""
    found: list[type[Exception]] = [OSError, NotImplementedError, ValueError]
    for module, names in _CLIENT_ERRORS.items():
        if module in sys.modules:
            found += [getattr(sys.modules[module], name) for name in names]
    return tuple(found)


def is_hopeless(error: Exception) -> bool:
    """Tell whether the same call would fail again: a full disk, a refusal, a client's error."""
    if isinstance(error, (*_HOPELESS_TYPES, NotImplementedError, ValueError)):
        return True
    if isinstance(error, OSError) and error.errno in _HOPELESS:
        return True
    status = getattr(error, "status", None)
    refused = isinstance(status, int) and 400 <= status < 500 and status not in _WORTH_WAITING
    return refused or type(error).__name__ in _NO_CREDENTIALS


@dataclass(frozen=True)
class Patience:
    """How often, and after what waits, something is tried again.

    Parameters
    ----------
    attempts : int
        Failures in a row, without a byte of progress, after which it is given up.
    first_wait, longest_wait : float
        Seconds; each wait is twice the one before.
    stop : threading.Event
        Ends all waits at once: set when another transfer has failed for good.
    """

    attempts: int = 6
    first_wait: float = 0.5
    longest_wait: float = 20.0
    stop: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def afresh(cls, given: Patience | None) -> Patience:
        """Return patience for one push or pull, whatever became of those before."""
        return cls() if given is None else replace(given, stop=threading.Event())

    def after(self, failures: int, error: Exception, where: str) -> None:
        """Wait after the n-th failure in a row, or give up.

        Raises
        ------
        TransferError
            If it is hopeless, was tried often enough, or everything is being stopped.
        """
        if is_hopeless(error) or failures >= self.attempts:
            often = "" if failures < 2 else f" ({failures} times)"
            raise TransferError(f"{_said(error)}{often}", where=where) from error
        if self.stop.wait(min(self.longest_wait, self.first_wait * 2 ** (failures - 1))):
            raise TransferError("stopped, since another transfer failed", where=where) from error

    def call(self, where: str, action: Callable[[], _Result]) -> _Result:
        """Return what `action` returns, trying again where that may help.

        Raises
        ------
        FileNotFoundError, FileExistsError
            As `action` does: they are answers, not failures.
        TransferError
            For all else that a file system may say.
        """
        failed = 0
        while True:
            try:
                return action()
            except (FileNotFoundError, FileExistsError):
                raise
            except failure_types() as error:
                failed += 1
                self.after(failed, error, where)


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, UnfinishedError):
        return text
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
