"""Errors say it in one line, and arrive whole from another process."""

from __future__ import annotations

import copy

import pytest

from phrasemem.memfmt.errors import FormatError, PhraseMemError, Reason


def _fail(reason: Reason) -> None:
    raise FormatError(reason, "bad\nbytes", expected=1, found=2, where="a/b", hint="do\n this")


def test_one_line_with_both_sides_place_and_hint() -> None:
    with pytest.raises(FormatError) as caught:
        _fail(Reason.FILE_LENGTH)
    assert str(caught.value) == "bad bytes in a/b: expected 1, found 2 (do this) [file-length]"


def test_found_alone() -> None:
    assert str(PhraseMemError("odd", found="x")) == "odd: found x"


def test_error_arrives_whole_from_another_process() -> None:
    with pytest.raises(FormatError) as caught:
        _fail(Reason.KEYS_ORDER)
    # copy goes by __reduce__, as the way between processes does.
    arrived = copy.copy(caught.value)
    assert arrived is not caught.value
    assert arrived.reason is Reason.KEYS_ORDER
    assert vars(arrived) == vars(caught.value)
    assert str(arrived) == str(caught.value)
    assert arrived.args == caught.value.args
