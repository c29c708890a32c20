"""Parallel text, such as IWSLT15's English-Vietnamese or WMT-14's English-German: DIR/train.en and DIR/train.vi.

The two files have one sentence per line, and equal lines are translations of each other. IWSLT15 is read in words: the
vocabularies are read from `vocab.en` and `vocab.vi`, or made from the texts and saved there. WMT-14 is read in
subwords, which are learned from both texts and saved in `subwords-37000.json`. If DIR is not writable, nothing is
saved, and each run makes them again.
"""

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbdprof.errors import DataError, UsageError
from tbdprof.suite.data.files import check_file
from tbdprof.suite.data.inputs import SentencePairs, collate
from tbdprof.suite.data.loading import Draft, check_folder, order, prefetch, readable, remedy, wrong_kind
from tbdprof.suite.data.text.buckets import Ints, Size
from tbdprof.suite.data.text.corpora import Corpus
from tbdprof.suite.data.text.subwords import subwords
from tbdprof.suite.data.text.vocabulary import LONGEST_LINE, MOST_BYTES, lines_of, too_long, vocabulary

EXPECTED = "two texts of one name and two languages, as train.en and train.vi, a sentence a line"
NAME = re.compile(r"(?P<stem>[^.].*)\.(?P<language>[a-z]{2})")
VOCABULARY, TRAINING = "vocab", "train"
SOURCE = "en"
BLOCK = 1 << 24  # bytes read at once to find the beginnings of lines
LINES = 256  # lines read and encoded at once
MOST_LINES = 1 << 26  # their beginnings are 512 MiB in memory; WMT-14 has 4.5 million lines

Words = NDArray[np.int32]
Pair = tuple[Words, Words]  # source, target
Encode = Callable[[Sequence[str]], Sequence[Words]]


@dataclass(frozen=True, slots=True)
class Text:
    """A file and the byte offset of each of its lines; the last number is the file's size."""

    file: Path
    starts: Ints

    def __len__(self) -> int:
        """Return how many lines there are."""
        return len(self.starts) - 1

    def lines(self, numbers: Ints) -> list[str]:
        """Return the lines with some numbers, counted from 0; raises DataError that names the file."""
        spans = zip(self.starts[numbers].tolist(), self.starts[numbers + 1].tolist(), strict=True)
        try:
            with self.file.open("rb") as source:
                return [_line(source, first, end) for first, end in spans]
        except OSError as error:
            raise DataError(f"cannot read {self.file}: {error.strerror}; {remedy(error)}") from error


def look(folder: Path) -> None:
    """Raise UsageError unless a folder holds two texts, DataError if one is empty; reads no sentence."""
    for file in texts(folder):
        with readable(folder):
            check_file(file, MOST_BYTES)
            if not file.stat().st_size:
                raise DataError(f"{file} is empty: restore it")


def texts(folder: Path) -> tuple[Path, Path]:
    """Return the files of source and target: the source is English, or else the first language code in order.

    If there are several texts, the one called `train` is taken, or the one whose name begins with `train`. Raises
    UsageError if none or several remain, or if there are more than two languages.
    """
    check_folder(folder)
    with readable(folder):
        named = [match for path in folder.iterdir() if not path.is_dir() and (match := NAME.fullmatch(path.name))]
    languages = dict[str, set[str]]()
    for each in named:
        languages.setdefault(each["stem"], set()).add(each["language"])
    found = [stem for stem, codes in languages.items() if stem != VOCABULARY and len(codes) > 1]
    if not found:
        raise wrong_kind(folder, EXPECTED)
    stem = _one(folder, sorted(found))
    if len(languages[stem]) > 2:
        raise UsageError(f"{folder} holds {stem} in {', '.join(sorted(languages[stem]))}: leave two languages")
    source, target = sorted(languages[stem], key=lambda code: (code != SOURCE, code))
    return folder / f"{stem}.{source}", folder / f"{stem}.{target}"


def batches(folder: Path, corpus: Corpus, size: Size, seed: int) -> Iterator[SentencePairs]:
    """Return endless batches of similar lengths, sentences reshuffled every pass.

    A pair with an empty side is left out. At the call both texts are indexed, and missing vocabularies or subwords are
    made. A batch may cross the end of a pass. Raises UsageError if the folder holds something else or a package is
    missing, DataError for broken texts.
    """
    look(folder)
    files = texts(folder)
    source, target = (indexed(file) for file in files)
    if len(source) != len(target):
        raise DataError(
            f"{source.file} and {target.file} differ in their number of lines, {len(source)} and {len(target)}: "
            f"restore both, as each line is the translation of the other's"
        )
    stream = _batches(_pairs(source, target, _encoders(folder, files, corpus), corpus, seed), corpus, size)
    task = partial(next, stream)
    # One thread only: the batch of a sentence depends on the sentences before it.
    return prefetch((Draft((task,), itemgetter(0)) for _ in repeat(None)), workers=1)


def indexed(file: Path) -> Text:
    """Return where the lines of a text begin; raises DataError that names the file, and a line that is not UTF-8."""
    decoder, ends, at, last = codecs.getincrementaldecoder("utf-8")(), list[Ints](), 0, b""
    lines = 0
    try:
        check_file(file, MOST_BYTES)
        with file.open("rb") as source:
            for block in iter(partial(source.read, BLOCK), b""):
                decoder.decode(block)
                ends.append(np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + at + 1)
                at, last = at + len(block), block[-1:]
                lines += len(ends[-1])
                if lines > MOST_LINES:
                    raise DataError(f"{file} has more than {MOST_LINES} lines: split it")
                if b"\0" in block:
                    raise DataError(f"{file} has bytes of 0, which are no text: restore it")
        decoder.decode(b"", final=True)
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}; {remedy(error)}") from error
    except UnicodeDecodeError:
        for _ in lines_of(file):  # raises the error with the number of the line
            pass
        raise
    unended = [] if last == b"\n" else [at]
    starts = np.concatenate([[0], *ends, unended]).astype(np.int64)
    longest = int(np.diff(starts).argmax())
    if starts[longest + 1] - starts[longest] > LONGEST_LINE:
        raise too_long(file, longest + 1)
    return Text(file, starts)


def _one(folder: Path, stems: Sequence[str]) -> str:
    """Return the name of the texts to train on."""
    likely = [stem for stem in stems if stem == TRAINING]
    likely = likely or [stem for stem in stems if stem.startswith(TRAINING)] or list(stems)
    if len(likely) > 1:
        raise UsageError(f"{folder} holds the texts {', '.join(likely)}: name those to train on {TRAINING}")
    return likely[0]


def _line(source: Any, first: int, end: int) -> str:
    source.seek(first)
    line: bytes = source.read(end - first)
    return line.decode("utf-8").strip()


def _encoders(folder: Path, files: tuple[Path, Path], corpus: Corpus) -> tuple[Encode, Encode]:
    """Return the functions that encode the sentences of each side as numbers."""
    rows = corpus.source_words, corpus.target_words
    if corpus.subwords:
        shared = subwords(folder / f"subwords-{rows[0]}.json", files, rows[0])
        return shared.encode, shared.encode
    kept = (folder / f"{VOCABULARY}{file.suffix}" for file in files)
    source, target = map(vocabulary, kept, files, rows)
    return source.encode, target.encode


def _pairs(
    source: Text, target: Text, encoders: tuple[Encode, Encode], corpus: Corpus, seed: int
) -> Iterator[list[Pair]]:
    """Yield some pairs at a time, pass after pass; raises DataError if a whole pass has no pair to train on."""
    for number in count():
        numbers, used = order(len(source), seed, number), 0
        for start in range(0, len(source), LINES):
            some = numbers[start : start + LINES]
            sides = (encode(text.lines(some)) for encode, text in zip(encoders, (source, target), strict=True))
            pairs = [_cut(pair, corpus) for pair in zip(*sides, strict=True) if _is_usable(pair, corpus)]
            used += len(pairs)
            yield pairs
        if not used:
            raise DataError(
                f"{source.file} and {target.file} have no pair of 1 to {corpus.longest} words: restore them"
            )


def _is_usable(pair: Pair, corpus: Corpus) -> bool:
    shorter, longer = sorted(map(len, pair))
    return shorter > 0 and (corpus.cuts or longer <= corpus.longest)


def _cut(pair: Pair, corpus: Corpus) -> Pair:
    return pair[0][: corpus.longest], pair[1][: corpus.longest]


def _batches(stream: Iterator[list[Pair]], corpus: Corpus, size: Size) -> Iterator[SentencePairs]:
    """Yield a batch whenever a bucket is full."""
    held = dict[int, list[Pair]]()
    for pairs in stream:
        longer = np.array([max(len(source), len(target) + 1) for source, target in pairs], np.int64)
        for pair, bucket in zip(pairs, size.buckets(longer, corpus.limit).tolist(), strict=True):
            inside = held.setdefault(bucket, [])
            inside.append(pair)
            if len(inside) == size.sentences(bucket, corpus.limit):
                del held[bucket]
                yield collate(*zip(*inside, strict=True))
