"""What holds for every test."""

from pathlib import Path

import pytest

NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not NVIDIA_DRIVER.exists():
        pytest.skip("no NVIDIA driver on this machine")
