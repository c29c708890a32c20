"""The data sets of the suite: the facts of the TBD paper's table III (arXiv:1803.06905), and a reader for each.

A model names its data set in its `Spec`. A data set that is not listed here is checked by the model that reads it.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path

from tbdprof.errors import UsageError
from tbdprof.suite.workload import Spec

SYNTHETIC = "synthetic"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A row of table III; `size` describes one sample."""

    name: str
    samples: str
    size: str
    special: str = ""
    reader: str | None = None  # module of this folder with `look(folder)` and `batches(folder, …)`, or a game


DATASETS: dict[str, Dataset] = {
    each.name: each
    for each in (
        Dataset("ImageNet1K", "1.2 million", "3×256×256 per image", reader="imagenet"),
        Dataset(
            "IWSLT15",
            "133 k",
            "20-30 words per sentence",
            "vocabulary of 17188 (English to Vietnamese)",
            reader="text.parallel_text",
        ),
        Dataset(
            "WMT-14",
            "4.5 million",
            "up to 50 words (most sentences)",
            "vocabulary of 37000 (English to German)",
            reader="text.parallel_text",
        ),
        Dataset("Pascal VOC 2007", "5011 (train+val)", "around 500×350", "12608 annotated objects", reader="voc"),
        Dataset("LibriSpeech", "280 k", "1000 hours", "trained on the subset of 100 hours", reader="librispeech"),
        Dataset("Downsampled ImageNet", "1.2 million", "3×64×64 per image", reader="downsampled_imagenet"),
        Dataset("Atari 2600", "", "4×84×84 per image", reader="atari"),
    )
}


def look(spec: Spec, folder: Path) -> None:
    """Take a first look at the folder that a model will read; raises UsageError if it cannot be the data set.

    It opens as few files as possible; a broken file may be found later and raise a DataError.
    """
    known = DATASETS.get(spec.dataset)
    if known is not None and known.reader is None:
        raise UsageError(f"{spec.name} cannot read {spec.dataset} yet: leave out --data, or give {SYNTHETIC}")
    if known is not None:
        importlib.import_module(f"{__package__}.{known.reader}").look(folder)
        return
    from tbdprof.suite.data.loading import readable  # with numpy, which a list of models does not need

    with readable(folder):
        if not folder.is_dir():
            raise UsageError(f"no folder {folder}: give --data the folder of {spec.dataset}, or {SYNTHETIC}")
