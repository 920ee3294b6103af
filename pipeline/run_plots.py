"""The plots of a run's report, as SVG that stands inside its page."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "phrasemem", "text.parse_math": False}

_NO_METADATA = ("Creator", "Date", "Format", "Type")


def plots_of(content: dict[str, Any]) -> dict[str, Any] | None:
    """Return title -> markup of each plot, or None where matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        return None
    with mpl.rc_context(_STYLE):
        return {
            "Phrases by length": _svg(_lengths, content),
            "Coverage against budget": _svg(_coverage, content),
            "Documents that were not mined": _svg(_reasons, content),
            "Seconds of each stage": _svg(_seconds, content),
            "Bytes of each stage": _svg(_bytes, content),
        }


def _svg(draw: Any, content: dict[str, Any]) -> Any:
    from markupsafe import Markup
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    draw(figure.add_subplot(), content)
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata=dict.fromkeys(_NO_METADATA))
    text = file.getvalue()
    # Matplotlib escapes the texts that it is given.
    return Markup(text[text.index("<svg") :])


def _lengths(axes: Axes, content: dict[str, Any]) -> None:
    axes.bar(list(content["lengths"]), list(content["lengths"].values()))
    axes.set_xlabel("tokens")
    axes.set_ylabel("phrases")


def _coverage(axes: Axes, content: dict[str, Any]) -> None:
    points = content["coverage"]["points"]
    axes.plot([p["phrases"] for p in points], [p["coverage"] for p in points], marker=".")
    axes.set_xscale("log")
    axes.set_xlabel("phrases, best first")
    axes.set_ylabel("tokens in occurrences / tokens")


def _reasons(axes: Axes, content: dict[str, Any]) -> None:
    total: dict[str, int] = {}
    for corpus in content["corpora"]:
        for reason, number in corpus["not_mined"].items():
            total[reason] = total.get(reason, 0) + number
    _bars(axes, total, "documents")


def _seconds(axes: Axes, content: dict[str, Any]) -> None:
    _bars(axes, {stage["name"]: stage["seconds"] for stage in content["stages"]}, "seconds")


def _bytes(axes: Axes, content: dict[str, Any]) -> None:
    _bars(axes, {stage["name"]: stage["bytes"] / 1e6 for stage in content["stages"]}, "MB")


def _bars(axes: Axes, values: dict[str, Any], unit: str) -> None:
    axes.barh(list(values), list(values.values()))
    axes.invert_yaxis()
    axes.set_xlabel(unit)
