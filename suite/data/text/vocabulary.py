"""The words of a text and their numbers: from a file of one word a line, or made from the text and kept beside it.

A kept file is as that of the IWSLT15 release: the three marks, then the words, here the most frequent first.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tbdprof.errors import DataError
from tbdprof.suite.data.inputs import UNKNOWN
from tbdprof.suite.data.loading import remedy

MARKS = ("<unk>", "<s>", "</s>")  # in the order of UNKNOWN, START and END


class Vocabulary:
    """Numbers of words; one that is not known is `UNKNOWN`."""

    def __init__(self, words: Sequence[str]) -> None:
        self._numbers = {word: number for number, word in reversed(list(enumerate(words, len(MARKS))))}

    def __len__(self) -> int:
        """Return how many different words there are, without the marks."""
        return len(self._numbers)

    def encode(self, lines: Iterable[str]) -> list[NDArray[np.int32]]:
        """Return the numbers of the words of each line, which stand between spaces."""
        find = self._numbers.get
        return [np.array([find(word, UNKNOWN) for word in line.split()], np.int32) for line in lines]


def vocabulary(file: Path, text: Path, rows: int) -> Vocabulary:
    """Return the words of a file, or of the text where there is no such file, which is then made if that is allowed.

    Of more words than a model has rows, less those of the marks, the most frequent in the text are taken. Raises
    DataError for a file without words, or that is no text.
    """
    words = _listed(file) if file.exists() else None
    if words is None:
        words = most_frequent(text)
        keep(file, "".join(f"{word}\n" for word in (*MARKS, *words)))
    elif len(words) > rows - len(MARKS):
        place = {word: rank for rank, word in enumerate(most_frequent(text))}
        words.sort(key=lambda word: place.get(word, len(place)))  # stable: words not in the text stay in order
    return Vocabulary(words[: rows - len(MARKS)])


def most_frequent(text: Path) -> list[str]:
    """Return the words of a text, the most frequent first, those as frequent in the order of their characters."""
    counts = Counter(word for line in lines_of(text) for word in line.split())
    for mark in MARKS:
        counts.pop(mark, None)
    if not counts:
        raise DataError(f"{text} has no words: restore it")
    return sorted(counts, key=lambda word: (-counts[word], word))


def keep(file: Path, text: str) -> None:
    """Write a file whole or not at all; without permission or room not at all, so that the next run makes it again."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        part.write_text(text, "utf-8", newline="\n")
        part.replace(file)
    except OSError:
        with suppress(OSError):
            part.unlink()


def lines_of(file: Path) -> Iterator[str]:
    """Yield the lines of a text in UTF-8, which only a line feed ends; raises DataError naming the file and line."""
    try:
        with file.open("rb") as source:
            for number, line in enumerate(source, 1):
                yield _decoded(line, file, number)
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}; {remedy(error)}") from error


def _decoded(line: bytes, file: Path, number: int) -> str:
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}, line {number}: not UTF-8 ({error.reason}); restore it") from error


def _listed(file: Path) -> list[str]:
    words = dict.fromkeys(line.strip() for line in lines_of(file))
    for mark in ("", *MARKS):
        words.pop(mark, None)
    if not words:
        raise DataError(f"{file} is a vocabulary without words: restore it, or remove it, and it is made from the text")
    return list(words)
