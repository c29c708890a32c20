"""Turn the compiler's mangled kernel names into the names in the source code."""

import ctypes
from functools import cache
from typing import Any


@cache
def demangled(name: str) -> str:
    """Return a function's demangled name, or the name unchanged if it is not mangled or there is no C++ runtime."""
    demangle, status = _demangler(), ctypes.c_int()
    if not name.startswith("_Z") or demangle is None:
        return name
    found = demangle(name.encode(), None, None, ctypes.byref(status))
    if not found:
        return name
    text = ctypes.string_at(found).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return text


@cache
def _demangler() -> Any:
    """Return the C++ runtime's own function, or None if there is no runtime."""
    try:
        function = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_void_p
    return function
