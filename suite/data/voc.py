"""Pascal VOC 2007's training and validation images with their annotated objects: DIR, or DIR/VOC2007.

After Everingham et al., The Pascal Visual Object Classes Challenge, and the 2007 development kit. Objects marked as
difficult are left out of training, and so are images that have no other objects. The rest are the 12,608 objects of
table III in the TBD paper (arXiv:1803.06905). The XML counts pixels from 1, and its boxes include their last row and
column. Here a box is given by its edges, counted from 0; the box of a whole image is (0, 0, width, height).
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tbdprof.errors import DataError
from tbdprof.suite.data.files import contents, shown, text
from tbdprof.suite.data.images import decode, normalized
from tbdprof.suite.data.inputs import DetectionBatch
from tbdprof.suite.data.loading import (
    Draft,
    check_folder,
    generator,
    prefetch,
    readable,
    remedy,
    shuffled,
    wrong_kind,
)

EXPECTED = "Pascal VOC's Annotations/, JPEGImages/ and ImageSets/Main/trainval.txt, or a folder VOC2007/ with them"
CLASSES = (  # in the order of the development kit; class 0 is the background
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)
LABELS = {name: label for label, name in enumerate(CLASSES, 1)}
NUMBER = re.compile(r"-?[0-9]{1,9}(\.[0-9]{0,9})?")
MOST_BYTES = 1 << 20  # of an annotation; an object takes about 300
EDGES = ("xmin", "ymin", "xmax", "ymax")

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Annotation:
    """An image and the objects in it; boxes are edges in pixels, counted from 0."""

    file: Path  # of the annotation, named in errors
    image: Path
    width: int
    height: int
    boxes: Floats  # (objects, 4): left, top, right, bottom
    labels: NDArray[np.int64]


class _Tree(ET.TreeBuilder):
    """Builds the tree of an annotation, which needs no document type; one may declare entities without end."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("it declares a document type")


def look(folder: Path) -> None:
    """Raise UsageError unless a folder has Pascal VOC's layout; reads no annotation."""
    _root(folder)


def batches(folder: Path, shorter_side: int, longer_side: int, seed: int) -> Iterator[DetectionBatch]:
    """Return endless batches of one image, reshuffled every pass, mirrored half of the time.

    The image is scaled so that its shorter side has the requested length, or so that its longer side has its limit if
    it would exceed that. All annotations are read at the call. Raises UsageError if the folder holds something else,
    DataError for a broken file.
    """
    root = _root(folder)
    found = [annotation(root, name) for name in _names(root)]
    kept = [each for each in found if len(each.boxes)]
    if not kept:
        raise DataError(f"{root / 'ImageSets/Main/trainval.txt'} names no image with objects that are not difficult")
    return prefetch(_drafts(kept, shorter_side, longer_side, seed))


def annotation(root: Path, name: str) -> Annotation:
    """Return the annotation of an image, without difficult objects; raises DataError that names the file."""
    file = root / "Annotations" / f"{name}.xml"
    try:
        tree = ET.fromstring(contents(file, MOST_BYTES), ET.XMLParser(target=_Tree()))
    except OSError as error:
        raise DataError(
            f"cannot read {file}: {error.strerror}; {remedy(error)}, or take {name} out of trainval.txt"
        ) from error
    except (ET.ParseError, LookupError, ValueError) as error:  # the latter two come from the encoding that a file names
        raise DataError(f"{file} is no XML: {error}; restore it, or take {name} out of trainval.txt") from error
    width, height = (int(_number(file, tree, f"size/{side}")) for side in ("width", "height"))
    objects = tree.findall("object")
    if not objects:
        raise DataError(f"{file} has no object: annotate one, or take {name} out of trainval.txt")
    each = [(_box(file, item, width, height), _label(file, item), _is_difficult(item)) for item in objects]
    kept = [(box, label) for box, label, difficult in each if not difficult]
    boxes = np.array([box for box, _ in kept], np.float32).reshape(-1, 4)
    labels = np.array([label for _, label in kept], np.int64)
    return Annotation(file, root / "JPEGImages" / f"{name}.jpg", width, height, boxes, labels)


def scaled(width: int, height: int, shorter_side: int, longer_side: int) -> tuple[int, int]:
    """Return the size at which the shorter side has the requested length, or the longer side its limit."""
    scale = min(shorter_side / min(width, height), longer_side / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def mirrored(boxes: Floats, width: int) -> Floats:
    """Return the boxes mirrored in an image of a width."""
    flipped = boxes.copy()
    flipped[:, 0], flipped[:, 2] = width - boxes[:, 2], width - boxes[:, 0]
    return flipped


def read(annotated: Annotation, shorter_side: int, longer_side: int, draw: np.random.Generator) -> DetectionBatch:
    """Return an image with its objects, scaled and perhaps mirrored; raises DataError if they contradict each other."""
    image = decode(annotated.image)
    if image.size != (annotated.width, annotated.height):
        stated, found = f"{annotated.width}×{annotated.height}", f"{image.width}×{image.height}"
        raise DataError(
            f"{annotated.file} states an image size of {stated}, but {annotated.image} is {found}: restore both"
        )
    size = scaled(*image.size, shorter_side, longer_side)
    ratio = np.array([size[0] / image.width, size[1] / image.height] * 2, np.float32)
    boxes, flip = annotated.boxes * ratio, bool(draw.random() < 0.5)
    pixels = normalized(image.resize(size, Image.Resampling.BILINEAR), flip=flip)
    return DetectionBatch(
        np.ascontiguousarray(pixels[None]), mirrored(boxes, size[0]) if flip else boxes, annotated.labels
    )


def _drafts(
    found: Sequence[Annotation], shorter_side: int, longer_side: int, seed: int
) -> Iterator[Draft[DetectionBatch]]:
    for number, index in zip(count(), shuffled(len(found), seed), strict=False):
        task = partial(read, found[index], shorter_side, longer_side, generator(seed, number))
        yield Draft((task,), itemgetter(0))


def _root(folder: Path) -> Path:
    """Return the folder of the annotations, images and image sets."""
    check_folder(folder)
    for root in (folder, folder / "VOC2007", folder / "VOCdevkit" / "VOC2007"):
        wanted = (root / "Annotations", root / "JPEGImages", root / "ImageSets" / "Main" / "trainval.txt")
        with readable(root):
            if all(path.exists() for path in wanted):
                return root
    raise wrong_kind(folder, EXPECTED)


def _names(root: Path) -> list[str]:
    file = root / "ImageSets" / "Main" / "trainval.txt"
    try:
        lines = text(file).splitlines()
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}; {remedy(error)}") from error
    names = [line.split()[0] for line in lines if line.strip()]
    if not names:
        raise DataError(f"{file} names no image: restore it")
    for name in names:
        if "/" in name or "\0" in name:
            raise DataError(f"{file} names an image {shown(name)}, which is no name of a file: mend it")
    return names


def _box(file: Path, item: ET.Element, width: int, height: int) -> tuple[float, float, float, float]:
    left, top, right, bottom = (_number(file, item, f"bndbox/{edge}") for edge in EDGES)
    message = f"{file} has a box of {left:g}, {top:g}, {right:g}, {bottom:g}"
    if right < left or bottom < top:
        raise DataError(f"{message}, which has no area: mend it")
    if left < 1 or top < 1 or right > width or bottom > height:
        raise DataError(f"{message}, which is not within 1, 1, {width}, {height}: mend it")
    return left - 1, top - 1, right, bottom


def _label(file: Path, item: ET.Element) -> int:
    name = (item.findtext("name") or "").strip()
    if name not in LABELS:
        raise DataError(f"{file} has an object of the unknown class {shown(name)}: choose one of {', '.join(CLASSES)}")
    return LABELS[name]


def _is_difficult(item: ET.Element) -> bool:
    return (item.findtext("difficult") or "").strip() == "1"


def _number(file: Path, item: ET.Element, path: str) -> float:
    value = (item.findtext(path) or "").strip()
    if not NUMBER.fullmatch(value):
        content = f"{shown(value)} as" if value else "no"
        raise DataError(f"{file} has {content} {path}, where a number is needed: restore it")
    return float(value)
