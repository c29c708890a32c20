"""Two texts become shuffled batches of similar lengths, in words or in subwords that are kept beside them."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from data_sets import denied, forbid, parallel_text

from tbdprof.errors import DataError, UsageError
from tbdprof.suite.data import datasets, loading
from tbdprof.suite.data.inputs import END, MARKS, UNKNOWN, SentencePairs
from tbdprof.suite.data.text import parallel_text as reader
from tbdprof.suite.data.text.buckets import Sentences, Size, Tokens
from tbdprof.suite.data.text.corpora import IWSLT15, WMT14, Corpus
from tbdprof.suite.data.text.subwords import Subwords, subwords
from tbdprof.suite.data.text.translation import batches
from tbdprof.suite.data.text.vocabulary import most_frequent, vocabulary
from tbdprof.suite.workload import Config

SMALL = replace(IWSLT15, source_words=60, target_words=60, longest=6)
SHARED = replace(WMT14, source_words=120, target_words=120, longest=12)
FOUR = Sentences(4)
PAIRS = [(" ".join(f"e{n}" for _ in range(1 + n % 5)), " ".join(f"v{n}" for _ in range(1 + n % 4))) for n in range(40)]
TEXT = [("the house is old", "das Haus ist alt"), ("an old house", "ein altes Haus"), ("a naïve fox", "ein Fuchs")]


def read(
    folder: Path, count: int, corpus: Corpus = SMALL, size: Size | None = None, seed: int = 0
) -> list[SentencePairs]:
    """Return the first batches of a folder."""
    found = reader.batches(folder, corpus, size or Sentences(4), seed)
    return list(islice(found, count))


def sources(batches: list[SentencePairs]) -> list[tuple[int, ...]]:
    """Return the words of every source."""
    return [
        tuple(words[:count].tolist())
        for batch in batches
        for words, count in zip(batch.source, batch.source_lengths, strict=True)
    ]


def listed(folder: Path, language: str, words: str) -> None:
    """Keep a vocabulary as the IWSLT15 release does."""
    (folder / f"vocab.{language}").write_text("\n".join(["<unk>", "<s>", "</s>", *words.split()]) + "\n", "utf-8")


def test_a_pass_has_every_pair_and_the_next_another_order(tmp_path: Path):
    folder = parallel_text(tmp_path, PAIRS)
    listed(folder, "en", " ".join(f"e{n}" for n in range(40)))
    listed(folder, "vi", " ".join(f"v{n}" for n in range(40)))

    one_by_one = read(folder, 80, size=Sentences(1))

    numbers = [int(batch.source[0, 0]) - MARKS for batch in one_by_one]
    assert sorted(numbers[:40]) == sorted(numbers[40:]) == list(range(40))
    assert numbers[:40] != numbers[40:]
    for number, batch in zip(numbers, one_by_one, strict=True):
        assert batch.source.tolist() == [[MARKS + number] * (1 + number % 5)]
        assert batch.target.tolist() == [[MARKS + number] * (1 + number % 4) + [END]]


@pytest.mark.parametrize(("corpus", "size"), [(SMALL, Sentences(4)), (SHARED, Tokens(40))])
def test_batches_are_of_one_bucket_and_follow_the_seed(tmp_path: Path, corpus: Corpus, size: Size):
    folder = parallel_text(tmp_path, PAIRS)

    found = read(folder, 30, corpus, size, seed=1)

    for batch in found:
        longer = np.maximum(batch.source_lengths, batch.target_lengths).astype(np.int64)
        (bucket,) = set(size.buckets(longer, corpus.limit).tolist())
        assert len(longer) == size.sentences(bucket, corpus.limit)
    assert sources(found) == sources(read(folder, 30, corpus, size, seed=1)) != sources(read(folder, 30, corpus, size))


def test_batches_go_on_over_the_ends_of_passes(tmp_path: Path):
    folder = parallel_text(tmp_path, PAIRS[:3])

    found = Counter(sources(read(folder, 30, size=Sentences(2))))

    assert sum(found.values()) == 60
    assert max(found.values()) - min(found.values()) <= 4  # what a bucket holds of a pass is used in the next


def test_a_sentence_is_in_one_batch_of_a_pass(tmp_path: Path):
    folder = parallel_text(tmp_path, [(f"e{n}", f"v{n}") for n in range(6)])

    found = sources(read(folder, 6, size=Sentences(3)))

    assert sorted(found[:6]) == sorted(found[6:12]) == sorted(found[12:]) == [(MARKS + n,) for n in range(6)]


def test_a_configuration_with_data_reads_it(tmp_path: Path):
    folder = parallel_text(tmp_path, PAIRS)
    config = Config(4, seed=7, data=folder)

    found = list(islice(batches(config, SMALL, Sentences(4), 3), 9))

    assert sources(found) == sources(read(folder, 9, seed=7))


def test_waiting_for_a_batch_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loading, "waited", loading.Stopwatch())

    read(parallel_text(tmp_path, PAIRS), 3)

    assert loading.waited.seconds > 0


def test_a_long_sentence_is_cut_in_words_and_left_out_in_subwords(tmp_path: Path):
    folder = parallel_text(tmp_path, [("a " * 9, "b"), ("a", "b " * 9), ("a a", "b b"), ("", "b"), ("a", " ")])

    words = {(len(each.source[0]), len(each.target[0]) - 1) for each in read(folder, 12, size=Sentences(1))}
    pieces = read(folder, 12, replace(SHARED, longest=6), Tokens(1))

    assert words == {(6, 1), (1, 6), (2, 2)}
    assert {(len(each.source[0]), len(each.target[0]) - 1) for each in pieces} == {(2, 2)}


@pytest.mark.parametrize("block", [1, 2, 3, 1 << 24])
def test_lines_are_found_whatever_they_end_with_and_where_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
):
    monkeypatch.setattr(reader, "BLOCK", block)
    file = tmp_path / "train.en"
    file.write_bytes("één a\r\n\n zwei \u2028 b\n\x85\nlast".encode())

    text = reader.indexed(file)

    assert len(text) == 5
    assert text.starts.tolist() == [0, 9, 10, 22, 25, 29]
    assert text.lines(np.array([4, 0, 2, 1])) == ["last", "één a", "zwei \u2028 b", ""]


def test_an_index_is_one_number_a_line(tmp_path: Path):
    file = tmp_path / "train.en"
    file.write_text("a b c\n" * 100_000)

    assert reader.indexed(file).starts.nbytes == 8 * 100_001


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["train.en", "train.vi"], ("train.en", "train.vi")),
        (["train.de", "train.en", "vocab.de", "vocab.en"], ("train.en", "train.de")),
        (["train.en", "train.vi", "tst2012.en", "tst2012.vi", "tst2013.en", "tst2013.vi"], ("train.en", "train.vi")),
        (
            ["train.tok.bpe.en", "train.tok.bpe.de", "newstest2014.en", "newstest2014.de"],
            ("train.tok.bpe.en", "train.tok.bpe.de"),
        ),
        (["news.fr", "news.de"], ("news.de", "news.fr")),
    ],
)
def test_the_texts_to_train_on_are_found_by_their_names(tmp_path: Path, names: list[str], expected: tuple[str, str]):
    for name in [*names, "README.md", "train.en.gz"]:
        (tmp_path / name).write_text("a\n")

    assert tuple(path.name for path in reader.texts(tmp_path)) == expected
    reader.look(tmp_path)


@pytest.mark.parametrize(
    ("names", "line"),
    [
        ([], "DIR is empty: give --data the folder of the data set"),
        (["train.en"], f"DIR should hold {reader.EXPECTED}, but holds train.en"),
        (["vocab.en", "vocab.vi"], f"DIR should hold {reader.EXPECTED}, but holds vocab.en, vocab.vi"),
        (["train.en", "dev.vi"], f"DIR should hold {reader.EXPECTED}, but holds dev.vi, train.en"),
        (["a.en", "a.vi", "b.en", "b.vi"], "DIR holds the texts a, b: name those to train on train"),
        (["train.en", "train.vi", "train.de"], "DIR holds train in de, en, vi: leave two languages"),
    ],
)
def test_a_folder_without_two_texts_is_refused(tmp_path: Path, names: list[str], line: str):
    for name in names:
        (tmp_path / name).write_text("a\n")

    with pytest.raises(UsageError) as refused:
        reader.look(tmp_path)
    assert str(refused.value) == line.replace("DIR", str(tmp_path))


def test_a_folder_that_may_not_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    line = forbid(monkeypatch, parallel_text(tmp_path / "mine", PAIRS))

    with pytest.raises(UsageError) as refused:
        reader.look(tmp_path / "mine")
    assert str(refused.value) == line


@pytest.mark.parametrize(
    ("files", "line"),
    [
        (
            {"train.en": "a\nb\nc\n", "train.vi": "a\nb\n"},
            "DIR/train.en and DIR/train.vi differ in their number of lines, 3 and 2: "
            "restore both, as each line is the translation of the other's",
        ),
        (
            {"train.en": "a\n", "train.vi": "a\nb"},
            "DIR/train.en and DIR/train.vi differ in their number of lines, 1 and 2: "
            "restore both, as each line is the translation of the other's",
        ),
        ({"train.en": "", "train.vi": "a\n"}, "DIR/train.en is empty: restore it"),
        ({"train.en": "a\n", "train.vi": ""}, "DIR/train.vi is empty: restore it"),
        (
            {"train.en": "a\n", "train.vi": b"a\xff\n"},
            "DIR/train.vi, line 1: not UTF-8 (invalid start byte); restore it",
        ),
        (
            {"train.en": "a\nb\n", "train.vi": b"a\nb\xc3"},
            "DIR/train.vi, line 2: not UTF-8 (unexpected end of data); restore it",
        ),
        ({"train.en": " \n\n", "train.vi": "a\nb\n"}, "DIR/train.en has no words: restore it"),
        (
            {"train.en": "a\n\n", "train.vi": "\nb\n"},
            "DIR/train.en and DIR/train.vi have no pair of 1 to 6 words: restore them",
        ),
        (
            {"train.en": "a\n", "train.vi": "b\n", "vocab.vi": "<unk>\n<s>\n</s>\n \n"},
            "DIR/vocab.vi is a vocabulary without words: restore it, or remove it, and it is made from the text",
        ),
        (
            {"train.en": "a\n", "train.vi": "b\n", "vocab.en": ""},
            "DIR/vocab.en is a vocabulary without words: restore it, or remove it, and it is made from the text",
        ),
        (
            {"train.en": "a\n", "train.vi": "b\n", "vocab.en": b"a\n\xe9t\xe9\n"},
            "DIR/vocab.en, line 2: not UTF-8 (invalid continuation byte); restore it",
        ),
    ],
)
def test_what_is_broken_is_one_line_that_names_the_file(tmp_path: Path, files: dict[str, str | bytes], line: str):
    for name, held in files.items():
        (tmp_path / name).write_bytes(held if isinstance(held, bytes) else held.encode())

    with pytest.raises(DataError) as broken:
        read(tmp_path, 1)
    assert str(broken.value) == line.replace("DIR", str(tmp_path))


@pytest.mark.parametrize(("held", "line"), [(b"a\nb\xc3", 2), (b"a\n\xffb\nc\n", 2), (b"\xe2\x82\n", 1)])
@pytest.mark.parametrize("block", [1, 1 << 24])
def test_an_index_is_made_of_utf_8_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bytes, line: int, block: int
):
    monkeypatch.setattr(reader, "BLOCK", block)
    file = tmp_path / "train.en"
    file.write_bytes(held)

    with pytest.raises(DataError, match=rf"train\.en, line {line}: not UTF-8 \("):
        reader.indexed(file)


@pytest.mark.parametrize("taken", [lambda: read, lambda: reader.indexed], ids=["vocabulary", "index"])
def test_a_text_that_may_not_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: Callable[[], object]
):
    folder, opened = parallel_text(tmp_path, PAIRS), Path.open
    refused = folder / "vocab.en" if taken() is read else folder / "train.en"
    listed(folder, "en", "a")

    def refuse(path: Path, *rest: object, **more: object) -> object:
        if path == refused:
            raise denied(path)
        return opened(path, *rest, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError) as broken:
        read(folder, 1)
    assert str(broken.value) == f"cannot read {refused}: Permission denied; make it readable"


def test_a_vocabulary_gives_the_numbers_of_words(tmp_path: Path):
    folder = parallel_text(tmp_path, [("c a b a", "y z")])
    listed(folder, "en", "b a")
    listed(folder, "vi", "z y x")

    (batch,) = read(folder, 1, size=Sentences(1))

    assert batch.source.tolist() == [[UNKNOWN, MARKS + 1, MARKS, MARKS + 1]]
    assert batch.target.tolist() == [[MARKS + 1, MARKS, END]]


def test_a_vocabulary_is_made_once_and_kept_most_frequent_first(tmp_path: Path):
    folder = parallel_text(tmp_path, [("b a c a", "z"), ("b a <s>", "z y")])

    first = read(folder, 4)

    assert (folder / "vocab.en").read_text() == "<unk>\n<s>\n</s>\na\nb\nc\n"
    assert (folder / "vocab.vi").read_text() == "<unk>\n<s>\n</s>\nz\ny\n"
    assert sorted(path.name for path in folder.iterdir()) == ["train.en", "train.vi", "vocab.en", "vocab.vi"]
    assert sources(read(folder, 4)) == sources(first)
    listed(folder, "en", "c b a")
    assert sources(read(folder, 4)) != sources(first)


def test_what_may_not_be_kept_is_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = parallel_text(tmp_path, PAIRS)

    opened = Path.open

    def full(path: Path, mode: str = "r", **options: object) -> object:
        if mode == "x":
            path.touch()
            raise OSError(28, "No space left on device", str(path))
        return opened(path, mode, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    held = [sources(read(folder, 8)), sources(read(folder, 8, SHARED, Tokens(40)))]
    assert sorted(path.name for path in folder.iterdir()) == ["train.en", "train.vi"]
    monkeypatch.undo()
    assert [sources(read(folder, 8)), sources(read(folder, 8, SHARED, Tokens(40)))] == held
    kept = ["subwords-120.json", "train.en", "train.vi", "vocab.en", "vocab.vi"]
    assert sorted(path.name for path in folder.iterdir()) == kept


@pytest.mark.parametrize("kept", [True, False])
def test_of_more_words_than_the_model_has_the_most_frequent_are_taken(tmp_path: Path, kept: bool):
    folder = parallel_text(tmp_path, [("a b b c c c d", "y")])
    if kept:
        listed(folder, "en", "x a b c d")

    words = vocabulary(folder / "vocab.en", folder / "train.en", 3 + 2)

    assert len(words) == 2
    assert [each.tolist() for each in words.encode(["c b", "a x d"])] == [[3, 4], [0, 0, 0]]
    assert most_frequent(folder / "train.en") == ["c", "b", "a", "d"]


def test_fewer_words_than_the_model_has_leave_rows_unused(tmp_path: Path):
    folder = parallel_text(tmp_path, PAIRS)

    assert max(map(max, sources(read(folder, 40, replace(SMALL, source_words=17_191))))) == MARKS + 39


def test_subwords_give_back_the_sentence(tmp_path: Path):
    folder = parallel_text(tmp_path, TEXT, ("en", "de"))

    shared = subwords(folder / "subwords.json", reader.texts(folder), 80)

    for pair in TEXT:
        for sentence, numbers in zip(pair, shared.encode(pair), strict=True):
            assert shared.decode(numbers) == sentence
            assert ((numbers >= MARKS) & (numbers < 80)).all()


def test_both_sides_have_one_vocabulary_of_subwords(tmp_path: Path):
    folder = parallel_text(tmp_path, [("ein Fuchs", "ein Fuchs"), ("an old fox", "an old fox")], ("en", "de"))

    for batch in read(folder, 4, SHARED, Tokens(1)):
        assert [*batch.source[0], END] == batch.target[0].tolist()


def test_what_was_never_seen_and_the_marks_themselves_are_unknown(tmp_path: Path):
    folder = parallel_text(tmp_path, TEXT, ("en", "de"))
    shared = subwords(folder / "subwords.json", reader.texts(folder), 80)

    assert [each.tolist() for each in shared.encode(["", "</s>"])] == [[], [UNKNOWN]]
    numbers = shared.encode(["old 漢 fox"])[0]
    assert np.count_nonzero(numbers == UNKNOWN) == 1


def test_subwords_are_learned_once_and_kept(tmp_path: Path):
    folder = parallel_text(tmp_path, TEXT * 3, ("en", "de"))

    first = read(folder, 6, SHARED, Tokens(40))
    file = folder / "subwords-120.json"
    learned = file.read_bytes()
    parallel_text(folder, TEXT * 3, ("en", "de"))

    assert sources(read(folder, 6, SHARED, Tokens(40))) == sources(first)
    assert file.read_bytes() == learned
    assert {"vocab.en", "vocab.de"} & {path.name for path in folder.iterdir()} == set()


def test_the_same_texts_give_the_same_subwords_in_every_process(tmp_path: Path):
    script = (
        "import sys; from pathlib import Path; from tbdprof.suite.data.text.subwords import subwords; "
        "at = Path(sys.argv[1]); subwords(at / sys.argv[2], (at / 'train.en', at / 'train.de'), 60)"
    )
    parallel_text(tmp_path, TEXT, ("en", "de"))
    for name in ("one.json", "other.json"):
        subprocess.run([sys.executable, "-c", script, tmp_path, name], check=True)

    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "other.json").read_bytes()


@pytest.mark.parametrize("rows", [10, 80])
def test_no_subword_is_beyond_the_rows_of_the_model(tmp_path: Path, rows: int):
    folder = parallel_text(tmp_path, TEXT, ("en", "de"))

    shared: Subwords = subwords(folder / "subwords.json", reader.texts(folder), rows)

    assert len(shared) <= rows - MARKS
    assert max(int(numbers.max()) for pair in TEXT for numbers in shared.encode(pair)) < rows


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        ("{", "holds no subwords: "),
        ("", "holds no subwords: "),
        ("[1, 2]", "holds no subwords: "),
        (json.dumps({"version": "1.0"}), "holds no subwords: "),
        (None, "does not begin with the marks <unk> <s> </s>: "),
    ],
)
def test_a_damaged_file_of_subwords_is_one_line(tmp_path: Path, held: str | None, reason: str):
    folder = parallel_text(tmp_path, TEXT, ("en", "de"))
    file = folder / "subwords-120.json"
    read(folder, 1, SHARED, Tokens(40))
    file.write_text(file.read_text().replace("<s>", "<t>") if held is None else held)

    with pytest.raises(DataError) as broken:
        read(folder, 1, SHARED, Tokens(40))
    said = str(broken.value)
    assert said.startswith(f"{file} {reason}")
    assert said.endswith("remove it, and it is made again from the texts")
    assert "\n" not in said


def test_texts_without_words_have_no_subwords(tmp_path: Path):
    folder = parallel_text(tmp_path, [("", ""), ("", "")])

    with pytest.raises(DataError, match=r"train\.en and .*train\.vi have no words: restore them$"):
        read(folder, 1, SHARED, Tokens(40))


def test_without_tokenizers_one_line_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)

    with pytest.raises(UsageError, match=r"^subwords need tokenizers: pip install 'tbdprof\[text\]'$"):
        read(parallel_text(tmp_path, TEXT), 1, SHARED, Tokens(40))
    assert len(read(tmp_path, 1)) == 1  # words need no package


@pytest.mark.parametrize("name", ["IWSLT15", "WMT-14"])
def test_both_data_sets_have_this_reader(name: str):
    assert datasets.DATASETS[name].reader == "text.parallel_text"
