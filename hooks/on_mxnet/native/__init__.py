"""The native code of the MXNet hook, where it was built: MXNet's events in C, without Python's interpreter.

`setup.py` builds it where there is a C compiler. It needs no header of Python: it is loaded with ctypes.
"""

import ctypes
import os
import zlib
from pathlib import Path

_HERE = Path(__file__).parent
BUILT = _HERE / "_events.abi3.so"
IN_NATIVE = "MXNet's events went through native code"
IN_PYTHON = "MXNet's events went through Python functions, which cost more, and not through native code: {}"
_SWITCH = "TBDPROF_NATIVE"
_NOT_BUILT = "it was not built: there was no C compiler at the installation"
_OTHER = "it was built for another version of tbdprof: install tbdprof again"


def checksum() -> int:
    """Return the checksum of the C files; `setup.py` gives it to what it builds from them."""
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(_HERE.glob("*.[ch]"))))


def load() -> tuple[ctypes.CDLL | None, str]:
    """Return the native code, or None and why it is not used."""
    if os.environ.get(_SWITCH) == "0":
        return None, f"{_SWITCH}=0"
    if not BUILT.exists():
        return None, _NOT_BUILT
    try:
        library = ctypes.CDLL(str(BUILT))
        library.tbd_version.restype = ctypes.c_uint32
        version = library.tbd_version()
    except (OSError, AttributeError) as error:
        return None, str(error).partition("\n")[0]
    return (library, "") if version == checksum() else (None, _OTHER)
