"""What holds for every test."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")

# A shell without job control starts what runs in its background with SIGINT ignored, and every child would inherit
# that: tests of interrupts send it to children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not NVIDIA_DRIVER.exists():
        pytest.skip("no NVIDIA driver on this machine")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs the command line in this process: exit code, stdout, stderr."""
    from tbdprof.cli.main import main

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tbdprof", *words])
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return run
