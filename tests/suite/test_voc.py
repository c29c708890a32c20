"""Pascal VOC's images come with their boxes, scaled and mirrored together."""

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from data_sets import Object, denied, forbid, voc

from tbdprof.collect import host
from tbdprof.errors import DataError, UsageError
from tbdprof.suite.data import voc as reader
from tbdprof.suite.data.images import DEVIATION, MEAN
from tbdprof.suite.data.inputs import DetectionBatch

DOG: Object = ("dog", (11, 6, 30, 20), False)  # 20 × 15 pixels, of an image of 50 × 40
WHOLE: Object = ("person", (1, 1, 50, 40), False)
HARD: Object = ("cat", (2, 2, 9, 9), True)


def taken(folder: Path, count: int = 1, shorter: int = 40, longer: int = 1000, seed: int = 0) -> list[DetectionBatch]:
    return list(islice(reader.batches(folder, shorter, longer, seed), count))


def red(batch: DetectionBatch) -> np.ndarray:
    """Return how red each pixel is, 0 to 1."""
    levels: np.ndarray = batch.images[0, 0] * DEVIATION[0] + MEAN[0]
    return levels


def test_a_box_is_its_edges_counted_from_0(tmp_path: Path):
    found = reader.annotation(voc(tmp_path, {"000005": [DOG, WHOLE]}), "000005")

    assert found.boxes.tolist() == [[10, 5, 30, 20], [0, 0, 50, 40]]
    assert found.labels.tolist() == [12, 15]
    assert (found.width, found.height) == (50, 40)


def test_the_classes_are_the_development_kits_in_its_order():
    assert len(reader.CLASSES) == 20
    assert list(reader.CLASSES) == sorted(reader.CLASSES)
    assert reader.LABELS["aeroplane"] == 1
    assert reader.LABELS["tvmonitor"] == 20


def test_difficult_objects_are_left_out_and_images_with_no_others(tmp_path: Path):
    folder = voc(tmp_path, {"1": [DOG, HARD], "2": [HARD], "3": [WHOLE]})

    batches = taken(folder, 6)

    assert reader.annotation(folder, "1").labels.tolist() == [12]
    assert sorted(batch.labels.tolist() for batch in batches) == [[12]] * 3 + [[15]] * 3


@pytest.mark.parametrize(
    ("shorter", "longer", "size"),
    [(40, 1000, (50, 40)), (80, 1000, (100, 80)), (80, 75, (75, 60)), (30, 1000, (38, 30))],
)
def test_images_and_boxes_are_scaled_and_mirrored_together(
    tmp_path: Path, shorter: int, longer: int, size: tuple[int, int]
):
    batches = taken(voc(tmp_path, {"1": [DOG]}), 12, shorter, longer)

    lefts = set()
    for batch in batches:
        assert batch.images.shape == (1, 3, size[1], size[0])
        assert (batch.images.dtype, batch.boxes.dtype, batch.labels.dtype) == (np.float32, np.float32, np.int64)
        assert batch.images.flags.c_contiguous
        ((left, top, right, bottom),) = batch.boxes
        assert (right - left, bottom - top) == pytest.approx((20 * size[0] / 50, 15 * size[1] / 40))
        inside = np.zeros(size[::-1], bool)
        inside[round(top) + 2 : round(bottom) - 2, round(left) + 2 : round(right) - 2] = True
        outside = np.ones(size[::-1], bool)
        outside[max(0, round(top) - 2) : round(bottom) + 2, max(0, round(left) - 2) : round(right) + 2] = False
        assert red(batch)[inside].min() > 0.9
        assert red(batch)[outside].max() < 0.1
        lefts.add(round(float(left) * 50 / size[0], 3))
    assert lefts == {10, 20}  # as it is, and mirrored


def test_every_pass_has_every_image_and_the_bytes_follow_the_seed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = voc(tmp_path, {str(label): [(name, (1, 1, 9, 9), False)] for label, name in enumerate(reader.CLASSES)})
    drawn = {}
    for cores, seed in [(1, 0), (4, 0), (4, 1)]:
        monkeypatch.setattr(host, "usable_cores", lambda cores=cores: float(cores))
        drawn[cores, seed] = [(int(batch.labels[0]), batch.images.tobytes()) for batch in taken(folder, 40, seed=seed)]

    assert drawn[1, 0] == drawn[4, 0] != drawn[4, 1]
    labels = [label for label, _ in drawn[1, 0]]
    assert sorted(labels[:20]) == sorted(labels[20:]) == list(range(1, 21))
    assert labels[:20] != labels[20:]


@pytest.mark.parametrize("inside", ["", "VOC2007", "VOCdevkit/VOC2007"])
def test_the_folder_may_be_the_one_above(tmp_path: Path, inside: str):
    voc(tmp_path / inside, {"1": [DOG]})

    reader.look(tmp_path)
    assert len(taken(tmp_path)) == 1


def test_a_folder_of_another_kind_is_refused_with_what_it_holds(tmp_path: Path):
    (tmp_path / "train").mkdir()
    for ask in (reader.look, taken):
        with pytest.raises(UsageError) as refused:
            ask(tmp_path)
        assert str(refused.value) == f"{tmp_path} should hold {reader.EXPECTED}, but holds train/"


def test_a_folder_that_may_not_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    line = forbid(monkeypatch, voc(tmp_path, {"1": [DOG]}))

    for ask in (reader.look, taken):
        with pytest.raises(UsageError) as refused:
            ask(tmp_path)
        assert str(refused.value) == line


@pytest.mark.parametrize(
    ("put", "line"),
    [
        (Path.mkdir, "cannot read FILE: Is a directory; restore it"),
        (lambda file: file.write_bytes(b"00000\xff\n"), "FILE is no text in UTF-8: restore it"),
        (lambda file: file.write_text("000005\n", "utf-16"), "FILE is no text in UTF-8: restore it"),
    ],
)
def test_a_list_of_images_that_is_no_text_is_named(tmp_path: Path, put: Callable[[Path], object], line: str):
    file = voc(tmp_path, {"000005": [DOG]}) / "ImageSets/Main/trainval.txt"
    file.unlink()
    put(file)

    with pytest.raises(DataError) as raised:
        taken(tmp_path)

    assert str(raised.value).replace(str(file), "FILE") == line


def test_files_that_may_not_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = voc(tmp_path, {"1": [DOG]})

    opened, refused = Path.open, folder / "Annotations" / "1.xml"

    def refuse(path: Path, *rest: object) -> object:
        if path == refused:
            raise denied(path)
        return opened(path, *rest)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(
        DataError, match=r"1\.xml: Permission denied; make it readable, or take 1 out of trainval\.txt$"
    ):
        taken(folder)
    refused = folder / "ImageSets/Main/trainval.txt"
    with pytest.raises(DataError, match=r"trainval\.txt: Permission denied; make it readable$"):
        taken(folder)


def write(text: str) -> Callable[[Path], object]:
    return lambda file: file.write_text(text)


def replace(old: str, new: str) -> Callable[[Path], object]:
    return lambda file: file.write_text(file.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (Path.unlink, "cannot read FILE: No such file or directory; restore it, or take 2 out of trainval.txt"),
        (write("<annotation>"), "FILE is no XML: "),
        (lambda file: os.truncate(file, 200), "FILE is no XML: "),
        (write(""), "FILE is no XML: "),
        (write('<?xml version="1.0" encoding="utf-32"?><annotation/>'), "FILE is no XML: multi-byte encodings "),
        (write('<?xml version="1.0" encoding="none"?><annotation/>'), "FILE is no XML: unknown encoding: none"),
        (write("<annotation/>"), "FILE has no size/width, where a number is needed: restore it"),
        (replace("object>", "thing>"), "FILE has no object: annotate one, or take 2 out of trainval.txt"),
        (
            replace("dog", "zebra"),
            "FILE has an object of the unknown class 'zebra': choose one of aeroplane, bicycle, ",
        ),
        (
            replace("<xmax>30</xmax>", "<xmax>51</xmax>"),
            "FILE has a box of 11, 6, 51, 20, which is not within 1, 1, 50, 40: ",
        ),
        (
            replace("<ymin>6</ymin>", "<ymin>0</ymin>"),
            "FILE has a box of 11, 0, 30, 20, which is not within 1, 1, 50, 40: ",
        ),
        (replace("<xmax>30</xmax>", "<xmax>10</xmax>"), "FILE has a box of 11, 6, 10, 20, which has no area: mend it"),
        (replace("<xmax>30</xmax>", "<xmax>nan</xmax>"), "FILE has 'nan' as bndbox/xmax, where a number is needed: "),
        (replace("<xmax>30</xmax>", ""), "FILE has no bndbox/xmax, where a number is needed: restore it"),
    ],
)
def test_a_broken_annotation_is_named_before_training_begins(tmp_path: Path, damage, line: str):
    folder = voc(tmp_path, {"1": [WHOLE], "2": [DOG]})
    file = folder / "Annotations" / "2.xml"
    damage(file)

    with pytest.raises(DataError) as raised:
        reader.batches(folder, 40, 1000, 0)

    assert str(raised.value).replace(str(file), "FILE").startswith(line)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (Path.unlink, "is missing: restore it, or take it out of the data set"),
        (lambda file: os.truncate(file, file.stat().st_size // 2), "cannot be decoded: image file is truncated"),
    ],
)
def test_a_broken_image_is_named_when_it_is_asked_for(tmp_path: Path, damage, reason: str):
    folder = voc(tmp_path, {"1": [DOG]}, size=(200, 200))
    file = folder / "JPEGImages" / "1.jpg"
    damage(file)

    with pytest.raises(DataError) as raised:
        taken(folder)

    assert str(raised.value).startswith(f"{file} {reason}")


def test_an_image_of_another_size_than_annotated_is_refused(tmp_path: Path):
    folder = voc(tmp_path, {"1": [DOG]})
    file = folder / "Annotations" / "1.xml"
    replace("<width>50</width>", "<width>60</width>")(file)

    with pytest.raises(DataError) as raised:
        taken(folder)

    assert (
        str(raised.value)
        == f"{file} states an image size of 60×40, but {folder / 'JPEGImages/1.jpg'} is 50×40: restore both"
    )


def test_a_list_of_no_images_is_refused(tmp_path: Path):
    folder = voc(tmp_path, {"1": [HARD]})
    with pytest.raises(DataError, match=r"names no image with objects that are not difficult$"):
        taken(folder)
    (folder / "ImageSets/Main/trainval.txt").write_text("\n")
    with pytest.raises(DataError, match=r"trainval\.txt names no image: restore it$"):
        taken(folder)
