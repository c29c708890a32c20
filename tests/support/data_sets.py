"""Small data sets in their true formats."""

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

Color = tuple[int, int, int]
Object = tuple[str, tuple[float, float, float, float], bool]  # class, box as the XML has it, difficult


def image_folder(folder: Path, classes: Mapping[str, Sequence[Color]], size: tuple[int, int] = (40, 30)) -> Path:
    """Make a folder of images a class, each image of one color."""
    for name, colors in classes.items():
        (folder / name).mkdir(parents=True)
        for number, color in enumerate(colors):
            Image.new("RGB", size, color).save(folder / name / f"{name}_{number}.JPEG", quality=100)
    return folder


def denied(path: object) -> PermissionError:
    """Return what the system raises where someone may not read."""
    return PermissionError(errno.EACCES, "Permission denied", str(path))


def forbid(monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """Refuse to list a folder, as the system would anyone but root; return the line that is to report it."""
    iterdir, scandir = Path.iterdir, os.scandir

    def refuse(path: Path) -> None:
        if path == folder:
            raise denied(path)

    def listed(path: Path) -> Any:
        refuse(path)
        return iterdir(path)

    def scanned(path: Any = ".") -> Any:
        refuse(Path(path))
        return scandir(path)

    monkeypatch.setattr(Path, "iterdir", listed)
    monkeypatch.setattr(os, "scandir", scanned)
    return f"cannot read {folder}: Permission denied; make it readable, or give --data another folder"


def grays(*levels: int) -> list[Color]:
    """Return colors that are as bright as asked."""
    return [(level, level, level) for level in levels]


def voc(folder: Path, images: Mapping[str, Sequence[Object]], size: tuple[int, int] = (50, 40)) -> Path:
    """Make Pascal VOC's folders: black images in which the boxes are filled with red."""
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    for name, objects in images.items():
        pixels = np.zeros((size[1], size[0], 3), np.uint8)
        for _, (left, top, right, bottom), _ in objects:
            pixels[int(top) - 1 : int(bottom), int(left) - 1 : int(right), 0] = 255
        Image.fromarray(pixels).save(folder / "JPEGImages" / f"{name}.jpg", quality=100, subsampling=0)
        (folder / "Annotations" / f"{name}.xml").write_text(annotation(objects, size))
    (folder / "ImageSets/Main/trainval.txt").write_text("".join(f"{name}\n" for name in images))
    return folder


def annotation(objects: Sequence[Object], size: tuple[int, int]) -> str:
    """Return an annotation as the development kit writes it."""
    written = "".join(
        f"<object><name>{name}</name><pose>Left</pose><truncated>0</truncated><difficult>{difficult:d}</difficult>"
        f"<bndbox><xmin>{left}</xmin><ymin>{top}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object>"
        for name, (left, top, right, bottom), difficult in objects
    )
    width, height = size
    depth = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
    return f"<annotation><folder>VOC2007</folder>{depth}<segmented>0</segmented>{written}</annotation>"


def downsampled(folder: Path, files: Sequence[Sequence[int]]) -> Path:
    """Make files of pictures, each of one level of gray."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, levels in enumerate(files, 1):
        data = np.repeat(np.array(levels, np.uint8)[:, None], 3 * 64 * 64, axis=1)
        np.savez(folder / f"train_data_batch_{number}.npz", data=data, labels=np.ones(len(levels), np.int64))
    return folder


def parallel_text(folder: Path, pairs: Sequence[tuple[str, str]], languages: tuple[str, str] = ("en", "vi")) -> Path:
    """Make two texts of one sentence a line."""
    folder.mkdir(parents=True, exist_ok=True)
    for language, sentences in zip(languages, zip(*pairs, strict=True), strict=True):
        (folder / f"train.{language}").write_text("".join(f"{each}\n" for each in sentences), "utf-8")
    return folder
