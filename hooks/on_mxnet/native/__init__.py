"""The native code of the MXNet hook, where it was built: MXNet's events in C, without Python's interpreter.

`setup.py` builds it where there is a C compiler. It needs no header of Python: it is loaded with ctypes.
"""

import ctypes
import os
from pathlib import Path

BUILT = Path(__file__).with_name("_events.abi3.so")
VERSION = 1  # of the functions and structures; as TBD_VERSION in native.h
IN_NATIVE = "MXNet's events went through native code"
IN_PYTHON = "MXNet's events went through Python functions, which cost more, and not through native code: {}"
_SWITCH = "TBDPROF_NATIVE"
_NOT_BUILT = "it was not built: there was no C compiler at the installation"
_OTHER = "it was built for another version of tbdprof: install tbdprof again"


def load() -> tuple[ctypes.CDLL | None, str]:
    """Return the native code, or None and why it is not used."""
    if os.environ.get(_SWITCH) == "0":
        return None, f"{_SWITCH}=0"
    if not BUILT.exists():
        return None, _NOT_BUILT
    try:
        library = ctypes.CDLL(str(BUILT))
        version = library.tbd_version()
    except (OSError, AttributeError) as error:
        return None, str(error).partition("\n")[0]
    return (library, "") if version == VERSION else (None, _OTHER)
