"""Choose the way of MXNet's events: through native code where it was built, else through Python functions."""

from tbdprof.hooks.on_mxnet import native
from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
from tbdprof.hooks.on_mxnet.memory.native_allocator import NativeAllocator
from tbdprof.hooks.on_mxnet.memory.python_allocator import PythonAllocator


def new_allocator() -> Allocator:
    """Return an allocator that watches nothing yet."""
    library, why_not = native.load()
    if library is None:
        return PythonAllocator(native.IN_PYTHON.format(why_not))
    return NativeAllocator(library, native.IN_NATIVE)
