"""The figures on the page: each is read from the JSON report by its path, which the element keeps.

A path is a JSON pointer (RFC 6901): `/throughput/samples_per_s`. An element holds the value itself and its text:
`<data data-path="…" value="6.09">6.09</data>`. So every figure of the page can be compared with the JSON report.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from tbdprof.facts.units import bytes_text, decimal_text, percent_text, seconds_text, times_text
from tbdprof.report.page.texts import shortened
from tbdprof.report.terminal_parts.tables import MARK

Json = Mapping[str, Any]

_FRACTIONS = re.compile(
    r"share$|/shares/|/utilization/\w+/(value|in_window|others|coverage|low)$|/idle/|/padding/|data_wait$|/exposed$|"
    r"/hidden$|/covered$|/explained$|utilization$|^/verdict/intervals/|_pipe|^/device/gpm/|/driver_busy/\w+$|average$"
)
UNITS: tuple[tuple[re.Pattern[str], Callable[[float], str]], ...] = (
    (re.compile(r"([_/]per_s|ci95/\d|/windows/\d+)$"), lambda value: digits_text(value)),
    (re.compile(r"(_bytes|/bytes)$"), bytes_text),
    (re.compile(r"^/memory/(events|mismatches|lengths/)"), lambda value: digits_text(value)),
    (re.compile(r"/explained$"), percent_text),
    (re.compile(r"/post_mortem/.*batch"), lambda value: digits_text(value)),
    (re.compile(r"^/(memory|device_memory|post_mortem)"), lambda value: bytes_text(value)),
    (_FRACTIONS, percent_text),
    (re.compile(r"(seconds|_s)$"), lambda value: seconds_text(value * 1e9)),
    (re.compile(r"_hz$"), lambda value: decimal_text(value, "Hz")),
    (
        re.compile(r"flops$|flops_per_sample$|flops_per_step$|/flops_per_unit/"),
        lambda value: decimal_text(value, "FLOP"),
    ),
    (re.compile(r"(ratio|bound|headroom)$"), times_text),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a JSON report, for templates."""

    document: Json

    def at(self, path: str) -> Any:
        """Return the value at a path; raises KeyError or IndexError where the report has none."""
        found: Any = self.document
        for part in path.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found[int(key)] if isinstance(found, list | tuple) else found[key]
        return found

    def get(self, path: str) -> Any:
        """Return the value at a path, or None where an enclosing part of the report is missing."""
        try:
            return self.at(path)
        except (KeyError, IndexError, TypeError):
            return None

    def why(self, path: str) -> str:
        """Return why the value at a path is missing, by the path or an enclosing one; empty if nothing is said."""
        missing: Mapping[str, str] = self.document.get("missing", {})
        dotted = path[1:].replace("/", ".")
        short = dotted.removeprefix("memory.")
        while dotted:
            if dotted in missing:
                return missing[dotted]
            dotted = dotted.rpartition(".")[0]
        return missing.get(short, "")

    def show(self, path: str, text: str | None = None) -> Markup:
        """Return the element of a figure; where it is missing, one that says why."""
        value = self.get(path)
        if value is None:
            reason = self.why(path)
            said = f"not measured: {reason}" if reason else "none"
            template = Markup('<span class="none" data-path="{}" data-none title="{}">{}</span>')
            return template.format(path, said, "–")
        shown = text_of(path, value) if text is None else text
        return Markup('<data data-path="{}" value="{}">{}</data>').format(path, raw(value), shown)


def raw(value: Any) -> str:
    """Return a value as JSON writes it; long text is cut, with its length said."""
    return json.dumps(shortened(value) if isinstance(value, str) else value)


def text_of(path: str, value: Any) -> str:
    """Return a value as people read it, in the unit that the path says."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return shortened(value)
    if not isinstance(value, int | float):
        return raw(value)
    for pattern, text in UNITS:
        if pattern.search(path):
            return text(value) + (MARK if path.endswith("/utilization") and value > 1 else "")
    return digits_text(value)


def digits_text(value: float) -> str:
    """Return a number with four digits, or all digits before the point if there are more."""
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of a report that is no object and no list, with its path; empty ones are values, too."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from leaves(each, f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list | tuple) and value:
        for place, each in enumerate(value):
            yield from leaves(each, f"{path}/{place}")
    else:
        yield path, value


def label(path: str) -> Markup:
    """Return a path as people read it."""
    return escape(
        " › ".join(part.replace("_", " ").replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])
    )
