"""A folder of images a class becomes shuffled batches of normalized random crops."""

import os
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from data_sets import forbid, grays, image_folder
from PIL import Image

from tbdprof.collect import host
from tbdprof.errors import DataError, TbdprofError, UsageError
from tbdprof.suite.data import imagenet
from tbdprof.suite.data.images import DEVIATION, MEAN

LEVELS = (20, 60, 100, 140, 180, 220)


def a_class_each(folder: Path) -> Path:
    """Make six images, one a class, each brighter than the one before."""
    return image_folder(folder, {f"n{number}": grays(level) for number, level in enumerate(LEVELS)})


def brightness(images: np.ndarray) -> np.ndarray:
    """Return the mean level of each image, 0 to 255, undoing the normalization."""
    levels = images * DEVIATION[:, None, None] + MEAN[:, None, None]
    return levels.mean(axis=(1, 2, 3)) * 255


def taken(folder: Path, count: int, seed: int = 0, size: int = 16) -> list[imagenet.ImageBatch]:
    return list(islice(imagenet.batches(folder, 4, size, 10, seed), count))


def test_a_batch_has_normalized_images_and_the_places_of_their_folders(tmp_path: Path):
    (batch,) = taken(a_class_each(tmp_path), 1)

    assert (batch.images.shape, batch.images.dtype) == ((4, 3, 16, 16), np.float32)
    assert (batch.labels.shape, batch.labels.dtype) == ((4,), np.int64)
    assert brightness(batch.images) == pytest.approx([LEVELS[label] for label in batch.labels], abs=1)


def test_colors_are_normalized_channel_by_channel(tmp_path: Path):
    (batch,) = taken(image_folder(tmp_path, {"a": [(255, 0, 0)]}), 1)

    expected = (np.array([1, 0, 0]) - MEAN) / DEVIATION
    assert np.abs(batch.images - expected[:, None, None]).max() < 0.02  # of a JPEG's rounding


def test_every_pass_has_every_image_once(tmp_path: Path):
    labels = [label for batch in taken(a_class_each(tmp_path), 3) for label in batch.labels.tolist()]

    assert sorted(labels[:6]) == sorted(labels[6:]) == list(range(6))
    assert labels[:6] != labels[6:]


def test_the_bytes_follow_the_seed_and_not_the_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = a_class_each(tmp_path)
    for file in folder.glob("*/*"):  # so that every crop of it is another
        Image.fromarray(np.random.default_rng(len(file.name)).integers(256, size=(30, 40, 3), dtype=np.uint8)).save(
            file
        )
    drawn = {}
    for cores, seed in [(1, 0), (4, 0), (4, 1)]:
        monkeypatch.setattr(host, "usable_cores", lambda cores=cores: float(cores))
        drawn[cores, seed] = b"".join(batch.images.tobytes() for batch in taken(folder, 5, seed))

    assert drawn[1, 0] == drawn[4, 0]
    assert drawn[4, 0] != drawn[4, 1]


def test_folders_beyond_the_number_of_classes_are_left_out(tmp_path: Path):
    batches = imagenet.batches(a_class_each(tmp_path), 4, 8, 2, seed=0)

    assert {label for batch in islice(batches, 4) for label in batch.labels.tolist()} == {0, 1}


def test_the_training_part_is_read_where_there_is_one_and_other_files_are_not(tmp_path: Path):
    image_folder(tmp_path / "train", {"b": grays(200), "a": grays(50)})
    image_folder(tmp_path / "val", {"c": grays(0)})
    (tmp_path / "train" / "a" / "notes.txt").write_text("no image")
    (tmp_path / "train" / "a" / ".hidden.jpg").write_text("no image")

    (batch,) = taken(tmp_path, 1)

    assert brightness(batch.images) == pytest.approx([(50, 200)[label] for label in batch.labels], abs=1)


@pytest.mark.parametrize(
    ("mode", "color", "name"), [("L", 90, "a.jpg"), ("CMYK", (0, 0, 0, 165), "a.jpg"), ("P", 0, "a.png")]
)
def test_grayscale_cmyk_and_palette_images_become_color(tmp_path: Path, mode: str, color: object, name: str):
    (tmp_path / "a").mkdir()
    image = Image.new(mode, (20, 20), color)  # type: ignore[arg-type]
    if mode == "P":
        image.putpalette([90, 90, 90])
    image.save(tmp_path / "a" / name)

    (batch,) = taken(tmp_path, 1)

    assert brightness(batch.images) == pytest.approx([90] * 4, abs=2)


def test_half_of_the_images_are_mirrored(tmp_path: Path):
    (tmp_path / "a").mkdir()
    ramp = np.tile(np.arange(256, dtype=np.uint8), (256, 1))  # brighter to the right
    Image.fromarray(ramp).save(tmp_path / "a" / "a.png")

    images = np.concatenate([batch.images for batch in taken(tmp_path, 30, size=8)])
    brighter_right = (images[..., -1] > images[..., 0]).all(axis=(1, 2))
    brighter_left = (images[..., -1] < images[..., 0]).all(axis=(1, 2))

    assert (brighter_left | brighter_right).all()
    assert 40 <= brighter_left.sum() <= 80  # of 120; beyond 3.6 deviations of a fair coin


def test_crops_lie_in_the_image_and_have_the_areas_and_ratios_asked_for():
    draw, width, height = np.random.default_rng(0), 500, 400
    crops = np.array([imagenet.crop(width, height, draw) for _ in range(2000)])
    wide, high = crops[:, 2] - crops[:, 0], crops[:, 3] - crops[:, 1]
    areas, ratios = wide * high / (width * height), wide / high

    assert (crops >= 0).all()
    assert (crops[:, 2] <= width).all()
    assert (crops[:, 3] <= height).all()
    assert 0.079 < areas.min() < 0.1
    assert 0.9 < areas.max() <= 1
    assert 0.74 < ratios.min() < 0.77
    assert 1.3 < ratios.max() < 1.35


@pytest.mark.parametrize(
    ("size", "box"), [((1000, 10), (493, 0, 506, 10)), ((10, 1000), (0, 493, 10, 506)), ((1, 1), (0, 0, 1, 1))]
)
def test_a_strip_gives_its_middle(size: tuple[int, int], box: tuple[int, int, int, int]):
    assert imagenet.crop(*size, np.random.default_rng(0)) == box


def empty(folder: Path) -> None:
    pass


def flat(folder: Path) -> None:
    image_folder(folder, {"here": grays(0)})
    (folder / "here" / "here_0.JPEG").rename(folder / "a.jpg")
    (folder / "here").rmdir()


def pascal(folder: Path) -> None:
    for name in ("Annotations", "ImageSets"):
        (folder / name).mkdir()
    image_folder(folder, {"JPEGImages": grays(0)})


def a_class_without_images(folder: Path) -> None:
    a_class_each(folder)
    (folder / "n9").mkdir()


def no_images_at_all(folder: Path) -> None:
    for number in range(6):
        (folder / f"n{number}").mkdir()


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (None, "no folder DIR: give --data the folder of the data set, or synthetic"),
        (empty, "DIR is empty: give --data the folder of the data set"),
        (flat, f"DIR should hold {imagenet.EXPECTED}, but holds a.jpg"),
        (pascal, f"DIR should hold {imagenet.EXPECTED}, but holds Annotations/, ImageSets/, JPEGImages/"),
        (no_images_at_all, f"DIR should hold {imagenet.EXPECTED}, but holds n0/, n1/, n2/, n3/ and 2 more"),
        (
            a_class_without_images,
            "DIR/n9 holds no image: fill it, or remove it, as it would be a class without samples",
        ),
    ],
)
def test_what_is_no_such_folder_is_refused_before_anything_is_read(tmp_path: Path, make, line: str):
    folder = tmp_path / "data"
    if make is not None:
        folder.mkdir()
        make(folder)

    for ask in (imagenet.look, lambda folder: imagenet.batches(folder, 4, 8, 10, 0)):
        with pytest.raises(UsageError) as refused:
            ask(folder)
        assert str(refused.value).replace(str(folder), "DIR") == line


@pytest.mark.parametrize("part", ["", "train", "train/n3"])
def test_a_folder_that_may_not_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str):
    a_class_each(tmp_path / "train")
    line = forbid(monkeypatch, tmp_path / part)

    for ask in (imagenet.look, lambda folder: imagenet.batches(folder, 4, 8, 10, 0)):
        with pytest.raises(UsageError) as refused:
            ask(tmp_path)
        assert str(refused.value) == line


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path):
    (tmp_path / "a.tar").write_text("")

    with pytest.raises(UsageError, match=r"a\.tar is no folder: give --data the folder of the data set$"):
        imagenet.look(tmp_path / "a.tar")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda file: os.truncate(file, file.stat().st_size // 2), "image file is truncated"),
        (lambda file: file.write_text("<html>not found</html>"), "is no image in BMP, JPEG, PNG, PPM, WEBP: "),
        (lambda file: file.write_bytes(b""), "is no image in BMP, JPEG, PNG, PPM, WEBP: "),
        (lambda file: file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 40), ""),
        (lambda file: file.unlink() or file.symlink_to("gone"), "is missing"),
    ],
)
def test_a_broken_image_is_named_when_its_batch_is_asked_for(tmp_path: Path, damage, reason: str):
    folder = image_folder(tmp_path, {"a": grays(0, 50), "b": grays(100)}, size=(200, 200))
    broken = folder / "a" / "a_1.JPEG"
    damage(broken)
    batches = imagenet.batches(folder, 1, 8, 10, seed=0)

    with pytest.raises(DataError) as raised:
        list(islice(batches, 3))

    line = str(raised.value)
    assert line.startswith(f"{broken} ")
    assert reason in line
    assert line.endswith("restore it, or take it out of the data set")
    assert "\n" not in line
    assert isinstance(raised.value, TbdprofError)


def test_the_whole_data_set_is_read_before_a_broken_image_comes_up(tmp_path: Path):
    """The reader does not stop short: what is not broken comes first, in the order of the seed."""
    folder = a_class_each(tmp_path)
    order = [batch.labels[0] for batch in islice(imagenet.batches(folder, 1, 8, 10, seed=5), 6)]
    (folder / f"n{order[-1]}" / f"n{order[-1]}_0.JPEG").write_text("")
    batches, seen = imagenet.batches(folder, 1, 8, 10, seed=5), Counter()

    with pytest.raises(DataError):
        seen.update(batch.labels[0] for batch in batches)

    assert list(seen) == order[:-1]
