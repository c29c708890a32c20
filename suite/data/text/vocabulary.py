"""The words of a text and their numbers: from a file of one word per line, or made from the text and saved beside it.

A saved file has the format of the IWSLT15 release: the three special tokens, then the words, the most frequent first.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tbdprof.errors import DataError
from tbdprof.facts.units import bytes_text
from tbdprof.suite.data.files import check_file
from tbdprof.suite.data.inputs import UNKNOWN
from tbdprof.suite.data.loading import remedy

MARKS = ("<unk>", "<s>", "</s>")  # in the order of UNKNOWN, START and END
LONGEST_LINE = 1 << 16  # bytes; a sentence of WMT-14 has 30 words in the mean
MOST_BYTES = 16 << 30  # of a text; each text of WMT-14 has less than 1 GiB
MOST_OF_A_LIST = 64 << 20  # bytes of a file of words
MOST_OF_WORDS = 256 << 20  # bytes of the different words of a text in memory, some 5 million words


class Vocabulary:
    """Encodes text as word numbers; a word that is not in the vocabulary is `UNKNOWN`."""

    def __init__(self, words: Sequence[str]) -> None:
        self._numbers = {word: number for number, word in reversed(list(enumerate(words, len(MARKS))))}

    def __len__(self) -> int:
        """Return how many different words there are, without the special tokens."""
        return len(self._numbers)

    def encode(self, lines: Iterable[str]) -> list[NDArray[np.int32]]:
        """Return the word numbers of each line; spaces separate the words."""
        find = self._numbers.get
        return [np.array([find(word, UNKNOWN) for word in line.split()], np.int32) for line in lines]


def vocabulary(file: Path, text: Path, rows: int) -> Vocabulary:
    """Return the words of a file; without such a file, those of the text, which are then saved if that is allowed.

    If there are more words than a model has rows for, the most frequent words of the text are taken. Raises DataError
    for a file that has no words or is not text.
    """
    words = _listed(file) if file.exists() else None
    if words is None:
        words = most_frequent(text)
        keep(file, "".join(f"{word}\n" for word in (*MARKS, *words)))
    elif len(words) > rows - len(MARKS):
        place = {word: rank for rank, word in enumerate(most_frequent(text))}
        words.sort(key=lambda word: place.get(word, len(place)))  # stable: other words keep their order
    return Vocabulary(words[: rows - len(MARKS)])


def most_frequent(text: Path) -> list[str]:
    """Return the words of a text, the most frequent first; words of equal frequency are in alphabetical order."""
    counts, held = Counter[str](), 0
    for line in lines_of(text):
        words = line.split()
        held += sum(sys.getsizeof(word) for word in set(words) - counts.keys())
        if held > MOST_OF_WORDS:
            raise DataError(
                f"{text} has more than {bytes_text(MOST_OF_WORDS)} of different words: give a text in words"
            )
        counts.update(words)
    for mark in MARKS:
        counts.pop(mark, None)
    if not counts:
        raise DataError(f"{text} has no words: restore it")
    return sorted(counts, key=lambda word: (-counts[word], word))


def keep(file: Path, text: str) -> None:
    """Write a file completely or, without permission or space, not at all; then the next run makes it again."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with part.open("x", encoding="utf-8", newline="\n") as kept:  # never through a link that lies there
            kept.write(text)
        part.replace(file)
    except OSError:
        with suppress(OSError):
            part.unlink()


def lines_of(file: Path) -> Iterator[str]:
    """Yield the lines of a text in UTF-8; only a line feed ends a line. Raises DataError that names file and line."""
    try:
        check_file(file, MOST_BYTES)
        with file.open("rb") as source:
            for number, line in enumerate(iter(partial(source.readline, LONGEST_LINE + 1), b""), 1):
                if len(line) > LONGEST_LINE:
                    raise too_long(file, number)
                yield _decoded(line, file, number)
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}; {remedy(error)}") from error


def too_long(file: Path, number: int) -> DataError:
    """Return the error for a line that is no sentence."""
    return DataError(f"{file}, line {number}: more than {bytes_text(LONGEST_LINE)}; write one sentence a line")


def _decoded(line: bytes, file: Path, number: int) -> str:
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}, line {number}: not UTF-8 ({error.reason}); restore it") from error


def _listed(file: Path) -> list[str]:
    check_file(file, MOST_OF_A_LIST)
    words = dict.fromkeys(line.strip() for line in lines_of(file))
    for mark in ("", *MARKS):
        words.pop(mark, None)
    if not words:
        raise DataError(f"{file} is a vocabulary without words: restore it, or remove it, and it is made from the text")
    return list(words)
