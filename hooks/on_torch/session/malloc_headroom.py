"""Room in the C library's heap for what torch's profiler keeps during a window, taken before the window's first step.

The profiler keeps small records between the tensors of a step, and tensors then no longer fit where those of the step
before lay: ResNet-50 at batch 8 grew by 300 to 500 MB a step inside a window, and its steps took up to a quarter longer
for the new pages. The heap grows by as much either way; here it does so before the steps, and gives back what is left.
"""

import ctypes

from tbdprof.collect.host import available_memory_bytes

_PIECE_BYTES = 64 << 10  # below the size from which the C library maps each request by itself
_MOST_BYTES = 2 << 30
_MOST_FREE_BYTES = 4 << 30  # where more is free it would take seconds, and what the window then costs is told
_SHARE_OF_AVAILABLE = 4
_STEPS_WORTH = 2  # times what is free between steps, about what a step's feature maps take


class _Heap(ctypes.Structure):
    """The C library's `struct mallinfo2`."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names)


class Room:
    """Free heap, its pages already there; none where the C library is not glibc 2.33 or later."""

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
        self._fence = library.malloc(_PIECE_BYTES)  # the heap's end is given back as soon as it is free
        for address in filter(None, pieces):
            ctypes.memset(address, 0, _PIECE_BYTES)
            library.free(address)

    def give_back(self) -> None:
        """Let the C library return what nothing lies in."""
        fence, self._fence = self._fence, None
        library = _library()
        if fence is not None and library is not None:
            library.free(fence)


def _library() -> ctypes.CDLL | None:
    """Return the C library with what is called here declared, None where it lacks it."""
    library = ctypes.CDLL(None)
    try:
        library.mallinfo2.restype = _Heap
    except AttributeError:
        return None
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    return library
