"""Recordings with transcripts, laid out as LibriSpeech's."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import soundfile

Said = tuple[float, str]  # seconds, transcript


def librispeech(folder: Path, chapters: Mapping[str, Mapping[str, Said]], rate: int = 16_000) -> Path:
    """Make chapters ("103/1240") of utterances by number: tones, louder the longer, with transcripts."""
    for chapter, utterances in chapters.items():
        (folder / chapter).mkdir(parents=True)
        name = chapter.replace("/", "-")
        lines = []
        for number, (seconds, text) in utterances.items():
            samples = np.sin(np.arange(round(rate * seconds)) / 5) * min(0.9, seconds / 10)
            soundfile.write(folder / chapter / f"{name}-{number}.flac", samples, rate)
            lines.append(f"{name}-{number} {text}\n")
        (folder / chapter / f"{name}.trans.txt").write_text("".join(lines))
    return folder
