"""Files of small pictures become shuffled batches from -1 to 1, one file in memory at a time."""

import os
import weakref
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from data_sets import denied, downsampled, forbid

from tbdprof.errors import DataError, UsageError
from tbdprof.suite.data import downsampled_imagenet as reader

FILE = "train_data_batch_1.npz"


def levels(folder: Path, batch_size: int, count: int, seed: int = 0) -> list[int]:
    """Return the level of gray of each picture of some batches."""
    batches = islice(reader.batches(folder, batch_size, seed), count)
    return [round(float((image.mean() + 1) * 127.5)) for batch in batches for image in batch.images]


def test_the_planes_of_a_row_become_a_picture_from_minus_1_to_1(tmp_path: Path):
    row = np.zeros(12288, np.uint8)
    row[:4096], row[4096 + 2 * 64 + 5] = 255, 51  # all red, and green at row 2, column 5
    np.savez(tmp_path / FILE, data=row[None])

    (batch,) = islice(reader.batches(tmp_path, 1, 0), 1)

    assert (batch.images.shape, batch.images.dtype) == ((1, 3, 64, 64), np.float32)
    assert (batch.images[0, 0] == 1).all()
    assert batch.images[0, 1, 2, 5] == pytest.approx(51 / 127.5 - 1)
    assert np.delete(batch.images[0, 1].ravel(), 2 * 64 + 5).max() == -1
    assert (batch.images[0, 2] == -1).all()


@pytest.mark.parametrize("batch_size", [1, 4, 5, 20])
def test_every_pass_has_every_picture_whatever_the_files_hold(tmp_path: Path, batch_size: int):
    folder = downsampled(tmp_path, [range(0, 30, 10), range(100, 170, 10)])  # 3 and 7 pictures

    seen = levels(folder, batch_size, 40 // batch_size)

    every = [*range(0, 30, 10), *range(100, 170, 10)]
    passes = [seen[at : at + 10] for at in range(0, 40, 10)]
    assert all(sorted(each) == every for each in passes)
    assert len({tuple(each) for each in passes}) == 4
    assert {each[0] < 100 for each in passes} == {True, False}  # the files are shuffled, too


def test_the_pictures_follow_the_seed(tmp_path: Path):
    folder = downsampled(tmp_path, [range(50)])

    assert levels(folder, 10, 5, seed=1) == levels(folder, 10, 5, seed=1) != levels(folder, 10, 5, seed=2)


def test_one_file_is_held_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, held, most = downsampled(tmp_path, [range(6)] * 5), set[int](), 0
    read = reader.read

    def watched(file: Path) -> np.ndarray:
        nonlocal most
        data = read(file)
        held.add(id(data))
        weakref.finalize(data, held.discard, id(data))
        most = max(most, len(held))
        return data

    monkeypatch.setattr(reader, "read", watched)

    levels(folder, 4, 20)

    assert most == 1


@pytest.mark.parametrize(
    ("names", "found"), [([], None), (["train_32x32"], "train_32x32"), (["val_data.npz"], "val_data.npz")]
)
def test_a_folder_of_another_kind_is_refused(tmp_path: Path, names: list[str], found: str | None):
    for name in names:
        (tmp_path / name).write_text("")

    for ask in (reader.look, lambda folder: reader.batches(folder, 1, 0)):
        with pytest.raises(UsageError) as refused:
            ask(tmp_path)
        assert str(refused.value) == (
            f"{tmp_path} is empty: give --data the folder of the data set"
            if found is None
            else f"{tmp_path} should hold {reader.EXPECTED}, but holds {found}"
        )


def test_a_folder_that_may_not_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    line = forbid(monkeypatch, downsampled(tmp_path, [range(3)]))

    for ask in (reader.look, lambda folder: reader.batches(folder, 1, 0)):
        with pytest.raises(UsageError) as refused:
            ask(tmp_path)
        assert str(refused.value) == line


def test_a_file_that_may_not_be_read_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = downsampled(tmp_path, [range(3)]) / FILE

    def refuse(path: object) -> None:
        raise denied(path)

    monkeypatch.setattr(reader.io, "FileIO", refuse)

    for ask in (reader.look, lambda _: reader.read(file)):
        with pytest.raises(DataError) as raised:
            ask(tmp_path)
        assert str(raised.value) == f"{file} cannot be read: Permission denied; make it readable, or remove it"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (
            lambda file: os.truncate(file, file.stat().st_size // 2),
            "cannot be read: File is not a zip file; restore it",
        ),
        (lambda file: file.write_bytes(b""), "cannot be read: File is not a zip file; restore it"),
        (lambda file: file.unlink() or file.mkdir(), "cannot be read: Is a directory; restore it"),
        (lambda file: np.savez(file, pictures=np.zeros(3)), "has no array `data` but 'pictures.npy': restore it"),
    ],
)
def test_a_file_cut_short_or_without_data_is_named_at_the_first_look(tmp_path: Path, damage, reason: str):
    file = downsampled(tmp_path, [range(3), range(3)]) / "train_data_batch_2.npz"
    damage(file)

    with pytest.raises(DataError) as raised:
        reader.look(tmp_path)

    assert str(raised.value).startswith(f"{file} {reason}")


@pytest.mark.parametrize(
    ("data", "description"),
    [
        (np.zeros((2, 3072), np.uint8), "uint8, (2, 3072)"),
        (np.zeros((2, 12288)), "float64, (2, 12288)"),
        (np.zeros(12288, np.uint8), "uint8, (12288,)"),
        (np.zeros((0, 12288), np.uint8), "uint8, (0, 12288)"),
    ],
)
def test_data_of_another_kind_is_refused(tmp_path: Path, data: np.ndarray, description: str):
    np.savez(tmp_path / FILE, data=data)

    with pytest.raises(DataError) as refused:
        next(reader.batches(tmp_path, 1, 0))

    expected = (
        f"{tmp_path / FILE} has data of {description}, and not of uint8, (1 to 1281167 pictures, 12288): restore it"
    )
    assert str(refused.value) == expected


def test_flipped_bytes_are_reported_when_they_are_read(tmp_path: Path):
    file = downsampled(tmp_path, [range(3)]) / FILE
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)

    with pytest.raises(
        DataError, match=r"train_data_batch_1\.npz cannot be read: Bad CRC-32 .*; restore it, or remove it$"
    ):
        next(reader.batches(tmp_path, 1, 0))
