"""A large recording's memory: the benchmark at a fifth of its size, held to what its bound leaves for each record."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import large

SIZES = (80_000, 200_000)  # both are so large that tables stay packed
MOST_BYTES = large.BOUND_BYTES // large.RECORDS  # a kernel and an allocation together, imports left out of account


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_memory_to_load_and_summarize_grows_within_the_bound(device, tmp_path):
    peaks = []
    for records in SIZES:
        path = tmp_path / f"{records}.tbd"
        large.make_file(device, records, path)
        peaks.append(large.measured("load and summarize", path)[-1])

    assert (peaks[1] - peaks[0]) / (SIZES[1] - SIZES[0]) <= MOST_BYTES
