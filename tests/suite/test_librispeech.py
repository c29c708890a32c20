"""LibriSpeech's recordings come with their transcripts, in batches of about the same duration."""

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile
from speech_files import librispeech

from tbdprof import suite
from tbdprof.collect import host
from tbdprof.errors import DataError, UsageError
from tbdprof.suite.data import librispeech as reader
from tbdprof.suite.data import loading, speech
from tbdprof.suite.data.speech import Utterances
from tbdprof.suite.deep_speech2 import SPEC

CHAPTERS = {
    "103/1240": {"0000": (1.0, "CHAPTER ONE"), "0001": (0.5, "IT'S"), "0002": (2.25, "A TALE")},
    "84/121123": {"0000": (1.9, "GO"), "0001": (2.5, "HI HO"), "0002": (0.75, "NO")},
}


def taken(folder: Path, count: int = 1, batch_size: int = 1, longest: int = 30, seed: int = 0) -> list[Utterances]:
    return list(islice(reader.batches(folder, batch_size, longest, seed), count))


def texts(batch: Utterances) -> list[str]:
    return [speech.text(said[:length]) for said, length in zip(batch.transcripts, batch.lengths, strict=True)]


def test_an_utterance_is_its_spectrogram_and_its_transcript(tmp_path: Path) -> None:
    folder = librispeech(tmp_path, {"1/2": {"0000": (1.0, "IT'S A Z")}})

    (batch,) = taken(folder)

    assert batch.spectrograms.shape == (1, 99, 161)  # windows of 320 samples every 160 within 16,000
    assert batch.spectrograms.dtype == np.float32
    assert batch.frames.tolist() == [99]
    assert batch.transcripts.tolist() == [[10, 21, 1, 20, 28, 2, 28, 27]]
    assert (batch.lengths.tolist(), batch.seconds) == ([8], 1.0)
    assert batch.spectrograms.mean() == pytest.approx(0, abs=1e-5)
    assert batch.spectrograms.std() == pytest.approx(1, rel=1e-5)
    # sin(n / 5) is a tone of 16,000 / (10 π) = 509 Hz, and a bin is 50 Hz wide.
    assert set(batch.spectrograms[0].argmax(1)) == {10}


def test_batches_are_of_about_the_same_duration_the_longest_first(tmp_path: Path) -> None:
    batches = taken(librispeech(tmp_path, CHAPTERS), 6, batch_size=2)

    for batch in batches:
        assert (np.diff(batch.frames) <= 0).all()
        assert len({int(frames // 100) for frames in batch.frames + 1}) == 1
        for spectrogram, frames in zip(batch.spectrograms, batch.frames, strict=True):
            assert not spectrogram[frames:].any()
    assert {text for batch in batches for text in texts(batch)} == {
        text for chapter in CHAPTERS.values() for _, text in chapter.values()
    }


def test_every_pass_has_every_utterance_and_the_bytes_follow_the_seed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = librispeech(tmp_path, CHAPTERS)
    drawn = {}
    for cores, seed in [(1, 0), (4, 0), (4, 1)]:
        monkeypatch.setattr(host, "usable_cores", lambda cores=cores: float(cores))
        drawn[cores, seed] = [(texts(batch), batch.spectrograms.tobytes()) for batch in taken(folder, 12, seed=seed)]

    assert drawn[1, 0] == drawn[4, 0] != drawn[4, 1]
    said = [text for (text,), _ in drawn[1, 0]]
    assert sorted(said[:6]) == sorted(said[6:])
    assert len(set(said[:6])) == 6
    assert said[:6] != said[6:]


def test_utterances_that_are_too_long_are_left_out(tmp_path: Path) -> None:
    folder = librispeech(tmp_path, CHAPTERS)

    assert {text for batch in taken(folder, 6, longest=1) for text in texts(batch)} == {"CHAPTER ONE", "IT'S", "NO"}


def test_where_all_are_too_long_a_line_says_what_to_give(tmp_path: Path) -> None:
    folder = librispeech(tmp_path, {"1/2": {"0000": (2.25, "A"), "0001": (3.0, "B")}})

    with pytest.raises(UsageError, match=r"no utterance in .* has at most 1 s: give --longest 3 or more"):
        taken(folder, longest=1)


@pytest.mark.parametrize("inside", ["", "train-clean-100", "LibriSpeech/train-clean-100"])
def test_the_folder_may_be_the_one_above(tmp_path: Path, inside: str) -> None:
    librispeech(tmp_path / inside, CHAPTERS)

    reader.look(tmp_path)
    assert len(taken(tmp_path)) == 1


def cut(folder: Path) -> None:
    path = folder / "103/1240/103-1240-0001.flac"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(folder: Path) -> None:
    (folder / "103/1240/103-1240-0001.flac").write_bytes(b"")


def drop_a_transcript(folder: Path) -> None:
    path = folder / "103/1240/103-1240.trans.txt"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "0001" not in line))


def drop_the_transcripts(folder: Path) -> None:
    for path in folder.glob("*/*/*.trans.txt"):
        path.unlink()


def drop_a_recording(folder: Path) -> None:
    (folder / "84/121123/84-121123-0001.flac").unlink()


def say_nothing(folder: Path) -> None:
    path = folder / "103/1240/103-1240.trans.txt"
    path.write_text(path.read_text().replace("IT'S", ""))


def write_a_digit(folder: Path) -> None:
    path = folder / "103/1240/103-1240.trans.txt"
    path.write_text(path.read_text().replace("IT'S", "it 1"))


def scramble(folder: Path) -> None:
    (folder / "103/1240/103-1240.trans.txt").write_bytes(b"\xff\xfe103")


def sample_faster(folder: Path) -> None:
    soundfile.write(folder / "103/1240/103-1240-0001.flac", np.zeros(44_100), 44_100)


def record_in_stereo(folder: Path) -> None:
    soundfile.write(folder / "103/1240/103-1240-0001.flac", np.zeros((16_000, 2)), 16_000)


def say_too_much(folder: Path) -> None:
    path = folder / "103/1240/103-1240.trans.txt"
    path.write_text(path.read_text().replace("IT'S", "AA" * 9))  # 18 symbols and 17 blanks in 25 places


ONE = "DIR/103/1240/103-1240-0001.flac"
LINES = "DIR/103/1240/103-1240.trans.txt"


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (cut, f"{ONE} is cut or damaged: Internal psf_fseek() failed; restore it, or remove it"),
        (empty, f"{ONE} is no FLAC: restore it, or remove it"),
        (
            drop_a_transcript,
            f"{ONE} has no transcript: add a line 103-1240-0001 to its folder's .trans.txt, or remove it",
        ),
        (drop_the_transcripts, "DIR has recordings and no .trans.txt beside them: restore the transcripts"),
        (
            drop_a_recording,
            "DIR/84/121123/84-121123.trans.txt has a transcript of 84-121123-0001, but there is no "
            "84-121123-0001.flac: restore it",
        ),
        (
            say_nothing,
            f"{LINES} has no transcript of 103-1240-0001: write it behind the name, or remove the line",
        ),
        (
            write_a_digit,
            f"{LINES} has '1', 'i', 't' in the transcript of 103-1240-0001: "
            "write it in capital letters, apostrophes and spaces",
        ),
        (scramble, f"{LINES} is no text in UTF-8: restore it"),
        (sample_faster, f"{ONE} has 44100 Hz in 1 channel, where 16000 Hz in 1 channel are needed: convert it"),
        (record_in_stereo, f"{ONE} has 16000 Hz in 2 channels, where 16000 Hz in 1 channel are needed: convert it"),
        (
            say_too_much,
            f"{ONE} has 0.50 s, which is too short for its transcript of 18 symbols in {LINES}: restore both",
        ),
    ],
)
def test_what_is_broken_is_named_in_one_line(damage: Callable[[Path], None], line: str, tmp_path: Path) -> None:
    folder = librispeech(tmp_path, CHAPTERS)
    damage(folder)

    with pytest.raises(DataError) as refused:
        taken(folder, 6)

    assert str(refused.value).replace(str(folder), "DIR") == line


def test_a_folder_of_another_kind_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "dog").mkdir()

    with pytest.raises(UsageError) as refused:
        reader.look(tmp_path)

    assert str(refused.value) == f"{tmp_path} should hold {reader.EXPECTED}, but holds dog/"


def test_without_soundfile_a_line_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = librispeech(tmp_path, CHAPTERS)
    monkeypatch.setitem(sys.modules, "soundfile", None)

    with pytest.raises(UsageError, match=r"^FLAC needs soundfile: pip install 'tbdprof\[speech\]'$"):
        reader.look(folder)


@pytest.mark.parametrize("framework", ["torch", "mxnet", "tensorflow"])
def test_every_framework_trains_on_recordings_and_waiting_is_counted(framework: str, tmp_path: Path) -> None:
    folder = librispeech(tmp_path, CHAPTERS)
    before = loading.waited.seconds
    workload = suite.build("deep_speech2", framework, suite.configure(SPEC, data=folder, options={"longest": 1}))

    consumed = workload.step()

    assert 1.0 <= consumed.units <= 2.0
    assert consumed.also == {"utterances": 2}
    assert loading.waited.seconds > before
    assert workload.inputs == ()
