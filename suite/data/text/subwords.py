"""Subwords that two languages share, learned from both texts by byte-pair encoding and saved in a file beside them.

The method is that of Sennrich, Haddow and Birch, 2016 (arXiv:1508.07909), but without a tokenizer. A space becomes a
special character at the beginning of a word, so that the sentence can be restored from its subwords. SentencePiece does
the same (Kudo and Richardson, 2018, arXiv:1808.06226).
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbdprof.errors import DataError, UsageError
from tbdprof.suite.data.files import contents
from tbdprof.suite.data.inputs import UNKNOWN
from tbdprof.suite.data.text.vocabulary import MARKS, keep, lines_of

LINES = 1000  # passed to the learner at once
ENCODED = 32  # lines encoded at once; a subword takes some 150 bytes until it is a number
MOST_BYTES = 8 << 20  # of a file of subwords; 37,000 take about 2 MB


class Subwords:
    """Encodes text as subword numbers; a character that the texts do not contain is `UNKNOWN`."""

    def __init__(self, tokenizer: Any, rows: int) -> None:
        self._tokenizer = tokenizer
        self._rows = rows

    def __len__(self) -> int:
        """Return how many subwords there are, without the special tokens."""
        known: int = self._tokenizer.get_vocab_size()
        return min(known, self._rows) - len(MARKS)

    def encode(self, lines: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the subword numbers of each line; a special token that stands in the text is `UNKNOWN`."""
        found = list[NDArray[np.int32]]()
        for start in range(0, len(lines), ENCODED):
            some = list(lines[start : start + ENCODED])
            for each in self._tokenizer.encode_batch(some, add_special_tokens=False):
                found.append(self._within(np.array(each.ids, np.int32)))
        return found

    def decode(self, numbers: NDArray[np.integer[Any]]) -> str:
        """Return the text of subwords."""
        text: str = self._tokenizer.decode(numbers.tolist())
        return text

    def _within(self, numbers: NDArray[np.int32]) -> NDArray[np.int32]:
        inside = (numbers >= len(MARKS)) & (numbers < self._rows)
        return np.where(inside, numbers, np.int32(UNKNOWN))


def subwords(file: Path, texts: Sequence[Path], rows: int) -> Subwords:
    """Return the subwords of a file, or learn as many as a model has rows and save them there if that is allowed.

    Learning is deterministic. Raises UsageError if the package tokenizers is missing, DataError for a damaged file or
    texts without words.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise UsageError("subwords need tokenizers: pip install 'tbdprof[text]'") from error
    tokenizer = _read(file, tokenizers) if file.exists() else None
    if tokenizer is None:
        tokenizer = _learned(texts, rows, tokenizers)
        keep(file, tokenizer.to_str())
    return Subwords(tokenizer, rows)


def _learned(texts: Sequence[Path], rows: int, tokenizers: Any) -> Any:
    tokenizer = _tokenizer(tokenizers.models.BPE(unk_token=MARKS[UNKNOWN]), tokenizers)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=rows, special_tokens=list(MARKS), show_progress=False)
    tokenizer.train_from_iterator(_portions(texts), trainer)
    if tokenizer.get_vocab_size() <= len(MARKS):
        raise DataError(f"{texts[0]} and {texts[1]} have no words: restore them")
    return tokenizer


def _tokenizer(model: Any, tokenizers: Any) -> Any:
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    return tokenizer


def _portions(texts: Sequence[Path]) -> Iterator[list[str]]:
    for text in texts:
        lines = lines_of(text)
        while portion := list(islice(lines, LINES)):
            yield portion


def _read(file: Path, tokenizers: Any) -> Any:
    """Return a saved tokenizer: of the file its subwords and how they are joined, and none of its other settings.

    Those could make encoding take any time or memory, as padding to a length or a pattern to search for.
    """
    remedy = "remove it, and it is made again from the texts"
    try:
        model = json.loads(contents(file, MOST_BYTES))["model"]
        joins = [tuple(each.split(" ") if isinstance(each, str) else each) for each in model["merges"]]
        tokenizer = _tokenizer(tokenizers.models.BPE(model["vocab"], joins, unk_token=MARKS[UNKNOWN]), tokenizers)
        tokenizer.add_special_tokens(list(MARKS))
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}; {remedy}") from error
    except Exception as error:  # tokenizers raises plain Exception
        raise DataError(f"{file} holds no subwords: {' '.join(str(error).split())}; {remedy}") from error
    if [tokenizer.token_to_id(mark) for mark in MARKS] != list(range(len(MARKS))):
        raise DataError(f"{file} does not begin with the marks {' '.join(MARKS)}: {remedy}")
    return tokenizer
