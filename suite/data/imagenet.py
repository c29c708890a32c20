"""ImageNet1K, or any folder of images sorted into one folder per class: DIR/train/CLASS/FILE or DIR/CLASS/FILE.

Augmentation is by random resized crops (8 to 100 % of the area, ratio 3/4 to 4/3) and horizontal flips, after Szegedy
et al., 2015 (arXiv:1409.4842, section 6). Goyal et al., 2017 (arXiv:1706.02677, section 5.1) and torchvision's
reference training do the same. Images are normalized by ImageNet's mean and standard deviation.
"""

import math
import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tbdprof.errors import UsageError
from tbdprof.suite.data.images import SUFFIXES, decode, normalized
from tbdprof.suite.data.inputs import ImageBatch
from tbdprof.suite.data.loading import Draft, check_folder, generator, prefetch, readable, shuffled, wrong_kind

EXPECTED = "a folder of images a class, DIR/train/CLASS/*.JPEG or DIR/CLASS/*.JPEG"
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10  # attempts to draw a crop that lies within the image; then the largest central crop is taken

Box = tuple[int, int, int, int]  # left, top, right, bottom


def look(folder: Path) -> None:
    """Raise UsageError unless a folder holds images sorted into classes; opens no image."""
    for each in _class_folders(folder):
        if next(_images(each), None) is None:
            raise UsageError(f"{each} holds no image: fill it, or remove it, as it would be a class without samples")


def batches(folder: Path, batch_size: int, image_size: int, classes: int, seed: int) -> Iterator[ImageBatch]:
    """Return endless batches of square crops, reshuffled every pass.

    A class is the position of its folder among all folders, sorted by name; folders beyond `classes` are left out. A
    batch may cross the end of a pass. Raises UsageError if the folder holds something else, DataError for a broken
    image.
    """
    look(folder)
    files, labels = list[str](), list[int]()
    for label, each in enumerate(_class_folders(folder)[:classes]):
        found = sorted(_images(each))
        files += found
        labels += [label] * len(found)
    return prefetch(_drafts(files, np.array(labels), batch_size, image_size, seed))


def crop(width: int, height: int, draw: np.random.Generator) -> Box:
    """Return a random part of an image; its share of the area and the logarithm of its ratio are uniform."""
    for _ in range(TRIES):
        area = width * height * draw.uniform(*AREA)
        ratio = math.exp(draw.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(draw.integers(width - wide + 1)), int(draw.integers(height - high + 1))
            return left, top, left + wide, top + high
    wide = max(1, min(width, round(height * RATIO[1])))
    high = max(1, min(height, round(width / RATIO[0])))
    left, top = (width - wide) // 2, (height - high) // 2
    return left, top, left + wide, top + high


def _drafts(
    files: list[str], labels: NDArray[np.int64], batch_size: int, image_size: int, seed: int
) -> Iterator[Draft[ImageBatch]]:
    indices = shuffled(len(files), seed)
    for first in count(step=batch_size):
        chosen = [next(indices) for _ in range(batch_size)]
        images = np.empty((batch_size, 3, image_size, image_size), np.float32)
        tasks = tuple(
            partial(_read, files[index], images[place], generator(seed, first + place))
            for place, index in enumerate(chosen)
        )
        batch = ImageBatch(images, labels[chosen])
        yield Draft(tasks, partial(_filled, batch))


def _filled(batch: ImageBatch, _: Sequence[None]) -> ImageBatch:
    return batch


def _read(file: str, into: NDArray[np.float32], draw: np.random.Generator) -> None:
    """Fill one row of a batch with a random crop of an image."""
    image = decode(file)
    box = crop(*image.size, draw)
    side = into.shape[-1]
    resized = image.resize((side, side), Image.Resampling.BILINEAR, box=box)
    into[:] = normalized(resized, flip=draw.random() < 0.5)


def _class_folders(folder: Path) -> list[Path]:
    """Return the folders of the classes, sorted by name."""
    check_folder(folder)
    train = folder / "train"
    with readable(folder):
        top = train if train.is_dir() else folder
        found = sorted(each for each in top.iterdir() if each.is_dir() and not each.name.startswith("."))
    if not found or {"Annotations", "JPEGImages"} <= {each.name for each in found}:
        raise wrong_kind(top, EXPECTED)
    if all(next(_images(each), None) is None for each in found):
        raise wrong_kind(top, EXPECTED)
    return found


def _images(folder: Path) -> Iterator[str]:
    """Yield the paths of a folder's images as text, which takes a third of the memory of Path objects."""
    with readable(folder), os.scandir(folder) as entries:
        for entry in entries:
            if os.path.splitext(entry.name)[1].lower() in SUFFIXES and not entry.name.startswith("."):  # noqa: PTH122
                yield entry.path
