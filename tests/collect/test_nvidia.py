"""What the NVIDIA driver reports, asked through a fake of its library."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tbdprof.collect.gpu import nvidia


class FakeNVMLError(Exception):
    """What the driver's library raises."""


class FakeNvml:
    """A driver with two devices; `fails` names the call it refuses."""

    NVMLError = FakeNVMLError

    def __init__(self, fails: str = "", devices: int = 2) -> None:
        self.fails = fails
        self.devices = devices
        self.is_open = False

    def nvmlInit(self) -> None:  # noqa: N802
        self._refuse("init")
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.95.05"

    def nvmlSystemGetCudaDriverVersion(self) -> int:  # noqa: N802
        return 13010

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        self._refuse("handle")
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return f"Example {handle}"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:  # noqa: N802
        return (9, handle)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=(handle + 1) * 1024)

    def _refuse(self, call: str) -> None:
        if call == self.fails:
            raise FakeNVMLError("Insufficient Permissions")


def test_the_driver_reports_versions_and_devices() -> None:
    nvml = FakeNvml()

    found = nvidia.driver(nvml)

    assert found == nvidia.Nvidia(
        driver="580.95.05",
        cuda="13.1",
        gpus=(nvidia.Gpu(0, "Example 0", "9.0", 1024), nvidia.Gpu(1, "Example 1", "9.1", 2048)),
    )
    assert not nvml.is_open


def test_a_device_that_is_divided_says_so_and_one_that_cannot_be_says_nothing() -> None:
    class Dividable(FakeNvml):
        def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:  # noqa: N802
            if handle:
                raise FakeNVMLError("Not Supported")
            return [1, 1]

    assert [gpu.is_divided for gpu in nvidia.driver(Dividable()).gpus] == [True, None]
    assert [gpu.is_divided for gpu in nvidia.driver(FakeNvml()).gpus] == [None, None]


def test_without_a_driver_nothing_is_known_and_the_reason_is_reported() -> None:
    found = nvidia.driver(FakeNvml(fails="init"))

    assert found.driver is None
    assert found.reason == "the NVIDIA driver does not answer: Insufficient Permissions"


def test_what_was_reported_before_a_refusal_is_kept() -> None:
    nvml = FakeNvml(fails="handle")

    found = nvidia.driver(nvml)

    assert found.driver == "580.95.05"
    assert found.gpus == ()
    assert "Insufficient Permissions" in str(found.reason)
    assert not nvml.is_open


def test_a_driver_without_devices_says_so() -> None:
    assert nvidia.driver(FakeNvml(devices=0)).reason == "the NVIDIA driver shows no device"


@pytest.mark.parametrize(
    ("setting", "user", "readable"),
    [("1", 1000, False), ("1", 0, True), ("0", 1000, True), ("7", 0, None)],
)
def test_counters_are_readable_as_the_driver_was_loaded(
    tmp_path: Path, setting: str, user: int, readable: bool | None
) -> None:
    parameters = tmp_path / "params"
    parameters.write_text(f"Mobile: 4294967295\nRmProfilingAdminOnly: {setting}\n")

    found = nvidia.counters(parameters, user=user)

    assert found.readable is readable
    assert (found.reason is None) == (readable is True)


def test_without_a_driver_nothing_is_known_about_counters(tmp_path: Path) -> None:
    found = nvidia.counters(tmp_path / "params")

    assert found == nvidia.Counters(None, "no NVIDIA driver is loaded")


def test_cupti_is_taken_from_the_first_folder_that_has_it(tmp_path: Path) -> None:
    wheel, toolkit = tmp_path / "wheel/cu13/lib", tmp_path / "cuda/lib64"
    for folder, name in ((wheel, "libcupti.so.13"), (toolkit, "libcupti.so.12")):
        folder.mkdir(parents=True)
        (folder / name).touch()

    assert nvidia.cupti([tmp_path / "wheel", tmp_path / "cuda"]) == wheel / "libcupti.so.13"
    assert nvidia.cupti([tmp_path / "cuda"]) == toolkit / "libcupti.so.12"
    assert nvidia.cupti([tmp_path / "absent"]) is None


def test_of_two_wheels_the_newer_library_is_taken(tmp_path: Path) -> None:
    for name in ("cuda_cupti/lib/libcupti.so.12", "cu13/lib/libcupti.so.13"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()

    assert nvidia.cupti([tmp_path]) == tmp_path / "cu13/lib/libcupti.so.13"
