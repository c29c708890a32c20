"""The room a window sets aside is free heap, and goes back."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tbdprof.hooks.on_torch.session import malloc_headroom
from tbdprof.hooks.on_torch.session.malloc_headroom import Room

ROOT = Path(__file__).parents[3]


@pytest.fixture
def library() -> ctypes.CDLL:
    found = malloc_headroom._library()
    if found is None:
        pytest.skip("the C library does not report its heap")
    return found


# In a process of its own: where others have left gigabytes free, nothing is set aside.
TWICE = """
from tbdprof.hooks.on_torch.session import malloc_headroom
from tbdprof.hooks.on_torch.session.malloc_headroom import Room, _PIECE_BYTES

library = malloc_headroom._library()
pieces = [library.malloc(_PIECE_BYTES) for _ in range(500)]
fence = library.malloc(_PIECE_BYTES)
for piece in pieces:
    library.free(piece)
before = library.mallinfo2().fordblks
set_aside = Room()
after = library.mallinfo2().fordblks
assert before >= 500 * _PIECE_BYTES, before
assert after >= before + 0.95 * min(2 * before, malloc_headroom._MOST_BYTES), (before, after)
set_aside.give_back()
assert library.mallinfo2().fordblks <= after
set_aside.give_back()  # does nothing the second time
library.free(fence)
"""


@pytest.mark.usefixtures("library")
def test_twice_as_much_as_was_free_is_added_and_stays_free():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", TWICE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_where_very_much_is_free_nothing_is_set_aside(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(malloc_headroom, "_MOST_FREE_BYTES", 0)
    before = library.mallinfo2().arena

    Room().give_back()

    assert library.mallinfo2().arena == before


def test_a_c_library_that_does_not_report_its_heap_gets_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(malloc_headroom, "_library", lambda: None)

    Room().give_back()
