"""Whoever has one framework installed can run its tests, and all that need none; the others are skipped."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
WITHOUT = "import sys; sys.modules.update(dict.fromkeys({missing!r})); import pytest; sys.exit(pytest.main({words!r}))"


def collected(*missing: str) -> tuple[str, str]:
    """Return what pytest collects, and its last line, where some modules cannot be imported."""
    words = ["--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=missing, words=words)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout, done.stdout.strip().splitlines()[-1]


def test_with_torch_alone_every_file_can_be_collected() -> None:
    listed, last = collected("mxnet", "tensorflow", "keras")

    assert "error" not in last
    assert "tests/hooks/on_torch/test_hook.py" in listed
    assert "tests/analysis/test_memory.py" in listed
    assert re.search(r"SKIPPED \[\d+\] .*needs .*mxnet", listed)
