"""Jump slots of a loaded library: the pointers through which it calls its own exported functions.

A library that was not linked for immediate binding keeps one such pointer per function in writable memory. Their
addresses are read from the tables of the loaded library itself (ELF64, as glibc's dynamic linker leaves them).
"""

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tbdprof.errors import UnavailableError

# Tags of the dynamic section (System V ABI, "Dynamic Section").
_NULL, _PLTRELSZ, _STRTAB, _SYMTAB, _STRSZ, _JMPREL = 0, 2, 5, 6, 10, 23
_RELOCATION = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])
_SYMBOL_BYTES = 24

Ranges = list[tuple[int, int]]


class _LinkMap(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("dynamic", ctypes.c_size_t),
    )


@dataclass(frozen=True, slots=True)
class Slot:
    """A jump slot: its address, its value when it was found, and the function that it calls."""

    symbol: str
    address: int
    before: int  # the function, or the resolver that stores it at the first call
    function: int

    def read(self) -> int:
        """Return the address that calls go to now."""
        return ctypes.c_size_t.from_address(self.address).value

    def write(self, target: int) -> None:
        """Make calls go to another address."""
        ctypes.c_size_t.from_address(self.address).value = target

    def restore(self) -> None:
        """Restore the value that the slot had when it was found."""
        self.write(self.before)


def find(library: ctypes.CDLL, symbols: Sequence[str]) -> tuple[Slot, ...]:
    """Return the slots through which a library calls functions that it exports itself, in the given order.

    Raise UnavailableError if a slot is missing, is not writable, or was patched by other code.
    """
    path, base, tags = _loaded(library)
    own, writable = _mapped(path)
    offsets = _offsets(tags, symbols)
    return tuple(_slot(library, base + offsets[symbol], symbol, own, writable) for symbol in symbols)


def _slot(library: ctypes.CDLL, address: int, symbol: str, own: Ranges, writable: Ranges) -> Slot:
    if not _inside(address, writable):
        raise UnavailableError(f"the jump slot of {symbol} cannot be written: the library was linked for protection")
    before = ctypes.c_size_t.from_address(address).value
    if not _inside(before, own):
        raise UnavailableError(f"something else has put itself in the place of {symbol}: only one can watch at a time")
    function = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    return Slot(symbol, address, before, function or 0)


def _loaded(library: ctypes.CDLL) -> tuple[str, int, Mapping[int, int]]:
    """Return path, load address and dynamic section; the handle of glibc's dlopen is the library's link map."""
    linked = _LinkMap.from_address(library._handle)  # noqa: SLF001 - ctypes has no public name for it
    tags: dict[int, int] = {}
    address = linked.dynamic
    while (tag := ctypes.c_int64.from_address(address).value) != _NULL:
        tags.setdefault(tag, ctypes.c_size_t.from_address(address + 8).value)
        address += 16
    return os.fsdecode(linked.name or b""), linked.base, tags


def _offsets(tags: Mapping[int, int], symbols: Sequence[str]) -> dict[str, int]:
    """Return the slots' addresses relative to the load address."""
    if not {_JMPREL, _PLTRELSZ, _SYMTAB, _STRTAB, _STRSZ} <= tags.keys():
        raise UnavailableError("the library has no jump slots")
    relocations = np.frombuffer(ctypes.string_at(tags[_JMPREL], tags[_PLTRELSZ]), _RELOCATION)
    numbers = (relocations["info"] >> np.uint64(32)).astype(np.int64)
    table = ctypes.string_at(tags[_SYMTAB], (int(numbers.max()) + 1) * _SYMBOL_BYTES)
    names = np.frombuffer(table, "<u4").reshape(-1, _SYMBOL_BYTES // 4)[numbers, 0]
    texts = ctypes.string_at(tags[_STRTAB], tags[_STRSZ])
    found = {}
    for symbol in symbols:
        rows = np.flatnonzero(np.isin(names, _places(texts, symbol)))
        if len(rows) != 1:
            raise UnavailableError(f"the library has {len(rows)} jump slots for {symbol}")
        found[symbol] = int(relocations["offset"][rows[0]])
    return found


def _places(texts: bytes, symbol: str) -> list[int]:
    """Return where a name begins in a string table; linkers let a name be the end of a longer one."""
    wanted, places, at = symbol.encode() + b"\0", list[int](), -1
    while (at := texts.find(wanted, at + 1)) >= 0:
        places.append(at)
    return places


def _mapped(path: str) -> tuple[Ranges, Ranges]:
    """Return the address ranges of a library, and all writable address ranges of the process."""
    own, writable, wanted = Ranges(), Ranges(), os.path.realpath(path)
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        start, _, end = fields[0].partition("-")
        if "w" in fields[1]:
            writable.append((int(start, 16), int(end, 16)))
        if len(fields) == 6 and fields[5] == wanted:
            own.append((int(start, 16), int(end, 16)))
    return own, writable


def _inside(address: int, ranges: Ranges) -> bool:
    return any(start <= address < end for start, end in ranges)
