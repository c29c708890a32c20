"""Enlarge the C library's heap before a window's first step, for the records that torch's profiler keeps.

The profiler keeps small records between the tensors of a step. Then later tensors no longer fit where those of the step
before lay. Inside a window, ResNet-50 at batch 8 grew by 300 to 500 MB per step, and its steps took up to a quarter
longer because of the new pages. The heap grows by as much either way. Here it grows before the steps, and what is left
is returned afterwards.
"""

import ctypes

from tbdprof.collect.host import available_memory_bytes

_PIECE_BYTES = 64 << 10  # below the size at which the C library maps each request separately
_MOST_BYTES = 2 << 30
_MOST_FREE_BYTES = 4 << 30  # with more free memory it would take seconds; then the report shows what the window costs
_SHARE_OF_AVAILABLE = 4
_STEPS_WORTH = 2  # multiple of the bytes free between steps, which is about the size of a step's activations


class _Heap(ctypes.Structure):
    """The C library's `struct mallinfo2`."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names)


class Room:
    """Free heap whose pages are already mapped; none unless the C library is glibc 2.33 or later."""

    def __init__(self) -> None:
        self._fence: int | None = None
        library = _library()
        if library is None:
            return
        free_bytes = int(library.mallinfo2().fordblks)
        if free_bytes > _MOST_FREE_BYTES:
            return
        spare_bytes = min(_STEPS_WORTH * free_bytes, _MOST_BYTES, available_memory_bytes() // _SHARE_OF_AVAILABLE)
        pieces = [library.malloc(_PIECE_BYTES) for _ in range((free_bytes + spare_bytes) // _PIECE_BYTES)]
        self._fence = library.malloc(_PIECE_BYTES)  # keeps the C library from returning the heap's end when it is free
        for address in filter(None, pieces):
            ctypes.memset(address, 0, _PIECE_BYTES)
            library.free(address)

    def give_back(self) -> None:
        """Let the C library return unused memory."""
        fence, self._fence = self._fence, None
        library = _library()
        if fence is not None and library is not None:
            library.free(fence)


def _library() -> ctypes.CDLL | None:
    """Return the C library with the functions used here declared, or None if it lacks them."""
    library = ctypes.CDLL(None)
    try:
        library.mallinfo2.restype = _Heap
    except AttributeError:
        return None
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    return library
