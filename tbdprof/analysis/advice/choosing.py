"""Which switches to try: those that carry out the verdict's advice, and a few that it does not mention.

The others are tried because a verdict may be wrong, and only what was measured is advised.
"""

from collections.abc import Iterator, Mapping, Sequence

from tbdprof.analysis.time.verdict import ADVICE
from tbdprof.results.advice import Choice
from tbdprof.results.time import Verdict

Value = str | int
MOST_OTHERS = 3
ANY = None  # any value of a setting

# What carries out each line of advice that a switch can carry out, by setting and value.
TRIED_BY: Mapping[str, tuple[tuple[str, str | None], ...]] = {
    ADVICE["launching"][0]: (("batch_size", ANY), ("fused_optimizer", ANY)),
    ADVICE["launching"][1]: (("compile", ANY), ("hybridize", "static"), ("jit", ANY)),
    ADVICE["compute"][1]: (("precision", ANY),),
    ADVICE["memory"][0]: (("compile", ANY), ("hybridize", "static"), ("jit", ANY), ("fused_optimizer", ANY)),
    ADVICE["memory"][1]: (("precision", ANY), ("channels_last", ANY)),
}
# In the order in which they are tried where the verdict does not point at them.
OTHERS: tuple[tuple[str, str | None], ...] = (
    ("compile", ANY),
    ("jit", ANY),
    ("hybridize", "static"),
    ("channels_last", ANY),
    ("checkpointing", ANY),
    ("hybridize", "none"),
    ("fused_optimizer", ANY),
    ("eager", ANY),
    ("threads", ANY),
    ("precision", ANY),
)


def choices(
    verdict: Verdict | None, available: Mapping[str, Sequence[Value]], *, tries_all: bool = False
) -> list[Choice]:
    """Return what to try, what the verdict points at first.

    `available` has the values of each setting that differ from the plain run's. Without a verdict nothing is pointed
    at. With `tries_all`, all that the verdict does not point at is tried, too.
    """
    pointed: dict[tuple[str, Value], list[str]] = {}
    for text in () if verdict is None else verdict.advice:
        for each in _matching(TRIED_BY.get(text, ()), available):
            pointed.setdefault(each, []).append(text)
    others = [each for each in _matching(OTHERS, available) if each not in pointed]
    chosen = others if tries_all else others[:MOST_OTHERS]
    return [
        *(Choice({name: value}, tuple(texts)) for (name, value), texts in pointed.items()),
        *(Choice({name: value}) for name, value in chosen),
    ]


def _matching(
    wanted: Sequence[tuple[str, str | None]], available: Mapping[str, Sequence[Value]]
) -> Iterator[tuple[str, Value]]:
    """Yield the available settings that are wanted, in the wanted order."""
    for name, value in wanted:
        for each in available.get(name, ()):
            if value is ANY or each == value:
                yield name, each
