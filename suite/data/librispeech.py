"""LibriSpeech, or any recordings in the same layout: DIR/SPEAKER/CHAPTER/*.flac and *.trans.txt.

After Panayotov et al., 2015. Each line of a `.trans.txt` is the name of an utterance, which is also the name of its
file, and its transcript in capital letters, apostrophes and spaces. DIR may also be the parent folder of the training
subset, train-clean-100. Recordings must have 16 kHz and one channel: nothing is resampled.

The utterances of a batch have about the same duration, within one second, like the buckets of MXNet's
`example/speech_recognition`. Every pass shuffles the utterances; as soon as enough utterances of the same whole second
have come, they form a batch.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from types import ModuleType

from tbdprof.errors import DataError, UsageError
from tbdprof.suite.data import speech
from tbdprof.suite.data.files import check_file, text
from tbdprof.suite.data.loading import LISTED, Draft, check_folder, prefetch, readable, remedy, shuffled, wrong_kind
from tbdprof.suite.data.speech import RATE, Utterance, Utterances, Whole

EXPECTED = "LibriSpeech's SPEAKER/CHAPTER/*.flac and *.trans.txt, or a folder train-clean-100/ with them"
SUBSETS = ("", "train-clean-100", "LibriSpeech/train-clean-100")
TRANSCRIPTS = "*/*/*.trans.txt"
MAGIC = b"fLaC"  # libsndfile would try dozens of other formats
MOST_BYTES = 64 << 20  # of a recording; the longest of train-clean-100 would have 0.8 MB without compression
LONGEST_BLOCK = 65_535  # samples in a block of FLAC, which takes more than a byte


@dataclass(frozen=True, slots=True)
class Recording:
    """A file, the number of samples that its header states, and its transcript."""

    file: Path
    samples: int
    transcript: Whole

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.samples / RATE


def look(folder: Path) -> None:
    """Raise UsageError unless a folder has LibriSpeech's layout and FLAC can be read here; opens no file."""
    _root(folder)
    _soundfile()


def batches(folder: Path, batch_size: int, longest: int, seed: int) -> Iterator[Utterances]:
    """Return endless batches of utterances of at most `longest` seconds, reshuffled every pass.

    All transcripts and headers are read at the call. Raises UsageError if the folder holds something else, DataError
    for a broken file or transcript.
    """
    found = recordings(folder)
    kept = [each for each in found if each.seconds <= longest]
    if not kept:
        shortest = min(each.seconds for each in found)
        raise UsageError(f"no utterance in {folder} has at most {longest} s: give --longest {ceil(shortest)} or more")
    return prefetch(_drafts(kept, batch_size, seed))


def recordings(folder: Path) -> list[Recording]:
    """Return all utterances of a folder, sorted by name; raises DataError that names a broken file."""
    root, soundfile = _root(folder), _soundfile()
    with readable(root):
        files = sorted(root.glob(TRANSCRIPTS))
        flacs = {path.stem: path for path in sorted(root.glob("*/*/*.flac"))}
    transcripts = {name: (file, said) for file in files for name, said in _transcripts(file).items()}
    for name, path in flacs.items():
        if name not in transcripts:
            raise DataError(f"{path} has no transcript: add a line {name} to its folder's .trans.txt, or remove it")
    for name, (file, _) in transcripts.items():
        if name not in flacs:
            raise DataError(f"{file} has a transcript of {name}, but there is no {name}.flac: restore it")
    return [_recording(flacs[name], *transcripts[name], soundfile) for name in sorted(transcripts)]


def read(recording: Recording) -> Utterance:
    """Return an utterance; raises DataError if its sound cannot be decoded or ends early."""
    soundfile = _soundfile()
    try:
        sound, _ = soundfile.read(recording.file, dtype="float32")
    except soundfile.SoundFileError as error:
        raise DataError(f"{recording.file} is cut or damaged: {_reason(error)}; restore it, or remove it") from error
    if len(sound) != recording.samples:
        promised, there = (f"{count / RATE:.2f} s" for count in (recording.samples, len(sound)))
        raise DataError(f"{recording.file} is cut: {promised} are promised, {there} are there: restore it")
    return Utterance(speech.spectrogram(sound), recording.transcript, recording.seconds)


def _drafts(found: Sequence[Recording], batch_size: int, seed: int) -> Iterator[Draft[Utterances]]:
    waiting = defaultdict[int, list[Recording]](list)  # keyed by the duration in whole seconds
    for index in shuffled(len(found), seed):
        bucket = waiting[int(found[index].seconds)]
        bucket.append(found[index])
        if len(bucket) == batch_size:
            yield Draft(tuple(partial(read, each) for each in bucket), speech.batch)
            bucket.clear()


def _recording(path: Path, file: Path, said: str, soundfile: ModuleType) -> Recording:
    """Return a recording from a file's header and its transcript, after checking that they agree."""
    try:
        check_file(path, MOST_BYTES)
        with path.open("rb") as sound:
            begins = sound.read(len(MAGIC))
        if begins != MAGIC:
            raise DataError(f"{path} is no FLAC: restore it, or remove it")
        header = soundfile.info(path)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; {remedy(error)}, or remove it") from error
    except soundfile.SoundFileError as error:
        raise DataError(f"cannot read {path} as FLAC: {_reason(error)}; restore it, or remove it") from error
    if header.frames > LONGEST_BLOCK * path.stat().st_size:
        raise DataError(f"{path} states more samples than its bytes can hold: restore it, or remove it")
    if (header.samplerate, header.channels) != (RATE, 1):
        found = f"{header.samplerate} Hz in {header.channels} channel{'s' * (header.channels > 1)}"
        raise DataError(f"{path} has {found}, where {RATE} Hz in 1 channel are needed: convert it")
    try:
        transcript = speech.transcribed(said)
    except ValueError as error:
        strange = sorted(set(said) - set(speech.SYMBOLS[1:]))[:LISTED]
        raise DataError(
            f"{file} has {', '.join(map(repr, strange))} in the transcript of {path.stem}: "
            "write it in capital letters, apostrophes and spaces"
        ) from error
    places = speech.halved(speech.frame_count(header.frames))
    if places < speech.needed(transcript):
        raise DataError(
            f"{path} has {header.frames / RATE:.2f} s, which is too short for its transcript of {len(transcript)} "
            f"symbols in {file}: restore both"
        )
    return Recording(path, header.frames, transcript)


def _transcripts(file: Path) -> dict[str, str]:
    """Return the transcripts of a file, keyed by utterance name."""
    try:
        lines = text(file).splitlines()
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}; {remedy(error)}") from error
    pairs = [line.partition(" ") for line in lines if line.strip()]
    found = {name: said.strip() for name, _, said in pairs}
    for name, said in found.items():
        if not said:
            raise DataError(f"{file} has no transcript of {name}: write it behind the name, or remove the line")
    return found


def _root(folder: Path) -> Path:
    """Return the folder of the speakers."""
    check_folder(folder)
    for subset in SUBSETS:
        root = folder / subset
        with readable(folder):
            if next(root.glob(TRANSCRIPTS), None) is not None:
                return root
            if next(root.glob("*/*/*.flac"), None) is not None:
                raise DataError(f"{root} has recordings and no .trans.txt beside them: restore the transcripts")
    raise wrong_kind(folder, EXPECTED)


def _reason(error: Exception) -> str:
    """Return libsndfile's message without the file's name at its start and the full stop at its end."""
    return str(error).rpartition(": ")[2].rstrip(".")


def _soundfile() -> ModuleType:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: libsndfile itself is missing
        raise UsageError("FLAC needs soundfile: pip install 'tbdprof[speech]'") from error
    module: ModuleType = soundfile
    return module
