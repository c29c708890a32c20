"""The room a window sets aside is free heap, and goes back."""

import ctypes

import pytest

from tbdprof.hooks.on_torch.session import malloc_headroom
from tbdprof.hooks.on_torch.session.malloc_headroom import Room

PIECES = 500  # of 64 KiB


@pytest.fixture
def library() -> ctypes.CDLL:
    found = malloc_headroom._library()
    if found is None:
        pytest.skip("the C library does not report its heap")
    return found


def test_twice_as_much_as_was_free_is_added_and_stays_free(library: ctypes.CDLL):
    pieces = [library.malloc(malloc_headroom._PIECE_BYTES) for _ in range(PIECES)]
    fence = library.malloc(malloc_headroom._PIECE_BYTES)
    for piece in pieces:
        library.free(piece)
    before = library.mallinfo2()

    set_aside = Room()

    after = library.mallinfo2()
    assert before.fordblks >= PIECES * malloc_headroom._PIECE_BYTES
    added = min(2 * before.fordblks, malloc_headroom._MOST_BYTES)  # other tests of this process may have left much free
    assert after.fordblks >= before.fordblks + 0.95 * added
    set_aside.give_back()
    assert library.mallinfo2().fordblks <= after.fordblks
    set_aside.give_back()  # does nothing the second time
    library.free(fence)


def test_where_very_much_is_free_nothing_is_set_aside(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(malloc_headroom, "_MOST_FREE_BYTES", 0)
    before = library.mallinfo2().arena

    Room().give_back()

    assert library.mallinfo2().arena == before


def test_a_c_library_that_does_not_report_its_heap_gets_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(malloc_headroom, "_library", lambda: None)

    Room().give_back()
