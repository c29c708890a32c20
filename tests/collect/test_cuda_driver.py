"""What the CUDA driver reports of a device, asked through a fake of its library."""

from typing import Any

import pytest

from tbdprof.collect.gpu import cuda_driver
from tbdprof.collect.gpu.cuda_driver import Limits
from tbdprof.errors import UnavailableError

H200 = {13: 1_980_000, 16: 132, 36: 3_201_000, 37: 6144, 75: 9, 76: 0}


class FakeCuda:
    """A driver with one device; `refuses` are attributes it does not report, `status` is what beginning returns."""

    def __init__(self, refuses: tuple[int, ...] = (), status: int = 0) -> None:
        self.refuses = refuses
        self.status = status

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self.status

    def cuDeviceGet(self, device: Any, index: int) -> int:  # noqa: N802
        device._obj.value = 40 + index
        return 101 if index else 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:  # noqa: N802
        name.value = b"NVIDIA H200"
        return 0

    def cuDeviceGetAttribute(self, value: Any, number: int, device: Any) -> int:  # noqa: N802
        assert device.value == 40
        value._obj.value = H200[number]
        return 1 if number in self.refuses else 0


def test_the_driver_reports_what_bounds_a_device() -> None:
    found = cuda_driver.limits(0, FakeCuda())

    assert found == Limits("NVIDIA H200", "9.0", 132, 1.98e9, 3.201e9 * 2 * 6144 / 8)


@pytest.mark.parametrize("attribute", [36, 37])
def test_a_bandwidth_that_is_not_reported_is_none(attribute: int) -> None:
    found = cuda_driver.limits(0, FakeCuda(refuses=(attribute,)))

    assert found.memory_bytes_per_s is None
    assert found.multiprocessors == 132


@pytest.mark.parametrize("cuda", [FakeCuda(status=100), FakeCuda(refuses=(16,)), object()])
def test_a_driver_that_does_not_answer_is_unavailable(cuda: object) -> None:
    with pytest.raises(UnavailableError, match="the CUDA driver does not answer"):
        cuda_driver.limits(0, cuda)


def test_a_device_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match="error 101"):
        cuda_driver.limits(1, FakeCuda())


def test_the_number_of_a_device_is_in_its_name() -> None:
    assert [cuda_driver.index_of(name) for name in ("cuda:3", "cuda")] == [3, 0]


def test_the_driver_reports_how_many_devices_this_process_sees() -> None:
    class Counting(FakeCuda):
        def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
            count._obj.value = 3
            return self.refuses[0] if self.refuses else 0

    assert cuda_driver.count(Counting()) == 3
    for cuda in (Counting(status=100), Counting(refuses=(3,)), FakeCuda()):
        with pytest.raises(UnavailableError, match="the CUDA driver does not answer"):
            cuda_driver.count(cuda)
