"""Synthetic batches come from the seed and nothing else."""

import numpy as np

from tbdprof.suite.data.inputs import image_batch


def test_a_batch_has_images_of_channels_first_and_labels_within_the_classes() -> None:
    batch = image_batch(256, 8, 10, seed=0)

    assert (batch.images.shape, batch.images.dtype) == ((256, 3, 8, 8), np.float32)
    assert (batch.labels.shape, batch.labels.dtype) == ((256,), np.int64)
    assert set(batch.labels) == set(range(10))
    assert abs(float(batch.images.mean())) < 0.02
    assert abs(float(batch.images.std()) - 1) < 0.02


def test_the_seed_alone_decides_the_bytes() -> None:
    first, again, other = (image_batch(2, 8, 1000, seed) for seed in (3, 3, 4))

    assert first.images.tobytes() == again.images.tobytes()
    assert first.labels.tobytes() == again.labels.tobytes()
    assert first.images.tobytes() != other.images.tobytes()


def test_numpys_own_generator_is_left_alone() -> None:
    np.random.seed(5)
    before = np.random.get_state()[1].tobytes()

    image_batch(2, 8, 1000, seed=0)

    assert np.random.get_state()[1].tobytes() == before
